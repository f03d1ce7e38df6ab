//! What a plan may need at most, by its devices and by the request.

use loadmaster_proto::amounts::Seconds;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::plan::Plan;

use super::ActionsQuestion;
use crate::objectives::{FamilySolution, Subproblem};
use crate::result::RecommendError;
use loadmaster_search::Peak;

/// By what part of itself a limit may be exceeded by rounding.
const SAME: f64 = 1e-12;

impl ActionsQuestion<'_> {
    /// The most predicted bytes that a plan may need on a device of this capacity.
    pub(super) fn most_bytes(&self, subproblem: &Subproblem, capacity: Bytes) -> u64 {
        let peak = subproblem.most.map_or(u64::MAX, |most| self.criteria.unit.most_bytes(most, capacity));
        let most = peak.min(self.criteria.constraints.max_peak_bytes.unwrap_or(u64::MAX)).min(capacity.0);
        let Some((parts, of)) = subproblem.beyond else { return most };
        u64::try_from(u128::from(most) * u128::from(parts) / u128::from(of.max(1))).unwrap_or(u64::MAX)
    }

    /// The highest peak that a subproblem allows, in the criteria's unit; none without devices.
    pub(super) fn highest(&self, subproblem: &Subproblem) -> Option<u64> {
        let kinds = subproblem.devices.fleet.kinds.iter();
        kinds
            .map(|kind| self.criteria.unit.of(self.most_bytes(subproblem, kind.capacity), kind.capacity))
            .max()
    }

    /// What the request allows on every device, where that is less than one of them has.
    pub(super) fn least_allowed(&self) -> Option<Bytes> {
        let most = self.criteria.constraints.max_peak_bytes?;
        self.job.fleet.kinds.iter().any(|kind| kind.capacity.0 > most).then_some(Bytes(most))
    }

    /// A plan's highest peak in the criteria's unit.
    pub(super) fn peak_of(&self, plan: &Plan) -> u64 {
        let peaks = plan.stages.iter().map(|of| self.criteria.unit.of(of.predicted_peak, Bytes(of.capacity)));
        peaks.max().unwrap_or(0)
    }

    /// What a device may hold, with what is kept free besides a peak, where the subproblem allows less than it has.
    pub(super) fn capacity(&self, subproblem: &Subproblem, own: Bytes, peak: Peak, is_strict: bool) -> Bytes {
        let most = self.most_bytes(subproblem, own);
        if most == own.0 || is_strict || peak.bytes == 0 {
            return Bytes(most);
        }
        let needed = u128::from(most) * u128::from(peak.needed) / u128::from(peak.bytes);
        Bytes(u64::try_from(needed).unwrap_or(u64::MAX).clamp(most, own.0.max(most)))
    }

    /// Checks the limit on the seconds of an iteration.
    ///
    /// # Errors
    /// How far they are from it, and whether it is proven that nothing keeps to it.
    pub(super) fn check_seconds(&self, found: &FamilySolution) -> Result<(), RecommendError> {
        let Some(limit) = self.criteria.constraints.max_iteration_seconds else { return Ok(()) };
        let seconds = found.plan.iteration_seconds().unwrap_or(f64::INFINITY);
        if seconds <= limit * (1.0 + SAME) {
            return Ok(());
        }
        let bound = found.certificate.bound.unwrap_or(0.0);
        let is_proof = bound > limit * (1.0 + SAME);
        let none = match is_proof {
            true => format!(", and none takes less than {}", Seconds(bound)),
            false => String::new(),
        };
        let has_cores = found.plan.found.copy_rates.as_ref().is_some_and(|rates| !rates.cores.is_empty());
        let waits = match has_cores {
            true => {
                " with what CPU slots wait for the cores that they share, which is not in seconds without memory actions"
            }
            false => "",
        };
        Err(RecommendError::Limits {
            reason: format!(
                "stages fit with the allowed memory actions, but nothing was found that keeps to the limit: the fastest takes \
                 {} for an iteration{waits}; the limit is {} (`--max-iteration`){none}",
                Seconds(seconds),
                Seconds(limit)
            ),
            is_proof,
            remedies: Vec::new(),
        })
    }
}
