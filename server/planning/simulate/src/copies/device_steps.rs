//! What each device does one after another.

use loadmaster_proto::training::overlap::Overlap;

use super::{Links, Trip};
use crate::Edge;

/// Most steps and most parcels of a simulation: beyond it the answer would take seconds, and hundreds of megabytes.
pub(super) const MAX_WORK: usize = 1 << 21;

/// What is simulated.
#[derive(Debug, Clone, Copy)]
pub struct CopyPipeline<'a> {
    /// The devices of the pipeline; where a stage has several, which do the same, one of them.
    pub devices: &'a [DeviceSteps],
    /// Between each stage, or chunk, and the next one.
    pub edges: &'a [Edge],
    /// Whether activations and their gradients occupy the devices. Copies never do.
    pub overlap: Overlap,
    /// What copies go over.
    pub links: &'a Links,
}

/// What a device does in an iteration.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DeviceSteps {
    /// Its steps in order. Boundary b lies before step b.
    pub steps: Vec<TimedStep>,
    /// Its blocks that are away meanwhile; what leaves at one boundary is copied in this order, and so is what is fetched there for
    /// the same step.
    pub trips: Vec<Trip>,
}

/// A step of a device.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TimedStep {
    /// How long it takes.
    pub seconds: f64,
    /// What must have arrived before it starts.
    pub takes: Option<Handover>,
    /// What it sends when it is over.
    pub gives: Option<Handover>,
}

/// What one stage hands to another: an activation, or a gradient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handover {
    /// Over which edge, an index in [`CopyPipeline::edges`].
    pub edge: u32,
    /// Whether it is a gradient on its way to the first stage.
    pub is_backward: bool,
    /// Of which micro-batch.
    pub micro_batch: u32,
}

impl TimedStep {
    /// A step that neither takes nor gives.
    pub fn alone(seconds: f64) -> Self {
        Self { seconds, takes: None, gives: None }
    }
}
