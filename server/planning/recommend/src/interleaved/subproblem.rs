//! The best plan within a subproblem: the one question that all objectives ask.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::certificate::Certificate;
use loadmaster_proto::plan::constraints::Constraints;
use loadmaster_proto::plan::objective::Objective;
use loadmaster_proto::training::actions::{Allowed, Way};

use super::InterleavedQuestion;
use crate::memory_optimizations::{ActionsQuestion, Choice, Chooser, LayerMinima, Point};
use crate::problem::Criteria;
use crate::result::{QuestionError, RecommendError};
use loadmaster_search::Unit;
use loadmaster_search::cost::{Batch, Market as _};
use loadmaster_search::fleet::Subset;

/// What a plan may take.
#[derive(Debug, Clone)]
pub(super) struct InterleavedSubproblem {
    /// Its devices, all of them.
    pub(super) devices: Subset,
    pub(super) batches: Vec<Batch>,
    /// The most that a device may be predicted to hold, bytes; none besides its memory and the criteria's limit.
    pub(super) most: Option<u64>,
}

impl InterleavedSubproblem {
    /// All that a question leaves.
    pub(super) fn whole(question: &InterleavedQuestion<'_>) -> Self {
        Self { devices: question.devices.clone(), batches: question.criteria.batches.clone(), most: None }
    }
}

/// The best plan that was found within a subproblem.
#[derive(Debug, Clone)]
pub(super) struct InterleavedSolution {
    /// Without a certificate.
    pub(super) plan: Plan,
    /// Of its seconds, or its peak.
    pub(super) certificate: Certificate,
    /// Those that come next, with theirs.
    pub(super) next: Vec<(Plan, f64)>,
}

impl InterleavedQuestion<'_> {
    /// The same criteria for the fastest plan within a subproblem; for that with the lowest peaks, where nobody knows seconds.
    pub(super) fn criteria_within(&self, subproblem: &InterleavedSubproblem) -> Criteria {
        let constraints = &self.criteria.constraints;
        let most = [subproblem.most, constraints.max_peak_bytes].into_iter().flatten().min();
        let has_times = self.prices.has_times();
        Criteria {
            objective: if has_times { Objective::MinIterationTime } else { Objective::MinPeakMemory },
            batches: subproblem.batches.clone(),
            constraints: Constraints { max_peak_bytes: most, ..constraints.clone() },
            ..self.criteria.clone()
        }
    }

    /// The fastest plan within a subproblem, or that with the lowest peaks where nobody knows seconds.
    ///
    /// # Errors
    /// Nothing was found that fits and keeps to the limits.
    pub(super) fn fastest(
        &self,
        subproblem: &InterleavedSubproblem,
    ) -> Result<InterleavedSolution, QuestionError> {
        self.within(subproblem, |question| question.found())
    }

    /// Asks the question of a subproblem.
    pub(super) fn within<T>(
        &self,
        subproblem: &InterleavedSubproblem,
        ask: impl FnOnce(&InterleavedQuestion<'_>) -> Result<T, QuestionError>,
    ) -> Result<T, QuestionError> {
        let criteria = self.criteria_within(subproblem);
        ask(&InterleavedQuestion { criteria: &criteria, devices: &subproblem.devices, ..*self })
    }

    /// The fastest plan within a peak of so many bytes.
    pub(super) fn point(
        &self,
        subproblem: &InterleavedSubproblem,
        cap: u64,
    ) -> Result<Point<InterleavedSolution>, QuestionError> {
        let found = self.fastest(&InterleavedSubproblem { most: Some(cap), ..subproblem.clone() })?;
        Ok(Point { cap, peak: found.plan.peak(), found })
    }

    /// Why no plan fits into a subproblem, however its stages take turns, where that is proven without looking at any.
    pub(super) fn hopeless(
        &self,
        subproblem: &InterleavedSubproblem,
        known: &LayerMinima,
    ) -> Option<RecommendError> {
        self.of_any(known, |any| any.lacks_anyhow(&subproblem.devices, &subproblem.batches))
    }

    /// Bytes that some device of any plan within a subproblem needs at least.
    pub(super) fn least_bytes(&self, subproblem: &InterleavedSubproblem) -> u64 {
        self.of_any(&LayerMinima::default(), |any| any.least_anyhow(&subproblem.devices, &subproblem.batches))
    }

    /// Asks what holds for any plan, whose stages may do what is allowed, or compute again.
    fn of_any<T>(&self, known: &LayerMinima, ask: impl FnOnce(&ActionsQuestion<'_>) -> T) -> T {
        let Self { builder, job, criteria, stop, request, framework_rules, .. } = *self;
        // What is computed again by a policy is no action.
        let policies = Allowed {
            ways: vec![Way::Recompute],
            blocks: Vec::new(),
            host_memory: Bytes(0),
            smallest_block: Bytes(0),
        };
        let allowed = self.allowed.unwrap_or(&policies);
        let choice = Choice { chooser: Chooser::Fastest, allowed, pace: request.copy_pace, framework_rules };
        let given = request.partitioning.as_ref();
        ask(&ActionsQuestion { builder, job, criteria, given, choice, stop, known })
    }

    /// A plan's peak as a certificate counts it.
    pub(super) fn counted(&self, peak: u64) -> f64 {
        let whole = self.devices.fleet.nodes.first().and_then(|node| self.devices.fleet.kinds.get(node.kind));
        match self.criteria.unit {
            Unit::Bytes => peak as f64,
            // Devices are alike.
            Unit::Share => peak as f64 / whole.map_or(1, |kind| kind.capacity.0.max(1)) as f64,
        }
    }
}
