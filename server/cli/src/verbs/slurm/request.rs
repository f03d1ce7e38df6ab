//! `loadmaster slurm request`: what a plan asks Slurm for.

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use loadmaster_proto::cluster::device::CPU_KIND;
use loadmaster_proto::wire::v1;

use super::topology::{Near, Topology};
use crate::failure::Failure;
use crate::input::parse;
use crate::output::{Format, write_stdout};
use crate::session::context::Context;
use crate::session::export::export;

/// The option of sbatch that says how many ranks a node has.
const TASKS: &str = "ntasks-per-node";

/// See [`super::SlurmVerb::Request`].
#[derive(Debug, Args)]
pub(crate) struct RequestJob {
    /// The plan: `plans/ID` or the id alone.
    #[arg(value_name = "PLAN", value_parser = parse::plan)]
    name: String,

    #[command(flatten)]
    site: Site,
}

/// Facts of Slurm's configuration that plans do not contain.
#[derive(Debug, Args)]
pub(super) struct Site {
    /// Slurm's GPU type for a kind of device of the plan: `KIND=TYPE`, or `KIND=` for any GPU. Separated by commas [default:
    /// the kind in small letters with underscores, as Slurm names detected GPUs; none for cpu].
    #[arg(long, value_name = "KIND=TYPE", env = "LOADMASTER_SLURM_GPU_TYPES", value_delimiter = ',',
          value_parser = gpu_type)]
    gpu_types: Vec<(String, String)>,

    /// Slurm's topology plugin (`TopologyPlugin` of slurm.conf).
    #[arg(long, env = "LOADMASTER_SLURM_TOPOLOGY_PLUGIN", default_value = "tree")]
    topology_plugin: Topology,
}

/// What a job asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    /// `plans/{plan}`.
    plan: String,
    /// Nodes that are alike; several such groups are components of a heterogeneous job.
    components: Vec<Component>,
    near: Option<Near>,
}

/// Nodes that are alike.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Component {
    nodes: i32,
    /// A task for every rank.
    tasks_per_node: i32,
    /// GPUs of each node by Slurm's type, which is empty for any.
    gpus: Vec<(String, i32)>,
}

impl RequestJob {
    pub(super) async fn run(self, context: &Context) -> Result<(), Failure> {
        // All frameworks need the same resources, and this one exports every plan.
        let request = v1::ExportPlanRequest {
            name: self.name,
            framework: "other".to_owned(),
            ..v1::ExportPlanRequest::default()
        };
        let export = export(context, request).await?;
        let (request, remarks) = Request::of(&export, &self.site)?;
        remarks.iter().for_each(|remark| context.remark(&loadmaster_show::text::plain(remark)));
        let text = match context.output.format {
            Format::Table => request.lines(),
            Format::Json => {
                serde_json::to_string_pretty(&request.components_of_options()).map_err(anyhow::Error::new)?
                    + "\n"
            }
            Format::Yaml => {
                serde_yaml_ng::to_string(&request.components_of_options()).map_err(anyhow::Error::new)?
            }
            Format::Name => format!("{}\n", request.plan),
        };
        write_stdout(text.as_bytes())?;
        context.link(&export.plan);
        Ok(())
    }
}

impl Request {
    /// What an exported plan asks for, and what Slurm cannot be asked.
    ///
    /// # Errors
    /// Devices have kinds that Slurm's names are not known of; the planner's numbers are none.
    pub(super) fn of(export: &v1::ExportPlanResponse, site: &Site) -> Result<(Self, Vec<String>), Failure> {
        let allocation = export.allocation.as_ref();
        let nodes = allocation.map(|of| of.nodes.as_slice()).unwrap_or_default();
        let components = nodes.iter().map(|of| Component::of(of, site)).collect::<Result<Vec<_>, _>>()?;
        if components.is_empty() {
            return Err(anyhow::anyhow!("the planner returned no allocation for {}", export.plan).into());
        }
        let mut remarks: Vec<String> = site.unused(nodes).into_iter().collect();
        let near = Near::of(export, site.topology_plugin).unwrap_or_else(|why| {
            remarks.push(why);
            None
        });
        let is_one = components.len() == 1;
        if near.is_some() && !is_one {
            remarks.push(
                "Slurm places the components of a heterogeneous job independently. No Slurm option keeps their nodes \
                 close in the network"
                    .to_owned(),
            );
        }
        let near = near.filter(|_| is_one);
        Ok((Self { plan: export.plan.clone(), components, near }, remarks))
    }

    /// How many components the job has.
    pub(super) fn components(&self) -> usize {
        self.components.len()
    }

    /// The lines that sbatch reads.
    pub(super) fn lines(&self) -> String {
        let line = |(name, value): (&str, String)| format!("#SBATCH --{name}={value}\n");
        let component = |of: &Component| self.options(of).into_iter().map(line).collect::<String>();
        let components: Vec<String> = self.components.iter().map(component).collect();
        components.join("#SBATCH hetjob\n")
    }

    /// By component, the same by the names of options.
    fn components_of_options(&self) -> Vec<BTreeMap<&'static str, String>> {
        self.components.iter().map(|of| self.options(of).into_iter().collect()).collect()
    }

    /// Options of sbatch for a component. The comment says what is asked for it: `job_submit.lua` compares it with what is
    /// submitted in the end.
    fn options(&self, component: &Component) -> Vec<(&'static str, String)> {
        let mut options = component.options(self.near);
        // How many tasks start the ranks of a node is the job's own business.
        let told = options.iter().filter(|(name, _)| *name != TASKS);
        let told: String = told.map(|(name, value)| format!(";{name}={value}")).collect();
        options.insert(0, ("comment", format!("loadmaster:{}{told}", self.plan)));
        options
    }
}

impl Component {
    fn of(nodes: &v1::NodeGroup, site: &Site) -> Result<Self, Failure> {
        let mut tasks_per_node = 0_i32;
        let mut gpus: Vec<(String, i32)> = Vec::new();
        let absurd =
            || anyhow::anyhow!("the planner allocated {} nodes with {:?}", nodes.count, nodes.devices);
        for devices in &nodes.devices {
            tasks_per_node = tasks_per_node.checked_add(devices.count).ok_or_else(absurd)?;
            let Some(name) = site.gpu_type(&devices.kind)? else { continue };
            // Devices of a kind that allow other numbers of bytes are one type.
            match gpus.iter_mut().find(|(of, _)| *of == name) {
                Some((_, count)) => *count += devices.count,
                None => gpus.push((name, devices.count)),
            }
        }
        if nodes.count < 1 || nodes.devices.iter().any(|of| of.count < 1) || tasks_per_node < 1 {
            return Err(absurd().into());
        }
        if gpus.len() > 1 && gpus.iter().any(|(name, _)| name.is_empty()) {
            return Failure::usage(
                "--gpu-types: the plan's nodes have devices of several kinds. Set the Slurm GPU type of each kind: \
                 KIND=TYPE.",
            );
        }
        Ok(Self { nodes: nodes.count, tasks_per_node, gpus })
    }

    /// Options of sbatch with their values.
    fn options(&self, near: Option<Near>) -> Vec<(&'static str, String)> {
        let mut options = vec![("nodes", self.nodes.to_string()), (TASKS, self.tasks_per_node.to_string())];
        if !self.gpus.is_empty() {
            let one = |(name, count): &(String, i32)| match name.as_str() {
                "" => count.to_string(),
                name => format!("{name}:{count}"),
            };
            options.push(("gpus-per-node", self.gpus.iter().map(one).collect::<Vec<_>>().join(",")));
        }
        options.extend(near.map(Near::option));
        options
    }
}

impl Site {
    /// That types of GPUs are named, and none is of a kind that the plan has.
    fn unused(&self, nodes: &[v1::NodeGroup]) -> Option<String> {
        let kinds: BTreeSet<&str> =
            nodes.iter().flat_map(|of| &of.devices).map(|of| of.kind.as_str()).collect();
        let is_used =
            self.gpu_types.is_empty() || self.gpu_types.iter().any(|(kind, _)| kinds.contains(kind.as_str()));
        let kinds: Vec<&str> = kinds.into_iter().collect();
        (!is_used).then(|| {
            format!(
                "--gpu-types: the plan has no device of the given kinds. Its device kinds are \
                {}.",
                kinds.join(", ")
            )
        })
    }

    /// Slurm's type of a kind of device; nothing where it is no GPU.
    fn gpu_type(&self, kind: &str) -> Result<Option<String>, Failure> {
        if let Some((_, name)) = self.gpu_types.iter().find(|(of, _)| of == kind) {
            return Ok(Some(name.clone()));
        }
        if kind == CPU_KIND {
            return Ok(None);
        }
        let name = kind.split_whitespace().collect::<Vec<_>>().join("_").to_lowercase();
        if is_type(&name) {
            return Ok(Some(name));
        }
        Failure::usage(format!("--gpu-types: {kind:?} has no Slurm type. Write '{kind}=TYPE'."))
    }
}

fn is_type(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'))
}

/// `NVIDIA H200=h200`.
fn gpu_type(text: &str) -> Result<(String, String), String> {
    let (kind, name) =
        text.rsplit_once('=').ok_or_else(|| format!("{text:?} is not KIND=TYPE, as in A=b"))?;
    let (kind, name) = (kind.trim(), name.trim());
    if !is_type(name) {
        return Err(format!("{name:?} is not a Slurm type. Use letters, digits, '_', '-' and '.'."));
    }
    Ok((kind.to_owned(), name.to_owned()))
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    /// An exported plan of one rank for each device of nodes, `(name, kind, devices)`, whose stages take so many ranks each:
    /// all of a stage's ranks belong together.
    pub(in crate::verbs::slurm) fn export(
        nodes: &[(&str, &str, usize)],
        stages: &[usize],
    ) -> v1::ExportPlanResponse {
        let mut stage_of = stages.iter().enumerate().flat_map(|(stage, ranks)| vec![stage; *ranks]);
        let mut ranks = Vec::new();
        let mut groups: Vec<v1::NodeGroup> = Vec::new();
        for (node, kind, count) in nodes {
            for index in 0..*count {
                let device = v1::PlacedDevice {
                    node: (*node).to_owned(),
                    index: index as i32,
                    kind: (*kind).to_owned(),
                    ..Default::default()
                };
                let stage = stage_of.next().expect("stages take all devices") as i32;
                ranks.push(v1::RankPlace {
                    rank: ranks.len() as i32,
                    stage,
                    device: Some(device),
                    ..Default::default()
                });
            }
            let devices = vec![v1::DeviceGroup {
                count: *count as i32,
                kind: (*kind).to_owned(),
                ..Default::default()
            }];
            match groups.iter_mut().find(|of| of.devices == devices) {
                Some(group) => group.count += 1,
                None => groups.push(v1::NodeGroup { count: 1, devices }),
            }
        }
        let within = v1::Locality::Switch.into();
        let localities = stages.iter().enumerate().map(|(stage, ranks)| v1::StageLocality {
            stage: stage as i32,
            rank_count: *ranks as i32,
            locality: within,
        });
        v1::ExportPlanResponse {
            plan: "plans/x".to_owned(),
            ranks,
            allocation: Some(v1::Allocation { nodes: groups, localities: localities.collect() }),
            ..Default::default()
        }
    }

    /// A cluster with switches.
    pub(in crate::verbs::slurm) fn site(types: &[&str]) -> Site {
        let gpu_types = types.iter().map(|text| gpu_type(text).expect("it is a type")).collect();
        Site { gpu_types, topology_plugin: Topology::Tree }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{export, site};
    use super::*;

    fn lines(nodes: &[(&str, &str, usize)], stages: &[usize], types: &[&str]) -> String {
        Request::of(&export(nodes, stages), &site(types)).unwrap().0.lines()
    }

    #[test]
    fn equal_nodes_are_one_request() {
        assert_eq!(
            lines(&[("a", "NVIDIA H200", 4), ("b", "NVIDIA H200", 4)], &[8], &[]),
            "#SBATCH --comment=loadmaster:plans/x;nodes=2;gpus-per-node=nvidia_h200:4;switches=1\n\
             #SBATCH --nodes=2\n\
             #SBATCH --ntasks-per-node=4\n\
             #SBATCH --gpus-per-node=nvidia_h200:4\n\
             #SBATCH --switches=1\n"
        );
        let named = lines(&[("a", "NVIDIA H200", 4)], &[4], &["NVIDIA H200=h200"]);
        assert!(named.contains("--gpus-per-node=h200:4\n") && !named.contains("switches"), "{named}");
        assert!(lines(&[("a", "NVIDIA H200", 4)], &[4], &["NVIDIA H200="]).contains("--gpus-per-node=4\n"));
        assert!(!lines(&[("", "cpu", 4)], &[4], &[]).contains("gpus"));
        assert!(lines(&[("", "cpu", 4)], &[4], &["cpu=h100"]).contains("--gpus-per-node=h100:4\n"));
    }

    /// A kind that was mistyped is no answer.
    #[test]
    fn types_of_no_kind_of_the_plan_are_told() {
        let plan = export(&[("a", "NVIDIA H200", 4)], &[4]);
        let (_, remarks) = Request::of(&plan, &site(&["NVIDIA H20=h20"])).unwrap();
        assert!(
            remarks.iter().any(|of| of.contains("--gpu-types") && of.contains("NVIDIA H200")),
            "{remarks:?}"
        );
        let (_, remarks) = Request::of(&plan, &site(&["NVIDIA H20=h20", "NVIDIA H200=h200"])).unwrap();
        assert!(remarks.is_empty(), "{remarks:?}");
    }

    /// Programs read the same as sbatch.
    #[test]
    fn options_of_components_are_those_of_the_lines() {
        let nodes = [("a", "A", 4), ("b", "A", 4), ("c", "B", 2)];
        let (request, _) = Request::of(&export(&nodes, &[8, 2]), &site(&[])).unwrap();
        let told = request.components_of_options();
        assert_eq!(told.len(), 2);
        let lines = request.lines();
        for (name, value) in told.iter().flatten() {
            assert!(lines.contains(&format!("#SBATCH --{name}={value}\n")), "{name}");
        }
        assert_eq!((told[0]["nodes"].as_str(), told[1]["gpus-per-node"].as_str()), ("2", "b:2"));
    }

    #[test]
    fn unequal_nodes_are_components_with_a_stamp_each() {
        let nodes = [("a", "A", 4), ("b", "A", 4), ("c", "B", 2)];
        let lines = lines(&nodes, &[8, 2], &[]);
        let (first, second) = lines.split_once("#SBATCH hetjob\n").unwrap();
        assert!(first.contains("nodes=2;gpus-per-node=a:4\n"), "{first}");
        assert!(second.contains("nodes=1;gpus-per-node=b:2\n"), "{second}");
        let (_, remarks) = Request::of(&export(&nodes, &[8, 2]), &site(&[])).unwrap();
        assert!(remarks[0].contains("heterogeneous"), "{remarks:?}");
    }

    #[test]
    fn kinds_that_slurm_has_no_name_of_are_asked_for() {
        let plan = export(&[("a", "GPU (old)", 1)], &[1]);
        let failure = Request::of(&plan, &site(&[])).unwrap_err();
        assert!(matches!(&failure, Failure::Usage(text) if text.contains("'GPU (old)=TYPE'")), "{failure:?}");
        assert!(Request::of(&plan, &site(&["GPU (old)=old"])).is_ok());
        for wrong in ["h100", "x=a:b", "x=a,b", "x=$(a)"] {
            assert!(gpu_type(wrong).is_err(), "{wrong}");
        }
    }

    /// What a planner answers never becomes a request that no plan makes.
    #[test]
    fn absurd_numbers_are_no_request() {
        for (nodes, devices) in [(0, 1), (-1, 1), (1, 0), (1, -4)] {
            let mut plan = export(&[("a", "A", 1)], &[1]);
            let group = &mut plan.allocation.as_mut().unwrap().nodes[0];
            group.count = nodes;
            group.devices[0].count = devices;
            assert!(Request::of(&plan, &site(&[])).is_err(), "{nodes} x {devices}");
        }
        assert!(Request::of(&v1::ExportPlanResponse::default(), &site(&[])).is_err());
    }
}
