//! Whether what is shown of a simulation can be.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::beside::{alone, shared_of};
use super::*;

proptest! {
    /// Copies of a way follow each other, none begins before it is asked for, nor comes back before it has left; a device
    /// steps one after another, waits up to the end of a copy, and all sums are those of what is shown.
    #[test]
    fn what_is_shown_is_possible(random in shared_of(alone())) {
        let copied = simulate(&random.stepped(), Keep { steps: true, copies: true }).unwrap();
        let near = |one: f64, other: f64| (one - other).abs() <= 1e-9 * copied.iteration_seconds.max(1.0);
        let mut lanes: BTreeMap<Way, Vec<TimedCopy>> = BTreeMap::new();
        for &copy in &copied.copies {
            prop_assert!(copy.asked <= copy.start && copy.start < copy.end);
            prop_assert!(copy.start < copied.devices.iter().map(|of| of.end).fold(0.0, f64::max));
            lanes.entry(copy.way).or_default().push(copy);
        }
        for lane in lanes.values_mut() {
            lane.sort_by(|one, other| one.start.total_cmp(&other.start));
            prop_assert!(lane.windows(2).all(|pair| pair[0].end <= pair[1].start + 1e-9));
        }
        for (index, (device, times)) in random.devices.iter().zip(&copied.devices).enumerate() {
            prop_assert_eq!(times.steps.len(), device.steps.len());
            prop_assert!(times.steps.windows(2).all(|pair| pair[0].1 <= pair[1].0));
            prop_assert!(near(times.busy, times.steps.iter().map(|(start, end)| end - start).sum()));
            let waits = copied.waits.iter().filter(|wait| wait.device as usize == index);
            prop_assert!(near(times.waited.all(), waits.clone().map(|wait| wait.end - wait.start).sum()));
            for wait in waits {
                let ends = copied.copies.iter().any(|copy| {
                    (copy.device, copy.trip, copy.is_back) == (wait.device, wait.trip, wait.is_back)
                        && near(copy.end, wait.end)
                });
                prop_assert!(ends && wait.end <= times.steps[wait.boundary].0 + 1e-9);
            }
        }
        let waited: f64 = copied.ways.iter().map(|way| way.waited.all()).sum();
        prop_assert!(near(waited, copied.devices.iter().map(|of| of.waited.all()).sum()));
        if copied.iterations == 1 {
            for way in &copied.ways {
                let own = lanes.get(&way.way).map_or(&[][..], Vec::as_slice);
                prop_assert_eq!(way.copies, own.len() as u64);
                prop_assert!(near(way.busy, own.iter().map(|copy| copy.end - copy.start).sum()));
            }
        }
    }

    /// What is kept changes nothing.
    #[test]
    fn pictures_cost_no_time(random in shared_of(alone())) {
        let [all, none] = [true, false].map(|keep| {
            simulate(&random.stepped(), Keep { steps: keep, copies: keep }).unwrap().iteration_seconds
        });
        prop_assert_eq!(all, none);
    }

    /// A simulation within a limit returns the same as one without, and only iterations that take longer return none.
    #[test]
    fn limits_leave_out_what_takes_longer(random in shared_of(alone()), share in 0.3..1.2_f64) {
        let all = simulate(&random.stepped(), Keep::default()).unwrap();
        let seconds = all.iteration_seconds * share;
        match simulate_within(&random.stepped(), Limit { seconds, after: &[] }).unwrap() {
            Some(within) => prop_assert_eq!(within, all),
            None => prop_assert!(all.iteration_seconds > seconds * (1.0 - 1e-9)),
        }
    }

    /// Nothing overlaps in a lane, all of it is within the iteration, and lanes have all that was kept of it.
    #[test]
    fn lanes_show_one_thing_after_another(random in shared_of(alone())) {
        let copied = simulate(&random.stepped(), Keep { steps: true, copies: true }).unwrap();
        let lanes = copied.lanes();
        let end = copied.devices.iter().map(|of| of.end).fold(0.0, f64::max);
        for lane in &lanes {
            prop_assert!(lane.spans.iter().all(|span| 0.0 <= span.start && span.start <= span.end && span.end <= end));
            prop_assert!(lane.spans.windows(2).all(|pair| pair[0].end <= pair[1].start + 1e-9));
        }
        let spans: usize = lanes.iter().map(|lane| lane.spans.len()).sum();
        let steps: usize = random.devices.iter().map(|device| device.steps.len()).sum();
        prop_assert_eq!(spans, steps + copied.copies.len() + copied.waits.len());
    }
}
