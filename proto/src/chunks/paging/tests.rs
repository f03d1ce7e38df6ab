//! Fetches against a table that was computed elsewhere, and random cycles against every choice that there is.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

/// One access per chunk and sweep: forward through all, then backward.
fn sweeps(chunks: usize) -> Vec<usize> {
    (0..chunks).chain((0..chunks).rev()).collect()
}

proptest! {
    /// Forward through all and backward with constant room: each sweep fetches only the chunks that had no room. Several accesses of
    /// a chunk in a row are as one.
    #[test]
    fn a_palindrome_is_fetched_but_for_what_has_room(
        (chunks, room) in (1_u64..40).prop_flat_map(|chunks| (Just(chunks), 1..=chunks + 2)), micro_batches in 1_usize..4,
    ) {
        let accesses = sweeps(chunks as usize).into_iter();
        let accesses: Vec<usize> =
            accesses.flat_map(|chunk| std::iter::repeat_n(chunk, micro_batches)).collect();
        let rooms = vec![room; accesses.len()];
        let cycle = AccessCycle::new(accesses, rooms).unwrap();
        let mut residency = cycle.residency();
        residency.iteration();
        prop_assert_eq!(residency.iteration(), 2 * chunks.saturating_sub(room));
    }
}

#[test]
fn a_cycle_needs_room_for_what_it_accesses() {
    for (chunks, room, field) in
        [(vec![], vec![], "chunks"), (vec![0, 1], vec![1], "room"), (vec![0, 1], vec![1, 0], "room[1]")]
    {
        assert_eq!(AccessCycle::new(chunks, room).unwrap_err().violations()[0].field, field);
    }
}

/// Fewest fetches of so many iterations from an empty device: every set of chunks that may be kept at every access.
fn fewest(accesses: &[usize], room: &[u64], iterations: usize) -> u64 {
    let mut least = HashMap::from([(0_u32, 0_u64)]);
    for (&chunk, &room) in accesses.iter().zip(room).cycle().take(accesses.len() * iterations) {
        let mut after = HashMap::new();
        for (held, fetches) in least {
            let fetches = fetches + u64::from(held >> chunk & 1 == 0);
            let there = held | 1 << chunk;
            // All subsets of what is there that have the accessed chunk.
            let mut kept = there;
            loop {
                if kept >> chunk & 1 == 1 && u64::from(kept.count_ones()) <= room {
                    let best = after.entry(kept).or_insert(fetches);
                    *best = fetches.min(*best);
                }
                if kept == 0 {
                    break;
                }
                kept = (kept - 1) & there;
            }
        }
        least = after;
    }
    least.into_values().min().unwrap()
}

/// Accesses to up to six chunks, each with a room of its own.
fn cycles() -> impl Strategy<Value = (Vec<usize>, Vec<u64>)> {
    (2_usize..=6).prop_flat_map(|chunks| {
        proptest::collection::vec((0..chunks, 1..=chunks as u64), 1..14)
            .prop_map(|accesses| accesses.into_iter().unzip())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    /// Belady's rule fetches as little as any choice could, over any number of iterations, and each of its accesses can be done.
    #[test]
    fn belady_fetches_least((accesses, room) in cycles(), iterations in 1_usize..4) {
        let cycle = AccessCycle::new(accesses.clone(), room.clone()).unwrap();
        let mut residency = cycle.residency();
        let fetched: u64 = (0..iterations).map(|_| residency.iteration()).sum();
        prop_assert_eq!(fetched, fewest(&accesses, &room, iterations));

        let mut residency = cycle.residency();
        let mut there = Vec::new();
        for (&chunk, &room) in accesses.iter().zip(&room).cycle().take(accesses.len() * iterations) {
            let moment = residency.access();
            for evicted in moment.evicted {
                prop_assert!(evicted != chunk && there.contains(&evicted));
                there.retain(|&of| of != evicted);
            }
            prop_assert_eq!(moment.fetched.len(), usize::from(!there.contains(&chunk)));
            if !moment.fetched.is_empty() {
                there.push(chunk);
            }
            prop_assert!(there.len() as u64 <= room);
        }
    }
}

/// Accesses to some of five chunks of these bytes at once, some of which are let go, with room for them and so much more.
fn unequal() -> impl Strategy<Value = (Vec<Access>, Vec<u64>, Vec<u64>)> {
    let some = || proptest::collection::btree_set(0_usize..5, 1..4);
    let some = || some().prop_map(|set| set.into_iter().collect::<Vec<_>>()).prop_shuffle();
    let access = (some(), proptest::option::weighted(0.3, some()), 0_u64..40);
    let bytes = proptest::collection::vec(prop_oneof![1 => Just(0), 9 => 0_u64..20], 5);
    (bytes, proptest::collection::vec(access, 1..12)).prop_map(|(bytes, accesses)| {
        let room = |(used, _, more): &(Vec<usize>, Option<Vec<usize>>, u64)| {
            more + used.iter().map(|&chunk| bytes[chunk]).sum::<u64>()
        };
        let room = accesses.iter().map(room).collect();
        let access = |(used, let_go, _): (Vec<usize>, Option<Vec<usize>>, u64)| Access {
            used,
            let_go: let_go.unwrap_or_default(),
        };
        (accesses.into_iter().map(access).collect(), room, bytes)
    })
}

/// Who leaves of those that are there and not accessed: of those that are equal, the first chunk.
fn leaver(there: &[usize], accesses: &[Access], now: usize) -> Option<usize> {
    let used = &accesses[now % accesses.len()].used;
    let next = |chunk: usize| (now..).find(|at| accesses[at % accesses.len()].used.contains(&chunk)).unwrap();
    let idle = there.iter().copied().filter(|chunk| !used.contains(chunk));
    idle.min_by_key(|&chunk| (usize::MAX - next(chunk), chunk))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Chunks of any bytes, several at once, leave and come as a list of them has it.
    #[test]
    fn unequal_chunks_move_as_in_a_list((accesses, room, bytes) in unequal(), iterations in 1_usize..4) {
        let cycle = AccessCycle::of_bytes(accesses.clone(), room.clone(), bytes.clone()).unwrap();
        let mut residency = cycle.residency();
        let mut there: Vec<usize> = Vec::new();
        for now in 0..iterations * accesses.len() {
            let Access { used, let_go } = &accesses[now % accesses.len()];
            let room = room[now % accesses.len()];
            let fetched: Vec<usize> = used.iter().copied().filter(|chunk| !there.contains(chunk)).collect();
            let coming: u64 = fetched.iter().map(|&chunk| bytes[chunk]).sum();
            let mut evicted = Vec::new();
            while there.iter().map(|&chunk| bytes[chunk]).sum::<u64>() + coming > room {
                let leaves = leaver(&there, &accesses, now).unwrap();
                there.retain(|&chunk| chunk != leaves);
                evicted.push(leaves);
            }
            there.extend(&fetched);
            let moment = residency.access();
            prop_assert_eq!((moment.evicted, moment.fetched), (evicted, fetched), "at {}", now);
            there.retain(|chunk| !let_go.contains(chunk));
        }
    }

    /// The first access that lacks room is named, and how much it lacks; room that is not named is none.
    #[test]
    fn a_lack_of_room_is_told((accesses, room, bytes) in unequal(), lack: prop::sample::Index, named: prop::sample::Index) {
        let mut less = room;
        let at = lack.index(less.len());
        let needed = |access: usize| accesses[access].used.iter().map(|&chunk| bytes[chunk]).sum::<u64>();
        less[at] = needed(at).saturating_sub(3);
        less.truncate(named.index(less.len() + 1));
        let has = |access: usize| less.get(access).copied().unwrap_or(0);
        let first = (0..accesses.len()).find(|&access| needed(access) > has(access));
        let told = first.map(|access| Shortage { access, missing: needed(access) - has(access) });
        prop_assert_eq!(AccessCycle::of_bytes(accesses.clone(), less, bytes.clone()).err(), told);
    }
}

#[test]
fn no_accesses_need_nothing() {
    let cycle = AccessCycle::of_bytes(Vec::new(), Vec::new(), vec![1]).unwrap();
    assert!(cycle.is_empty());
    let mut residency = cycle.residency();
    assert_eq!(residency.access(), Moment { evicted: Vec::new(), fetched: Vec::new() });
}
