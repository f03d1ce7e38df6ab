//! How often a server that ended by itself is started again.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Most starts within [`WITHIN`]: what ends more often has a cause that another start does not mend.
pub(super) const MOST: usize = 5;
/// The time in which starts are counted.
pub(super) const WITHIN: Duration = Duration::from_secs(10 * 60);
/// Pause before the second start; it doubles with every further one. Before the first there is none.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The starts that still count.
#[derive(Debug, Default)]
pub(super) struct Restarts(VecDeque<Instant>);

impl Restarts {
    /// Pause before the next start; none when there were too many.
    pub(super) fn next(&mut self, now: Instant) -> Option<Duration> {
        while self.0.front().is_some_and(|&start| now.saturating_duration_since(start) >= WITHIN) {
            self.0.pop_front();
        }
        let before = u32::try_from(self.0.len()).ok()?;
        if self.0.len() >= MOST {
            return None;
        }
        self.0.push_back(now);
        Some(before.checked_sub(1).map_or(Duration::ZERO, |exponent| FIRST_PAUSE * 2_u32.pow(exponent)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_there_were_too_many_starts() {
        let mut restarts = Restarts::default();
        let now = Instant::now();
        let pauses: Vec<_> = (0..=MOST).map(|_| restarts.next(now).map(|pause| pause.as_secs())).collect();
        assert_eq!(pauses, [Some(0), Some(1), Some(2), Some(4), Some(8), None]);
        assert_eq!(restarts.next(now + WITHIN), Some(Duration::ZERO), "old ones are forgotten");
    }
}
