//! What pods ask for of each kind of device.

use loadmaster_proto::cluster::device::CPU_KIND;
use loadmaster_proto::name::PlanName;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::objective::Framework;
use proptest::prelude::*;
use serde_yaml_ng::Value;

use super::manifests::{bind, place};
use super::{ask, case};
use crate::{Export, Manifest, ManifestSettings, Refusal, Wrapping, wrap};

/// A rank on each of so many nodes, put there by `placed`, in a manifest that is `bent`.
fn made(
    nodes: usize,
    placed: impl Fn(&mut Plan),
    manifest: Manifest,
    queue: &str,
    bent: impl Fn(Wrapping) -> Wrapping,
) -> Result<Export, Box<Refusal>> {
    let case = case(vec![1; nodes], 1.into(), 1.into());
    let (mut plan, model) = (case.plan(), case.model());
    placed(&mut plan);
    let name = PlanName::from_id("some").unwrap();
    let settings = ManifestSettings {
        image: "train:1".to_owned(),
        queue: queue.to_owned(),
        ..ManifestSettings::default()
    };
    let settings = if manifest.is_kubernetes() { settings } else { ManifestSettings::default() };
    let wrapping = bent(Wrapping::of(manifest, &name, settings).unwrap());
    wrap(ask(Framework::Other, "", &plan, Some(&model))?, &wrapping)
}

/// A bound `JobSet` of so many nodes, in a queue or none.
fn bound_in(queue: &str, nodes: usize) -> Result<Export, Box<Refusal>> {
    made(nodes, |plan| place(plan, &vec![1; nodes], &[]), Manifest::Jobset, queue, on_placement)
}

/// A node of a rank for each kind, in a manifest.
fn wrapped(kinds: &[&str], manifest: Manifest) -> Result<Export, Box<Refusal>> {
    wrapped_as(kinds, manifest, |wrapping| wrapping)
}

fn wrapped_as(
    kinds: &[&str],
    manifest: Manifest,
    bent: impl Fn(Wrapping) -> Wrapping,
) -> Result<Export, Box<Refusal>> {
    let kinds: Vec<String> = kinds.iter().map(|&kind| kind.to_owned()).collect();
    made(kinds.len(), |plan| place(plan, &vec![1; kinds.len()], &kinds), manifest, "", bent)
}

fn on_placement(wrapping: Wrapping) -> Wrapping {
    wrapping.on_placement().unwrap()
}

/// What each replicated job's nodes are labelled with.
fn products(made: &Export) -> Vec<Option<String>> {
    labels(made, "nvidia.com/gpu.product")
}

fn labels(made: &Export, label: &str) -> Vec<Option<String>> {
    let documents = serde_yaml_ng::Deserializer::from_str(&made.files[0].contents);
    let documents: Vec<Value> =
        documents.map(|document| serde::Deserialize::deserialize(document).unwrap()).collect();
    let jobs = documents[1]["spec"]["replicatedJobs"].as_sequence().unwrap().iter();
    let product = |job: &Value| {
        let pod = &job["template"]["spec"]["template"]["spec"];
        pod["nodeSelector"][label].as_str().map(str::to_owned)
    };
    jobs.map(product).collect()
}

#[test]
fn nodes_are_selected_by_values_that_labels_can_have() {
    let long = format!("NVIDIA {}", "x".repeat(70));
    let made = wrapped(&["A100 (40GB)", "NVIDIA H100 80GB HBM3", &long], Manifest::Jobset).unwrap();
    let cut = format!("NVIDIA-{}", "x".repeat(56));
    let wanted = ["A100-40GB", "NVIDIA-H100-80GB-HBM3", &cut].map(|product| Some(product.to_owned()));
    assert_eq!(products(&made), wanted);
    let told =
        made.warnings.iter().find(|warning| warning.message.contains("discovery does not set")).unwrap();
    assert!(
        told.message.contains("nvidia.com/gpu.product=A100-40GB on nodes with GPUs of kind \"A100 (40GB)\""),
        "{told}"
    );
    assert!(told.message.contains(&cut) && !told.message.contains("H100"), "{told}");
    // Of one kind there is nothing to select, and discovery has labelled the usual ones.
    let one = wrapped(&["A100 (40GB)", "A100 (40GB)"], Manifest::Jobset).unwrap();
    assert_eq!(products(&one), [None]);
    let usual = wrapped(&["NVIDIA A100", "NVIDIA H100"], Manifest::Jobset).unwrap();
    assert!(!usual.warnings.iter().any(|warning| warning.message.contains("discovery")));
}

#[test]
fn kinds_that_labels_cannot_tell_apart_are_refused_by_name() {
    let refused = |kinds: &[&str]| wrapped(kinds, Manifest::Jobset).unwrap_err().to_string();
    let same = refused(&["A100 (40GB)", "A100 [40GB]"]);
    assert!(same.contains("\"A100 (40GB)\" and \"A100 [40GB]\""), "{same}");
    let long = "x".repeat(63);
    let same = refused(&[&format!("{long}y"), &format!("{long}z")]);
    assert!(same.contains(&format!("{long}z")), "{same}");
    let empty = refused(&["A100", "(?)"]);
    assert!(empty.contains("kind \"(?)\", which has no letter"), "{empty}");
}

#[test]
fn ranks_on_cpus_ask_for_no_gpu() {
    for manifest in Manifest::ALL.into_iter().filter(|manifest| manifest.is_kubernetes()) {
        let made = wrapped(&[CPU_KIND; 2], manifest).unwrap();
        let text = &made.files[0].contents;
        assert!(!text.contains("nvidia.com/gpu") && !text.contains("limits"), "{text}");
        let told = made.warnings.iter().map(|of| of.message.as_str()).collect::<Vec<_>>().join("\n");
        assert!(told.contains("the plan is for CPUs") && !told.contains("GPUs called"), "{told}");
        let gpus = wrapped(&["A100"; 2], manifest).unwrap();
        assert!(gpus.files[0].contents.contains("nvidia.com/gpu: 1"), "{manifest}");
    }
    let mixed = wrapped(&["A100", CPU_KIND], Manifest::Jobset).unwrap();
    assert_eq!(products(&mixed), [Some("A100".to_owned()), None]);
    assert_eq!(mixed.files[0].contents.matches("nvidia.com/gpu: 1").count(), 1);
    let unlike = wrapped(&["A100", CPU_KIND], Manifest::Job).unwrap_err().to_string();
    assert!(unlike.contains("1 slots of its CPU"), "{unlike}");
}

/// Bundles of Ray count GPUs, whatever they are; a placement names nodes.
#[test]
fn ray_tells_kinds_apart_where_a_placement_does() {
    let kinds = ["NVIDIA A100", "NVIDIA H100"];
    let unbound = wrapped(&kinds, Manifest::Ray).unwrap_err().to_string();
    assert!(unbound.contains("Place the plan on nodes of the Ray cluster"), "{unbound}");
    let script =
        |made: Export| made.files.into_iter().find(|file| file.name == "loadmaster_ray.py").unwrap().contents;
    let bound = wrapped_as(&kinds, Manifest::Ray, on_placement).unwrap();
    assert!(
        bound.warnings.iter().any(|warning| warning.message.contains("all GPUs of the placement's nodes"))
    );
    let bound = script(bound);
    assert!(bound.contains("\nPLACEMENT = [[\"node0\", [\"0\"]], [\"node1\", [\"0\"]]]\n"), "{bound}");
    let alike = script(wrapped(&kinds[..1], Manifest::Ray).unwrap());
    assert!(alike.contains("\nPLACEMENT = []\n"), "{alike}");
    // Slots of a CPU have no names that a program would know.
    let cpus = script(wrapped_as(&[CPU_KIND], Manifest::Ray, on_placement).unwrap());
    assert!(cpus.contains("\nPLACEMENT = [[\"node0\", []]]\n"), "{cpus}");
    let both = wrapped_as(&[CPU_KIND, "NVIDIA A100"], Manifest::Ray, on_placement).unwrap_err();
    assert!(both.to_string().contains("on CPUs and on GPUs"), "{both}");
}

/// Of a bound plan, every pod must be on its node of the placement, whatever kind of GPU that has; templates of several pods cannot say so.
#[test]
fn pods_of_a_bound_plan_are_for_its_nodes() {
    // The second and third kind share what discovery would call them.
    let kinds = ["NVIDIA H100", "A100 (40GB)", "A100 [40GB]", CPU_KIND];
    let made = wrapped_as(&kinds, Manifest::Jobset, on_placement).unwrap();
    let hosts = ["node0", "node1", "node2", "node3"].map(|host| Some(host.to_owned()));
    assert_eq!(labels(&made, "kubernetes.io/hostname"), hosts);
    assert_eq!(products(&made), [None, None, None, None]);
    let told = made.warnings.iter().map(|of| of.message.as_str()).collect::<Vec<_>>().join("\n");
    assert!(
        told.contains("only on the node that `placement` assigns") && told.contains("waits for its GPUs"),
        "{told}"
    );
    assert!(!told.contains("discovery"), "{told}");
    let on_cpus = wrapped_as(&[CPU_KIND; 2], Manifest::Jobset, on_placement)
        .unwrap()
        .warnings
        .iter()
        .map(|of| of.message.as_str())
        .collect::<Vec<_>>()
        .join("\n");
    assert!(
        on_cpus.contains("only on the node that `placement` assigns") && !on_cpus.contains("waits"),
        "{on_cpus}"
    );
    // Where no one chose nodes, equal ones stay one set, and none is named.
    let unbound = wrapped(&kinds[..1].repeat(3), Manifest::Jobset).unwrap();
    assert_eq!(labels(&unbound, "kubernetes.io/hostname"), [None]);
    assert!(
        !unbound
            .warnings
            .iter()
            .map(|of| of.message.as_str())
            .collect::<Vec<_>>()
            .join("\n")
            .contains("placement")
    );
    for manifest in Manifest::ALL.into_iter().filter(|manifest| manifest.is_kubernetes()) {
        let one = wrapped_as(&["A100"], manifest, on_placement);
        if manifest == Manifest::Jobset {
            assert_eq!(labels(&one.unwrap(), "kubernetes.io/hostname"), [Some("node0".to_owned())]);
        } else {
            let why = one.unwrap_err().to_string();
            assert!(why.contains("the manifest jobset"), "{why}");
        }
    }
}

/// A workload of Kueue has few sets of pods, and each node of a placement is one.
#[test]
fn a_queue_takes_no_more_sets_of_pods_than_kueue_does() {
    let told = |nodes| {
        bound_in("gpus", nodes)
            .unwrap()
            .warnings
            .iter()
            .map(|of| of.message.as_str())
            .collect::<Vec<_>>()
            .join("\n")
    };
    assert!(!told(8).contains("Kueue"), "{}", told(8));
    assert!(
        told(9).contains("at most 8, or 18 in newer releases") && told(18).contains("this workload has 18"),
        "{}",
        told(9)
    );
    let why = bound_in("gpus", 19).unwrap_err().to_string();
    assert!(why.contains("19 pod sets") && why.contains("export the plan without `placement`"), "{why}");
    assert!(
        !bound_in("", 19)
            .unwrap()
            .warnings
            .iter()
            .map(|of| of.message.as_str())
            .collect::<Vec<_>>()
            .join("\n")
            .contains("Kueue")
    );
}

#[test]
fn levels_of_a_topology_are_refused_where_a_placement_names_the_nodes() {
    let plan = PlanName::from_id("some").unwrap();
    let level = || "example.com/rack".to_owned();
    let image = ManifestSettings { image: "train:1".to_owned(), ..ManifestSettings::default() };
    let asked = [
        ("required_topology", ManifestSettings { required_topology: level(), ..image.clone() }),
        ("preferred_topology", ManifestSettings { preferred_topology: level(), ..image.clone() }),
        ("stage_topology", ManifestSettings { stage_topology: level(), ..image }),
    ];
    for (field, settings) in asked {
        let why =
            Wrapping::of(Manifest::Jobset, &plan, settings).unwrap().on_placement().unwrap_err().to_string();
        assert!(why.contains(&format!("manifest_options.{field}")) && why.contains("placement"), "{why}");
    }
}

proptest! {
    /// Hosts of placements are what values of labels can be, or the stage that is on another is named.
    #[test]
    fn every_host_is_a_label_or_refused_by_its_stage(host in "[a-zA-Z0-9._:-]{0,4}|[a-z.]{60,66}") {
        let hosts = [("first".to_owned(), vec!["0".to_owned()]), (host.clone(), vec!["3".to_owned()])];
        let made = made(2, |plan| bind(plan, &hosts), Manifest::Jobset, "", on_placement);
        let value = regex_lite::Regex::new("^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$").unwrap();
        let is_host = !host.contains("..") && !host.contains(".-");
        if host.len() <= 63 && is_host && value.is_match(&host) {
            let hosts = labels(&made.unwrap(), "kubernetes.io/hostname");
            prop_assert_eq!(hosts, [Some("first".to_owned()), Some(host)]);
        } else {
            let stages = made.unwrap_err().stages;
            prop_assert!(stages.iter().all(|refused| refused.stage == Some(1)), "{:?}", stages);
        }
    }

    /// Whatever they are called: each kind has a value of its own that the API takes, or a refusal names one.
    #[test]
    fn every_kind_has_a_label_of_its_own(kinds in proptest::collection::btree_set("[ A-Ca-c0-1()._-]{1,4}|.{60,70}", 2..5)) {
        let kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
        match wrapped(&kinds, Manifest::Jobset) {
            Ok(made) => {
                let mut products: Vec<String> = products(&made).into_iter().flatten().collect();
                let value = regex_lite::Regex::new("^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$").unwrap();
                prop_assert!(products.iter().all(|product| product.len() <= 63 && value.is_match(product)), "{:?}", products);
                products.sort_unstable();
                products.dedup();
                prop_assert_eq!(products.len(), kinds.len());
            }
            Err(refusal) => {
                let why = refusal.to_string();
                prop_assert!(kinds.iter().any(|kind| why.contains(&format!("{kind:?}"))), "{}", why);
            }
        }
    }
}
