//! PipeDream: steps without a flush, and seconds in the long run.

use loadmaster_proto::training::overlap::Overlap;
use loadmaster_proto::training::schedule::Pass;

use super::of_stage::pass_of;
use super::{CopiesError, DeviceSteps, Keep, Links, StageSteps, Stepped, TimedStep, Trip, simulate};
use crate::iteration::Edge;

/// A stage that updates its weights behind every backward pass.
#[derive(Debug, Clone, PartialEq)]
pub struct Endless {
    /// What its device does.
    pub device: DeviceSteps,
    /// By backward pass: how many steps are done when its update is over.
    pub updated: Vec<usize>,
}

impl Endless {
    /// The stage whose passes are those of `stage`, 1F1B for as many micro-batches as are simulated; its updates at the end
    /// are made behind each backward pass instead. Boundaries of trips are those of `stage`, up to its last pass.
    ///
    /// # Errors
    /// Trips that go on behind the last pass: what weights and their state do there, PipeDream does after every pass.
    pub fn of(stage: &StageSteps<'_>, trips: &[Trip]) -> Result<Self, CopiesError> {
        let (all, timed) = (stage.steps.all(), stage.timed()?);
        let passes = all.iter().take_while(|&&step| pass_of(step).is_some()).count();
        let updates = timed.get(passes..).unwrap_or_default();
        let (mut device, mut places, mut updated) = (DeviceSteps::default(), Vec::new(), Vec::new());
        for (at, (&step, &timed)) in all.iter().zip(&timed).take(passes).enumerate() {
            places.push(device.steps.len());
            device.steps.push(timed);
            let pass = pass_of(step);
            let is_over = all.get(at + 1).is_none_or(|&next| pass_of(next) != pass);
            if is_over && matches!(pass, Some(Pass::Backward(_))) {
                device.steps.extend(updates.iter().map(|update| TimedStep::alone(update.seconds)));
                updated.push(device.steps.len());
            }
        }
        for (index, trip) in trips.iter().enumerate() {
            if trip.needed >= passes {
                let (device, why) = (stage.place.0 as usize, "goes on behind the last pass");
                return Err(CopiesError::Trip { device, trip: index, why, of: trip.clone() });
            }
            device.trips.push(trip.among(&places, device.steps.len()));
        }
        Ok(Self { device, updated })
    }
}

/// Seconds between two updates of the first stage in the long run: the mean over the second half of the micro-batches, but
/// for those that the pipeline runs dry with. Where the same recurs after c micro-batches, as many more as a multiple of c
/// make it exact.
///
/// # Errors
/// As [`simulate()`], and too few micro-batches.
pub fn seconds_per_micro_batch(
    stages: &[Endless],
    edges: &[Edge],
    overlap: Overlap,
    links: &Links,
) -> Result<f64, CopiesError> {
    let devices: Vec<DeviceSteps> = stages.iter().map(|stage| stage.device.clone()).collect();
    let stepped = Stepped { devices: &devices, edges, overlap, links };
    let copied = simulate(&stepped, Keep { steps: true, copies: false })?;
    let (updated, steps) = stages
        .first()
        .zip(copied.devices.first())
        .map(|(stage, of)| (&stage.updated, &of.steps))
        .ok_or(CopiesError::Empty)?;
    let full = updated.len().saturating_sub(stages.len());
    let over = |pass: usize| steps.get(updated.get(pass)?.checked_sub(1)?).map(|step| step.1);
    let (first, last) = (full / 2, full.saturating_sub(1));
    if last <= first {
        return Err(CopiesError::Empty);
    }
    let seconds = over(last).zip(over(first)).map_or(f64::NAN, |(last, first)| last - first);
    Ok(seconds / (last - first) as f64)
}
