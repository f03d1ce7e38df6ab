//! Which runs of devices a stage may take: a graph without cycles.
//!
//! A *place* says what the stages so far have taken; a *step* is the devices that the next stage takes. The
//! stages of a plan are a path from the first place to the last: in order, and no device stays idle. A
//! stage keeps to one node, or takes whole nodes where [`Spanning`] allows it (CAPTURE, III-C: degrees fill
//! every node exactly).
//!
//! | nodes | a place is |
//! |---|---|
//! | all alike, or in a given order | the number of devices taken ([`Places::in_order`], [`Places::in_sequence`]) |
//! | of some classes, in any order | the number of nodes taken of each class ([`Places::by_class`]) |
//! | chosen already | the number of stages that they carry ([`Places::given`]) |
//! | too many classes for that | as in a given order, for some good orders ([`Layouts`]) |

mod by_class;
mod fixed_devices;
mod in_order;
mod layouts;

pub use layouts::Layouts;

use std::ops::Range;

use super::topology::{KindSet, Link};

/// Index of a place; every step leads to a larger one.
pub type PlaceId = u32;

/// Index of a link in [`Places::links`].
pub type LinkId = u16;

/// Index of a way in which a stage is spread over nodes, from 1; 0 on one node.
pub(super) type SplitId = u16;

/// Whether a stage may take devices of several nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Spanning {
    #[default]
    Never,
    /// Only all devices of each of them.
    WholeNodes,
    /// Any devices that follow each other.
    Anywhere,
}

/// The devices that a stage takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The place after it.
    pub to: PlaceId,
    /// How many.
    pub devices: u32,
    pub kinds: KindSet,
    /// The link over which its input comes from the stage before it; meaningless for the first stage. Between unlike devices
    /// of a node any of their links may be meant: which device has which stage is decided afterwards.
    pub entry: LinkId,
    /// Slowest link inside its nodes.
    pub inside: LinkId,
    /// Slowest link between its nodes; that inside where it takes one node.
    pub across: LinkId,
    /// How many of its devices are on each of its nodes; 0 where they are not equally many.
    pub per_node: u32,
    /// Index of how its devices are spread over nodes with a network between them; 0 on one node.
    pub split: SplitId,
    /// Groups of replicas of other stages that share a node's link to the outside with those of this one. Known of
    /// stages whose nodes are chosen, and 0 where stages take the nodes one after another.
    pub others: u32,
}

impl Step {
    /// Whether groups of `tensor` neighbouring devices stay within a node, as far as its number per node says.
    fn is_inside(&self, tensor: u32) -> bool {
        self.per_node > 0 && self.per_node.is_multiple_of(tensor.max(1))
    }

    /// The slowest link between its replicas.
    pub fn data_link(&self) -> LinkId {
        self.across
    }
}

/// A stage of a plan: layers on the devices of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PlacedStage {
    /// Index of the first layer.
    pub first: usize,
    /// Index of the last layer, inclusive.
    pub last: usize,
    /// Index of its choice.
    pub choice: usize,
    /// What the stages before it took.
    pub from: PlaceId,
    /// Which of that place's steps it takes.
    pub step: usize,
}

/// All places and steps of a fleet.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Places {
    /// Steps from each place.
    steps: Vec<Vec<Step>>,
    /// Distinct links.
    links: Vec<Link>,
    /// Devices that steps take, by place and step, as ranges of the fleet's devices.
    devices: Vec<Vec<Vec<Range<u32>>>>,
    /// Distinct ways in which steps' devices are spread over nodes, in the order of ranks: how many on each.
    splits: Vec<Vec<u32>>,
}

impl Places {
    /// Number of places. The first is 0, the last, with all devices taken, the one before this number.
    pub fn count(&self) -> usize {
        self.steps.len()
    }

    /// Number of steps from all of them.
    pub fn step_count(&self) -> usize {
        self.steps.iter().map(Vec::len).sum()
    }

    /// The place where all devices are taken.
    pub fn last(&self) -> PlaceId {
        u32::try_from(self.steps.len().saturating_sub(1)).unwrap_or(u32::MAX)
    }

    /// The steps from a place.
    pub fn steps(&self, from: PlaceId) -> &[Step] {
        self.steps.get(from as usize).map_or(&[], Vec::as_slice)
    }

    pub fn link(&self, link: LinkId) -> Option<Link> {
        self.links.get(usize::from(link)).copied()
    }

    /// All distinct links, by index.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// Which of the fleet's devices a step takes.
    pub fn devices(&self, from: PlaceId, step: usize) -> &[Range<u32>] {
        self.devices.get(from as usize).and_then(|steps| steps.get(step)).map_or(&[], Vec::as_slice)
    }

    /// Which of the fleet's devices each stage of a plan takes, in order.
    pub fn resolve(&self, stages: &[PlacedStage]) -> Vec<Vec<u32>> {
        let taken =
            |stage: &PlacedStage| self.devices(stage.from, stage.step).iter().cloned().flatten().collect();
        stages.iter().map(taken).collect()
    }

    /// The slowest link within groups of `tensor` neighbouring devices of a step.
    pub fn tensor_link(&self, step: &Step, tensor: u32) -> LinkId {
        let is_inside = step.is_inside(tensor) || (step.split > 0 && self.reaching_out(step, tensor) == 0);
        if is_inside { step.inside } else { step.across }
    }

    /// Groups of `tensor` neighbouring devices of a step that share a node's link to the outside, or 1.
    pub fn tensor_rings(&self, step: &Step, tensor: u32) -> u32 {
        self.reaching_out(step, tensor).max(1)
    }

    /// Groups of `tensor` neighbouring devices of a step that reach beyond a node: at most one at each of its ends.
    fn reaching_out(&self, step: &Step, tensor: u32) -> u32 {
        let tensor = tensor.max(1);
        let mut begin = 0;
        let on_node = |&devices: &u32| {
            let (first, end) = (begin, begin + devices);
            begin = end;
            let [enters, leaves] = [first, end].map(|at| !at.is_multiple_of(tensor));
            u32::from(enters) + u32::from(leaves && !(enters && first / tensor == end / tensor))
        };
        self.split(step).iter().map(on_node).max().unwrap_or(0)
    }

    /// Groups of replicas of a step, one for each of `tensor` shards, that share a node's link to the outside: those
    /// that have members on it and elsewhere.
    pub fn data_rings(&self, step: &Step, tensor: u32) -> u32 {
        let on_node = |&devices: &u32| devices.min(tensor).min(step.devices.saturating_sub(devices));
        self.split(step).iter().map(on_node).max().unwrap_or(1).max(1) + step.others
    }

    fn split(&self, step: &Step) -> &[u32] {
        let known = usize::from(step.split).checked_sub(1).and_then(|index| self.splits.get(index));
        known.map_or(&[], Vec::as_slice)
    }

    /// The index of a way to be spread over nodes, which is added if it is new. Beyond the largest index all are the
    /// last.
    fn intern_split(&mut self, split: Vec<u32>) -> SplitId {
        if split.len() < 2 {
            return 0;
        }
        let index = self.splits.iter().position(|known| *known == split).unwrap_or_else(|| {
            self.splits.push(split);
            self.splits.len() - 1
        });
        SplitId::try_from(index + 1).unwrap_or(SplitId::MAX)
    }

    /// The index of a link, which is added if it is new. Beyond the largest index all are the last.
    fn intern(&mut self, link: Link) -> LinkId {
        let index = self.links.iter().position(|known| *known == link).unwrap_or_else(|| {
            self.links.push(link);
            self.links.len() - 1
        });
        LinkId::try_from(index).unwrap_or(LinkId::MAX)
    }
}
