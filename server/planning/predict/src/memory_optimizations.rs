//! What a stage needs with its memory optimizations: what is where, step by step.

use std::collections::BTreeMap;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::training::actions::{
    Absence, Destination, Optimization, StageActions, Steps, Stripe, Swap,
};
use loadmaster_proto::training::boundaries::CycleBytes;

use super::{Breakdown, MOST_BYTES, Prediction, StageSeconds, StageSetting};

/// What each device of a stage needs with memory optimizations, and what goes where. An iteration is one of many: what leaves
/// at its end comes back in the next one.
#[derive(Debug, Clone, PartialEq)]
pub struct ActionsPrediction {
    /// The device, without what it sets aside for other stages.
    prediction: Prediction,
    /// What the stage does one after another.
    pub steps: Steps,
    /// Bytes of the device in each step, without what it sets aside for other stages; none where nothing is ever flushed.
    pub curve: Vec<StepBytes>,
    /// What is away when, in the order of [`loadmaster_proto::training::actions::StageActions::absences`].
    pub away: Vec<Away>,
    /// What is away where, the host first; places that hold nothing are left out.
    pub pools: Vec<Pool>,
}

/// The bytes of a device in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepBytes {
    /// When the boundary before it has done what it does.
    pub at_boundary: u64,
    /// When they are most.
    pub most: Breakdown,
}

/// A block that is away, with its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Away {
    /// When, and what it is.
    pub absence: Absence,
    /// All of it.
    pub bytes: u64,
    /// Tensors that it is made of, each of which is copied.
    pub tensors: u32,
    /// What goes to which stage; none where all goes to the host.
    pub stripes: Vec<(u32, u64)>,
}

/// What is in a place at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// The stage that hosts it; none for the host.
    pub peer: Option<u32>,
    /// The most: what is to be set aside.
    pub peak: u64,
    /// What is copied there in an iteration, and back.
    pub moved_bytes: u64,
    /// What is there at the boundary before each step, while that does what it does.
    pub at_boundaries: Vec<u64>,
}

impl ActionsPrediction {
    pub(super) fn new(
        prediction: Prediction,
        steps: Steps,
        curve: Vec<StepBytes>,
        away: Vec<Away>,
        pools: Vec<Pool>,
    ) -> Self {
        Self { prediction, steps, curve, away, pools }
    }

    /// What a device needs that sets so much aside for other stages.
    pub fn prediction(&self, peer_pools: u64) -> Prediction {
        let bytes = self.prediction.bytes.0.saturating_add(peer_pools.min(MOST_BYTES));
        let breakdown = self.prediction.breakdown.map(|parts| Breakdown {
            overhead: parts.overhead.saturating_add(peer_pools.min(MOST_BYTES)),
            ..parts
        });
        // A pool is as large as it is said to be: what may err are the bytes beside it.
        let share = self.prediction.bytes.0 as f64 / bytes.max(1) as f64;
        let margin = self.prediction.margin.map(|margin| margin * share);
        Prediction { bytes: Bytes(bytes), breakdown, margin, ..self.prediction }
    }

    /// The most that is in the host's memory at once.
    pub fn host_peak(&self) -> u64 {
        self.pools.iter().find(|pool| pool.peer.is_none()).map_or(0, |pool| pool.peak)
    }

    /// The most that is on a device of that stage at once.
    pub fn peak_on(&self, stage: u32) -> u64 {
        self.pools.iter().find(|pool| pool.peer == Some(stage)).map_or(0, |pool| pool.peak)
    }
}

impl Away {
    /// Of tensors with these bytes.
    pub(crate) fn of(absence: Absence, tensors: &[u64], stripes: &[Stripe]) -> Self {
        let mut away = Self {
            absence,
            bytes: tensors.iter().fold(0, |sum, &bytes| sum.saturating_add(bytes)),
            tensors: u32::try_from(tensors.len()).unwrap_or(u32::MAX),
            stripes: stripes.iter().map(|stripe| (stripe.stage, 0)).collect(),
        };
        for &bytes in tensors.iter().filter(|_| !stripes.is_empty()) {
            for ((_, sum), part) in away.stripes.iter_mut().zip(Stripe::split(stripes, bytes)) {
                *sum = sum.saturating_add(part);
            }
        }
        away
    }

    /// What goes where: no stage is the host.
    fn parts(&self) -> impl Iterator<Item = (Option<u32>, u64)> {
        let host = self.stripes.is_empty().then_some((None, self.bytes));
        host.into_iter().chain(self.stripes.iter().map(|&(stage, bytes)| (Some(stage), bytes)))
    }
}

/// What is in each place at each boundary before one of so many steps, the host first.
pub(crate) fn in_places(away: &[Away], steps: usize) -> Vec<Pool> {
    let mut places: BTreeMap<Option<u32>, (CycleBytes, u64)> = BTreeMap::new();
    for away in away {
        for (place, bytes) in away.parts().filter(|&(_, bytes)| bytes > 0) {
            let (cycle, moved) = places.entry(place).or_insert_with(|| (CycleBytes::new(steps), 0));
            cycle.add(away.absence.at.stored(), bytes);
            *moved = moved.saturating_add(bytes);
        }
    }
    let pool = |(peer, (cycle, moved_bytes)): (Option<u32>, (CycleBytes, u64))| {
        let at_boundaries = cycle.sums();
        let peak = at_boundaries.iter().copied().max().unwrap_or_default();
        Pool { peer, peak, moved_bytes, at_boundaries }
    };
    places.into_iter().map(pool).collect()
}

/// The stripes of an action's blocks; none where they go to the host.
pub(crate) fn stripes<'a>(actions: &'a StageActions, absence: &Absence) -> &'a [Stripe] {
    match actions.actions.get(absence.action).map(|action| &action.optimization) {
        Some(Optimization::Swap(Swap { to: Destination::Peers(stripes), .. })) => stripes,
        _ => &[],
    }
}

/// A micro-batch's seconds, of those of the stage's layers: what is recomputed is some micro-batches' alone.
pub(crate) fn seconds(layers: &[StageSeconds], steps: &Steps, setting: &StageSetting) -> StageSeconds {
    let sum = |of: fn(&StageSeconds) -> f64| layers.iter().map(of).sum::<f64>();
    let micro_batches = setting.training.micro_batches;
    let is_again = |layer: usize, slot: u32| steps.run(layer, slot).is_some_and(|run| run.is_recomputed);
    let times_again = |layer: usize| {
        let of = |slot: u32| micro_batches.saturating_sub(slot).div_ceil(steps.slots());
        (0..steps.slots()).filter(|&slot| is_again(layer, slot)).map(of).sum::<u32>()
    };
    let again = (setting.stage.first_layer..)
        .zip(layers)
        .map(|(layer, own)| own.forward * f64::from(times_again(layer)) / f64::from(micro_batches.max(1)));
    StageSeconds {
        forward: sum(|own| own.forward),
        backward: sum(|own| own.backward) + again.sum::<f64>(),
        step: sum(|own| own.step),
    }
    .sharded(setting.stage.optimizer_parts())
}
