//! What a way to cut is worth, and what is said where the best one is not good enough.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::objective::Objective;

use super::InterleavedQuestion;
use super::cutting::Worth;
use super::pipeline::{Pipeline, on_device};
use crate::result::{QuestionError, RecommendError};
use crate::search::Candidate;
use loadmaster_predict::ActionsPrediction;
use loadmaster_search::{StageCosts, Unit};

/// What of its memory a way to cut is weighed by, before seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MemoryWeight {
    /// Nothing: seconds alone count.
    BySeconds,
    /// What its devices lack.
    Untouched,
    /// What its devices lack where each layer is computed again.
    WithAllAgain,
}

impl InterleavedQuestion<'_> {
    /// What a way to cut is worth; none where it is no better than the best so far, or cannot be priced.
    pub(super) fn worth<C: StageCosts>(
        &self,
        pipeline: &Pipeline<'_, C>,
        ends: &[usize],
        best: Option<&Worth>,
        memory: MemoryWeight,
    ) -> Result<Option<Worth>, QuestionError> {
        let Some(candidate) = pipeline.candidate(ends) else { return Ok(None) };
        let seconds = candidate.simulated.unwrap_or(f64::INFINITY);
        let late = (seconds - self.limit()).max(0.0);
        let late = if late.is_nan() { 0.0 } else { late };
        let is_timed = self.criteria.objective == Objective::MinIterationTime;
        let of_time = Worth { lacks: 0.0, values: vec![late, seconds] };
        let is_free = memory == MemoryWeight::BySeconds;
        if is_timed && (is_free || best.is_some_and(|best| of_time.by(best).is_ge())) {
            // Where it fits, too, it is worth no more.
            return Ok(is_free.then_some(of_time));
        }
        let acted = pipeline.with_actions(&candidate, memory == MemoryWeight::WithAllAgain)?;
        let acted: Vec<&ActionsPrediction> = acted.iter().map(|acted| &**acted).collect();
        let held = pipeline.interleaving.held(&acted);
        let most = self.criteria.constraints.max_peak_bytes.unwrap_or(u64::MAX);
        let (mut lacks, mut peaks) = (0.0, Vec::with_capacity(held.len()));
        for (held, stage) in held.iter().zip(&candidate.stages) {
            let Some(prediction) = on_device(held, &acted) else { continue };
            let (needed, peak) =
                (self.builder.needed(&prediction).0, self.builder.corrected(prediction.bytes.0));
            lacks += needed.saturating_sub(stage.capacity.0).max(peak.saturating_sub(most)) as f64;
            peaks.push(self.criteria.unit.of(peak, stage.capacity) as f64);
        }
        if is_timed {
            return Ok(Some(Worth { lacks, ..of_time }));
        }
        peaks.sort_by(|one, other| other.total_cmp(one));
        let values = [vec![late], peaks, vec![seconds]].concat();
        Ok(Some(Worth { lacks, values }))
    }

    /// Whether it takes no longer than the limit.
    pub(super) fn is_in_time(&self, candidate: &Candidate) -> bool {
        let limit = self.criteria.constraints.max_iteration_seconds;
        limit.is_none_or(|limit| candidate.simulated.is_some_and(|seconds| seconds <= limit))
    }

    /// Says what the best plan lacks, if anything.
    pub(super) fn check_limits(
        &self,
        worth: &Worth,
        candidate: &Candidate,
        is_complete: bool,
    ) -> Result<(), QuestionError> {
        if worth.lacks > 0.0 {
            let missing = Bytes(worth.lacks as u64);
            let why = format!(
                "with {} stages on each device the best way to cut lacks {missing} in all ({}): allow memory actions, ask for \
                 smaller or fewer micro-batches, recompute layers, or give more devices",
                candidate.virtual_stages,
                candidate.describe()
            );
            let error = RecommendError::no_actions(why, missing, String::new());
            return Err(if is_complete { error.proven() } else { error }.into());
        }
        self.check_seconds(candidate.simulated, is_complete && self.is_any_order())
    }

    /// Says so where the fastest plan, or what was found of it, takes longer than it may.
    pub(super) fn check_seconds(&self, seconds: Option<f64>, is_proof: bool) -> Result<(), QuestionError> {
        let limit = self.limit();
        let Some(seconds) = seconds.filter(|seconds| *seconds > limit) else { return Ok(()) };
        let reason = format!(
            "the fastest plan {} with {} stages on each device takes {seconds:.4} s, {:.1} % above the limit",
            if is_proof { "there is" } else { "that was found" },
            self.request.virtual_stages,
            100.0 * (seconds / limit - 1.0)
        );
        Err(RecommendError::Limits { reason, is_proof, remedies: Vec::new() }.into())
    }

    /// What a plan is worth: seconds, or its peak.
    pub(super) fn value(&self, plan: &Plan) -> f64 {
        match self.criteria.objective {
            Objective::MinIterationTime => plan.iteration_seconds().unwrap_or(f64::INFINITY),
            _ => self.peak(plan),
        }
    }

    /// The peak as the objective counts it.
    pub(super) fn peak(&self, plan: &Plan) -> f64 {
        let peaks = plan.stages.iter().map(|stage| {
            let share = self.criteria.unit.of(stage.predicted_peak, Bytes(stage.capacity)) as f64;
            match self.criteria.unit {
                Unit::Bytes => share,
                Unit::Share => stage.predicted_peak as f64 / stage.capacity.max(1) as f64,
            }
        });
        peaks.fold(0.0, f64::max)
    }
}
