//! What is left of planned intervals where there is less room, against what was planned and what steps need.

use crate::training::boundaries::BoundaryInterval;
use proptest::prelude::*;

use super::intervals::{begun_before, numbers, split};
use super::naive::{Case, cases, gpt};
use super::paged::{may_leave, rooms};
use super::{chunks_of, stage};
use crate::chunks::host::HostParameters;
use crate::chunks::residency::Payload;
use crate::chunks::residency::intervals::{Intervals, ResidencyInterval};
use crate::chunks::residency::paging_intervals::Paging;
use crate::chunks::residency::refit::refit;
use crate::chunks::stage::{ChunkResidency, ChunkedStage};
use crate::training::chunk_order::ChunkOrder;
use crate::training::{Precision, RecomputePolicy, Schedule};

/// Residency intervals of a plan, whatever memory is free: random ones where the stage accepts these, or else a paging
/// rule's. Some begin in the iteration before.
fn planned(case: &Case, paging: Paging, numbers: &[usize]) -> Vec<ResidencyInterval> {
    let any = split(case.steps(), &case.needs(), numbers);
    let intervals = if case.stage.told(&case.chunks, &any).is_ok() {
        any
    } else {
        case.stage.paged(paging, &case.chunks, &vec![u64::MAX; case.steps()]).unwrap()
    };
    let begun = begun_before(case, intervals.clone(), numbers);
    if case.stage.told(&case.chunks, &begun).is_ok() { begun } else { intervals }
}

fn plans() -> impl Strategy<Value = (Case, Vec<u64>, Vec<ResidencyInterval>)> {
    (rooms(), 0_usize..4, numbers()).prop_map(|((case, room), ahead, numbers)| {
        let intervals = planned(&case, Paging { ahead, behind: ahead }, &numbers);
        (case, room, intervals)
    })
}

/// Whether a payload is there in a step.
fn is_there(intervals: &[ResidencyInterval], payload: Payload, step: usize) -> bool {
    let holds = |interval: &ResidencyInterval| match interval.at.fetched > interval.at.needed {
        true => step < interval.at.freed || step >= interval.at.fetched,
        false => (interval.at.fetched..interval.at.freed).contains(&step),
    };
    intervals.iter().any(|interval| interval.payload == payload && holds(interval))
}

/// Bytes that are there in each step.
fn resident(case: &Case, intervals: &[ResidencyInterval]) -> Vec<u64> {
    let of = |step: usize| {
        let there = case.needs().into_iter().filter(|(payload, _)| is_there(intervals, *payload, step));
        there.map(|(payload, _)| case.bytes(payload)).sum()
    };
    (0..case.steps()).map(of).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Wherever a rule has intervals, so is there something left of planned ones: sound intervals within the room.
    /// Where none has, it is the same step that lacks the same bytes. What has room as it is stays as it is.
    #[test]
    fn planned_visits_fit_wherever_any_do((case, room, intervals) in plans()) {
        let (uses, spills) = (&case.chunks.uses, |of: &_| may_leave(&case, of));
        let bytes = |chunk| case.chunks.payload_bytes(chunk);
        let found = refit(uses, &intervals, bytes, &room, spills);
        if let Err(lack) = Paging::AT_NEED.intervals(uses, bytes, &room, spills) {
            prop_assert_eq!(found, Err(lack));
            return Ok(());
        }
        let left = found.unwrap();
        let told = case.stage.told(&case.chunks, &left).unwrap();
        let there = resident(&case, &left);
        prop_assert_eq!(&told.resident(bytes), &there);
        prop_assert!(there.iter().zip(&room).all(|(there, room)| there <= room), "{there:?} in {room:?}");
        let had_room = resident(&case, &intervals).iter().zip(&room).all(|(there, room)| there <= room);
        prop_assert!(!had_room || left == intervals);
    }

    /// Nothing is there that was not planned. What was planned is there, but in steps that lack room for all of that, and where such
    /// steps part it from the use that it was there for: from the next one, and where it had stayed from one to another from both.
    #[test]
    fn steps_with_room_keep_what_they_had((case, room, intervals) in plans()) {
        let spills = |of: &_| may_leave(&case, of);
        let bytes = |chunk| case.chunks.payload_bytes(chunk);
        let Ok(left) = refit(&case.chunks.uses, &intervals, bytes, &room, spills) else { return Ok(()) };
        let (steps, there) = (case.steps(), resident(&case, &intervals));
        let lacks = |step: usize| there[step % steps] > room[step % steps];
        for (payload, need) in case.needs() {
            for step in 0..steps {
                let (was, is) = (is_there(&intervals, payload, step), is_there(&left, payload, step));
                prop_assert!(was || !is, "{payload:?} in step {step}");
                if is || !was || lacks(step) {
                    continue;
                }
                // The interval, and steps of it counted from the beginning of the iteration in which it begins.
                let own = intervals.iter().filter(|interval| interval.payload == payload);
                let mut own = own.map(|interval| interval.at.fetched..interval.at.freed + interval.at.awaited(steps) - interval.at.needed);
                let within = |held: &std::ops::Range<usize>| [step, step + steps].into_iter().find(|at| held.contains(at));
                let (at, held) = own.find_map(|held| Some((within(&held)?, held))).unwrap();
                let is_use = |at: &usize| need.steps.contains(&(at % steps)) && held.contains(at);
                let before = (held.start..at).rev().find(is_use);
                let behind = (at + 1..held.end).find(is_use);
                let mut lacks_before = before.map_or(held.start, |before| before + 1)..at;
                let mut lacks_behind = at + 1..behind.unwrap_or(held.end);
                prop_assert!(before.is_none() || lacks_before.any(lacks), "{payload:?} left before step {step}");
                prop_assert!(behind.is_none() || lacks_behind.any(lacks), "{payload:?} is late in step {step}");
            }
        }
    }

    /// With as little room as steps need nothing else is there.
    #[test]
    fn without_room_to_spare_nothing_else_is_there(case in cases(), ahead in 0_usize..4, numbers in numbers()) {
        let intervals = planned(&case, Paging { ahead, behind: ahead }, &numbers);
        let taken = case.chunks.on_device_bytes();
        let room: Vec<u64> = case.needed().iter().map(|needed| needed + taken).collect();
        let planned = ChunkedStage { residency: ChunkResidency::Planned(intervals), ..case.stage.clone() };
        let left = planned.intervals(&case.chunks, &room).unwrap();
        prop_assert_eq!(resident(&case, &left), case.needed());
    }
}

fn interval(chunk: usize, [fetched, needed, leaves, freed]: [usize; 4]) -> ResidencyInterval {
    let at = BoundaryInterval { fetched, needed, leaves, freed };
    ResidencyInterval { at, payload: Payload { chunk, is_gradients: false } }
}

/// What is used farthest away makes room, and nothing else does: it leaves before the step that lacks it and comes back behind;
/// what comes early comes later, and what leaves late is gone sooner.
#[test]
fn the_farthest_next_use_makes_room() {
    let asked = stage(1, ChunkOrder::Layer, HostParameters::Cast);
    let passes = (Schedule::Gpipe, 1);
    let chunks = chunks_of(&gpt(6, true), &asked, passes, RecomputePolicy::None, Precision::Fp32);
    let (steps, uses) = (chunks.uses.steps(), chunks.uses.payloads());
    // Two that stay from their forward to their backward passes.
    let twice = |&chunk: &usize| match *uses[chunk].steps {
        [first, last] => first > 0 && last + 2 < steps && first + 6 < last,
        _ => false,
    };
    let twice: Vec<usize> = (0..uses.len()).filter(twice).collect();
    let (far, near) = (twice[0], twice[twice.len() - 1]);
    let [first, last] = *uses[far].steps else { unreachable!("it has two uses") };
    let [near_first, near_last] = *uses[near].steps else { unreachable!("it has two uses") };
    assert!(first < near_first && near_last < last);
    let near_stays = interval(near, [near_first, near_first, near_last + 1, near_last + 1]);
    let others = uses.iter().enumerate().filter(|(chunk, _)| ![far, near].contains(chunk));
    let at_need = others.flat_map(|(chunk, of)| {
        of.steps.iter().map(move |&step| interval(chunk, [step, step, step + 1, step + 1]))
    });
    let others: Vec<ResidencyInterval> = at_need.chain([near_stays]).collect();
    let squeezed_by = |lacking: &[usize], of_far: [usize; 4]| {
        let all: Vec<ResidencyInterval> = others.iter().copied().chain([interval(far, of_far)]).collect();
        let mut room = Intervals::new(&chunks.uses, &all, |_| true).unwrap().resident(|_| 1);
        lacking.iter().for_each(|&step| room[step] -= 1);
        let mut left = refit(&chunks.uses, &all, |_| 1, &room, |_| true).unwrap();
        left.retain(|interval| !others.contains(interval));
        left
    };
    let late = [first, first, last + 1, steps];
    assert_eq!(squeezed_by(&[], late), [interval(far, late)]);
    // Of both that could.
    let before = interval(far, [first, first, first + 1, near_first + 1]);
    let again = interval(far, [near_first + 2, last, last + 1, steps]);
    assert_eq!(squeezed_by(&[near_first + 1], late), [again, before]);
    // What is there between two steps that lack room would be there for nothing.
    let before = interval(far, [first, first, first + 1, first + 1]);
    let again = interval(far, [first + 4, last, last + 1, steps]);
    assert_eq!(squeezed_by(&[first + 1, first + 3], late), [again, before]);
    assert_eq!(squeezed_by(&[last + 2], late), [interval(far, [first, first, last + 1, last + 2])]);
    // It comes in the iteration before, or in its own, behind what lacks room.
    let early = [last + 1, first, last + 1, last + 1];
    assert_eq!(squeezed_by(&[last + 2], early), [interval(far, [last + 3, first, last + 1, last + 1])]);
    assert_eq!(squeezed_by(&[first - 1], early), [interval(far, [first, first, last + 1, last + 1])]);
    assert_eq!(squeezed_by(&[steps - 1], early), [interval(far, [steps, first, last + 1, last + 1])]);
}
