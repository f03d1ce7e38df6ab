//! What all stages do, and how long an iteration takes then.

use loadmaster_proto::training::actions::{Optimization, StageActions};

use super::stage_policy::{Built, Care, Stage, StagePolicy};
use crate::actions::residency::pooled;
use crate::actions::simulation::SimulationContext;
use crate::actions::striping::Receiver;
use crate::actions::{PeakMemory, PlanError, Question};
use loadmaster_simulate::copies::Copied;

/// Shares of an iteration by which seconds differ that are the same.
const SAME: f64 = 1e-9;

/// A plan that fits.
#[derive(Debug, Clone)]
pub(super) struct Incumbent<'a> {
    question: &'a Question<'a>,
    pub(super) stages: &'a [Stage<'a>],
    built: Vec<Built>,
    scene: SimulationContext<'a>,
    /// Of an iteration.
    pub(super) seconds: f64,
    /// By stage: seconds for which its device works or waits for copies.
    pub(super) loads: Vec<f64>,
    /// How many plans were simulated so far.
    pub(super) simulated: u32,
}

impl<'a> Incumbent<'a> {
    /// All stages with these policies; none where that does not fit, or takes longer than `most` seconds.
    pub(super) fn of(
        question: &'a Question<'a>,
        stages: &'a [Stage<'a>],
        policies: &[StagePolicy],
        most: f64,
    ) -> Result<Option<Self>, PlanError> {
        let mapping: Vec<usize> = (0..stages.len()).collect();
        let scene = SimulationContext::new(question, &mapping);
        let built = vec![Built::default(); stages.len()];
        let mut incumbent =
            Self { question, stages, built, scene, seconds: 0.0, loads: Vec::new(), simulated: 1 };
        for (stage, &policy) in policies.iter().enumerate() {
            let Some(mut built) = stages[stage].fitting(policy, &incumbent.receivers(stage)) else {
                return Ok(None);
            };
            incumbent.scene.exchange(stage, &mut built.device);
            incumbent.built[stage] = built;
        }
        if !incumbent.has_room() {
            return Ok(None);
        }
        let Some(copied) = incumbent.scene.simulated_within(most * (1.0 + 2.0 * SAME))? else {
            return Ok(None);
        };
        incumbent.note(&copied);
        Ok(Some(incumbent))
    }

    /// What a stage does.
    pub(super) fn policy(&self, stage: usize) -> StagePolicy {
        self.built[stage].policy
    }

    /// What all stages do.
    pub(super) fn policies(&self) -> Vec<StagePolicy> {
        self.built.iter().map(|built| built.policy).collect()
    }

    /// Whether a stage computes anything once more.
    pub(super) fn computes_again(&self, stage: usize) -> bool {
        self.built[stage].actions.actions.iter().any(|action| action.optimization == Optimization::Recompute)
    }

    /// Lets a stage do something else if that makes the iteration shorter, or leaves it as it is and has devices work and
    /// wait less. Whether it did.
    pub(super) fn tries(&mut self, stage: usize, policy: StagePolicy, care: Care) -> Result<bool, PlanError> {
        let Some(mut built) = self.stages[stage].built(policy, &self.receivers(stage), care) else {
            return Ok(false);
        };
        self.simulated += 1;
        let mut device = std::mem::take(&mut built.device);
        std::mem::swap(&mut self.built[stage], &mut built);
        if !self.has_room() {
            self.built[stage] = built;
            return Ok(false);
        }
        self.scene.exchange(stage, &mut device);
        let copied = self.scene.simulated_within(self.seconds * (1.0 + 2.0 * SAME))?;
        if let Some(copied) = copied.filter(|copied| self.is_better(copied)) {
            self.note(&copied);
            return Ok(true);
        }
        self.scene.exchange(stage, &mut device);
        self.built[stage] = built;
        Ok(false)
    }

    fn is_better(&self, copied: &Copied) -> bool {
        let (seconds, least) = (copied.iteration_seconds, self.seconds);
        let work = |loads: &[f64]| loads.iter().sum::<f64>();
        let is_same = (seconds - least).abs() <= SAME * least;
        seconds < least * (1.0 - SAME) || is_same && work(&loads(copied)) < work(&self.loads) * (1.0 - SAME)
    }

    fn note(&mut self, copied: &Copied) {
        self.seconds = copied.iteration_seconds;
        self.loads = loads(copied);
    }

    /// Whether hosts and peers have room for what goes there.
    fn has_room(&self) -> bool {
        self.question.node.hosts_have_room(self.built.iter().map(|built| built.held.host).enumerate())
            && (0..self.stages.len()).all(|stage| {
                let taken = self.taken(stage, None);
                taken == 0 || self.free(stage).is_some_and(|free| taken <= free)
            })
    }

    /// Bytes of a device that does nothing itself.
    fn free(&self, stage: usize) -> Option<u64> {
        let of = &self.stages[stage];
        of.room.checked_sub(of.untouched.device)
    }

    /// What stages have on another one's devices, but for one of them.
    fn taken(&self, other: usize, but: Option<usize>) -> u64 {
        let Ok(number) = u32::try_from(other) else { return u64::MAX };
        let taken = |(donor, built): (usize, &Built)| {
            let bytes = built.held.peers.get(&number).copied().unwrap_or(0);
            if Some(donor) == but { 0 } else { bytes.saturating_mul(self.question.node.guests(donor, other)) }
        };
        self.built.iter().enumerate().map(taken).fold(0, u64::saturating_add)
    }

    /// Peers of a stage, with what is free on them: those that do nothing themselves.
    fn receivers(&self, stage: usize) -> Vec<Receiver> {
        let node = self.question.node;
        let receiver = |other: usize| {
            let link = node.link(stage, other)?.slower(node.link(other, stage)?);
            let number = u32::try_from(other).ok()?;
            let free = self.free(other)?.checked_sub(self.taken(other, Some(stage)))?;
            let spare_bytes = free / node.guests(stage, other);
            (spare_bytes > 0).then_some(Receiver { stage: number, link, spare_bytes })
        };
        if !self.question.allowed.peers {
            return Vec::new();
        }
        (0..self.stages.len()).filter(|&other| other != stage).filter_map(receiver).collect()
    }

    /// What all stages do, with the pools that they need.
    pub(super) fn pooled(&self) -> Vec<StageActions> {
        let held: Vec<&PeakMemory> = self.built.iter().map(|built| &built.held).collect();
        pooled(self.built.iter().map(|built| built.actions.clone()), &held)
    }
}

fn loads(copied: &Copied) -> Vec<f64> {
    copied.devices.iter().map(|device| device.busy + device.waited.all()).collect()
}
