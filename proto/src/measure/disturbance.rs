//! Use of a measurement's devices by others.

use crate::measure::environment::Environment;
use crate::warning::{Warning, WarningCode};

/// No share of the cores makes seconds more uncertain than this share.
const MOST_SHARE: f64 = 0.99;

/// What made the seconds of measurements longer than those of devices of their own. Their bytes are right.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Disturbance {
    /// Measurements during which others used the devices.
    pub contended: u32,
    /// The largest share of a worker's cores that others used during a run.
    pub others_share: f64,
    /// Measurements whose ranks had fewer cores than threads.
    pub oversubscribed: u32,
}

impl Disturbance {
    /// Returns the disturbance of measurements in these environments together.
    pub fn of<'a>(environments: impl IntoIterator<Item = &'a Environment>) -> Self {
        let mut all = Self::default();
        for environment in environments {
            all.contended = all.contended.saturating_add(u32::from(environment.contended));
            all.oversubscribed = all.oversubscribed.saturating_add(u32::from(environment.oversubscribed));
            all.others_share = all.others_share.max(environment.others_share.unwrap_or_default());
        }
        all
    }

    /// Returns a warning for each way in which the measurements were disturbed.
    pub fn warnings(&self) -> Vec<Warning> {
        let Self { contended, others_share, oversubscribed } = *self;
        let of_others = (contended > 0).then(|| {
            let who = if others_share > 0.0 {
                format!("other processes used up to {:.1} % of the CPU cores", 100.0 * others_share)
            } else {
                "another process used the GPU".to_owned()
            };
            format!(
                "{who} during {contended} of the measurements. The measured bytes are right, but the measured times \
                 are too long. The next profile repeats these measurements. To reuse the measured bytes without new \
                 measurements, set `reuse_contended`"
            )
        });
        let of_ranks = (oversubscribed > 0).then(|| {
            format!(
                "the ranks of {oversubscribed} of the measurements had more threads than CPU cores. The threads \
                 waited for each other, so the measured times are too long. For exact times, use more CPU cores"
            )
        });
        let says = |why| WarningCode::MeasurementsDisturbed.says(why);
        of_others.into_iter().chain(of_ranks).map(says).collect()
    }
}

impl Environment {
    /// Returns the share of measured seconds by which quiet ones may differ from them: 0 where the run had its devices alone.
    /// Others that used a share s of the cores may have made them 1 / (1 - s) times as long. How much others on a GPU, or ranks
    /// that waited for each other's cores, lengthened them is not known, and at least all of them is doubted.
    pub fn disturbed_share(&self) -> f64 {
        let of_ranks = if self.oversubscribed { 1.0 } else { 0.0 };
        let of_others = match self.others_share {
            _ if !self.contended => 0.0,
            Some(share) => {
                let share = share.clamp(0.0, MOST_SHARE);
                share / (1.0 - share)
            }
            None => 1.0,
        };
        f64::max(of_ranks, of_others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A quiet run is certain, a core that others had for half of the time may have doubled the seconds, and others on a GPU leave
    /// nothing certain.
    #[test]
    fn seconds_are_doubted_by_what_others_used() {
        let of = |contended, others_share, oversubscribed| {
            let environment =
                Environment { contended, others_share, oversubscribed, ..Environment::default() };
            environment.disturbed_share()
        };
        assert_eq!(of(false, Some(0.05), false), 0.0);
        assert_eq!(of(true, Some(0.5), false), 1.0);
        assert_eq!(of(true, None, false), 1.0);
        assert_eq!(of(false, None, true), 1.0);
        assert!((of(true, Some(1.0), true) - 99.0).abs() < 1e-9);
    }
}
