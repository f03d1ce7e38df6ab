//! How long to wait before dialling again: exponential back-off with full jitter.
//!
//! The jitter spreads the workers of a cluster that all lost the same planner at the same moment.

use std::time::Duration;

/// Exponential back-off with full jitter. Pure: the caller brings the random number.
#[derive(Debug)]
pub(crate) struct Backoff {
    attempts: u32,
}

impl Backoff {
    /// Shortest wait.
    pub(crate) const MIN: Duration = Duration::from_millis(200);
    /// Longest wait.
    pub(crate) const MAX: Duration = Duration::from_secs(30);

    /// Before the first failure.
    pub(crate) fn new() -> Self {
        Self { attempts: 0 }
    }

    /// The next wait. `random` lies in `0..1`; the wait lies between the shortest one and a ceiling
    /// that doubles from call to call up to the longest one, or to `longest` if that is shorter.
    pub(crate) fn next(&mut self, random: f64, longest: Duration) -> Duration {
        self.attempts = self.attempts.saturating_add(1);
        let longest = longest.clamp(Self::MIN, Self::MAX);
        let ceiling =
            Self::MIN.saturating_mul(1_u32.checked_shl(self.attempts).unwrap_or(u32::MAX)).min(longest);
        let random = if random.is_finite() { random.clamp(0.0, 1.0) } else { 1.0 };
        ceiling.mul_f64(random).clamp(Self::MIN, longest)
    }

    /// After a connection that lasted.
    pub(crate) fn reset(&mut self) {
        self.attempts = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// However often it fails and whatever the dice say, a wait is within the bounds.
        #[test]
        fn waits_stay_within_bounds(
            randoms in prop::collection::vec(0.0_f64..1.0, 1..80), longest in 0_u64..100_000,
        ) {
            let longest = Duration::from_millis(longest);
            let mut backoff = Backoff::new();
            for random in randoms {
                let wait = backoff.next(random, longest);
                prop_assert!(wait >= Backoff::MIN && wait <= Backoff::MAX, "{wait:?}");
                prop_assert!(wait <= longest.max(Backoff::MIN), "{wait:?} of {longest:?}");
            }
        }
    }

    #[test]
    fn the_ceiling_doubles_up_to_the_longest_wait_and_a_reset_starts_over() {
        let mut backoff = Backoff::new();
        let longest: Vec<Duration> = (0..9).map(|_| backoff.next(1.0, Backoff::MAX)).collect();
        assert_eq!(longest[..3], [400, 800, 1600].map(Duration::from_millis));
        assert_eq!(longest[8], Backoff::MAX);
        for _ in 0..1_000 {
            backoff.next(0.5, Backoff::MAX);
        }
        backoff.reset();
        assert_eq!(backoff.next(1.0, Backoff::MAX), Duration::from_millis(400));
        assert_eq!(backoff.next(f64::NAN, Backoff::MAX), Duration::from_millis(800));
    }
}
