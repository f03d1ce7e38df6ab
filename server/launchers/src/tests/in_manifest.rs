//! Random plans in manifests: every rank has a GPU of a pod, pods are in order, and what cannot be said is refused.

use loadmaster_proto::name::PlanName;
use loadmaster_proto::plan::objective::Framework;
use loadmaster_samples::Degrees;
use proptest::prelude::*;
use serde_yaml_ng::Value;

use super::manifests::place;
use crate::{Export, Manifest, ManifestSettings, Wrapping, wrap};

const KUBERNETES: [Manifest; 5] =
    [Manifest::Jobset, Manifest::Trainjob, Manifest::Pytorchjob, Manifest::Leaderworkerset, Manifest::Job];

/// Degrees of stages, ranks of nodes, which of two kinds of GPUs each has, and levels of a topology.
#[derive(Debug, Clone)]
struct Asked {
    degrees: Vec<(u32, u32)>,
    nodes: Vec<usize>,
    kinds: Vec<bool>,
    levels: [bool; 3],
    queue: bool,
}

fn asked() -> impl Strategy<Value = Asked> {
    // Often alike, or nothing would be slices.
    let degrees = prop_oneof![
        proptest::collection::vec((1_u32..4, 1_u32..5), 1..5),
        (1_u32..4, 1_u32..5, 1_usize..5).prop_map(|(tensor, data, stages)| vec![(tensor, data); stages]),
    ];
    let sizes =
        prop_oneof![proptest::collection::vec(1_usize..9, 64), (1_usize..9).prop_map(|size| vec![size; 64])];
    let kinds = prop_oneof![proptest::collection::vec(any::<bool>(), 64), Just(vec![true; 64])];
    (degrees, sizes, kinds, any::<[bool; 3]>(), any::<bool>()).prop_map(
        |(degrees, sizes, kinds, levels, queue)| {
            let mut left: usize = degrees.iter().map(|(tensor, data)| (tensor * data) as usize).sum();
            let mut nodes = Vec::new();
            for size in sizes {
                if left > 0 {
                    nodes.push(size.min(left));
                    left -= size.min(left);
                }
            }
            Asked { kinds: kinds[..nodes.len()].to_vec(), degrees, nodes, levels, queue }
        },
    )
}

impl Asked {
    fn settings(&self) -> ManifestSettings {
        let level = |at: usize, name: &str| {
            if self.levels[at] { format!("example.com/{name}") } else { String::new() }
        };
        ManifestSettings {
            image: "train:1".to_owned(),
            queue: if self.queue { "training".to_owned() } else { String::new() },
            required_topology: level(0, "block"),
            preferred_topology: if self.levels[0] { String::new() } else { level(1, "block") },
            stage_topology: level(2, "rack"),
            ..ManifestSettings::default()
        }
    }

    /// What `other` writes, which refuses nothing.
    fn exported(&self) -> Export {
        let tensor = Degrees::Each(self.degrees.iter().map(|of| of.0).collect());
        let data = Degrees::Each(self.degrees.iter().map(|of| of.1).collect());
        let case = super::case(vec![1; self.degrees.len()], tensor, data);
        let (mut plan, model) = (case.plan(), case.model());
        let kinds: Vec<String> =
            self.kinds.iter().map(|&kind| if kind { "A 100" } else { "H100" }.to_owned()).collect();
        place(&mut plan, &self.nodes, &kinds);
        super::ask(Framework::Other, "", &plan, Some(&model)).unwrap()
    }

    /// Pods that are alike, as they follow each other.
    fn sets(&self) -> Vec<usize> {
        let mut sets: Vec<(usize, bool, usize)> = Vec::new();
        for (&ranks, &kind) in self.nodes.iter().zip(&self.kinds) {
            match sets.last_mut() {
                Some(last) if (last.0, last.1) == (ranks, kind) => last.2 += 1,
                _ => sets.push((ranks, kind, 1)),
            }
        }
        sets.into_iter().map(|set| set.2).collect()
    }

    /// Nodes of each stage, if every stage has whole nodes and as many as the others.
    fn slice(&self) -> Option<usize> {
        let mut nodes = self.nodes.iter();
        let mut counts = Vec::new();
        for (tensor, data) in &self.degrees {
            let (mut left, mut count) = ((tensor * data) as usize, 0);
            while left > 0 {
                left = left.checked_sub(*nodes.next()?)?;
                count += 1;
            }
            counts.push(count);
        }
        counts.iter().all(|count| *count == counts[0]).then_some(counts[0])
    }

    /// Whether this manifest can say it.
    fn is_sayable(&self, manifest: Manifest) -> bool {
        let sets = self.sets();
        if manifest != Manifest::Jobset && sets.len() > 1 {
            return false;
        }
        // Kueue's own limit.
        if self.queue && sets.len() > 18 {
            return false;
        }
        let is_master_apart = manifest == Manifest::Pytorchjob && self.nodes.len() > 1;
        if self.levels[2] {
            return self.slice().is_some() && sets.len() == 1 && !is_master_apart;
        }
        let is_pair = sets.len() == 2 && sets.contains(&1);
        !self.levels[0] || sets.len() == 1 || is_pair
    }
}

fn wrapped(asked: &Asked, manifest: Manifest) -> Result<Export, Box<crate::Refusal>> {
    let wrapping = Wrapping::of(manifest, &PlanName::from_id("0drawn").unwrap(), asked.settings()).unwrap();
    wrap(asked.exported(), &wrapping)
}

fn objects(made: &Export) -> Vec<Value> {
    let documents = serde_yaml_ng::Deserializer::from_str(&made.files[0].contents);
    documents.map(|document| serde::Deserialize::deserialize(document).unwrap()).collect()
}

/// Templates of pods in order, each with its number of pods.
fn templates(workload: &Value) -> Vec<(u64, Value)> {
    let spec = &workload["spec"];
    let of = |count: &Value, template: &Value| (count.as_u64().unwrap(), template.clone());
    match workload["kind"].as_str().unwrap() {
        "Job" => vec![of(&spec["completions"], &spec["template"])],
        "JobSet" => {
            let jobs = spec["replicatedJobs"].as_sequence().unwrap().iter();
            jobs.map(|job| of(&job["template"]["spec"]["completions"], &job["template"]["spec"]["template"]))
                .collect()
        }
        "PyTorchJob" => {
            let replicas = ["Master", "Worker"].map(|name| &spec["pytorchReplicaSpecs"][name]);
            let there = replicas.iter().filter(|replica| !replica.is_null());
            there.map(|replica| of(&replica["replicas"], &replica["template"])).collect()
        }
        "LeaderWorkerSet" => {
            let template = &spec["leaderWorkerTemplate"];
            vec![of(&template["size"], &template["workerTemplate"])]
        }
        "TrainJob" => {
            let patch =
                &spec["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"][0];
            let mut template = patch["template"]["spec"]["template"].clone();
            template["spec"]["containers"][0]["resources"] = spec["trainer"]["resourcesPerNode"].clone();
            vec![of(&spec["trainer"]["numNodes"], &template)]
        }
        other => panic!("{other} has no pods"),
    }
}

proptest! {
    /// What can be said is said, pod by pod, and what cannot is refused.
    #[test]
    fn every_rank_has_a_gpu_of_its_node(asked in asked(), which in 0_usize..5) {
        let manifest = KUBERNETES[which];
        let made = wrapped(&asked, manifest);
        prop_assert_eq!(made.is_ok(), asked.is_sayable(manifest), "{:?}", made.err().map(|why| why.to_string()));
        let Ok(made) = made else { return Ok(()) };
        let objects = objects(&made);
        let workload = objects.last().unwrap();
        let templates = templates(workload);
        let mut gpus = Vec::new();
        for (count, template) in &templates {
            let container = &template["spec"]["containers"][0];
            let of_pod = container["resources"]["limits"]["nvidia.com/gpu"].as_u64().unwrap() as usize;
            if let Some(variables) = container["env"].as_sequence() {
                let said = |name: &str| {
                    let found = variables.iter().find(|variable| variable["name"] == name).unwrap();
                    found["value"].as_str().unwrap().parse::<usize>().unwrap()
                };
                prop_assert_eq!(said("LOADMASTER_FIRST_NODE"), gpus.len());
                prop_assert_eq!(said("PET_NPROC_PER_NODE"), of_pod);
            }
            gpus.extend(vec![of_pod; *count as usize]);
        }
        prop_assert_eq!(&gpus, &asked.nodes);
        // Each pod has its ranks' files.
        for file in asked.exported().files {
            prop_assert_eq!(objects[0]["data"][file.name.as_str()].as_str(), Some(file.contents.as_str()));
        }
        prop_assert_eq!(made.ranks.len(), gpus.iter().sum::<usize>());
    }

    /// Topology annotations satisfy Kueue's own rules.
    #[test]
    fn kueue_takes_the_annotations(asked in asked(), which in 0_usize..5) {
        let Ok(made) = wrapped(&asked, KUBERNETES[which]) else { return Ok(()) };
        let objects = objects(&made);
        let workload = objects.last().unwrap();
        prop_assert_eq!(workload["metadata"]["labels"]["kueue.x-k8s.io/queue-name"].as_str(), asked.queue.then_some("training"));
        let templates = templates(workload);
        let mut in_groups = 0;
        for (count, template) in &templates {
            let said = |name: &str| template["metadata"]["annotations"][format!("kueue.x-k8s.io/podset-{name}").as_str()].as_str();
            prop_assert!(said("required-topology").is_none() || said("preferred-topology").is_none());
            prop_assert_eq!(said("required-topology").is_some(), asked.levels[0]);
            prop_assert_eq!(said("preferred-topology").is_some(), asked.levels[1] && !asked.levels[0]);
            prop_assert_eq!(said("slice-required-topology").is_some(), asked.levels[2]);
            prop_assert_eq!(said("slice-size").is_some(), asked.levels[2]);
            if let Some(size) = said("slice-size") {
                let size: u64 = size.parse().unwrap();
                prop_assert!((1..=*count).contains(&size) && count % size == 0);
                prop_assert_eq!(Some(size as usize), asked.slice());
                prop_assert_eq!(count / size, asked.degrees.len() as u64);
            }
            if let Some(group) = said("group-name") {
                in_groups += 1;
                prop_assert!(group.parse::<u64>().is_err());
                prop_assert!(asked.levels[0] || asked.levels[1]);
                prop_assert!(said("slice-size").is_none());
            }
        }
        if in_groups > 0 {
            prop_assert_eq!((in_groups, templates.len()), (2, 2));
            prop_assert!(templates.iter().any(|(count, _)| *count == 1));
        }
    }

    /// A node's ranks must follow each other: a pod's processes do.
    #[test]
    fn ranks_apart_are_refused_by_stage(asked in asked(), which in 0_usize..6) {
        prop_assume!(asked.nodes.len() > 1);
        let mut made = asked.exported();
        let (first, last) = (made.ranks[0].device.clone(), made.ranks.len() - 1);
        let is_apart = (1..last).any(|at| made.ranks[at].device.as_ref().unwrap().node != "node0");
        prop_assume!(is_apart);
        made.ranks[last].device = first;
        let stage = made.ranks[last].stage;
        let manifest = [&KUBERNETES[..], &[Manifest::Ray]].concat()[which];
        let settings = if manifest == Manifest::Ray { ManifestSettings::default() } else { asked.settings() };
        let wrapping = Wrapping::of(manifest, &PlanName::from_id("0drawn").unwrap(), settings).unwrap();
        let refusal = wrap(made, &wrapping).unwrap_err();
        prop_assert!(refusal.stages.iter().any(|refused| refused.stage == Some(stage)), "{}", refusal);
    }

    /// Names that are taken are those that the API's own patterns allow, with what controllers append.
    #[test]
    fn names_are_those_that_the_api_takes(name in "[a-zA-Z0-9._-]{0,3}[a-z0-9-]{0,70}", pods in 1_usize..1_000) {
        let is = |pattern: &str, text: &str| regex_lite::Regex::new(pattern).unwrap().is_match(text);
        let named = |settings: ManifestSettings| {
            let settings = ManifestSettings { image: "train:1".to_owned(), ..settings };
            Wrapping::of(Manifest::Jobset, &PlanName::from_id("a").unwrap(), settings).is_ok()
        };
        if name.is_empty() {
            return Ok(());
        }
        let is_name = named(ManifestSettings { name: name.clone(), ..ManifestSettings::default() });
        prop_assert_eq!(is_name, name.len() <= 40 && is("^[a-z]([-a-z0-9]*[a-z0-9])?$", &name));
        if is_name {
            // What a JobSet, a PyTorchJob and a LeaderWorkerSet call pods and revisions.
            let longest = [format!("{name}-node-999-0-{pods}-abcde"), format!("{name}-worker-{pods}"), format!("{name}-0-0123456789")];
            for made in longest {
                prop_assert!(made.len() <= 63 && is("^[a-z]([-a-z0-9]*[a-z0-9])?$", &made), "{}", made);
            }
        }
        let is_space = named(ManifestSettings { namespace: name.clone(), ..ManifestSettings::default() });
        prop_assert_eq!(is_space, name.len() <= 63 && is("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", &name));
        let is_queue = named(ManifestSettings { queue: name.clone(), ..ManifestSettings::default() });
        let subdomain = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
        prop_assert_eq!(is_queue, name.len() <= 63 && is(subdomain, &name));
    }

    /// A level is the key of a label, as Kueue's `Topology` has it.
    #[test]
    fn levels_are_keys_of_labels(level in "([a-z0-9.-]{0,12}/)?[A-Za-z0-9_./-]{1,66}") {
        let settings = ManifestSettings { image: "a".to_owned(), required_topology: level.clone(), ..ManifestSettings::default() };
        let taken = Wrapping::of(Manifest::Job, &PlanName::from_id("a").unwrap(), settings).is_ok();
        let pattern = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";
        let is_key = regex_lite::Regex::new(pattern).unwrap().is_match(&level);
        let length = level.rsplit('/').next().unwrap().len();
        prop_assert_eq!(taken, is_key && length <= 63, "{}", level);
    }
}

#[test]
fn settings_that_a_manifest_has_no_use_for_are_refused_by_name() {
    let plan = PlanName::from_id("a").unwrap();
    let image = ManifestSettings { image: "a".to_owned(), ..ManifestSettings::default() };
    let refused = |manifest, settings| Wrapping::of(manifest, &plan, settings).unwrap_err().to_string();
    assert!(refused(Manifest::Ray, image.clone()).contains("manifest_options.image"));
    assert!(refused(Manifest::Torchrun, image.clone()).contains("manifest_options.image"));
    assert!(refused(Manifest::Jobset, ManifestSettings::default()).contains("manifest_options.image"));
    let both = ManifestSettings {
        required_topology: "a".to_owned(),
        preferred_topology: "a".to_owned(),
        ..image.clone()
    };
    assert!(refused(Manifest::Jobset, both).contains("preferred_topology"));
    let long = PlanName::from_id("a".repeat(63)).unwrap();
    let unnamed = Wrapping::of(Manifest::Jobset, &long, image).unwrap_err().to_string();
    assert!(unnamed.contains("manifest_options.name"), "{unnamed}");
    assert!(Wrapping::of(Manifest::Trainjob, &plan, ManifestSettings::default()).is_ok());
}
