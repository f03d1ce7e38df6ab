//! Plans as they are once their stages are on the best devices of their nodes.
//!
//! A search that prices edges over the best link of a node takes plans to be faster than any devices make them: what it leaves
//! out is ruled out wherever stages are. What it hands over is put on devices before anybody looks how fast it is.

use super::device_mapping::MappedCandidate;
use loadmaster_search::simulated::{Least, Outcome, PASS, Wanted, Weighed};
use loadmaster_search::{Ended, PlacedStage, Stop};

/// Wants what somebody else does, on the best devices.
pub(super) struct OnBestDevices<'a, W> {
    wanted: &'a mut W,
    place: &'a dyn Fn(&[PlacedStage]) -> Option<MappedCandidate>,
    passes: &'a Stop,
    left_out: Outcome,
}

impl<'a, W> OnBestDevices<'a, W> {
    pub(super) fn new(
        wanted: &'a mut W,
        place: &'a dyn Fn(&[PlacedStage]) -> Option<MappedCandidate>,
        passes: &'a Stop,
    ) -> Self {
        Self { wanted, place, passes, left_out: Outcome::NOTHING }
    }

    /// Plans of which it is not known whether other devices make them faster.
    pub(super) fn left_out(&self) -> Outcome {
        self.left_out
    }
}

impl<W: Wanted> Wanted for OnBestDevices<'_, W> {
    fn may_be(&self, least: &Least) -> bool {
        self.wanted.may_be(least)
    }

    fn take(&mut self, plan: Weighed) {
        let mapped = (self.place)(&plan.stages);
        let (seconds, is_proven) = mapped.map_or((None, false), |mut mapped| {
            self.passes.take(mapped.passes.saturating_mul(PASS));
            mapped.candidate.simulate();
            (mapped.candidate.simulated, mapped.is_proven)
        });
        if !is_proven && seconds.is_none_or(|seconds| seconds > plan.seconds) {
            self.left_out = self.left_out.and(Outcome {
                states: 0,
                ended: Ended::Bounded,
                open_seconds: plan.seconds,
                open_peak: plan.peaks.highest().unwrap_or(0),
            });
        }
        if let Some(seconds) = seconds {
            self.wanted.take(Weighed { seconds, ..plan });
        }
    }

    fn found(&mut self) -> Vec<Weighed> {
        self.wanted.found()
    }
}
