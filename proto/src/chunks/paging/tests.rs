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
