//! The cores that CPU slots share.

use std::collections::BTreeMap;

use loadmaster_proto::cluster::device::CPU_KIND;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::objective::PlanShape;

use super::choice::Choice;
use super::problem::ActionProblem;
use crate::plan::PlanBuilder;
use crate::problem::Criteria;
use crate::result::QuestionError;
use crate::search::{Candidate, Job};
use loadmaster_predict::PipelineActions;
use loadmaster_search::cost::Market;
use loadmaster_search::{KindSet, StageAt, StageCosts};
use loadmaster_simulate::copies::SlotCores;

/// Sums in another order are no other bound.
const ROUNDING: f64 = 1e-9;

impl PlanBuilder<'_> {
    /// The cores of a host of CPU slots, as it was profiled; none of other devices, or where nobody knows.
    fn slot_cores(&self) -> Option<SlotCores> {
        let of_slots = self.kinds.iter().find(|(chain, _)| chain.device_kind == CPU_KIND);
        of_slots.and_then(|(chain, _)| chain.host).map(SlotCores::of)
    }

    /// Nodes whose slots share cores, with the stages of these slots, each as often as it has some there. What a stage does
    /// is simulated once: one on several nodes is where it has most slots.
    pub(super) fn shared_cores(&self, candidate: &Candidate) -> Vec<(SlotCores, Vec<u32>)> {
        let Some(cores) = self.slot_cores() else { return Vec::new() };
        let mut nodes: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for (stage, of) in (0..).zip(&candidate.stages) {
            let mut here: BTreeMap<String, usize> = BTreeMap::new();
            for placed in of.devices.iter().map(|&device| self.fleet.placed(device)) {
                if placed.kind == CPU_KIND {
                    *here.entry(placed.node).or_default() += 1;
                }
            }
            if let Some((node, slots)) = here.into_iter().max_by_key(|(_, slots)| *slots) {
                nodes.entry(node).or_default().extend(std::iter::repeat_n(stage, slots));
            }
        }
        nodes.into_values().map(|stages| (cores, stages)).collect()
    }

    /// The cores that all stages share, one slot each; none where any has its own.
    pub(super) fn cores_of_all(&self, candidate: &Candidate) -> Option<SlotCores> {
        let shared = self.shared_cores(candidate);
        let [(cores, stages)] = shared.as_slice() else { return None };
        let each_once = stages.iter().copied().eq((0..).take(candidate.stages.len()));
        each_once.then_some(*cores)
    }

    /// Untouched stages as plans with actions are told: with the cores that they share.
    pub(super) fn kept(
        &self,
        problem: &ActionProblem<'_>,
        choice: Choice<'_>,
    ) -> Result<Plan, QuestionError> {
        let mut plan = problem.untouched.clone();
        if !self.shared_cores(problem.candidate).is_empty() {
            let model = self.chain.model.as_ref();
            let none = PipelineActions::of(&*self.chain.predictor, model, &problem.settings, &[])?;
            if let Some(timed) = self.timed(problem.candidate, &none, choice.pace)? {
                timed.tell(&mut plan);
            }
        }
        Ok(plan)
    }

    /// Seconds that no pipeline of one device per stage gets below, because all it computes is spread over the cores that its
    /// slots share; none where that is not known, or stages may have several.
    pub(crate) fn least_on_cores(&self, job: &Job<'_>, criteria: &Criteria) -> Option<f64> {
        let is_single = criteria.shape == PlanShape::SinglePipeline;
        let cores = self.slot_cores().filter(|_| is_single && self.kinds.len() == 1)?;
        let nodes = if job.fleet.is_one_node { 1 } else { job.fleet.nodes.len() };
        let mut least: Option<f64> = None;
        for &schedule in &criteria.schedules {
            for &batch in &criteria.batches {
                let costs = self.prices.costs(schedule, batch, &[loadmaster_search::Choice::SINGLE], &[]);
                let last = costs.layers().checked_sub(1)?;
                let all = costs.seconds(&StageAt::anywhere(0, last, KindSet::one(0)))?;
                let work = f64::from(batch.micro_batches) * all.passes() + all.step;
                least = Some(least.map_or(work, |least: f64| least.min(work)));
            }
        }
        Some(least? / (cores.slots * nodes.max(1) as f64) * (1.0 - ROUNDING))
    }
}
