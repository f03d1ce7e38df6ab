//! The peaks of a plan, and their order.

use std::cmp::{Ordering, Reverse};

/// Devices with equal peaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Run {
    /// Their peak, in the [`Unit`](crate::Unit) of the search.
    pub peak: u64,
    /// How many; a stage of n devices counts n times.
    pub devices: u32,
}

/// The peaks of all devices of a plan, highest first.
///
/// They are compared like words, device by device (leximax): of [10, 10, 1] and [10, 9, 9] the second is less.
/// Of two lists of which one begins the other, the shorter is less: a prefix bounds all that begin with it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Peaks(Vec<Run>);

impl Peaks {
    /// Puts stages' peaks in order.
    pub fn of(stages: impl IntoIterator<Item = Run>) -> Self {
        let mut runs: Vec<Run> = stages.into_iter().filter(|run| run.devices > 0).collect();
        runs.sort_by_key(|run| Reverse(run.peak));
        runs.dedup_by(|next, run| {
            let same = next.peak == run.peak;
            run.devices += if same { next.devices } else { 0 };
            same
        });
        Self(runs)
    }

    /// Distinct peaks with the number of devices that have them, highest first.
    pub fn runs(&self) -> &[Run] {
        &self.0
    }

    /// The highest peak; none without devices.
    pub fn highest(&self) -> Option<u64> {
        self.0.first().map(|run| run.peak)
    }
}

impl Ord for Peaks {
    fn cmp(&self, other: &Self) -> Ordering {
        for (this, that) in self.0.iter().zip(&other.0) {
            match this.peak.cmp(&that.peak) {
                Ordering::Equal if this.devices == that.devices => {}
                // The list with fewer goes on with something lower, or ends.
                Ordering::Equal => return this.devices.cmp(&that.devices),
                different => return different,
            }
        }
        self.0.len().cmp(&other.0.len())
    }
}

impl PartialOrd for Peaks {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn peaks(stages: &[(u64, u32)]) -> Peaks {
        Peaks::of(stages.iter().map(|&(peak, devices)| Run { peak, devices }))
    }

    fn words(stages: &[(u64, u32)]) -> Vec<Reverse<u64>> {
        let devices = stages.iter().flat_map(|&(peak, devices)| vec![Reverse(peak); devices as usize]);
        let mut words: Vec<Reverse<u64>> = devices.collect();
        words.sort_unstable();
        words
    }

    proptest! {
        /// The order is that of the sorted lists of all devices.
        #[test]
        fn runs_compare_like_the_devices_one_by_one(
            one in proptest::collection::vec((0_u64..4, 0_u32..3), 0..5),
            other in proptest::collection::vec((0_u64..4, 0_u32..3), 0..5),
        ) {
            let plain = |stages: &[(u64, u32)]| words(stages).into_iter().map(|Reverse(peak)| peak).collect::<Vec<_>>();
            prop_assert_eq!(peaks(&one).cmp(&peaks(&other)), plain(&one).cmp(&plain(&other)));
        }
    }

    #[test]
    fn each_device_of_a_stage_counts() {
        let one = peaks(&[(10, 1), (9, 2), (9, 1)]);
        assert!(one < peaks(&[(1, 2), (10, 2)]));
        assert_eq!(one.runs(), [Run { peak: 10, devices: 1 }, Run { peak: 9, devices: 3 }]);
        assert!(peaks(&[(10, 1)]) < one, "a prefix bounds");
    }
}
