//! Ranks on other devices of their node than frameworks put them on by themselves.

use std::collections::BTreeSet;

use loadmaster_proto::cluster::device::CPU_KIND;
use loadmaster_proto::plan::PlacedDevice;
use loadmaster_proto::plan::objective::Framework;
use loadmaster_proto::warning::{Warning, WarningCode};

use crate::export_parts::{Export, RankPlace};
use crate::manifest::{SCRIPT, STRICT};

/// Nodes that are named at most.
const MOST_NAMED: usize = 4;

/// A node with the devices of its ranks, in order.
type Node<'a> = (&'a str, Vec<&'a PlacedDevice>);

/// Numbers of devices are those of the driver, which counts by bus.
const ORDER: &str = "PCI_BUS_ID";

/// What follows where the framework is started by hand.
const BY_ITSELF: &str = "; `loadmaster slurm exec` does so by itself";

/// How each of these warnings begins.
const BEGIN: &str = "by default, the framework starts ranks on other devices than the plan names";

/// The warnings of an export whose ranks a cluster places: on which of a node's devices, no one can say there.
pub(crate) fn placed_by_cluster(warnings: &[Warning], who: &str) -> Vec<Warning> {
    let of = |warning: &Warning| {
        if is_of_order(warning) {
            WarningCode::RankOrderDiffers.says(format!(
                "{BEGIN}. The predicted seconds are for the links between the planned devices, but {who} can assign \
                 any free devices of each node"
            ))
        } else {
            warning.clone()
        }
    };
    warnings.iter().map(of).collect()
}

/// The warnings of an export whose ranks are started on the very devices of a placement.
pub(crate) fn placed_by_placement(warnings: &[Warning]) -> Vec<Warning> {
    warnings.iter().filter(|warning| !is_of_order(warning)).cloned().collect()
}

fn is_of_order(warning: &Warning) -> bool {
    warning.code == WarningCode::RankOrderDiffers
}

/// An export that is started by hand: where each node's ranks are on the same devices, its environment and its script have these in
/// sight, in the order of the ranks. DeepSpeed overwrites that, and an
/// environment is that of all nodes: others are left with the warning.
pub(crate) fn in_sight(mut export: Export) -> Export {
    let Some(at) = export.warnings.iter().position(is_of_order) else {
        return export;
    };
    if export.runs_once || export.target.framework == Framework::Deepspeed {
        return export;
    }
    let nodes = nodes(&export.ranks);
    let devices = match &nodes[..] {
        [(_, devices)] => named(devices),
        [(_, first), others @ ..] if others.iter().all(|(_, of)| indices(of) == indices(first)) => {
            indices(first)
        }
        _ => return export,
    };
    let exported = format!(
        "{STRICT}# The devices of the plan in the order of its ranks, unless CUDA_VISIBLE_DEVICES is set.\n\
         export CUDA_DEVICE_ORDER={ORDER} CUDA_VISIBLE_DEVICES=\"${{CUDA_VISIBLE_DEVICES-{devices}}}\"\n"
    );
    for script in export.files.iter_mut().filter(|file| file.name == SCRIPT) {
        script.contents = script.contents.replacen(STRICT, &exported, 1);
    }
    export.warnings[at] = WarningCode::RankOrderDiffers.says(format!(
        "{BEGIN}: local rank n starts on device n. The export's environment sets the plan's devices in the order of \
         its ranks: CUDA_VISIBLE_DEVICES={devices}{BY_ITSELF}"
    ));
    let variables = [("CUDA_DEVICE_ORDER", ORDER.to_owned()), ("CUDA_VISIBLE_DEVICES", devices)];
    export.environment.extend(variables.map(|(name, value)| (name.to_owned(), value)));
    export
}

/// Says with which devices in sight each node starts its ranks: frameworks put local rank n on the n-th one, and a plan's seconds
/// are those of the links between the devices that it names. None where that is so anyway, or where the
/// plan names no devices. And no framework puts two ranks on one GPU.
pub(crate) fn warning(framework: Framework, ranks: &[RankPlace]) -> Option<Warning> {
    let nodes = nodes(ranks);
    if let Some((node, _)) = nodes.iter().find(|(_, devices)| have_one_twice(devices)) {
        return Some(WarningCode::GpuShared.says(format!(
            "several ranks are on one GPU of {node}, but frameworks start each rank on its own GPU. Request a plan for \
             whole GPUs"
        )));
    }
    let in_order =
        |devices: &[&PlacedDevice]| devices.iter().map(|device| device.index).eq(0..devices.len() as u32);
    let others: Vec<&Node<'_>> = nodes.iter().filter(|(_, devices)| !in_order(devices)).collect();
    if others.is_empty() {
        return None;
    }
    let is_sorted = |devices: &[&PlacedDevice]| devices.iter().map(|device| device.index).is_sorted();
    let what = match framework {
        Framework::Deepspeed if nodes.iter().all(|(_, devices)| is_sorted(devices)) => {
            format!("in place of --num_nodes and --num_gpus, pass to deepspeed {}", included(&nodes))
        }
        Framework::Deepspeed => format!(
            "deepspeed sets CUDA_VISIBLE_DEVICES itself and sorts the devices of --include, but the plan has another \
             order. Start train.py with torchrun instead, and set CUDA_DEVICE_ORDER={ORDER} and {}",
            visible(&others)
        ),
        _ => format!("set CUDA_DEVICE_ORDER={ORDER} and {}", visible(&others)),
    };
    let why = format!("{BEGIN}: local rank n starts on device n; {what}{BY_ITSELF}");
    Some(WarningCode::RankOrderDiffers.says(why))
}

/// GPUs of each node that a plan names, in the order of its ranks.
fn nodes(ranks: &[RankPlace]) -> Vec<Node<'_>> {
    let mut nodes: Vec<Node<'_>> = Vec::new();
    for device in ranks.iter().filter_map(|place| place.device.as_ref()) {
        if device.node.is_empty() || device.kind == CPU_KIND {
            continue;
        }
        match nodes.iter_mut().find(|(node, _)| *node == device.node) {
            Some((_, devices)) => devices.push(device),
            None => nodes.push((&device.node, vec![device])),
        }
    }
    nodes
}

/// Whether some are shares of the same GPU.
fn have_one_twice(devices: &[&PlacedDevice]) -> bool {
    let uuids = || devices.iter().map(|device| device.uuid.as_str()).filter(|uuid| !uuid.is_empty());
    uuids().collect::<BTreeSet<_>>().len() < uuids().count()
}

/// What torchrun and its like are to find on each of these nodes.
fn visible(nodes: &[&Node<'_>]) -> String {
    let visible = |(node, devices): &&Node<'_>| format!("CUDA_VISIBLE_DEVICES={} on {node}", named(devices));
    let told: Vec<String> = nodes.iter().take(MOST_NAMED).map(visible).collect();
    told.join(", ") + &more(nodes.len())
}

/// DeepSpeed's flag, of all nodes: those that it does not name get no rank. A plan of one node has no hostfile, so that is `localhost`.
fn included(nodes: &[Node<'_>]) -> String {
    let is_one = nodes.len() == 1;
    let of = |(node, devices): &Node<'_>| {
        format!("{}:{}", if is_one { "localhost" } else { node }, indices(devices))
    };
    let told: Vec<String> = nodes.iter().take(MOST_NAMED).map(of).collect();
    format!("--include={}{}", told.join("@"), more(nodes.len()))
}

/// As CUDA names them whatever it counts by, where that is known, else by their numbers.
fn named(devices: &[&PlacedDevice]) -> String {
    if devices.iter().any(|device| device.uuid.is_empty()) {
        return indices(devices);
    }
    devices.iter().map(|device| device.uuid.as_str()).collect::<Vec<_>>().join(",")
}

fn indices(devices: &[&PlacedDevice]) -> String {
    devices.iter().map(|device| device.index.to_string()).collect::<Vec<_>>().join(",")
}

fn more(nodes: usize) -> String {
    match nodes.saturating_sub(MOST_NAMED) {
        0 => String::new(),
        more => format!(", and {more} more in the rank table"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranks(devices: &[(&str, u32, &str)]) -> Vec<RankPlace> {
        let place = |(rank, &(node, index, kind)): (u32, &(&str, u32, &str))| RankPlace {
            rank,
            stage: 0,
            replica: rank,
            shard: 0,
            device: Some(PlacedDevice {
                node: node.to_owned(),
                index,
                kind: kind.to_owned(),
                ..PlacedDevice::default()
            }),
        };
        (0..).zip(devices).map(place).collect()
    }

    #[test]
    fn nothing_is_said_where_local_ranks_are_on_the_devices_of_their_numbers() {
        let in_order = [("a", 0, "H100"), ("a", 1, "H100"), ("b", 0, "H100"), ("b", 1, "H100")];
        assert_eq!(warning(Framework::Megatron, &ranks(&in_order)), None);
        assert_eq!(
            warning(Framework::Megatron, &ranks(&[("a", 1, CPU_KIND), ("a", 0, CPU_KIND)])),
            None,
            "slots are no GPUs"
        );
        assert_eq!(
            warning(Framework::Megatron, &ranks(&[("", 3, "H100"), ("", 2, "H100")])),
            None,
            "places in a group"
        );
        assert_eq!(warning(Framework::Megatron, &[]), None);
    }

    /// In the order of the ranks, node by node, those that are in order left out.
    #[test]
    fn each_node_is_told_which_devices_its_ranks_are_on() {
        let mapped =
            [("a", 0, "V100"), ("a", 2, "V100"), ("a", 1, "V100"), ("b", 0, "V100"), ("c", 5, "V100")];
        let told = warning(Framework::Megatron, &ranks(&mapped)).unwrap();
        assert!(
            told.message.contains("CUDA_VISIBLE_DEVICES=0,2,1 on a, CUDA_VISIBLE_DEVICES=5 on c;"),
            "{told}"
        );
        let many: Vec<(String, u32)> = (0..9).map(|node| (format!("n{node}"), 3)).collect();
        let many: Vec<(&str, u32, &str)> =
            many.iter().map(|(node, index)| (node.as_str(), *index, "V100")).collect();
        let told = warning(Framework::Megatron, &ranks(&many)).unwrap();
        assert!(told.message.contains("on n3, and 5 more") && !told.message.contains("on n4"), "{told}");
    }

    /// On which node a pod or an actor is, and which devices it gets there, is not the plan's to say.
    #[test]
    fn nothing_is_set_where_a_cluster_places_ranks() {
        let told = warning(Framework::Megatron, &ranks(&[("a", 2, "V100"), ("a", 0, "V100")])).unwrap();
        assert!(told.message.ends_with("on a; `loadmaster slurm exec` does so by itself"), "{told}");
        let placed = placed_by_cluster(&[told, WarningCode::SetupNeeded.says("another")], "Ray");
        assert!(placed[0].message.ends_with("Ray can assign any free devices of each node"), "{placed:?}");
        assert!(
            !placed[0].message.contains("CUDA_VISIBLE_DEVICES") && placed[1].message == "another",
            "{placed:?}"
        );
    }

    /// Its file names the devices in sight by number.
    #[test]
    fn torchgpipe_is_told_which_devices_are_in_sight() {
        let told = warning(Framework::Torchgpipe, &ranks(&[("a", 2, "V100"), ("a", 0, "V100")])).unwrap();
        assert!(told.message.contains("and CUDA_VISIBLE_DEVICES=2,0 on a;"), "{told}");
    }

    /// Its framework overwrites the variable with slots, which it sorts.
    #[test]
    fn deepspeed_is_told_slots_where_they_are_in_order() {
        let told = |devices: &[(&str, u32, &str)]| warning(Framework::Deepspeed, &ranks(devices)).unwrap();
        let one = told(&[("a", 4, "V100"), ("a", 6, "V100")]);
        assert!(one.message.contains("pass to deepspeed --include=localhost:4,6;"), "{one}");
        let two = told(&[("a", 0, "V100"), ("a", 1, "V100"), ("b", 2, "V100"), ("b", 3, "V100")]);
        assert!(two.message.contains("pass to deepspeed --include=a:0,1@b:2,3;"), "{two}");
        let mapped = told(&[("a", 0, "V100"), ("a", 2, "V100"), ("a", 1, "V100")]);
        assert!(
            mapped.message.contains("with torchrun instead, and set CUDA_DEVICE_ORDER=PCI_BUS_ID and CUDA_VISIBLE_DEVICES=0,2,1 on a;"),
            "{mapped}"
        );
        let in_order = [("a", 0, "V100"), ("a", 1, "V100"), ("b", 0, "V100"), ("b", 1, "V100")];
        assert_eq!(warning(Framework::Deepspeed, &ranks(&in_order)), None);
    }
}
