//! Which devices the processes of an export have in sight, in which order.

use loadmaster_proto::name::PlanName;
use loadmaster_proto::plan::objective::Framework;
use loadmaster_samples::CutTransformer;

use super::{ask, case};
use crate::{Export, Manifest, ManifestSettings, Wrapping, wrap};

/// Two stages of two devices each, with their nodes and indices.
fn wrapped(framework: Framework, manifest: Manifest, devices: [(&str, u32); 4]) -> Export {
    let case = CutTransformer { devices_per_node: 4, ..case(vec![2, 2], 1.into(), 2.into()) };
    let (mut plan, model) = (case.plan(), case.model());
    let placed = plan.stages.iter_mut().flat_map(|stage| &mut stage.devices);
    for (device, (node, index)) in placed.zip(devices) {
        (device.node, device.index) = (node.to_owned(), index);
    }
    let name = PlanName::from_id("some").unwrap();
    let image = if manifest.is_kubernetes() { "train:1" } else { "" };
    let settings = ManifestSettings { image: image.to_owned(), ..ManifestSettings::default() };
    wrap(ask(framework, "", &plan, Some(&model)).unwrap(), &Wrapping::of(manifest, &name, settings).unwrap())
        .unwrap()
}

fn in_sight(export: &Export) -> Option<&str> {
    let order = export.environment.get("CUDA_DEVICE_ORDER").map(String::as_str);
    let devices = export.environment.get("CUDA_VISIBLE_DEVICES").map(String::as_str);
    assert_eq!(order, devices.map(|_| "PCI_BUS_ID"), "indices are those of the bus");
    devices
}

fn told(export: &Export) -> Option<&str> {
    export
        .warnings
        .iter()
        .map(|of| of.message.as_str())
        .find(|warning| warning.contains("other devices than"))
}

/// What is started by hand finds the plan's devices in the order of its ranks, on every node.
#[test]
fn the_environment_has_the_devices_of_the_plan() {
    let by_hand = |framework, devices| wrapped(framework, Manifest::Torchrun, devices);
    let mapped = [("a", 0), ("a", 2), ("a", 1), ("a", 3)];
    for framework in [Framework::Megatron, Framework::TorchPipelining, Framework::Other] {
        let one = by_hand(framework, mapped);
        let told = told(&one).unwrap();
        assert_eq!(in_sight(&one), Some("0,2,1,3"), "{framework}");
        assert!(told.contains("in the order of its ranks: CUDA_VISIBLE_DEVICES=0,2,1,3;"), "{told}");
        let two = by_hand(framework, [("a", 6), ("a", 5), ("b", 6), ("b", 5)]);
        assert_eq!(in_sight(&two), Some("6,5"), "{framework}");
    }
    let in_order = by_hand(Framework::Megatron, [("a", 0), ("a", 1), ("a", 2), ("a", 3)]);
    assert_eq!((in_sight(&in_order), told(&in_order)), (None, None));
}

/// The script that starts them sets them itself, but not over what a scheduler has set.
#[test]
fn the_script_has_the_devices_of_the_plan() {
    let made = wrapped(Framework::Megatron, Manifest::Torchrun, [("a", 0), ("a", 2), ("a", 1), ("a", 3)]);
    let script = made.files.iter().find(|file| file.name == "train.sh").unwrap();
    // What would be trained with, in a real shell.
    let told = script
        .contents
        .replace("exec torchrun", "echo $CUDA_DEVICE_ORDER $CUDA_VISIBLE_DEVICES # exec torchrun");
    assert_ne!(told, script.contents);
    let run = |set: Option<&str>| {
        let mut shell = std::process::Command::new("bash");
        shell.args(["-c", &told]).env_remove("CUDA_VISIBLE_DEVICES");
        set.map(|devices| shell.env("CUDA_VISIBLE_DEVICES", devices));
        String::from_utf8(shell.output().unwrap().stdout).unwrap()
    };
    assert_eq!(run(None), "PCI_BUS_ID 0,2,1,3\n");
    assert_eq!(run(Some("GPU-b,GPU-a")), "PCI_BUS_ID GPU-b,GPU-a\n");
}

/// Nodes whose devices differ have no environment in common, and DeepSpeed makes its own: a caller that starts them
/// is reported.
#[test]
fn what_no_environment_says_is_told() {
    let unlike = wrapped(Framework::Megatron, Manifest::Torchrun, [("a", 1), ("a", 0), ("b", 0), ("b", 1)]);
    assert_eq!(in_sight(&unlike), None);
    let why = told(&unlike).unwrap();
    assert!(why.contains("set CUDA_DEVICE_ORDER=PCI_BUS_ID and CUDA_VISIBLE_DEVICES=1,0 on a;"), "{why}");
    let slots = wrapped(Framework::Deepspeed, Manifest::Torchrun, [("a", 1), ("a", 2), ("a", 4), ("a", 5)]);
    assert_eq!(in_sight(&slots), None);
    assert!(told(&slots).unwrap().contains("--include=localhost:1,2,4,5"), "{slots:?}");
}

/// A pod, or an actor, has the devices that it is given: a number of another node's is none of them.
#[test]
fn a_cluster_gives_devices_itself() {
    let mapped = [("a", 0), ("a", 2), ("a", 1), ("a", 3)];
    for manifest in [Manifest::Job, Manifest::Jobset, Manifest::Ray] {
        let made = wrapped(Framework::TorchPipelining, manifest, mapped);
        assert_eq!(in_sight(&made), None, "{manifest}");
        let written = |text: &str| made.files.iter().any(|file| file.contents.contains(text));
        assert!(!written("0,2,1,3"), "{manifest}: {:?}", made.files);
        assert!(told(&made).unwrap().contains("any free devices"), "{manifest}");
    }
}
