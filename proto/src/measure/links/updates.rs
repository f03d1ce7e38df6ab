//! How fast the host updates parameters, as it does for trainings in chunks.
//!
//! What is timed is the optimizer's step in one pass over lists in the host's memory that no cache has, with as many threads as a
//! rank has. While no other rank does anything, and while the ranks of all devices do the same, as those that share chunks do.

use serde::{Deserialize, Serialize};

use super::LinkWork;
use crate::cluster::{HostUpdate, LinkOrigin};
use crate::error::{Invalid, in_range};
use crate::training::step_kind::StepKind;

/// Seconds of one step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimedUpdate {
    /// What is done with each parameter.
    pub step: StepKind,
    /// How many parameters.
    pub parameters: u64,
    /// Median seconds while no other rank does anything.
    pub alone_seconds: f64,
    /// Median seconds while the ranks of all devices do the same.
    pub together_seconds: f64,
}

/// Steps for one device's rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceUpdates {
    /// Index of the device.
    pub device: u32,
    /// Each kind of step, once.
    pub steps: Vec<TimedUpdate>,
}

impl TimedUpdate {
    /// Most parameters of a step.
    pub const MAX_PARAMETERS: u64 = LinkWork::MAX_PAYLOAD_BYTES / 4;

    fn check(&self) -> Result<(), Invalid> {
        in_range("parameters", self.parameters, 1..=Self::MAX_PARAMETERS)?;
        for (name, seconds) in
            [("alone_seconds", self.alone_seconds), ("together_seconds", self.together_seconds)]
        {
            in_range(name, seconds, f64::MIN_POSITIVE..=super::MAX_SECONDS)?;
        }
        Ok(())
    }
}

/// Checks that every device has every kind of step once, and that all seconds are possible.
///
/// # Errors
/// Names the field.
pub(super) fn check(updates: &[DeviceUpdates], devices: u32) -> Result<(), Invalid> {
    if !updates.iter().map(|of| of.device).eq(0..devices) {
        let why = format!(
            "has {} entries, which do not match the {devices} ranks. List each rank once, in order, or list no entries",
            updates.len()
        );
        return Err(Invalid::field("updates", why));
    }
    for (index, of) in updates.iter().enumerate() {
        let path = format!("updates[{index}]");
        if !of.steps.iter().map(|timed| timed.step).eq(StepKind::ALL) {
            let why = format!(
                "has {} entries, which do not match the {} kinds of optimizer steps. List each kind once, in order",
                of.steps.len(),
                StepKind::ALL.len()
            );
            return Err(Invalid::field(format!("{path}.steps"), why));
        }
        for (place, timed) in of.steps.iter().enumerate() {
            timed.check().map_err(|invalid| invalid.under(&format!("{path}.steps[{place}]")))?;
        }
    }
    Ok(())
}

/// As clusters describe it: each kind of step as fast as on the slowest device, since ranks that share chunks wait for each
/// other. What all reach together is that of the slowest, too, once for each.
pub fn host_updates(updates: &[DeviceUpdates]) -> Vec<HostUpdate> {
    let of_kind = |step: StepKind| {
        let timed = || updates.iter().flat_map(|of| &of.steps).filter(move |timed| timed.step == step);
        let slowest = |seconds: fn(&TimedUpdate) -> f64| {
            timed().map(|timed| timed.parameters as f64 / seconds(timed)).reduce(f64::min)
        };
        let possible = |rate: f64| rate.clamp(HostUpdate::MIN_PER_SECOND, HostUpdate::MAX_PER_SECOND);
        let alone = slowest(|timed| timed.alone_seconds)?;
        let together = slowest(|timed| timed.together_seconds).map(|each| each * updates.len() as f64);
        Some(HostUpdate {
            step,
            parameters_per_second: possible(alone),
            together_per_second: together.map(possible),
            origin: LinkOrigin::Measured,
        })
    };
    StepKind::ALL.into_iter().filter_map(of_kind).collect()
}

impl LinkWork {
    /// Largest lists that are updated, bytes of each in fp32: no smaller than chunks usually are.
    const LARGEST_UPDATED: u64 = 16 << 20;

    /// Parameters of a timed step on the host: their fp32 lists are as large as the largest payload, within reason.
    pub fn updated_parameters(&self) -> u64 {
        let largest = self.payload_bytes.last().copied().unwrap_or_default();
        (largest.min(Self::LARGEST_UPDATED) / 4).max(1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn timed(step: StepKind, alone_seconds: f64, together_seconds: f64) -> TimedUpdate {
        TimedUpdate { step, parameters: 1 << 20, alone_seconds, together_seconds }
    }

    fn device(device: u32, alone: f64, together: f64) -> DeviceUpdates {
        DeviceUpdates { device, steps: StepKind::ALL.map(|step| timed(step, alone, together)).to_vec() }
    }

    proptest! {
        /// Ranks that do as much and wait for each other end with the slowest: so fast is each, alone and beside the others.
        #[test]
        fn ranks_that_wait_for_each_other_are_as_fast_as_the_slowest(
            seconds in prop::collection::vec((1e-4..10.0_f64, 1e-4..10.0_f64), 1..9),
        ) {
            let updates: Vec<DeviceUpdates> =
                (0..).zip(&seconds).map(|(index, &(alone, together))| device(index, alone, together)).collect();
            let count = u32::try_from(updates.len()).unwrap();
            prop_assert!(check(&updates, count).is_ok());
            let found = host_updates(&updates);
            prop_assert_eq!(found.len(), StepKind::ALL.len());
            let last = |of: fn(&(f64, f64)) -> f64| seconds.iter().map(of).fold(0.0, f64::max);
            for update in found {
                let parameters = f64::from(1 << 20);
                let near = |seconds: f64, rate: f64| (parameters / rate / seconds - 1.0).abs() < 1e-9;
                prop_assert!(near(last(|of| of.0), update.parameters_per_second));
                let each = update.together_per_second.unwrap() / f64::from(count);
                prop_assert!(near(last(|of| of.1), each));
            }
        }
    }

    #[test]
    fn every_device_has_every_step_with_possible_seconds() {
        let good = || vec![device(0, 1.0, 2.0), device(1, 1.0, 2.0)];
        assert!(check(&good(), 2).is_ok());
        let field = |bend: fn(&mut Vec<DeviceUpdates>)| {
            let mut bent = good();
            bend(&mut bent);
            check(&bent, 2).unwrap_err().violations()[0].field.clone()
        };
        assert_eq!(field(|of| drop(of.pop())), "updates");
        assert_eq!(field(|of| of[1].device = 0), "updates");
        assert_eq!(field(|of| of[1].steps.truncate(5)), "updates[1].steps");
        assert_eq!(field(|of| of[0].steps.swap(0, 1)), "updates[0].steps");
        assert_eq!(field(|of| of[0].steps[2].parameters = 0), "updates[0].steps[2].parameters");
        assert_eq!(field(|of| of[1].steps[5].alone_seconds = 0.0), "updates[1].steps[5].alone_seconds");
        assert_eq!(
            field(|of| of[1].steps[0].together_seconds = f64::NAN),
            "updates[1].steps[0].together_seconds"
        );
    }

    /// Seconds that no machine has make no rate that a cluster could not have.
    #[test]
    fn impossible_seconds_make_no_impossible_rates() {
        for seconds in [f64::MIN_POSITIVE, super::super::MAX_SECONDS] {
            for update in host_updates(&[device(0, seconds, seconds)]) {
                let possible = HostUpdate::MIN_PER_SECOND..=HostUpdate::MAX_PER_SECOND;
                assert!(possible.contains(&update.parameters_per_second));
                assert!(possible.contains(&update.together_per_second.unwrap()));
            }
        }
        assert_eq!(host_updates(&[]), []);
    }

    #[test]
    fn lists_are_as_large_as_payloads_within_reason() {
        let parameters = |payload_bytes: &[u64]| {
            LinkWork { devices: 2, payload_bytes: payload_bytes.to_vec(), repeats: 1 }.updated_parameters()
        };
        assert_eq!(parameters(&[4 << 10, 1 << 20]), 1 << 18);
        assert_eq!(parameters(&[4 << 10, 1 << 30]), 4 << 20);
        assert!(parameters(&[1 << 30]) <= TimedUpdate::MAX_PARAMETERS);
    }
}
