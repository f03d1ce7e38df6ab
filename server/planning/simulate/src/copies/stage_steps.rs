//! The steps of a stage, and of a device that holds several chunks.

use loadmaster_proto::training::actions::{Step, Steps};
use loadmaster_proto::training::schedule::Pass;

use super::{CopiesError, DeviceSteps, Handover, TimedStep, Trip};
use crate::Turn;

/// Seconds of one layer.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LayerSeconds {
    /// Of its forward pass.
    pub forward: f64,
    /// Of its backward pass, without what is recomputed before.
    pub backward: f64,
    /// Of its forward pass when it is recomputed.
    pub again: f64,
    /// Of its update.
    pub update: f64,
}

/// A stage, or a chunk, and how long its steps take.
#[derive(Debug, Clone, Copy)]
pub struct StageSteps<'a> {
    /// Its position in the chain, and how many there are.
    pub place: (u32, u32),
    /// What it does.
    pub steps: &'a Steps,
    /// Its first layer, an index in the model.
    pub first_layer: usize,
    /// All of its layers.
    pub layers: &'a [LayerSeconds],
    /// Seconds in which it adds up its gradients with those of others.
    pub exchange_seconds: f64,
}

/// A pass that a step is part of; none of steps behind all passes.
pub fn pass_of(step: Step) -> Option<Pass> {
    match step {
        Step::Forward { micro_batch, .. } => Some(Pass::Forward(micro_batch)),
        Step::Again { micro_batch, .. } | Step::Backward { micro_batch, .. } => {
            Some(Pass::Backward(micro_batch))
        }
        Step::Renew | Step::Exchange | Step::Update { .. } => None,
    }
}

impl StageSteps<'_> {
    /// Its steps with their times. The first step of a pass takes what enters the stage, if it only recomputes, too:
    /// a rank receives before it begins a pass.
    ///
    /// # Errors
    /// Steps of layers that have no times.
    pub fn timed(&self) -> Result<Vec<TimedStep>, CopiesError> {
        let (index, count) = self.place;
        let all = self.steps.all();
        let edge_behind = (index + 1 < count).then_some(index);
        let edge_before = index.checked_sub(1);
        let mut timed = Vec::with_capacity(all.len());
        for (at, &step) in all.iter().enumerate() {
            let pass = pass_of(step);
            let begins = pass.is_some() && (at == 0 || pass_of(all[at - 1]) != pass);
            let ends = pass.is_some() && all.get(at + 1).is_none_or(|&next| pass_of(next) != pass);
            let (takes, gives) = match pass {
                Some(Pass::Forward(_)) => (edge_before, edge_behind),
                Some(Pass::Backward(_)) => (edge_behind, edge_before),
                None => (None, None),
            };
            let handed = |edge: Option<u32>| {
                let (is_backward, micro_batch) = match pass? {
                    Pass::Forward(micro_batch) => (false, micro_batch),
                    Pass::Backward(micro_batch) => (true, micro_batch),
                };
                Some(Handover { edge: edge?, is_backward, micro_batch })
            };
            timed.push(TimedStep {
                seconds: self.seconds(step)?,
                takes: handed(takes.filter(|_| begins)),
                gives: handed(gives.filter(|_| ends)),
            });
        }
        Ok(timed)
    }

    fn seconds(&self, step: Step) -> Result<f64, CopiesError> {
        let of = |layer: usize| {
            let found = layer.checked_sub(self.first_layer).and_then(|at| self.layers.get(at));
            let (index, count) = (layer as u64, self.layers.len());
            found.ok_or_else(|| CopiesError::Index { what: "the layer of a step".to_owned(), index, count })
        };
        Ok(match step {
            Step::Forward { layer, .. } => of(layer)?.forward,
            Step::Again { layer, .. } => of(layer)?.again,
            Step::Backward { layer, .. } => of(layer)?.backward,
            // Copying the weights is part of what an update takes.
            Step::Renew => 0.0,
            Step::Exchange => self.exchange_seconds,
            Step::Update { layer } => of(layer)?.update,
        })
    }
}

/// What a device does that holds these chunks, each with its trips, whose passes take turns; updates come last, chunk by
/// chunk. The steps of a chunk are those of its own passes in the order of the turns, and boundaries of its trips count
/// these alone. A copy that begins behind a step begins right behind it, one that is waited for in front of a step right
/// in front of it.
///
/// # Errors
/// Turns that are not those of the chunks.
pub fn device_of_chunks(
    turns: &[Turn],
    chunks: &[(StageSteps<'_>, Vec<Trip>)],
) -> Result<DeviceSteps, CopiesError> {
    let own: Vec<Vec<TimedStep>> = chunks.iter().map(|(chunk, _)| chunk.timed()).collect::<Result<_, _>>()?;
    let mut places: Vec<Vec<usize>> = chunks.iter().map(|_| Vec::new()).collect();
    let mut device = DeviceSteps::default();
    let strange = |turn: &Turn| CopiesError::Index {
        what: "the stage of a turn".to_owned(),
        index: turn.stage.into(),
        count: chunks.len(),
    };
    let mut goes_on = |chunk: usize, pass: Option<Pass>| {
        let before = places[chunk].len();
        while let Some((step, timed)) =
            chunks[chunk].0.steps.all().get(places[chunk].len()).zip(own[chunk].get(places[chunk].len()))
        {
            if pass_of(*step) != pass {
                break;
            }
            places[chunk].push(device.steps.len());
            device.steps.push(*timed);
        }
        places[chunk].len() > before
    };
    for turn in turns {
        let chunk =
            chunks.iter().position(|(chunk, _)| chunk.place.0 == turn.stage).ok_or_else(|| strange(turn))?;
        if !goes_on(chunk, Some(turn.pass)) {
            return Err(strange(turn));
        }
    }
    for chunk in 0..chunks.len() {
        goes_on(chunk, None);
    }
    let all = device.steps.len();
    for ((_, trips), places) in chunks.iter().zip(&places) {
        device.trips.extend(trips.iter().map(|trip| trip.among(places, all)));
    }
    Ok(device)
}
