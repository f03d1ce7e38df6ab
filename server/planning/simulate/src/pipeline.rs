//! What is simulated, and what comes of it.

use loadmaster_proto::training::overlap::Overlap;
use loadmaster_proto::training::schedule::Pass;

use super::Edge;
use super::order::Order;
use crate::Seconds;

/// Most passes of a simulation, both ways: 64 stages of 8,192 micro-batches. Beyond it the answer would take seconds, and
/// hundreds of megabytes.
pub const MAX_PASSES: u64 = 1 << 20;

/// What is simulated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pipeline<'a> {
    /// The stages in the chain's order. Interleaved, these are the chunks: `devices × chunks` of them.
    pub stages: &'a [Seconds],
    /// Between each stage and the next one.
    pub edges: &'a [Edge],
    /// Passes of each stage per iteration and direction.
    pub micro_batches: u32,
    /// Who passes what when.
    pub order: Order,
    /// Whether transfers occupy the devices.
    pub overlap: Overlap,
}

impl Pipeline<'_> {
    /// Whether the numbers make a pipeline.
    ///
    /// # Errors
    /// They do not; the text names them.
    pub(super) fn check(&self) -> Result<(), SimulateError> {
        let Self { stages, edges, micro_batches, order, .. } = *self;
        if stages.is_empty() || micro_batches == 0 {
            return Err(SimulateError::Empty);
        }
        if edges.len() + 1 != stages.len() {
            return Err(SimulateError::Edges { stages: stages.len(), edges: edges.len() });
        }
        let is_time = |seconds: f64| seconds.is_finite() && seconds >= 0.0;
        let no_time = |what, index, seconds: String| Err(SimulateError::NoTime { what, index, seconds });
        for (index, stage) in stages.iter().enumerate() {
            if ![stage.forward, stage.backward, stage.step].into_iter().all(is_time) {
                return no_time("stage", index, format!("{stage:?}"));
            }
        }
        for (index, edge) in edges.iter().enumerate() {
            if ![edge.forward, edge.backward].into_iter().all(is_time) {
                return no_time("edge", index, format!("{edge:?}"));
            }
        }
        if let Order::Interleaved { devices } = order {
            for (what, number) in
                [("stages", stages.len() as u64), ("micro_batches", u64::from(micro_batches))]
            {
                if devices == 0 || !number.is_multiple_of(u64::from(devices)) {
                    return Err(SimulateError::Interleaved { what, number, devices });
                }
            }
        }
        let passes = (stages.len() as u64).saturating_mul(2 * u64::from(micro_batches));
        if passes > MAX_PASSES { Err(SimulateError::TooLarge { passes }) } else { Ok(()) }
    }
}

/// A pass that was simulated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimedPass {
    /// Index of the stage, or interleaved of the chunk, in the chain's order.
    pub stage: u32,
    /// Which pass of which micro-batch. PipeDream counts micro-batches from the start of the training.
    pub pass: Pass,
    /// Seconds from the start of the iteration, or of the window, to its start.
    pub start: f64,
    pub end: f64,
}

/// One device, or the devices that share a stage.
#[derive(Debug, Clone, PartialEq)]
pub struct Lane {
    /// Its passes in order.
    pub passes: Vec<TimedPass>,
    /// When it synchronises gradients and updates weights, once per iteration: start and end. PipeDream does so
    /// within every backward pass.
    pub step: Option<(f64, f64)>,
    /// Seconds in which it computes passes, and under PipeDream steps; transfers that delay it not counted.
    pub busy: f64,
}

/// What a simulation says.
#[derive(Debug, Clone, PartialEq)]
pub struct Simulated {
    /// Seconds of one iteration of all micro-batches, steps included; of PipeDream those that as many
    /// micro-batches take in the long run.
    pub iteration_seconds: f64,
    /// Seconds from the first pass to the end of the last one.
    pub passes_seconds: f64,
    /// Share of all devices' time, from the first pass to the end of the last, in which they compute nothing.
    pub bubble: f64,
    /// One for each device that holds a stage or chunks.
    pub lanes: Vec<Lane>,
    /// By stage or chunk: most micro-batches between their forward and backward pass at once.
    pub in_flight: Vec<u32>,
    /// By device: the same over all of its chunks, a micro-batch counted once for each chunk that it is between
    /// the passes of.
    pub at_once: Vec<u32>,
    /// By stage or chunk: versions of its weights that must be kept at once; 1 but under PipeDream.
    pub weight_versions: Vec<u32>,
}

/// What cannot be simulated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SimulateError {
    /// Nothing to do.
    #[error("a simulation needs at least 1 stage and 1 micro-batch")]
    Empty,
    /// A wrong number of edges.
    #[error("{stages} stages need {} edges between neighboring stages, but {edges} are given", .stages - 1)]
    Edges {
        /// Stages given.
        stages: usize,
        /// Edges given.
        edges: usize,
    },
    /// A time that is no time.
    #[error("{what} {index} takes {seconds} seconds, which is not valid. Use a finite number of at least 0")]
    NoTime {
        /// `stage` or `edge`.
        what: &'static str,
        index: usize,
        /// What it was said to take.
        seconds: String,
    },
    /// Stages that are cut for taking turns on their devices.
    #[error(
        "the plan has {virtual_stages} virtual pipeline stages per device, so only its own interleaved schedule can be \
         simulated. Leave `schedule` unset"
    )]
    OnlyInterleaved {
        /// How many each device has.
        virtual_stages: u32,
    },
    /// Chunks that no interleaving holds.
    #[error(
        "{what} is {number}, which is not a multiple of the {devices} devices of the interleaved schedule"
    )]
    Interleaved {
        /// `stages` or `micro_batches`.
        what: &'static str,
        /// How many there are.
        number: u64,
        /// Devices of the pipeline.
        devices: u32,
    },
    /// Too much to do.
    #[error("{passes} passes are too many to simulate, more than {MAX_PASSES}. Use fewer micro-batches")]
    TooLarge {
        /// Passes asked for.
        passes: u64,
    },
    /// An order in which passes wait for each other; no order of this module is one.
    #[error("the order of passes causes a deadlock: devices wait for each other and no pass can start")]
    Deadlock,
}

/// Share of the lanes' time up to `until` that is idle.
pub(super) fn bubble(lanes: &[Lane], until: f64) -> f64 {
    let all = until * lanes.len() as f64;
    let busy: f64 = lanes.iter().map(|lane| lane.busy).sum();
    if all > 0.0 { (1.0 - busy / all).max(0.0) } else { 0.0 }
}
