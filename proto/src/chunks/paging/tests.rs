//! Fetches against a table that was computed elsewhere, and random cycles against every choice that there is.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

/// One access per chunk and sweep: forward through all, then backward.
fn sweeps(chunks: usize, micro_batches: usize) -> Vec<usize> {
    let forward = (0..micro_batches).flat_map(|_| 0..chunks);
    forward.chain((0..micro_batches).flat_map(|_| (0..chunks).rev())).collect()
}

/// Ten chunks, falling to four and rising again.
fn falling_and_rising(accesses: usize) -> Vec<u64> {
    let room = |t: usize| {
        let middle = (2.0 * (t as f64 + 0.5) / accesses as f64 - 1.0).abs();
        10 - (6.0 * (1.0 - middle)).round_ties_even() as u64
    };
    (0..accesses).map(room).collect()
}

#[test]
fn steady_iterations_fetch_as_in_the_table() {
    // Chunks, room where it is constant, micro-batches that sweep; fetches by LRU, FIFO and Belady. With a layer's
    // micro-batches one after the other a sweep serves all, so four of them are as one.
    for (chunks, room, micro_batches, fetches) in [
        (16, Some(6), 1, [20, 20, 20]),
        (16, Some(6), 4, [116, 116, 80]),
        (16, None, 1, [20, 20, 18]),
        (16, None, 4, [115, 114, 74]),
        (24, Some(12), 8, [360, 360, 192]),
    ] {
        let accesses = sweeps(chunks, micro_batches);
        let rooms =
            room.map_or_else(|| falling_and_rising(accesses.len()), |room| vec![room; accesses.len()]);
        let cycle = AccessCycle::new(accesses, rooms).unwrap();
        let told = [Eviction::Lru, Eviction::Fifo, Eviction::Belady].map(|eviction| {
            let steady = cycle.steady(eviction).unwrap();
            assert_eq!(steady.fetches % steady.iterations, 0, "{eviction:?} {steady:?}");
            steady.fetches / steady.iterations
        });
        assert_eq!(told, fetches, "{chunks} chunks, room {room:?}, {micro_batches} micro-batches");
    }
}

proptest! {
    /// Forward through all and backward with constant room: each sweep fetches what had no room, by the rule that looks
    /// ahead as by the least recently used. First in, first out fetches no fewer than there are chunks, unless all stay: what it
    /// lets go behind a turn is what comes next. A layer's micro-batches one after the other are as one.
    #[test]
    fn a_palindrome_is_fetched_but_for_what_has_room(
        (chunks, room) in (1_u64..40).prop_flat_map(|chunks| (Just(chunks), 1..=chunks + 2)), micro_batches in 1_usize..4,
    ) {
        let accesses = sweeps(chunks as usize, 1).into_iter();
        let accesses: Vec<usize> =
            accesses.flat_map(|chunk| std::iter::repeat_n(chunk, micro_batches)).collect();
        let rooms = vec![room; accesses.len()];
        let cycle = AccessCycle::new(accesses, rooms).unwrap();
        let least = 2 * chunks.saturating_sub(room);
        for (eviction, fetches) in [
            (Eviction::Belady, least),
            (Eviction::Lru, least),
            (Eviction::Fifo, if least == 0 { 0 } else { least.max(chunks) }),
        ] {
            let steady = cycle.steady(eviction).unwrap();
            prop_assert_eq!(steady.fetches, fetches * steady.iterations, "{:?}", eviction);
        }
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

/// The rules of the past, as lists: what leaves is at the front.
fn by_list(accesses: &[usize], room: &[u64], iterations: usize, moves_when_used: bool) -> u64 {
    let (mut there, mut fetches) = (Vec::<usize>::new(), 0);
    for (chunk, room) in accesses.iter().zip(room).cycle().take(accesses.len() * iterations) {
        let at = there.iter().position(|of| of == chunk);
        match at {
            None => {
                fetches += 1;
                there.push(*chunk);
            }
            Some(at) if moves_when_used => {
                let used = there.remove(at);
                there.push(used);
            }
            Some(_) => {}
        }
        while there.len() as u64 > *room {
            let first = there.iter().position(|of| of != chunk).unwrap();
            there.remove(first);
        }
    }
    fetches
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

    /// Belady's rule fetches as little as any choice could, over any number of iterations, and the others as their
    /// lists say; what it says of each access can be done.
    #[test]
    fn belady_fetches_least((accesses, room) in cycles(), iterations in 1_usize..4) {
        let cycle = AccessCycle::new(accesses.clone(), room.clone()).unwrap();
        let fetched = |eviction| {
            let mut residency = cycle.residency(eviction);
            (0..iterations).map(|_| residency.iteration()).sum::<u64>()
        };
        prop_assert_eq!(fetched(Eviction::Belady), fewest(&accesses, &room, iterations));
        prop_assert_eq!(fetched(Eviction::Lru), by_list(&accesses, &room, iterations, true));
        prop_assert_eq!(fetched(Eviction::Fifo), by_list(&accesses, &room, iterations, false));

        let mut residency = cycle.residency(Eviction::Belady);
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

proptest! {
    /// The steady state is what many iterations come to.
    #[test]
    fn a_steady_iteration_is_one_of_many((accesses, room) in cycles()) {
        let cycle = AccessCycle::new(accesses, room).unwrap();
        for eviction in [Eviction::Belady, Eviction::Lru, Eviction::Fifo] {
            let steady = cycle.steady(eviction).unwrap();
            let mut residency = cycle.residency(eviction);
            for _ in 0..100 {
                residency.iteration();
            }
            let fetches: u64 = (0..steady.iterations).map(|_| residency.iteration()).sum();
            prop_assert_eq!(fetches, steady.fetches, "{:?}", eviction);
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

/// What is there, as a list of chunks, the access that each was fetched at and the last that it was used at.
type Kept = Vec<(usize, usize, usize)>;

/// Who leaves of those that are there and not accessed: of those that are equal, the first chunk.
fn leaver(there: &Kept, accesses: &[Access], now: usize, eviction: Eviction) -> Option<usize> {
    let used = &accesses[now % accesses.len()].used;
    let next = |chunk: usize| (now..).find(|at| accesses[at % accesses.len()].used.contains(&chunk)).unwrap();
    let rank = |&&(chunk, fetched, last): &&(usize, usize, usize)| match eviction {
        Eviction::Belady => (usize::MAX - next(chunk), chunk),
        Eviction::Lru => (last, chunk),
        Eviction::Fifo => (fetched, chunk),
    };
    there.iter().filter(|of| !used.contains(&of.0)).min_by_key(rank).map(|of| of.0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Chunks of any bytes, several at once, leave and come as a list of them has it.
    #[test]
    fn unequal_chunks_move_as_in_a_list((accesses, room, bytes) in unequal(), iterations in 1_usize..4) {
        let cycle = AccessCycle::of_bytes(accesses.clone(), room.clone(), bytes.clone()).unwrap();
        for eviction in [Eviction::Belady, Eviction::Lru, Eviction::Fifo] {
            let mut residency = cycle.residency(eviction);
            let mut there: Kept = Vec::new();
            for now in 0..iterations * accesses.len() {
                let Access { used, let_go } = &accesses[now % accesses.len()];
                let room = room[now % accesses.len()];
                let fetched: Vec<usize> =
                    used.iter().copied().filter(|chunk| there.iter().all(|of| of.0 != *chunk)).collect();
                let coming: u64 = fetched.iter().map(|&chunk| bytes[chunk]).sum();
                let mut evicted = Vec::new();
                while there.iter().map(|of| bytes[of.0]).sum::<u64>() + coming > room {
                    let leaves = leaver(&there, &accesses, now, eviction).unwrap();
                    there.retain(|of| of.0 != leaves);
                    evicted.push(leaves);
                }
                there.extend(fetched.iter().map(|&chunk| (chunk, now, now)));
                there.iter_mut().filter(|of| used.contains(&of.0)).for_each(|of| of.2 = now);
                let moment = residency.access();
                prop_assert_eq!((moment.evicted, moment.fetched), (evicted, fetched), "{:?} at {}", eviction, now);
                there.retain(|of| !let_go.contains(&of.0));
            }
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
    let mut residency = cycle.residency(Eviction::Belady);
    assert_eq!(residency.access(), Moment { evicted: Vec::new(), fetched: Vec::new() });
    assert_eq!(cycle.steady(Eviction::Lru).unwrap().fetches, 0);
}
