//! Ranks on other devices of their node than launchers put them on by themselves.

use loadmaster_proto::cluster::device::CPU_KIND;

use crate::exported::RankPlace;

/// Nodes that are named at most.
const MOST_NAMED: usize = 4;

/// Says with which devices in sight each node starts its ranks: launchers put local rank n on the n-th one, and a plan's seconds
/// are those of the links between the devices that it names. None where that is so anyway, or where the plan names no devices.
pub(crate) fn warning(ranks: &[RankPlace]) -> Option<String> {
    let mut nodes: Vec<(&str, Vec<u32>)> = Vec::new();
    for device in ranks.iter().filter_map(|place| place.device.as_ref()) {
        if device.node.is_empty() || device.kind == CPU_KIND {
            continue;
        }
        match nodes.iter_mut().find(|(node, _)| *node == device.node) {
            Some((_, devices)) => devices.push(device.index),
            None => nodes.push((&device.node, vec![device.index])),
        }
    }
    let others = nodes.iter().filter(|(_, devices)| !devices.iter().copied().eq(0..devices.len() as u32));
    let visible = |(node, devices): &(&str, Vec<u32>)| {
        let devices: Vec<String> = devices.iter().map(u32::to_string).collect();
        format!("CUDA_VISIBLE_DEVICES={} on {node}", devices.join(","))
    };
    let named: Vec<String> = others.clone().take(MOST_NAMED).map(visible).collect();
    let more = match others.count().saturating_sub(MOST_NAMED) {
        0 => String::new(),
        more => format!(", and so on {more} more, by the rank table"),
    };
    (!named.is_empty()).then(|| {
        format!(
            "the plan has its ranks on other devices than launchers put them on, which is the device of the local rank's number: \
             set {}{more}; `loadmaster slurm exec` and the envelope ray do so by themselves",
            named.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::plan::PlacedDevice;

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
        assert_eq!(warning(&ranks(&in_order)), None);
        assert_eq!(warning(&ranks(&[("a", 1, CPU_KIND), ("a", 0, CPU_KIND)])), None, "slots are no GPUs");
        assert_eq!(warning(&ranks(&[("", 3, "H100"), ("", 2, "H100")])), None, "places in a group");
        assert_eq!(warning(&[]), None);
    }

    /// In the order of the ranks, node by node, those that are in order left out.
    #[test]
    fn each_node_is_told_which_devices_its_ranks_are_on() {
        let mapped =
            [("a", 0, "V100"), ("a", 2, "V100"), ("a", 1, "V100"), ("b", 0, "V100"), ("c", 5, "V100")];
        let told = warning(&ranks(&mapped)).unwrap();
        assert!(told.contains("CUDA_VISIBLE_DEVICES=0,2,1 on a, CUDA_VISIBLE_DEVICES=5 on c;"), "{told}");
        let many: Vec<(String, u32)> = (0..9).map(|node| (format!("n{node}"), 3)).collect();
        let many: Vec<(&str, u32, &str)> =
            many.iter().map(|(node, index)| (node.as_str(), *index, "V100")).collect();
        let told = warning(&ranks(&many)).unwrap();
        assert!(told.contains("on n3, and so on 5 more") && !told.contains("on n4"), "{told}");
    }
}
