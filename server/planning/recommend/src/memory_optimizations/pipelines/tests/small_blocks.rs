//! The size below which blocks stay where they are.

use std::collections::BTreeMap;

use loadmaster_proto::training::actions::Block;

use super::*;

/// Blocks below the size that is asked for stay, whoever chooses and whatever is asked.
#[test]
fn small_blocks_stay() {
    let mut left = 0;
    for mode in [SearchMode::Exact, SearchMode::Mpress] {
        for capacity in [50_000, 60_000] {
            let mut asked = Fixture::new(Objective::MinIterationTime, 2, capacity);
            asked.request.mode = mode;
            let allowed = asked.request.allowed.as_mut().unwrap();
            allowed.blocks = Block::ALL.into_iter().filter(|block| *block != Block::Versions).collect();
            for smallest in [0, 6_000, 9_000, 1 << 40] {
                let limited = asked.with(|fixture| {
                    fixture.request.allowed.as_mut().unwrap().smallest_block = Bytes(smallest);
                });
                let Ok(((_, plan), _)) = limited.answer() else { continue };
                let settings = crate::memory_optimizations::settings(&plan);
                for (stage, setting) in plan.stages.iter().zip(&settings) {
                    let acted = asked.chain.predictor.acted(setting, &stage.actions).unwrap();
                    // What several layers share is away in parts.
                    let mut blocks: BTreeMap<_, u64> = BTreeMap::new();
                    for away in &acted.away {
                        let of = &away.absence;
                        *blocks.entry((of.layer, of.block, of.micro_batch)).or_default() += away.bytes;
                    }
                    left += blocks.len();
                    let least = blocks.values().copied().min();
                    assert!(least.is_none_or(|bytes| bytes >= smallest), "{mode}: {blocks:?}");
                }
            }
        }
    }
    assert!(left > 0);
}
