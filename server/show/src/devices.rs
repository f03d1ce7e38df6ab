//! The devices of a plan with what each of them is for.

use loadmaster_proto::wire::v1::{PlacedDevice, Plan, PlanStage, StageConfig, StateSharding};

use crate::text::label::safe;
use crate::text::plural;
use crate::text::terminal_abilities::Look;

/// Devices of a plan that are looked at. A message says how many there are in a few bytes, so this, not its
/// size, keeps a wrong one from filling the memory.
const MOST_DEVICES: usize = 100_000;

/// One device and its part in the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Index of its stage.
    pub stage: usize,
    /// Which replica of the stage it belongs to, from 0.
    pub replica: usize,
    /// Which shard of the tensors it holds, from 0.
    pub shard: usize,
    /// Its node; empty where the plan is for devices without a cluster.
    pub node: String,
    /// Index within the node, or position in the order of the pipeline where there is no node.
    pub index: i64,
    /// Kind, or empty.
    pub kind: String,
    /// Bytes that it allows; 0 where they are unknown.
    pub capacity_bytes: i64,
}

/// Data and tensor degree of a stage, each 1 or more.
pub fn degrees(config: Option<&StageConfig>) -> (usize, usize) {
    let degree = |value: i32| usize::try_from(value).unwrap_or(1).max(1);
    config.map_or((1, 1), |config| (degree(config.data_parallel_size), degree(config.tensor_parallel_size)))
}

/// The devices in the order of the pipeline, and whether there are more than are looked at.
///
/// Devices that have several stages in turn come once, with the first of these.
pub fn of(plan: &Plan) -> (Vec<Device>, bool) {
    let mut devices = Vec::new();
    let kinds = kinds(plan);
    for (index, stage) in plan.stages.iter().take(places(plan)).enumerate() {
        let (data, tensor) = degrees(stage.config.as_ref());
        let room = MOST_DEVICES - devices.len();
        // One more than there is room for shows that there are more.
        let placed: Vec<PlacedDevice> = stage.placed().take(room + 1).collect();
        let count = match placed.len() {
            0 => data.saturating_mul(tensor),
            placed => placed,
        };
        for rank in 0..count {
            if devices.len() == MOST_DEVICES {
                return (devices, true);
            }
            let part = (index, rank / tensor, rank % tensor);
            devices.push(match placed.get(rank) {
                Some(placed) => named(placed, part),
                None => unnamed(stage, part, devices.len(), &kinds),
            });
        }
    }
    (devices, false)
}

/// Places along a plan's pipeline: as many as stages, but where devices have several of these in turn.
pub fn places(plan: &Plan) -> usize {
    plan.stages.len() / usize::try_from(plan.virtual_stage_count).unwrap_or(1).max(1)
}

/// All stages of the devices of a first one: it alone, but where devices have several in turn.
pub fn stages_in_turn(plan: &Plan, first: usize) -> impl Iterator<Item = usize> {
    (first..plan.stages.len()).step_by(places(plan).max(1))
}

fn named(placed: &PlacedDevice, (stage, replica, shard): (usize, usize, usize)) -> Device {
    Device {
        stage,
        replica,
        shard,
        node: safe(&placed.node),
        index: placed.index.into(),
        kind: safe(&placed.kind),
        capacity_bytes: placed.capacity_bytes,
    }
}

fn unnamed(
    stage: &PlanStage,
    (index, replica, shard): (usize, usize, usize),
    position: usize,
    kinds: &[(usize, &str)],
) -> Device {
    let kind = kinds.iter().find(|&&(end, _)| position < end).map_or("", |&(_, kind)| kind);
    Device {
        stage: index,
        replica,
        shard,
        node: String::new(),
        index: i64::try_from(position).unwrap_or(i64::MAX),
        kind: safe(kind),
        capacity_bytes: stage.capacity_bytes,
    }
}

/// Up to which position devices are of a kind, for plans that place no devices.
fn kinds(plan: &Plan) -> Vec<(usize, &str)> {
    let mut end = 0_usize;
    let groups = plan.devices.iter().map(|group| {
        end = end.saturating_add(usize::try_from(group.count).unwrap_or(0));
        (end, group.kind.as_str())
    });
    groups.collect()
}

/// Devices of one node that follow each other, or of several nodes where they are the same ones on each.
struct Range<'a> {
    nodes: (&'a str, &'a str),
    node_count: usize,
    indices: (i64, i64),
}

/// Which devices they are, in few words: `node0/0–3`, or `node0–node7/0–3` for those of eight nodes; of the first
/// three such ranges.
pub fn names(devices: &[Device], look: Look) -> String {
    const RANGES: usize = 3;
    let ranges = ranges(devices);
    let between = |first: &str, last: &str| format!("{first}{}{last}", look.to());
    let text = |range: &Range<'_>| {
        let (first, last) = range.indices;
        let indices =
            if first == last { first.to_string() } else { between(&first.to_string(), &last.to_string()) };
        match range.nodes {
            ("", _) => format!("device {indices}"),
            (node, _) if range.node_count == 1 => format!("{node}/{indices}"),
            (first, last) => format!("{}/{indices}", between(first, last)),
        }
    };
    let mut texts: Vec<String> = ranges.iter().take(RANGES).map(text).collect();
    if ranges.len() > RANGES {
        texts.push(format!("{} {} in all", look.cut(), plural(devices.len(), "device")));
    }
    texts.join(", ")
}

fn ranges(devices: &[Device]) -> Vec<Range<'_>> {
    let follows = |a: &Device, b: &Device| a.node == b.node && a.index.checked_add(1) == Some(b.index);
    let mut ranges: Vec<Range<'_>> = Vec::new();
    for run in devices.chunk_by(follows) {
        let [first, .., last] = run else {
            ranges.extend(run.first().map(|only| one_node(only, only)));
            continue;
        };
        ranges.push(one_node(first, last));
    }
    ranges.dedup_by(|next, before| {
        let same = !next.nodes.0.is_empty() && !before.nodes.0.is_empty() && next.indices == before.indices;
        if same {
            before.nodes.1 = next.nodes.1;
            before.node_count += next.node_count;
        }
        same
    });
    ranges
}

fn one_node<'a>(first: &'a Device, last: &'a Device) -> Range<'a> {
    Range { nodes: (&first.node, &last.node), node_count: 1, indices: (first.index, last.index) }
}

/// Layers of each stage, with the degrees: `8-8d2-7t4-7d2t2`.
pub fn notation<'a>(stages: impl IntoIterator<Item = &'a StageConfig>) -> String {
    let stage = |config: &StageConfig| {
        let layers = i64::from(config.last_layer) - i64::from(config.first_layer) + 1;
        let (data, tensor) = degrees(Some(config));
        let part = |letter: char, degree: usize| {
            if degree > 1 { format!("{letter}{degree}") } else { String::new() }
        };
        let zero = match config.state_sharding() {
            StateSharding::Unspecified | StateSharding::None => "",
            StateSharding::Optimizer => "z1",
        };
        let sequence = if config.sequence_parallel { "s" } else { "" };
        format!("{layers}{}{}{sequence}{zero}", part('d', data), part('t', tensor))
    };
    stages.into_iter().map(stage).collect::<Vec<_>>().join("-")
}

/// Returns how the devices of a stage share its work, in words: `data 2 × tensor 4, ZeRO-1`.
pub fn sharing(config: Option<&StageConfig>, look: Look) -> String {
    let shared = match degrees(config) {
        (1, 1) => "one device".to_owned(),
        (data, 1) => format!("data {data}"),
        (1, tensor) => format!("tensor {tensor}"),
        (data, tensor) => format!("data {data} {} tensor {tensor}", look.times()),
    };
    let config = config.copied().unwrap_or_default();
    let sequence = if config.sequence_parallel { ", sequence" } else { "" };
    let zero = if config.state_sharding() == StateSharding::Optimizer { ", ZeRO-1" } else { "" };
    format!("{shared}{sequence}{zero}")
}

/// The devices of each stage in few words, `node0/0–3`; nothing where the plan is for devices without a cluster.
pub fn devices_of_stages(plan: &Plan, look: Look) -> Option<Vec<String>> {
    let (all, _) = of(plan);
    if all.iter().all(|device| device.node.is_empty()) {
        return None;
    }
    let mut texts = vec![String::new(); plan.stages.len()];
    for run in all.chunk_by(|a, b| a.stage == b.stage) {
        if let Some(text) = run.first().and_then(|first| texts.get_mut(first.stage)) {
            *text = names(run, look);
        }
    }
    let places = places(plan).max(1);
    for stage in places..texts.len() {
        texts[stage] = texts[stage % places].clone();
    }
    Some(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(node: &str, index: i64) -> Device {
        let (node, kind) = (node.to_owned(), String::new());
        Device { stage: 0, replica: 0, shard: 0, node, index, kind, capacity_bytes: 0 }
    }

    #[test]
    fn devices_are_named_by_their_ranges() {
        let all = |nodes: &[&str]| -> Vec<Device> {
            nodes.iter().flat_map(|node| (0..4).map(|index| device(node, index))).collect()
        };
        assert_eq!(names(&all(&["a"]), Look::PLAIN), "a/0-3");
        assert_eq!(names(&all(&["a", "b", "c"]), Look::UNICODE), "a–c/0–3");
        assert_eq!(names(&all(&[""]), Look::PLAIN), "device 0-3");
        assert_eq!(names(&[device("a", 1), device("b", 2)], Look::PLAIN), "a/1, b/2");
        let scattered: Vec<Device> = (0..5).map(|index| device("a", index * 2)).collect();
        assert_eq!(names(&scattered, Look::UNICODE), "a/0, a/2, a/4, … 5 devices in all");
        assert_eq!(names(&[], Look::PLAIN), "");
    }

    #[test]
    fn stages_are_written_as_on_the_command_line() {
        let config = |first_layer, last_layer, data_degree, tensor_degree| StageConfig {
            first_layer,
            last_layer,
            data_parallel_size: data_degree,
            tensor_parallel_size: tensor_degree,
            ..Default::default()
        };
        assert_eq!(notation(&[config(0, 7, 0, 1), config(8, 15, 2, 1), config(16, 22, 2, 4)]), "8-8d2-7d2t4");
        let zero = StageConfig {
            sequence_parallel: true,
            state_sharding: StateSharding::Optimizer.into(),
            ..config(0, 7, 2, 4)
        };
        assert_eq!(notation(&[zero]), "8d2t4sz1");
    }
}
