//! Residency intervals that are no rule's: what they move, and what is wrong with them.

use crate::training::boundaries::BoundaryInterval;
use proptest::prelude::*;

use super::naive::{Case, Need, cases};
use crate::chunks::residency::Payload;
use crate::chunks::residency::intervals::{Intervals, Moved, ResidencyInterval};
use crate::training::actions::Step;

/// Residency intervals of each payload, split and stretched by the given numbers. Two uses that follow each other are
/// in one interval or in two. An interval begins as early and ends as late as its neighbours let it, or at any boundary
/// in between.
pub(super) fn split(steps: usize, needs: &[(Payload, Need)], numbers: &[usize]) -> Vec<ResidencyInterval> {
    let mut numbers = numbers.iter().cycle().copied();
    let mut draw = |below: usize| numbers.next().unwrap() % below;
    let mut intervals: Vec<ResidencyInterval> = Vec::new();
    for (payload, need) in needs {
        let mut groups: Vec<(usize, usize)> = Vec::new();
        for &step in &need.steps {
            match groups.last_mut() {
                Some(last) if draw(3) > 0 => last.1 = step,
                _ => groups.push((step, step)),
            }
        }
        let mut gone = 0;
        for (index, &(first, last)) in groups.iter().enumerate() {
            let fetched = gone + draw(first - gone + 1);
            let until = groups.get(index + 1).map_or(steps, |next| next.0);
            let freed = last + 1 + draw(until - last);
            intervals.push(ResidencyInterval {
                at: BoundaryInterval { fetched, needed: first, leaves: last + 1, freed },
                payload: *payload,
            });
            gone = freed;
        }
    }
    // In no order.
    for at in (1..intervals.len()).rev() {
        intervals.swap(at, draw(at + 1));
    }
    intervals
}

/// The same, of which some begin in the iteration before.
fn split_over_end(case: &Case, numbers: &[usize]) -> Vec<ResidencyInterval> {
    begun_before(case, split(case.steps(), &case.needs(), numbers), numbers)
}

/// Residency intervals of which some first ones begin in the iteration before: where all gradients of their chunks
/// are there, or later.
pub(super) fn begun_before(
    case: &Case,
    mut intervals: Vec<ResidencyInterval>,
    numbers: &[usize],
) -> Vec<ResidencyInterval> {
    let (needs, steps) = (case.needs(), case.steps());
    let mut numbers = numbers.iter().rev().cycle().copied();
    let mut draw = |below: usize| numbers.next().unwrap() % below;
    for (payload, _) in needs.iter().filter(|(of, _)| !of.is_gradients && !case.has_parts(of.chunk)) {
        let earliest = gone(&intervals, *payload).max(complete(&needs, payload.chunk));
        let own = intervals.iter_mut().filter(|interval| interval.payload == *payload);
        if let Some(first) = own.min_by_key(|interval| interval.at.needed).filter(|_| draw(2) == 0) {
            first.at.fetched = earliest + draw(steps + 1 - earliest);
        }
    }
    intervals
}

/// The boundary where the last interval of a payload is over.
fn gone(intervals: &[ResidencyInterval], payload: Payload) -> usize {
    intervals
        .iter()
        .filter(|interval| interval.payload == payload)
        .map(|interval| interval.at.freed)
        .max()
        .unwrap_or(0)
}

/// The boundary where all gradients of a chunk are there.
fn complete(needs: &[(Payload, Need)], chunk: usize) -> usize {
    let own = needs.iter().filter(|(payload, _)| payload.chunk == chunk);
    own.filter_map(|(_, need)| need.last_gradient()).max().map_or(0, |last| last + 1)
}

/// Goes through an iteration boundary by boundary with what is there, and whether the host has it as it is.
fn walked(
    needs: &[(Payload, Need)],
    intervals: &[ResidencyInterval],
    steps: usize,
    bytes: impl Fn(Payload) -> u64,
    is_copied: impl Fn(Payload) -> bool,
    is_forward: impl Fn(usize) -> bool,
) -> (Moved, Vec<u64>) {
    let (mut moved, mut resident) = (Moved::default(), Vec::new());
    let is_there_before = |payload: &Payload| {
        intervals
            .iter()
            .any(|interval| interval.payload == *payload && interval.at.fetched > interval.at.needed)
    };
    let mut there: Vec<bool> = needs.iter().map(|(payload, _)| is_there_before(payload)).collect();
    let mut is_changed = vec![false; needs.len()];
    let mut has_gradients = vec![false; needs.len()];
    for boundary in 0..=steps {
        for (at, (payload, need)) in needs.iter().enumerate() {
            for interval in intervals.iter().filter(|interval| interval.payload == *payload) {
                let leaves = interval.at.leaves == boundary && std::mem::take(&mut is_changed[at]);
                if leaves && is_copied(*payload) {
                    moved.down += bytes(*payload);
                    if need.gradients.iter().any(|&step| step >= boundary) {
                        moved.unfinished_down += bytes(*payload);
                    }
                }
                if interval.at.freed == boundary {
                    assert!(std::mem::take(&mut there[at]) && !is_changed[at]);
                }
            }
            if intervals
                .iter()
                .any(|interval| interval.payload == *payload && interval.at.fetched == boundary)
            {
                assert!(!std::mem::replace(&mut there[at], true));
                // Gradients that are apart have nothing to copy before there are any.
                if is_copied(*payload) && (!payload.is_gradients || has_gradients[at]) {
                    moved.up += bytes(*payload);
                    moved.fetches += 1;
                    // What begins in the iteration before comes for the next one, in which nothing is begun.
                    let interval =
                        intervals.iter().find(|of| of.payload == *payload && of.at.fetched == boundary);
                    let (needed, is_next) = interval.map(|of| (of.at.needed, of.at.is_over_end())).unwrap();
                    if has_gradients[at] && !is_next {
                        moved.unfinished_up += bytes(*payload);
                    } else if !is_forward(needed) {
                        moved.backward_up += bytes(*payload);
                    }
                }
            }
            if need.gradients.contains(&boundary) {
                assert!(there[at]);
                is_changed[at] = true;
                has_gradients[at] = true;
            }
        }
        if boundary < steps {
            let here = needs.iter().zip(&there).filter(|(_, there)| **there);
            resident.push(here.map(|((payload, _), _)| bytes(*payload)).sum());
        }
    }
    (moved, resident)
}

pub(super) fn numbers() -> impl Strategy<Value = Vec<usize>> {
    proptest::collection::vec(0_usize..1_000, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// What intervals move is what a walk through the iteration with them moves, and so is what is there meanwhile.
    /// Nothing of what ranks have their parts of on their devices is copied.
    #[test]
    fn moved_bytes_are_those_of_a_walk(case in cases(), numbers in numbers()) {
        let (uses, needs) = (&case.chunks.uses, case.needs());
        let intervals = split_over_end(&case, &numbers);
        let checked = Intervals::new(uses, &intervals, |_| true).unwrap();
        let is_forward = |step: usize| matches!(case.chunks.steps.all()[step], Step::Forward { .. });
        let (moved, resident) = walked(
            &needs, &intervals, case.steps(), |payload| case.bytes(payload), |payload| !case.has_parts(payload.chunk),
            is_forward,
        );
        prop_assert_eq!(checked.moved(|chunk, _| case.chunks.payload_bytes(chunk), is_forward), moved);
        prop_assert_eq!(checked.resident(|chunk| case.chunks.payload_bytes(chunk)), resident);
        prop_assert_eq!(checked.all().count(), intervals.len());
        for (position, interval, copies) in checked.all() {
            let (payload, need) = &needs[position];
            prop_assert_eq!(interval.payload, *payload);
            prop_assert_eq!(copies.is_complete, need.last_gradient() == Some(interval.at.leaves - 1));
        }
    }

    /// Each kind of wrong interval is refused, and named.
    #[test]
    fn wrong_visits_are_refused_by_name(case in cases(), numbers in numbers(), chosen: prop::sample::Index) {
        let (needs, steps) = (case.needs(), case.steps());
        let intervals = split(steps, &needs, &numbers);
        prop_assume!(!intervals.is_empty());
        let index = chosen.index(intervals.len());
        let of = intervals[index];
        let chunk = of.payload.chunk;
        let whose = |payload: Payload| {
            let what = if payload.is_gradients { "the gradient buffer of chunk" } else { "chunk" };
            format!("{what} {}", payload.chunk)
        };
        let own = whose(of.payload);
        let with = |changed: ResidencyInterval| {
            let mut intervals = intervals.clone();
            intervals[index] = changed;
            intervals
        };
        let count = case.chunks.layout.chunks().len();
        let stranger = |chunk, is_gradients| with(ResidencyInterval { payload: Payload { chunk, is_gradients }, ..of });
        let at = format!("[{index}]");
        refused(&case, &stranger(count, false), true, &at, &[&format!("chunk {count}"), "does not exist"])?;
        refused(&case, &stranger(count, true), true, &at, &[&format!("chunk {count}"), "no separate gradients"])?;
        if !case.chunks.uses.are_apart(chunk) {
            refused(&case, &stranger(chunk, true), true, &at, &[&format!("chunk {chunk}"), "no separate gradients"])?;
        }
        if let Some(&there) = case.stage.on_device.first().filter(|_| case.ranks == 1) {
            refused(&case, &stranger(there, false), true, &at, &[&format!("chunk {there}"), "always on the device"])?;
        }
        if of.at.freed > of.at.needed + 1 {
            let wrong = ResidencyInterval { at: BoundaryInterval { fetched: of.at.needed + 1, ..of.at }, ..of };
            refused(&case, &with(wrong), true, &at, &["are not in order"])?;
        }
        for wrong in [
            ResidencyInterval { at: BoundaryInterval { needed: of.at.leaves, ..of.at }, ..of },
            ResidencyInterval { at: BoundaryInterval { leaves: of.at.needed, ..of.at }, ..of },
            ResidencyInterval { at: BoundaryInterval { freed: of.at.leaves - 1, ..of.at }, ..of },
            ResidencyInterval { at: BoundaryInterval { freed: steps + 1, ..of.at }, ..of },
            ResidencyInterval { at: BoundaryInterval { leaves: of.at.freed + 1, ..of.at }, ..of },
        ] {
            refused(&case, &with(wrong), true, &at, &["are not in order"])?;
        }

        let without: Vec<ResidencyInterval> = intervals.iter().filter(|interval| **interval != of).copied().collect();
        let lacks = format!("is not on the device in step {}", of.at.needed);
        refused(&case, &without, true, "", &[&own, &lacks])?;
        let twice: Vec<ResidencyInterval> = intervals.iter().copied().chain([of]).collect();
        refused(&case, &twice, true, "", &[&own, "before its previous interval is freed"])?;
        // Just too long for the next interval.
        let follows = |interval: &&ResidencyInterval| interval.payload == of.payload && interval.at.fetched >= of.at.freed;
        if let Some(next) = intervals.iter().filter(follows).min() {
            let longer = ResidencyInterval { at: BoundaryInterval { freed: next.at.fetched + 1, ..of.at }, ..of };
            let comes = format!("is prefetched at step {}, before its previous interval is freed at step {}", next.at.fetched, next.at.fetched + 1);
            refused(&case, &with(longer), true, "", &[&own, &comes])?;
        }

        let need = &needs.iter().find(|(payload, _)| *payload == of.payload).unwrap().1;
        let is_there = |before: &usize| of.at.fetched <= *before && !of.at.is_over_end();
        if let Some(before) = of.at.needed.checked_sub(1).filter(is_there) {
            let early = ResidencyInterval { at: BoundaryInterval { needed: before, ..of.at }, ..of };
            refused(&case, &with(early), true, "", &[&own, "The chunk is not used at the first-use step"])?;
        }
        let Some(last) = need.last_gradient() else { return Ok(()) };
        let is_changed = need.gradients.iter().any(|step| (of.at.needed..of.at.leaves).contains(step));
        if is_changed && of.at.leaves <= last {
            // The first of them is named.
            refused(&case, &intervals, false, "", &["CPU memory has no space for incomplete gradients"])?;
        }
        if of.at.leaves == last + 1 && of.at.leaves < steps {
            let leaves = of.at.leaves + 1;
            let later = ResidencyInterval { at: BoundaryInterval { leaves, freed: of.at.freed.max(leaves), ..of.at }, ..of };
            let says = format!("is evicted at step {}, but all its gradients are complete at step {}", last + 2, last + 1);
            refused(&case, &with(later), true, "", &[&own, &says])?;
            let end = intervals.iter().filter(|interval| interval.payload == of.payload).map(|interval| interval.at.freed).max().unwrap();
            if end < steps {
                let at = BoundaryInterval { fetched: end, needed: end, leaves: end + 1, freed: steps };
                let again = ResidencyInterval { at, payload: of.payload };
                let intervals: Vec<ResidencyInterval> = intervals.iter().copied().chain([again]).collect();
                let says = format!("is prefetched at step {end}, after the gradients of the chunk were evicted");
                refused(&case, &intervals, true, "", &[&own, &says])?;
            }
        }
    }

    /// What begins in the iteration before is the first interval of parameters, behind their last one and all of
    /// their gradients.
    #[test]
    fn what_begins_too_early_is_refused_by_name(case in cases(), numbers in numbers(), chosen: prop::sample::Index) {
        let (needs, steps) = (case.needs(), case.steps());
        let intervals = split(steps, &needs, &numbers);
        prop_assume!(!intervals.is_empty());
        let index = chosen.index(intervals.len());
        let ResidencyInterval { payload, at: BoundaryInterval { needed, freed, .. } } = intervals[index];
        let at = |fetched: usize| {
            let mut intervals = intervals.clone();
            intervals[index].at.fetched = fetched;
            intervals
        };
        let is_first = !intervals.iter().any(|of| of.payload == payload && of.at.needed < needed);
        if !is_first {
            return refused(&case, &at(steps), true, "", &["Only its first interval may"]);
        }
        if payload.is_gradients {
            return refused(&case, &at(steps), true, "", &["the gradient buffer of chunk", "its gradients do not exist yet"]);
        }
        if case.has_parts(payload.chunk) {
            return refused(&case, &at(steps), true, "", &["its parts stay on the devices"]);
        }
        let (gone, complete) = (gone(&intervals, payload), complete(&needs, payload.chunk));
        if gone > freed {
            refused(&case, &at(gone - 1), true, "", &["before the chunk is freed at", &gone.to_string()])?;
        }
        if complete > gone {
            refused(&case, &at(complete - 1), true, "", &["before its gradients are complete at", &complete.to_string()])?;
        }
        prop_assert!(Intervals::new(&case.chunks.uses, &at(gone.max(complete)), |_| true).is_ok());
    }

    /// Only what a host has no place for must be there until it is complete.
    #[test]
    fn without_a_place_gradients_stay_until_they_are_complete(case in cases(), numbers in numbers()) {
        let needs = case.needs();
        let intervals = split(case.steps(), &needs, &numbers);
        let leaves_early = |interval: &ResidencyInterval| {
            let need = &needs.iter().find(|(payload, _)| *payload == interval.payload).unwrap().1;
            let puts = need.gradients.iter().any(|step| (interval.at.needed..interval.at.leaves).contains(step));
            puts && need.last_gradient().is_some_and(|last| interval.at.leaves <= last)
        };
        let found = Intervals::new(&case.chunks.uses, &intervals, |_| false);
        prop_assert_eq!(found.is_err(), intervals.iter().any(leaves_early));
    }
}

/// That these intervals are refused, in this field, with these words.
fn refused(
    case: &Case,
    intervals: &[ResidencyInterval],
    spills: bool,
    field: &str,
    words: &[&str],
) -> Result<(), TestCaseError> {
    let found = Intervals::new(&case.chunks.uses, intervals, |_| spills);
    let Err(refused) = found else {
        return Err(TestCaseError::fail(format!("{words:?} is not refused")));
    };
    let violation = &refused.violations()[0];
    prop_assert_eq!(&violation.field, field, "{}", violation.description);
    for word in words {
        prop_assert!(violation.description.contains(word), "{} does not say {word}", violation.description);
    }
    Ok(())
}
