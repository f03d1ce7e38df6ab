//! The input of a simulation: the steps of each device, and the trips of its blocks.

use loadmaster_proto::training::actions::{Absence, Destination, Stripe};
use loadmaster_proto::training::boundaries::BoundaryInterval;
use loadmaster_proto::training::overlap::Overlap;

use super::{Links, Way};
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

/// A block's way out and back. Boundaries are those of [`Absence`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Trip {
    /// When its copies begin and are waited for.
    pub at: BoundaryInterval,
    /// What goes side by side, all of it there and all of it back.
    pub parcels: Vec<Parcel>,
}

/// A part of a block, or all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parcel {
    /// Where it is meanwhile.
    pub place: Place,
    /// How much. Nothing takes no time.
    pub bytes: u64,
}

/// Where a block is while it is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the memory of the host.
    Host,
    /// On the device of this index.
    Peer(u32),
}

impl Trip {
    /// The way of a block of so many bytes; stages are mapped to the devices that hold them.
    pub fn of(absence: &Absence, bytes: u64, to: &Destination, device: impl Fn(u32) -> u32) -> Self {
        let parcels = match to {
            Destination::Host => vec![Parcel { place: Place::Host, bytes }],
            Destination::Peers(stripes) => stripes
                .iter()
                .zip(Stripe::split(stripes, bytes))
                .map(|(stripe, bytes)| Parcel { place: Place::Peer(device(stripe.stage)), bytes })
                .collect(),
        };
        Self { at: absence.at, parcels }
    }

    /// The same where its steps are at these places among `all` of a device. A copy begins, and is gone, right behind the
    /// step that it was behind, and is fetched, and there, right in front of the one that it was in front of.
    pub(super) fn among(&self, places: &[usize], all: usize) -> Self {
        let count = places.len().max(1);
        let before = |boundary: usize| {
            let place = places.get(boundary % count).copied().unwrap_or(0);
            (boundary / count).saturating_mul(all).saturating_add(place)
        };
        let behind =
            |boundary: usize| boundary.checked_sub(1).map_or(0, |step| before(step).saturating_add(1));
        let BoundaryInterval { fetched, needed, leaves, freed } = self.at;
        let at = BoundaryInterval {
            fetched: before(fetched),
            needed: before(needed),
            leaves: behind(leaves),
            freed: behind(freed),
        };
        Self { at, parcels: self.parcels.clone() }
    }
}

impl Place {
    /// The way of a device's blocks to there.
    pub fn out(self, device: u32) -> Way {
        match self {
            Self::Host => Way::ToHost(device),
            Self::Peer(to) => Way::Between { from: device, to },
        }
    }

    /// The way back.
    pub fn back(self, device: u32) -> Way {
        match self {
            Self::Host => Way::FromHost(device),
            Self::Peer(from) => Way::Between { from, to: device },
        }
    }
}
