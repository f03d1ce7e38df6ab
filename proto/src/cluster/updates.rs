//! How fast a node's host updates parameters for trainings in chunks.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::Node;
use super::link::LinkOrigin;
use crate::error::Invalid;
use crate::training::step_kind::StepKind;

/// How fast a host does the optimizer's step in one pass over its lists.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostUpdate {
    /// What it does with each parameter.
    pub step: StepKind,
    /// Parameters per second for one device, when it updates for no other.
    pub parameters_per_second: f64,
    /// Parameters per second for all devices together, when it updates for all of them at once; none where each is as fast as
    /// alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub together_per_second: Option<f64>,
    /// Where that comes from.
    pub origin: LinkOrigin,
}

impl HostUpdate {
    /// Fastest updates that are believed, parameters per second.
    pub const MAX_PER_SECOND: f64 = 1e15;
    /// Slowest updates that are believed, parameters per second.
    pub const MIN_PER_SECOND: f64 = 1.0;

    /// Parameters per second for each of so many devices at once: what all of them together reach is shared equally, and none
    /// is faster than alone.
    pub fn of_each(&self, devices: u32) -> f64 {
        let shared = |together: f64| (together / f64::from(devices)).min(self.parameters_per_second);
        self.together_per_second.filter(|_| devices > 1).map_or(self.parameters_per_second, shared)
    }

    /// The same of another step, if memory is what both wait for: as many bytes per second are read and written.
    #[must_use]
    pub fn moving(self, step: StepKind) -> Self {
        let share = self.step.moved_bytes() as f64 / step.moved_bytes() as f64;
        let other = |rate: f64| (rate * share).clamp(Self::MIN_PER_SECOND, Self::MAX_PER_SECOND);
        Self {
            step,
            parameters_per_second: other(self.parameters_per_second),
            together_per_second: self.together_per_second.map(other),
            ..self
        }
    }

    fn check(&self) -> Result<(), Invalid> {
        let rates = [
            ("parameters_per_second", Some(self.parameters_per_second)),
            ("together_per_second", self.together_per_second),
        ];
        for (field, rate) in rates {
            let Some(rate) = rate else { continue };
            if !(Self::MIN_PER_SECOND..=Self::MAX_PER_SECOND).contains(&rate) {
                let most = Self::MAX_PER_SECOND;
                let why = format!("{rate} parameters per second is out of range. Use 1 to {most:e}");
                return Err(Invalid::field(field, why));
            }
        }
        Ok(())
    }
}

/// Checks a node's list and puts it in order.
///
/// # Errors
/// Names the field: a rate that is not possible, or a step that is there twice.
pub(super) fn check(updates: &mut [HostUpdate]) -> Result<(), Invalid> {
    let mut seen = BTreeSet::new();
    for (index, update) in updates.iter().enumerate() {
        let path = format!("updates[{index}]");
        update.check().map_err(|invalid| invalid.under(&path))?;
        if !seen.insert(update.step) {
            return Err(invalid!(format!("{path}.step"), "{} is listed twice", update.step));
        }
    }
    updates.sort_by_key(|update| update.step);
    Ok(())
}

impl Node {
    /// Returns how fast its host does an optimizer step. A step without a rate of its own moves bytes as fast as the
    /// others: the slowest of these counts. None where the node has no rates.
    pub fn host_update(&self, step: StepKind) -> Option<HostUpdate> {
        let own = self.updates.iter().find(|update| update.step == step).copied();
        own.or_else(|| {
            let others = self.updates.iter().map(|update| update.moving(step));
            others.min_by(|one, other| one.parameters_per_second.total_cmp(&other.parameters_per_second))
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn update(step: StepKind, alone: f64, together: Option<f64>) -> HostUpdate {
        let origin = LinkOrigin::Measured;
        HostUpdate { step, parameters_per_second: alone, together_per_second: together, origin }
    }

    proptest! {
        /// None of several devices is faster than alone, all of them reach no more than they do together, and one of both is
        /// reached.
        #[test]
        fn devices_share_what_they_reach_together(
            alone in 1.0..1e12_f64,
            together in prop::option::of(1.0..1e13_f64),
            devices in 1..200_u32,
        ) {
            let each = update(StepKind::AdamBf16, alone, together).of_each(devices);
            let all = each * f64::from(devices);
            let near = |one: f64, other: f64| (one / other - 1.0).abs() < 1e-9;
            match together.filter(|_| devices > 1) {
                None => prop_assert_eq!(each, alone),
                Some(together) => {
                    prop_assert!(each <= alone && all <= together * (1.0 + 1e-9));
                    prop_assert!(each == alone || near(all, together));
                }
            }
        }
    }

    #[test]
    fn a_step_nobody_timed_moves_as_many_bytes_as_the_slowest_that_was() {
        let known =
            [update(StepKind::SgdFp32, 1000.0, Some(1600.0)), update(StepKind::AdamFp32, 400.0, None)];
        // 16,000 bytes a second beside 12,800.
        let own = known.map(|known| known.moving(StepKind::MomentumBf16));
        assert_eq!(own.map(|of| of.parameters_per_second), [800.0, 640.0]);
        assert_eq!(own.map(|of| of.together_per_second), [Some(1280.0), None]);
    }

    #[test]
    fn what_is_no_rate_is_named() {
        let refused = |of: &mut [HostUpdate]| check(of).unwrap_err().violations()[0].field.clone();
        let good = update(StepKind::AdamBf16, 1e8, Some(2e8));
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY, 2e15] {
            let alone = update(StepKind::SgdFp32, wrong, None);
            assert_eq!(refused(&mut [good, alone]), "updates[1].parameters_per_second");
            let together = update(StepKind::SgdFp32, 1.0, Some(wrong));
            assert_eq!(refused(&mut [together]), "updates[0].together_per_second");
        }
        assert_eq!(refused(&mut [good, good]), "updates[1].step");
        let mut both = [good, update(StepKind::SgdFp32, 1.0, None)];
        assert!(check(&mut both).is_ok() && both[1] == good, "in the order of steps");
    }
}
