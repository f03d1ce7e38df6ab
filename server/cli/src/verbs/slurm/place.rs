//! `loadmaster slurm place`: who is which rank on the nodes that a job got.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use anyhow::Context as _;
use clap::Args;
use loadmaster_proto::name::{PlacementName, is_host};
use loadmaster_proto::wire::v1;

use super::node::SlurmNode;
use super::placement::{JobPlacement, PlacementFile, RankDevice};
use super::variables::Variables;
use crate::failure::Failure;
use crate::input::parse;
use crate::session::context::Context;
use crate::session::export::export;

/// Ports of rank 0: below those that systems hand out, and another one for each of so many jobs.
const PORTS: std::ops::Range<u32> = 20_000..30_000;

/// See [`super::SlurmVerb::Place`].
#[derive(Debug, Args)]
pub(crate) struct PlaceJob {
    /// The plan: `plans/ID` or the id alone [default: the plan of the job's comment].
    #[arg(value_name = "PLAN", value_parser = parse::plan)]
    name: Option<String>,

    /// The framework that numbers the ranks, and its version after an @ [default: the plan's, newest version].
    #[arg(long, value_name = "FRAMEWORK[@VERSION]", value_parser = parse::framework)]
    framework: Option<parse::NamedFramework>,

    /// The cluster that describes the nodes [default: the plan's].
    #[arg(long, value_parser = parse::cluster, conflicts_with_all = ["device_kind", "usable_memory"])]
    cluster: Option<String>,

    /// Kind of the devices, for nodes that no cluster describes [default: the plan's, if it has one kind].
    #[arg(long, value_name = "KIND", default_value = "", hide_default_value = true)]
    device_kind: String,

    /// Memory of each device that training may use, for nodes that no cluster describes [default: as planned].
    #[arg(long, value_name = "BYTES", value_parser = parse::bytes)]
    usable_memory: Option<i64>,

    /// Port of rank 0, for `MASTER_PORT` [default: 20000 to 29999, from the number of the job].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,

    #[command(flatten)]
    file: PlacementFile,
}

impl PlaceJob {
    pub(super) async fn run(self, context: &Context) -> Result<(), Failure> {
        let variables = Variables::of_this_process();
        let job = variables.job()?;
        let plan = match self.name {
            Some(name) => name,
            None => stamped(&output("scontrol", &["-o", "show", "job", &job.to_string()])?)?,
        };
        let nodes = nodes(&variables)?;
        let request = v1::CreatePlacementRequest {
            plan: plan.clone(),
            nodes: nodes.iter().map(|node| given(node, &self.device_kind, self.usable_memory)).collect(),
            cluster: self.cluster.unwrap_or_default(),
            ..v1::CreatePlacementRequest::default()
        };
        let placed = context.client.call(request).await?;
        PlacementName::parse("placement", &placed.name)
            .context("the planner returned a placement without a valid name")?;
        let framework = self.framework.unwrap_or_default();
        let request = v1::ExportPlanRequest {
            name: plan.clone(),
            framework: framework.id,
            framework_version: framework.version,
            placement: placed.name.clone(),
            ..v1::ExportPlanRequest::default()
        };
        let export = export(context, request).await?;
        let ranks = ranks(&export, &nodes)?;
        let first = ranks.first().map_or("", |rank| rank.node.as_str());
        let address = address(&output("scontrol", &["-o", "show", "node", first])?, first);
        let port = self.port.unwrap_or_else(|| port_of(job));
        let mut environment: BTreeMap<String, String> = export.environment.into_iter().collect();
        // Slurm numbers the devices of a step anew: each task sets its own.
        for name in ["CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES"] {
            environment.remove(name);
        }
        let placement = JobPlacement::new((plan, placed.name.clone()), (address, port), environment, ranks);
        let path = self.file.path(&variables)?;
        placement.write(&path)?;
        context.remark(&format!("written to {}", path.display()));
        context.print(&placed, true)
    }
}

/// The nodes of the job that this runs in, from a task on each.
fn nodes(variables: &Variables) -> Result<Vec<SlurmNode>, Failure> {
    let own = std::env::current_exe().context("cannot find the path of this program")?;
    let own = own.to_str().context(
        "the path of the loadmaster program is not UTF-8. Install loadmaster in another \
        folder",
    )?;
    let components = variables.components().map(|of| format!("--het-group=0-{}", of - 1));
    let mut arguments: Vec<&str> = vec!["--input=none", "--label"];
    arguments.extend(components.as_deref());
    arguments.extend([own, "slurm", "node"]);
    let told = output("srun", &arguments)?;
    let mut nodes: Vec<SlurmNode> = Vec::new();
    for line in told.lines() {
        // `3: {…}`
        let (_, text) =
            line.split_once(": ").with_context(|| format!("srun printed {line:?}, expected a node"))?;
        let node: SlurmNode = serde_json::from_str(text)
            .with_context(|| format!("a task printed {text:?}, expected a node"))?;
        nodes.push(node);
    }
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    nodes.dedup_by(|a, b| a.name == b.name);
    if nodes.is_empty() {
        return Err(anyhow::anyhow!(
            "no task of srun printed the name of its node. Run `loadmaster slurm place` inside \
            a Slurm job."
        )
        .into());
    }
    Ok(nodes)
}

fn given(node: &SlurmNode, device_kind: &str, memory: Option<i64>) -> v1::AllocatedNode {
    v1::AllocatedNode {
        name: node.name.clone(),
        device_indices: node.devices.clone(),
        device_uuids: node.uuids.clone(),
        switches: node.switches.clone(),
        device_kind: device_kind.to_owned(),
        memory_bytes: memory.unwrap_or_default(),
    }
}

/// The device of every rank: by its UUID where the planner knows it, whose indices need not be Slurm's, else by that which its node
/// told of the index.
fn ranks(export: &v1::ExportPlanResponse, nodes: &[SlurmNode]) -> Result<Vec<RankDevice>, Failure> {
    let one = |place: &v1::RankPlace| {
        let device = place.device.as_ref().context("the planner returned a rank without a device")?;
        let node = nodes.iter().find(|node| node.name == device.node);
        let node = node.with_context(|| {
            format!("the planner placed a rank on {:?}, which is not a node of this job", device.node)
        })?;
        let at = || node.devices.iter().position(|index| *index == device.index);
        let told = || at().and_then(|at| node.uuids.get(at)).cloned().unwrap_or_default();
        let uuid = if device.uuid.is_empty() { told() } else { device.uuid.clone() };
        Ok(RankDevice { node: device.node.clone(), index: device.index, uuid })
    };
    let ranks: anyhow::Result<Vec<RankDevice>> = export.ranks.iter().map(one).collect();
    let ranks = ranks?;
    if ranks.is_empty() { Err(anyhow::anyhow!("the planner returned no ranks").into()) } else { Ok(ranks) }
}

/// The plan of a job's comment.
fn stamped(job: &str) -> Result<String, Failure> {
    let stamp = job
        .split_whitespace()
        .find_map(|word| word.strip_prefix("Comment=").unwrap_or(word).strip_prefix("loadmaster:"));
    let plan = stamp.map(|stamp| parse::plan(stamp.split(';').next().unwrap_or_default()));
    match plan {
        Some(Ok(plan)) => Ok(plan),
        Some(Err(why)) => Failure::usage(format!(
            "PLAN: the comment of this Slurm job has no valid plan: {why}. Name a plan: \
                loadmaster slurm place 7f3c."
        )),
        None => Failure::usage(
            "PLAN: the comment of this Slurm job names no plan. Name a plan: loadmaster slurm place 7f3c.",
        ),
    }
}

/// Where other nodes reach a node: Slurm's own address of it.
fn address(node: &str, name: &str) -> String {
    let told = node.split_whitespace().find_map(|word| word.strip_prefix("NodeAddr="));
    told.filter(|address| is_host(address)).unwrap_or(name).to_owned()
}

fn port_of(job: u32) -> u16 {
    let port = PORTS.start + job % (PORTS.end - PORTS.start);
    // Ports of the range are.
    u16::try_from(port).unwrap_or(u16::MAX)
}

/// What a program of Slurm's printed.
fn output(program: &str, arguments: &[&str]) -> Result<String, Failure> {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| {
            format!(
                "cannot start the Slurm command {program}. Run `loadmaster slurm place` inside a Slurm job, on a node \
                 with the Slurm commands."
            )
        })?;
    if !output.status.success() {
        return Err(anyhow::anyhow!("{program} {}: {}", arguments.join(" "), output.status).into());
    }
    Ok(String::from_utf8(output.stdout).with_context(|| format!("{program} printed no UTF-8"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jobs_comment_names_its_plan() {
        let plan = |comment: &str| stamped(&format!("JobId=1 Comment={comment} Switches=1")).ok();
        assert_eq!(plan("loadmaster:plans/7f3c;nodes=4").as_deref(), Some("plans/7f3c"));
        assert_eq!(plan("mine loadmaster:plans/7f3c;nodes=4").as_deref(), Some("plans/7f3c"));
        assert_eq!(plan("loadmaster:plans/7f3c").as_deref(), Some("plans/7f3c"));
        assert_eq!((plan("mine"), plan("loadmaster:"), plan("loadmaster:plans/A")), (None, None, None));
    }

    #[test]
    fn a_node_is_reached_where_slurm_reaches_it() {
        assert_eq!(address("NodeName=gpu001 NodeAddr=10.0.0.7 NodeHostName=x", "gpu001"), "10.0.0.7");
        assert_eq!(address("NodeName=gpu001", "gpu001"), "gpu001");
    }

    #[test]
    fn ranks_are_on_nodes_of_the_job() {
        let device =
            |node: &str, index| v1::PlacedDevice { node: node.to_owned(), index, ..Default::default() };
        let place = |node, index| v1::RankPlace { device: Some(device(node, index)), ..Default::default() };
        let export = |ranks| v1::ExportPlanResponse { ranks, ..Default::default() };
        let node = SlurmNode {
            name: "a".to_owned(),
            switches: String::new(),
            devices: vec![4, 5],
            uuids: vec!["GPU-e".to_owned(), "GPU-f".to_owned()],
        };
        let found = ranks(&export(vec![place("a", 5), place("a", 4)]), std::slice::from_ref(&node)).unwrap();
        let found: Vec<_> = found.iter().map(|rank| (rank.index, rank.uuid.as_str())).collect();
        assert_eq!(found, [(5, "GPU-f"), (4, "GPU-e")]);
        // The planner's indices may count the devices of another worker besides; a UUID is the device.
        let known = v1::PlacedDevice { uuid: "GPU-e".to_owned(), ..device("a", 5) };
        let known = v1::RankPlace { device: Some(known), ..Default::default() };
        let found = ranks(&export(vec![known]), std::slice::from_ref(&node)).unwrap();
        assert_eq!(found[0].uuid, "GPU-e");
        for wrong in [vec![place("b", 4)], vec![v1::RankPlace::default()], Vec::new()] {
            assert!(ranks(&export(wrong), std::slice::from_ref(&node)).is_err());
        }
    }

    #[test]
    fn jobs_at_a_time_have_ports_of_their_own() {
        let ports: std::collections::BTreeSet<u16> = (1_000_000..1_010_000).map(port_of).collect();
        assert_eq!((ports.len(), ports.first(), ports.last()), (10_000, Some(&20_000), Some(&29_999)));
    }
}
