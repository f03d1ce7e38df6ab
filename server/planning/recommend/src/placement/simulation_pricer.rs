//! How long an iteration takes in a way whose stages copy, or share cores: simulated step by step, as the plan was.

use loadmaster_proto::plan::Plan;

use super::copying::are_uniform;
use super::price::{Price, Pricer};
use super::ways::{Seat, Ways};
use crate::interleaved::Interleaving;
use crate::memory_optimizations::{CopiesAsPlanned, Timed, settings};
use crate::plan::PlanBuilder;
use crate::problem::{ProfiledChain, Transfers};
use crate::search::Candidate;
use loadmaster_predict::{ActionsError, ActionsPrediction, Margin, PipelineActions};
use loadmaster_search::cost::{Factors, Prices};
use loadmaster_search::fleet::PlannedFleet;

/// What prices the ways of a plan whose seconds are of its steps.
pub(super) struct SimulationPricer<'a> {
    plan: &'a Plan,
    plain: Pricer<'a, Prices<'a>>,
    builder: PlanBuilder<'a>,
    stages: PipelineActions,
    /// Whose they are where devices have several stages.
    interleaving: Option<Interleaving>,
    copies: CopiesAsPlanned,
    are_uniform: bool,
}

impl<'a> SimulationPricer<'a> {
    /// `kinds` are those of the fleet's devices, in its order.
    ///
    /// # Errors
    /// The profile no longer tells what the plan's actions are predicted from.
    pub(super) fn of(
        plan: &'a Plan,
        (chain, kinds): (&'a ProfiledChain, &'a [(&'a ProfiledChain, Factors)]),
        prices: &'a Prices<'a>,
        fleet: &'a PlannedFleet,
    ) -> Result<Self, ActionsError> {
        let actions = plan.stage_actions();
        let (predictor, model, settings) = (&*chain.predictor, chain.model.as_ref(), settings(plan));
        let interleaving = plan.is_interleaved().then(|| interleaving_of(plan)).flatten();
        let stages = match &interleaving {
            None => PipelineActions::of(predictor, model, &settings, &actions)?,
            Some(interleaving) => {
                let steps = |setting: &_, actions: &_| interleaving.steps(model, setting, actions);
                PipelineActions::in_steps(predictor, model, &settings, &actions, &steps)?
            }
        };
        let overlap = plan.found.iteration.as_ref().map(|of| of.overlap).unwrap_or_default();
        let builder = PlanBuilder {
            chain,
            kinds,
            prices,
            fleet,
            training: plan.training,
            margin: Margin::Known,
            goal: plan.asked.clone(),
            corrections: plan.found.corrections.clone(),
            notes: Vec::new(),
            transfers: Transfers { overlap, reason: String::new() },
        };
        let copies = CopiesAsPlanned::of(plan);
        let are_uniform = are_uniform(fleet) && !fleet.fleet.has_unlike_links();
        let plain = Pricer::of(prices, plan, fleet.devices());
        Ok(Self { plan, plain, builder, stages, interleaving, copies, are_uniform })
    }

    /// How fast copies are in a way, and who says so, for people; none where nothing is copied.
    pub(super) fn told(&self, ways: &Ways<'_>, way: &[Seat]) -> Option<String> {
        self.fastest(ways, way)?.1.told()
    }

    /// What of the plan's actions may not be on these nodes, in the first of their ways; none where all may.
    pub(super) fn refused(&self, ways: &Ways<'_>) -> Option<String> {
        let firsts = ways.first()?;
        // Devices that have several stages in turn have the actions of all of them.
        let devices = firsts.iter().map(Vec::as_slice).cycle();
        let devices: Vec<&[u32]> = devices.take(self.plan.stages.len()).collect();
        let why = self.builder.check_acts_on(&devices, &self.stages).err()?;
        Some(format!(
            "does memory actions that these nodes do not allow: {why}; give nodes like those of the plan"
        ))
    }

    /// The fastest of the ways to put ranks on the devices of its nodes that are tried, with what an iteration takes.
    fn fastest(&self, ways: &Ways<'_>, way: &[Seat]) -> Option<(Candidate, Timed)> {
        let timed = |candidate: Candidate| {
            let devices: Vec<&[u32]> = candidate.stages.iter().map(|of| of.devices.as_slice()).collect();
            self.builder.check_acts_on(&devices, &self.stages).ok()?;
            let timed = match &self.interleaving {
                None => self.builder.timed_as_planned(&candidate, &self.stages, self.copies).ok()??,
                Some(interleaving) => {
                    let links = self.builder.copy_links_as_planned(&candidate, self.copies);
                    let acted: Vec<&ActionsPrediction> = self.stages.acted.iter().collect();
                    let of = (&*acted, &*self.stages.actions);
                    self.builder.timed_in_turn(&candidate, interleaving, of, &links).ok()??
                }
            };
            Some((candidate, timed))
        };
        let all = self.plain.candidates(ways, way, !self.are_uniform)?.into_iter().filter_map(timed);
        let seconds = |of: &(Candidate, Timed)| of.1.iteration_seconds();
        all.min_by(|one, other| seconds(one).total_cmp(&seconds(other)))
    }
}

/// Whose turn it is when in a plan whose devices have several stages.
fn interleaving_of(plan: &Plan) -> Option<Interleaving> {
    Interleaving::of(plan.stages.len(), plan.positions(), plan.training.micro_batches)
}

impl Price for SimulationPricer<'_> {
    fn seconds(&self, ways: &Ways<'_>, way: &[Seat]) -> Option<f64> {
        Some(self.fastest(ways, way)?.1.iteration_seconds())
    }

    fn devices(&self, ways: &Ways<'_>, way: &[Seat]) -> Vec<Vec<u32>> {
        let stages = self.fastest(ways, way).map(|(fastest, _)| fastest.stages);
        stages.map_or_else(|| ways.devices(way), |of| of.into_iter().map(|stage| stage.devices).collect())
    }

    /// Actions add seconds to those of untouched stages, and take none away.
    fn least(&self, ways: &Ways<'_>, way: &[Seat]) -> Option<f64> {
        self.plain.least(ways, way)
    }

    /// A step of a layer is as much to look at as a rank.
    fn work(&self, ways: &Ways<'_>) -> u64 {
        let layers = self.plan.stages.iter().map(|stage| stage.config.layer_count() as u64).sum::<u64>();
        let steps = layers.saturating_mul(3 * u64::from(self.plan.training.micro_batches));
        steps.max(ways.ranks() as u64)
    }

    /// Few of the ways to take the devices of a node are tried, though each may have a link of its own to the host.
    fn tells_all(&self) -> bool {
        self.are_uniform
    }
}
