//! Exact search over pipeline layouts: layers of each stage, its devices, and its data- and tensor-parallel sizes.
//!
//! A search sees numbers alone. [`Question`] combines them:
//!
//! | part | contents |
//! |---|---|
//! | [`Fleet`] | devices, node by node, and the links between them |
//! | [`Places`] | runs of devices that a stage may take after the earlier stages: an acyclic graph |
//! | [`Choice`] | how the devices of a stage divide its work, and which layers are recomputed |
//! | [`StageCosts`] | bytes and seconds of any stage under any choice |
//! | [`Cuts`] | layers after which the chain may be cut |
//!
//! A plan shape is a set of choices: one `Choice` for `UNIFORM_GRID`, all with the same number of devices for `EQUAL_DEVICES`,
//! those without tensor shards for `PER_STAGE_REPLICAS`, one device for `SINGLE_PIPELINE`, all for `PER_STAGE_MESH`. One dynamic
//! program over (place, layer) thus covers every shape. It runs from the last stage to the first, because the micro-batches that
//! a stage holds under 1F1B depend on the stages after it.
//!
//! | module | result | method |
//! |---|---|---|
//! | [`memory`] | lexicographic min-max of peaks over devices | bisection of the highest peak, then one distinct peak per round |
//! | [`time`] | least Σt + Σe + (m−1)·max t + max s (AMP, equation 5) | both maxima bounded, shortest path within, best first |
//! | [`pareto`] | front of peak and seconds | the fastest plan below the last plan's peak, repeatedly |
//! | [`simulated`] | fastest plan, lowest peaks, front, in simulated seconds | branch and bound from the last stage |
//! | [`paper`] | results of the published searches | CAPTURE, mCAP, AMP, as described |
//! | `fewest` | fewest devices that hold a chain, on any nodes | program over layers and later stages |
//!
//! Every search returns a [`Searched`]: the best plan found, a bound that no plan beats, and the way in which it ended. A search
//! that is too large, or whose effort ends, returns the best plan and a valid bound. [`time`] bounds its own formula only, which
//! is no lower bound of an iteration under 1F1B; [`simulated`] bounds iterations.
//!
//! A pipeline passes through the nodes one after another, in any order, and visits each once. Equal devices of a node are
//! interchangeable: a pin requests any one of them, and the plan names it. [`pairs`] describes nodes whose devices have different
//! links.

pub mod cost;
mod costs;
mod cuts;
pub mod fewest_devices;
pub mod fleet;
mod graph;
pub mod memory;
mod pairs;
pub mod paper;
pub mod pareto;
mod places;
pub mod progress;
pub mod simulated;
mod stop;
#[cfg(test)]
mod tests;
pub mod time;
mod topology;

use std::ops::RangeInclusive;

pub use costs::{Best, Choice, Peak, Squeezed, StageAt, StageCosts, Unit};
pub use cuts::{Cuts, Pin};
pub use loadmaster_proto::training::Schedule;
pub use loadmaster_simulate::Seconds;
pub use pairs::{UnlikeLinks, UnlikeNode, UnlikeNodes};
pub use places::{Layouts, LinkId, PlaceId, PlacedStage, Places, Spanning, Step};
pub use progress::Progress;
pub use stop::{Assignment, Ended, Searched, Stop};
pub use topology::{Fleet, FleetNode, Kind, KindSet, Link, LinkOrigin};

/// What is asked of a search, for one micro-batch size and one number of micro-batches.
#[derive(Debug)]
pub struct Question<'a, C> {
    /// Bytes and seconds of stages.
    pub costs: &'a C,
    /// The devices.
    pub fleet: &'a Fleet,
    /// What stages may take of them.
    pub places: &'a Places,
    /// Which of the costs' choices a stage may make, by index.
    pub choices: &'a [usize],
    /// Order of the passes: decides how many micro-batches a stage holds.
    pub schedule: Schedule,
    /// Stage passes per iteration.
    pub micro_batches: u32,
    /// How many stages a plan may have.
    pub stages: RangeInclusive<usize>,
    /// Where the chain may be cut, and which layers must be where.
    pub cuts: &'a Cuts,
    /// Whether every stage must fit into its devices' capacity, with its margin.
    pub within_capacity: bool,
}

impl<C: StageCosts> Question<'_, C> {
    /// These layers on the devices of a step.
    pub fn stage_at(&self, step: &Step, first: usize, last: usize, choice: usize) -> StageAt {
        let tensor = self.costs.choices().get(choice).map_or(1, |choice| choice.tensor);
        StageAt {
            first,
            last,
            choice,
            kinds: step.kinds,
            tensor_link: self.places.tensor_link(step, tensor),
            data_link: step.data_link(),
            tensor_rings: self.places.tensor_rings(step, tensor),
            data_rings: self.places.data_rings(step, tensor),
        }
    }

    /// By first layer: the first layer that a stage on a step's devices must not have because of pins; empty
    /// without pins.
    pub fn walls(&self, from: PlaceId, step: usize) -> Vec<usize> {
        self.cuts.walls(self.fleet, self.places.devices(from, step))
    }

    /// Seconds that one micro-batch's activations and their gradients take between two stages of these choices, cut
    /// after `layer`: the side that has more to send or to receive counts.
    pub fn edge_seconds(&self, layer: usize, entry: LinkId, sender: usize, receiver: usize) -> f64 {
        let of = |choice| self.costs.cut_seconds(layer, entry, choice);
        of(sender).max(of(receiver))
    }

    /// The micro-batches that a stage holds when `after` stages follow it in the pipeline.
    pub fn in_flight(&self, after: usize) -> u32 {
        match self.schedule {
            Schedule::Gpipe => self.micro_batches,
            Schedule::OneFOneB => {
                self.micro_batches.min(u32::try_from(after).unwrap_or(u32::MAX).saturating_add(1))
            }
            Schedule::PipeDream => u32::try_from(after).unwrap_or(u32::MAX).saturating_add(1),
        }
    }
}
