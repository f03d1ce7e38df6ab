//! Residency intervals that rules make of a room, against what the steps need and every choice that there is.

use proptest::prelude::*;

use super::naive::{Case, Need, cases};
use crate::chunks::host::{HostParameters, may_leave_unfinished, spills};
use crate::chunks::paging::Shortage;
use crate::chunks::residency::Payload;
use crate::chunks::residency::intervals::{Intervals, ResidencyInterval};
use crate::chunks::residency::paging_intervals::{Decided, Gap, Paging, gaps};
use crate::chunks::residency::uses::PayloadUses;

/// Room for what each step needs, and more: as little as nothing, as much as all payloads; in some, a step lacks a byte.
pub(super) fn rooms() -> impl Strategy<Value = (Case, Vec<u64>)> {
    let lack = proptest::option::weighted(0.2, any::<proptest::sample::Index>());
    (cases(), proptest::collection::vec(0_u64..=100, 1..20), 0_u64..=100, lack).prop_map(
        |(case, more, most, lack)| {
            let needed = case.needed();
            let all: u64 = case.needs().iter().map(|&(payload, _)| case.bytes(payload)).sum();
            let more = more.iter().cycle().map(|&share| all * share * most / 10_000);
            let mut room: Vec<u64> = needed.iter().zip(more).map(|(needed, more)| needed + more).collect();
            if let Some(lack) = lack {
                let step = lack.index(room.len());
                room[step] = needed[step].saturating_sub(1);
            }
            (case, room)
        },
    )
}

/// Whether the host has a place for a payload before its gradients are complete.
pub(super) fn may_leave(case: &Case, of: &PayloadUses) -> bool {
    let is_on_device = case.is_on_device(of.payload.chunk);
    may_leave_unfinished(case.stage.host_copy, &case.chunks.sharing, is_on_device, of)
}

/// Bytes that are there in each step.
fn resident(case: &Case, intervals: &[ResidencyInterval]) -> Vec<u64> {
    let of = |step: usize| {
        let here =
            intervals.iter().filter(|interval| (interval.at.fetched..interval.at.freed).contains(&step));
        here.map(|interval| case.bytes(interval.payload)).sum()
    };
    (0..case.steps()).map(of).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// What is needed is there whenever there is room for it, and never more than there is room for; the first step that lacks
    /// room is named otherwise, and how much.
    #[test]
    fn visits_cover_every_use_within_the_room(
        (case, room) in rooms(), ahead in 0_usize..5, behind in 0_usize..4
    ) {
        let (uses, paging) = (&case.chunks.uses, Paging { ahead, behind });
        let spills = |of: &_| may_leave(&case, of);
        let found = paging.intervals(uses, |chunk| case.chunks.payload_bytes(chunk), &room, spills);
        let needed = case.needed();
        if let Some(access) = (0..room.len()).find(|&step| needed[step] > room[step]) {
            prop_assert_eq!(found, Err(Shortage { access, missing: needed[access] - room[access] }));
            return Ok(());
        }
        let intervals = found.unwrap();
        let checked = Intervals::new(uses, &intervals, spills).unwrap();
        let bytes = resident(&case, &intervals);
        prop_assert_eq!(&checked.resident(|chunk| case.chunks.payload_bytes(chunk)), &bytes);
        prop_assert!(bytes.iter().zip(&room).all(|(bytes, room)| bytes <= room), "{bytes:?} in {room:?}");
        for (payload, need) in case.needs() {
            let own: Vec<&ResidencyInterval> = intervals.iter().filter(|interval| interval.payload == payload).collect();
            for &step in &need.steps {
                let here = own.iter().filter(|interval| (interval.at.needed..interval.at.leaves).contains(&step));
                prop_assert_eq!(here.count(), 1, "{:?} in step {}", payload, step);
            }
            for interval in own {
                prop_assert!(need.steps.contains(&interval.at.needed) && need.steps.contains(&(interval.at.leaves - 1)));
                prop_assert!(ahead > 0 || interval.at.fetched == interval.at.needed);
                let makes = payload.is_gradients && Some(&interval.at.needed) == need.gradients.first();
                let is_near = case.has_parts(payload.chunk);
                let waits = !makes && !is_near;
                prop_assert!(waits || interval.at.fetched == interval.at.needed, "there is nothing to wait for");
                let is_complete = need.last_gradient() == Some(interval.at.leaves - 1);
                let behind = if is_near { 0 } else { behind };
                prop_assert!(!is_complete || interval.at.freed <= interval.at.leaves + behind);
            }
        }
    }

    /// What is decided of gaps between uses is so, within the room, and the rule decides of the rest.
    #[test]
    fn payloads_stay_and_leave_as_decided(
        (case, room) in rooms(), ways in proptest::collection::vec(0_u8..3, 1..9),
    ) {
        let (uses, paging) = (&case.chunks.uses, Paging::AT_NEED);
        let spills = |of: &_| may_leave(&case, of);
        let all = gaps(uses, spills);
        let of = |way: u8| {
            let ways = ways.iter().cycle();
            all.iter().zip(ways).filter(|of| *of.1 == way).map(|of| of.0.clone()).collect::<Vec<_>>()
        };
        let decided = Decided { stays: of(1), leaves: of(2) };
        let bytes = |chunk| case.chunks.payload_bytes(chunk);
        let mut needed = case.needed();
        for gap in &all {
            let (payload, steps) = (&uses.payloads()[gap.payload], gap.steps.clone());
            prop_assert!(payload.steps.iter().all(|step| !steps.contains(step)));
            prop_assert!([steps.start - 1, steps.end].iter().all(|step| case.needs()[gap.payload].1.steps.contains(step)));
        }
        for Gap { payload, steps } in &decided.stays {
            steps.clone().for_each(|step| needed[step] += bytes(uses.payloads()[*payload].payload.chunk));
        }
        let found = paging.intervals_with(uses, bytes, &room, spills, &decided);
        if let Some(access) = (0..room.len()).find(|&step| needed[step] > room[step]) {
            prop_assert_eq!(found, Err(Shortage { access, missing: needed[access] - room[access] }));
            return Ok(());
        }
        let intervals = found.unwrap();
        prop_assert!(Intervals::new(uses, &intervals, spills).is_ok());
        prop_assert!(resident(&case, &intervals).iter().zip(&room).all(|(bytes, room)| bytes <= room));
        let is_there = |gap: &Gap, step: usize| {
            let payload = uses.payloads()[gap.payload].payload;
            intervals.iter().any(|interval| interval.payload == payload && (interval.at.fetched..interval.at.freed).contains(&step))
        };
        prop_assert!(decided.stays.iter().all(|gap| gap.steps.clone().all(|step| is_there(gap, step))));
        prop_assert!(!decided.leaves.iter().any(|gap| gap.steps.clone().any(|step| is_there(gap, step))));
    }

    /// Bare intervals hold what each step needs, and no byte more.
    #[test]
    fn bare_visits_hold_what_is_needed(case in cases()) {
        let intervals = case.stage.bare_intervals(&case.chunks).unwrap();
        prop_assert_eq!(resident(&case, &intervals), case.needed());
    }

    /// A room that names too few steps has none in the others.
    #[test]
    fn steps_that_no_room_is_named_for_have_none(case in cases(), share in 0_usize..100) {
        let needed = case.needed();
        let named = needed.len() * share / 100;
        let lacks = (named..needed.len()).find(|&step| needed[step] > 0);
        let found = Paging { ahead: 2, behind: 2 }.intervals(
            &case.chunks.uses, |chunk| case.chunks.payload_bytes(chunk), &needed[..named], |of| may_leave(&case, of),
        );
        prop_assert_eq!(found.err().map(|lack| lack.access), lacks);
    }
}

/// Trainings of few chunks that no step interrupts, counting payloads instead of bytes: so many have room in each step.
fn countable() -> impl Strategy<Value = (Case, Vec<u64>)> {
    let is_countable = |case: &Case| {
        let needs = case.needs();
        let is_simple = case.stage.host_copy == HostParameters::Cast || case.chunks.steps.slots() == 1;
        let is_copied = case.ranks == 1 || case.stage.on_device.is_empty();
        is_simple && is_copied && needs.len() <= 6 && !needs.iter().any(|(_, need)| need.is_interrupted())
    };
    let more = proptest::collection::vec(0_u64..4, 1..16);
    (cases().prop_filter("few chunks without interruptions", is_countable), more).prop_map(|(case, more)| {
        let needs = case.needs();
        let count = |step: usize| needs.iter().filter(|(_, need)| need.steps.contains(&step)).count() as u64;
        let room = (0..case.steps()).zip(more.iter().cycle()).map(|(step, more)| count(step) + more);
        let room = room.collect();
        (case, room)
    })
}

/// Fewest fetches of an iteration: of every set of payloads that may be there behind every step. What is complete leaves, and
/// gradients that are apart are made.
fn fewest(needs: &[(Payload, Need)], room: &[u64]) -> u64 {
    let sets = 1_usize << needs.len();
    let set = |of: &dyn Fn(&(Payload, Need)) -> bool| {
        needs.iter().enumerate().filter(|(_, need)| of(need)).map(|(at, _)| 1_usize << at).sum::<usize>()
    };
    let mut least = vec![None; sets];
    least[0] = Some(0_u64);
    for (step, &room) in room.iter().enumerate() {
        let needed = set(&|(_, need)| need.steps.contains(&step));
        let made = set(&|(payload, need)| payload.is_gradients && need.gradients.first() == Some(&step));
        let complete = set(&|(_, need)| need.last_gradient() == Some(step));
        let mut after = vec![None; sets];
        for (there, fetches) in least.into_iter().enumerate() {
            let Some(fetches) = fetches else { continue };
            let fetches = fetches + u64::from((needed & !there & !made).count_ones());
            let most = there | needed;
            let mut kept = most;
            loop {
                if kept & needed == needed && u64::from(kept.count_ones()) <= room {
                    let place: &mut Option<u64> = &mut after[kept & !complete];
                    *place = Some(place.map_or(fetches, |known| known.min(fetches)));
                }
                if kept == 0 {
                    break;
                }
                kept = (kept - 1) & most;
            }
        }
        least = after;
    }
    least.into_iter().flatten().min().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Where payloads are alike and nothing has to leave unfinished, no choice fetches less than the farthest next use.
    #[test]
    fn nothing_fetches_less_than_the_farthest_next_use((case, room) in countable()) {
        let uses = &case.chunks.uses;
        let intervals = Paging::AT_NEED.intervals(uses, |_| 1, &room, |of| spills(case.stage.host_copy, of)).unwrap();
        let belady = Intervals::new(uses, &intervals, |of| spills(case.stage.host_copy, of)).unwrap();
        let belady = belady.moved(|_, _| 1, |_| true);
        prop_assert_eq!(belady.fetches, fewest(&case.needs(), &room));
        prop_assert_eq!(belady.up, belady.fetches);
    }
}
