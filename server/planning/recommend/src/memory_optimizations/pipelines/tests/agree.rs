//! What one objective finds is a candidate of the others: asked the same, none is beaten by another one's answer. For all objectives,
//! blocks below the smallest size stay.

use std::collections::BTreeMap;

use loadmaster_proto::training::actions::{Block, Way};

use super::*;
use loadmaster_samples::cases;

/// By how much an answer may be beaten. Fronts and lowest peaks are also looked for within peaks of their own: of 2,591
/// answers to a hundred questions 5 are beaten, by at most 0.43 % (2026-11-29).
const NEAR: f64 = 5e-3;

/// A chain of four to seven layers on one to four devices, with some of the ways, with stages named or not, and with one
/// micro-batch or two to choose from.
fn question(seed: u64) -> Fixture {
    const WAYS: [&[Way]; 6] = [
        &[Way::Recompute],
        &[Way::CpuOffload],
        &[Way::PeerSwap],
        &[Way::Recompute, Way::CpuOffload],
        &[Way::Recompute, Way::PeerSwap],
        &Way::ALL,
    ];
    let mut lot = Draws::with_seed(seed);
    let layers = 4 + lot.below(4) as usize;
    let devices = 1 + lot.below(4) as usize;
    let capacity = 40_000 + lot.below(140_000);
    let mut asked = Fixture::of_layers(layers, Objective::MinIterationTime, devices as u32, capacity);
    asked.micro_batches = 2 + lot.below(7) as u32;
    asked.request.goal.constraints.schedules = vec![lot.one_of(&[Schedule::OneFOneB, Schedule::Gpipe])];
    asked.request.allowed.as_mut().unwrap().ways = lot.one_of(&WAYS).to_vec();
    asked.request.copy_pace.host = Some(lot.one_of(&[1e6, 4e6, 16e6]));
    if lot.below(3) == 0 {
        let mut sizes = vec![1_usize; devices.min(layers)];
        for _ in sizes.len()..layers {
            let stage = lot.below(sizes.len() as u64) as usize;
            sizes[stage] += 1;
        }
        asked.devices = sizes.len() as u32;
        asked.request.partitioning = Some(Partitioning::from_sizes(&sizes).unwrap());
    }
    if lot.below(3) == 0 {
        asked.request.named.micro_batch_size = false;
        asked.request.goal.constraints.micro_batch_sizes = vec![2, 4];
    }
    asked
}

/// Asks a question by every objective; says of how many answers it was looked at whether others beat them, and of which they do.
fn beaten(seed: u64) -> (u32, Vec<String>) {
    let asked = question(seed);
    let Ok(((_, fastest), _)) = asked.answer() else { return Default::default() };
    let with = |objective| asked.with(|fixture| fixture.request.goal.objective = Some(objective));
    let what = || format!("{seed}: {:?}", asked.request.allowed.as_ref().unwrap().ways);
    let (mut compared, mut beaten) = (0, Vec::new());
    let mut no_slower = |own: f64, other: f64, of: &str| {
        compared += 1;
        if own > other * (1.0 + NEAR) {
            beaten.push(format!(
                "{}: {of}: {own} s, {:.3} % more than another's {other}",
                what(),
                100.0 * (own / other - 1.0)
            ));
        }
    };
    let ((_, top), points) = with(Objective::Pareto).answer().unwrap();
    no_slower(seconds(&fastest), seconds(&top), "the fastest beside the front's fastest");
    let lowest = with(Objective::MinPeakMemory).plan();
    for point in points.iter().map(|(_, point)| point).chain([&lowest]) {
        no_slower(seconds(&fastest), seconds(point), "the fastest beside a point of the front");
        for may_hold_more in [true, false] {
            let within = asked.with(|fixture| match may_hold_more {
                true => fixture.request.goal.constraints.max_peak_bytes = Some(point.peak()),
                false => fixture.capacity = point.peak(),
            });
            let again = within.answer().map_or(f64::INFINITY, |((_, plan), _)| seconds(&plan));
            no_slower(again, seconds(point), &format!("the fastest within {}", point.peak()));
        }
        assert!(lowest.peak() <= point.peak(), "{}: {} is not the lowest", what(), lowest.peak());
    }
    if let Ok(((_, largest), _)) = with(Objective::MaxBatch).answer() {
        no_slower(seconds(&fastest), seconds(&largest), "the fastest beside the largest batch");
        assert!(largest.training.micro_batch_size >= fastest.training.micro_batch_size, "{}", what());
    }
    // What stages do untouched, and with fewer ways.
    for ratio in fastest.found.baselines.iter().filter(|of| of.fits).filter_map(|of| of.time_ratio) {
        no_slower(1.0, ratio, "the fastest beside what it is compared with");
    }
    (compared, beaten)
}

fn hold(questions: impl Iterator<Item = u64>) -> u32 {
    let (compared, all): (Vec<u32>, Vec<Vec<String>>) = questions.map(beaten).unzip();
    let (compared, all) = (compared.into_iter().sum(), all.concat());
    assert!(all.is_empty(), "{} of {compared}: {all:#?}", all.len());
    compared
}

#[test]
fn no_objective_is_beaten_by_half_a_percent() {
    let compared = hold([1, 7, 12].into_iter());
    assert!(compared > 40, "{compared}");
}

/// `PROPTEST_CASES=100` asks a hundred.
#[test]
#[ignore = "slow: make test-slow"]
fn no_objective_is_beaten_by_half_a_percent_in_more_questions() {
    let questions = cases(8).cases;
    let compared = hold((100..).take(questions as usize));
    assert!(compared > 10 * questions, "{compared}");
}

/// Blocks below the requested size stay on the device, with both search modes and every capacity.
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
                        let absence = &away.absence;
                        *blocks.entry((absence.layer, absence.block, absence.micro_batch)).or_default() +=
                            away.bytes;
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
