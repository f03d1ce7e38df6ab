//! Where the stages are: nodes, the devices in them, and what each device is for.

use loadmaster_proto::wire::v1::memory_optimization::Action;
use loadmaster_proto::wire::v1::{MemoryOptimization, Plan, PlanStage, RecomputePolicy};

use crate::devices::{self, Device};
use crate::text::label::safe;
use crate::text::terminal_abilities::Look;
use crate::text::{plural, word};

/// Boxes that are drawn; of more, the first and the last.
const MOST_BOXES: usize = 48;
/// Devices of a node that are drawn one by one.
const ONE_BY_ONE: usize = 64;
/// Stages that are listed; of more, the first and the last.
const MOST_STAGES: usize = 64;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Placement {
    /// Nodes in the order in which the pipeline comes to them.
    pub boxes: Vec<NodeBox>,
    /// What each stage is.
    pub stages: Vec<StageNote>,
    /// What is drawn, in a sentence.
    pub summary: String,
    /// What is left out, for people.
    pub notes: Vec<String>,
}

/// One node, or several that follow each other and carry the same stages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeBox {
    /// Name of the node, or of the first and the last one.
    pub name: String,
    /// How many nodes it stands for.
    pub nodes: usize,
    /// Kinds of its devices.
    pub kind: String,
    pub cells: Vec<PlacementCell>,
}

/// One device, or several of the same stage that follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlacementCell {
    pub stage: usize,
    /// How many devices it stands for.
    pub devices: usize,
    /// `#3`: its index within its node; empty where it stands for several.
    pub index: String,
    /// `0`, `0 r1`, `0 r1 t3`: the stage, the replica and the shard where there are several; or `0 ×8`.
    pub label: String,
    /// All that is known of it.
    pub title: String,
}

/// What a stage is, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StageNote {
    /// Index of the stage; none for the line that stands for those left out.
    pub stage: Option<usize>,
    /// `0..7 conv1–relu4`.
    pub layers: String,
    /// `data 2 × tensor 4`.
    pub sharing: String,
    /// `node0/0–7`.
    pub devices: String,
    /// What it computes again; empty for nothing.
    pub recompute: String,
}

impl Placement {
    pub(crate) fn of(plan: &Plan, look: Look) -> Self {
        let (all, more) = devices::of(plan);
        let nodes = by_node(&all);
        let mut boxes = boxes(plan, &nodes, look);
        let mut notes = Vec::new();
        if boxes.len() > MOST_BOXES {
            let hidden: usize =
                boxes[MOST_BOXES / 2..boxes.len() - MOST_BOXES / 2].iter().map(|b| b.nodes).sum();
            notes.push(format!("left out in the middle: {}", plural(hidden, "node")));
            boxes.drain(MOST_BOXES / 2..boxes.len() - MOST_BOXES / 2);
        }
        if boxes.iter().any(|node| node.nodes > 1) {
            notes.push("consecutive nodes with the same stages are drawn as one node".to_owned());
        }
        if more {
            notes.push(format!("only the first {} are drawn", plural(all.len(), "device")));
        }
        let clustered = nodes.iter().filter(|node| !node[0].node.is_empty()).count();
        let mut summary =
            format!("{} on {}", plural(plan.stages.len(), "stage"), plural(all.len(), "device"));
        if clustered > 0 {
            summary.push_str(&format!(" of {}", plural(clustered, "node")));
        }
        Self { boxes, stages: stages(plan, &all, look), summary, notes }
    }
}

/// Devices by their node, in the order in which the pipeline comes to the nodes.
fn by_node(all: &[Device]) -> Vec<Vec<&Device>> {
    let mut position = std::collections::HashMap::new();
    let mut nodes: Vec<Vec<&Device>> = Vec::new();
    for device in all {
        let at = *position.entry(device.node.as_str()).or_insert(nodes.len());
        match nodes.get_mut(at) {
            Some(node) => node.push(device),
            None => nodes.push(vec![device]),
        }
    }
    nodes
}

fn boxes(plan: &Plan, nodes: &[Vec<&Device>], look: Look) -> Vec<NodeBox> {
    let stages_of = |node: &[&Device]| node.iter().map(|d| (d.stage, d.kind.clone())).collect::<Vec<_>>();
    let same = |a: &Vec<&Device>, b: &Vec<&Device>| stages_of(a) == stages_of(b);
    let groups = nodes.chunk_by(same);
    groups
        .filter_map(|group| {
            let (first, last) = (group.first()?.first()?, group.last()?.first()?);
            let name = match group.len() {
                1 if first.node.is_empty() => "in pipeline order".to_owned(),
                1 => first.node.clone(),
                several => format!("{several} {} {} {} {}", look.times(), first.node, look.to(), last.node),
            };
            let cells = cells(plan, &group[0], group.len() > 1, look);
            Some(NodeBox { name, nodes: group.len(), kind: kinds(&group[0]), cells })
        })
        .collect()
}

fn kinds(node: &[&Device]) -> String {
    let mut kinds: Vec<&str> = Vec::new();
    for device in node {
        if !device.kind.is_empty() && kinds.len() < 3 && !kinds.contains(&device.kind.as_str()) {
            kinds.push(&device.kind);
        }
    }
    kinds.join(", ")
}

/// The devices of a node. Of several nodes that are drawn as one, replicas and shards differ and are not told.
fn cells(plan: &Plan, node: &[&Device], several: bool, look: Look) -> Vec<PlacementCell> {
    let one_by_one = node.len() <= ONE_BY_ONE;
    let together = |a: &&Device, b: &&Device| !one_by_one && a.stage == b.stage;
    node.chunk_by(together)
        .filter_map(|run| {
            let first = run.first()?;
            let owned: Vec<Device> = run.iter().map(|&device| device.clone()).collect();
            let stage = plan.stages.get(first.stage)?;
            let (data, tensor) = devices::degrees(stage.config.as_ref());
            let mut label = first.stage.to_string();
            if run.len() > 1 {
                label.push_str(&format!(" {}{}", look.times(), run.len()));
            } else if !several {
                if data > 1 {
                    label.push_str(&format!(" r{}", first.replica));
                }
                if tensor > 1 {
                    label.push_str(&format!(" t{}", first.shard));
                }
            }
            let index = if run.len() > 1 || several { String::new() } else { format!("#{}", first.index) };
            let title = title(stage, &owned, several, look);
            Some(PlacementCell { stage: first.stage, devices: run.len(), index, label, title })
        })
        .collect()
}

fn title(stage: &PlanStage, run: &[Device], several: bool, look: Look) -> String {
    let Some(first) = run.first() else { return String::new() };
    let mut facts = Vec::new();
    if !several {
        facts.push(devices::names(run, look));
    }
    facts.push(format!("stage {}, layers {}", first.stage, layers(stage, look)));
    if run.len() == 1 && !several {
        let (data, tensor) = devices::degrees(stage.config.as_ref());
        facts.push(format!("replica {} of {data}, shard {} of {tensor}", first.replica, first.shard));
    }
    if !first.kind.is_empty() {
        facts.push(first.kind.clone());
    }
    if first.capacity_bytes > 0 {
        let capacity = crate::text::bytes(first.capacity_bytes);
        facts.push(format!("{capacity} allowed to training"));
    }
    facts.join(&format!(" {} ", look.dot()))
}

/// `0..7 conv1–relu4`.
pub(crate) fn layers(stage: &PlanStage, look: Look) -> String {
    let range = stage
        .config
        .as_ref()
        .map_or_else(String::new, |config| format!("{}..{} ", config.first_layer, config.last_layer));
    let (first, last) = (safe(&stage.first_layer_name), safe(&stage.last_layer_name));
    let names = if first == last { first } else { format!("{first}{}{last}", look.to()) };
    format!("{range}{names}").trim_end().to_owned()
}

/// Most runs that are told of a stage.
const MOST_RUNS: usize = 4;

/// What a stage computes again: by its policy, or the runs of layers of its actions; empty for nothing.
pub(crate) fn recompute(stage: &PlanStage) -> String {
    match stage.recompute() {
        RecomputePolicy::Unspecified | RecomputePolicy::None => runs(stage),
        policy => word(policy.as_str_name(), "RECOMPUTE_POLICY_"),
    }
}

/// `layers 1..3, 5 (some micro-batches)`.
fn runs(stage: &PlanStage) -> String {
    let actions = stage.memory_optimizations.iter().flat_map(|of| &of.optimizations);
    let again = actions.filter(|action| matches!(action.action, Some(Action::Recompute(_))));
    let run = |action: &MemoryOptimization| {
        let (first, last) = (action.first_layer, action.last_layer);
        let layers = if first == last { first.to_string() } else { format!("{first}..{last}") };
        if action.micro_batch_slots.is_empty() { layers } else { format!("{layers} (some micro-batches)") }
    };
    let mut runs: Vec<String> = again.map(run).collect();
    runs.dedup();
    let more = runs.len().saturating_sub(MOST_RUNS);
    runs.truncate(MOST_RUNS);
    if runs.is_empty() {
        return String::new();
    }
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("layers {}{more}", runs.join(", "))
}

fn stages(plan: &Plan, all: &[Device], look: Look) -> Vec<StageNote> {
    let note = |index: usize, stage: &PlanStage| {
        let first = index % devices::places(plan).max(1);
        let begin = all.partition_point(|device| device.stage < first);
        let end = all.partition_point(|device| device.stage <= first);
        StageNote {
            stage: Some(index),
            layers: layers(stage, look),
            sharing: devices::sharing(stage.config.as_ref(), look),
            devices: devices::names(&all[begin..end], look),
            recompute: recompute(stage),
        }
    };
    let total = plan.stages.len();
    let half = if total > MOST_STAGES { MOST_STAGES / 2 } else { total };
    let mut notes: Vec<StageNote> =
        plan.stages.iter().enumerate().take(half).map(|(index, stage)| note(index, stage)).collect();
    if total > half {
        let layers = format!("left out: {}", plural(total - 2 * half, "stage"));
        notes.push(StageNote {
            stage: None,
            layers,
            sharing: String::new(),
            devices: String::new(),
            recompute: String::new(),
        });
        notes.extend(
            plan.stages.iter().enumerate().skip(total - half).map(|(index, stage)| note(index, stage)),
        );
    }
    notes
}
