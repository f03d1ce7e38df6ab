//! Recomputing alone, held to every set of runs, each asked about as given actions.

use loadmaster_oracle::{combinations, recomputed_runs};
use loadmaster_proto::training::actions::{Action, StageActions};

use super::*;
use loadmaster_samples::cases;

/// How far above the least, and above the untouched peak, a capacity is: parts in a hundred of that peak.
const ABOVE: [u64; 4] = [0, 2, 5, 10];

/// Every way to recompute some of so many layers.
fn all_runs(first: usize, layers: usize) -> Vec<StageActions> {
    let actions = |runs: Vec<(usize, usize)>| {
        let runs: Vec<_> = runs.into_iter().map(|(first, last)| first..=last).collect();
        StageActions::recomputing(&runs)
    };
    recomputed_runs(first, layers).into_iter().map(actions).collect()
}

/// Named stages that may recompute, and no more.
fn named(sizes: &[usize], schedule: Schedule, micro_batches: u32) -> Fixture {
    let of = Fixture::of_layers(sizes.iter().sum(), Objective::MinIterationTime, sizes.len() as u32, 1 << 30);
    of.with(|fixture| {
        fixture.micro_batches = micro_batches;
        fixture.request.goal.constraints.schedules = vec![schedule];
        fixture.request.partitioning = Some(Partitioning::from_sizes(sizes).unwrap());
        fixture.request.allowed.as_mut().unwrap().ways = vec![Way::Recompute];
    })
}

/// The plan of these actions on devices that hold anything.
fn given(asked: &Fixture, actions: Vec<StageActions>) -> Plan {
    let of = asked.with(|fixture| {
        fixture.capacity = 1 << 40;
        fixture.request.allowed = None;
        fixture.request.stage_actions = actions;
    });
    of.plan()
}

/// Every set of runs of a stage: the peak of its device, and the seconds that a micro-batch takes longer.
struct Sets(Vec<(StageActions, u64, f64)>);

impl Sets {
    fn of(asked: &Fixture, sizes: &[usize], stage: usize) -> Self {
        let first = sizes[..stage].iter().sum();
        let of_set = |actions: StageActions| {
            // Layers are recomputed as long as they were computed at first.
            let longer =
                actions.actions.iter().flat_map(Action::layers).map(|layer| 1.0 + layer as f64 / 4.0).sum();
            let mut all = vec![StageActions::default(); sizes.len()];
            all[stage] = actions;
            let peak = given(asked, all.clone()).stages[stage].predicted_peak;
            (all.swap_remove(stage), peak, longer)
        };
        Self(all_runs(first, sizes[stage]).into_iter().map(of_set).collect())
    }

    fn least(&self) -> u64 {
        self.0.iter().map(|(_, peak, _)| *peak).min().unwrap()
    }

    fn fastest(&self, capacity: u64) -> StageActions {
        let fit = self.0.iter().filter(|(_, peak, _)| *peak <= capacity);
        fit.min_by(|a, b| a.2.total_cmp(&b.2)).unwrap().0.clone()
    }
}

/// Of pipelines that are drawn: their questions, and those that are refused or beaten though a combination of sets fits. What a
/// stage recomputes changes the memory of no other, and delays none by less than what takes longer does.
fn beaten(seeds: std::ops::Range<u64>) -> (u32, Vec<String>) {
    let (mut asked_of, mut beaten) = (0, Vec::new());
    for seed in seeds {
        let mut lot = Draws::with_seed(seed);
        let sizes: Vec<usize> = (0..=lot.below(4)).map(|_| 1 + lot.below(6) as usize).collect();
        let schedule = lot.one_of(&[Schedule::OneFOneB, Schedule::Gpipe]);
        let named = named(&sizes, schedule, 1 + lot.below(8) as u32);
        let untouched = given(&named, vec![StageActions::default(); sizes.len()]);
        let sets: Vec<Sets> = (0..sizes.len()).map(|stage| Sets::of(&named, &sizes, stage)).collect();
        let least = sets.iter().map(Sets::least).max().unwrap();
        for base in [least, untouched.peak()] {
            for part in ABOVE {
                let capacity = base + untouched.peak() * part / 100;
                let fastest = given(&named, sets.iter().map(|of| of.fastest(capacity)).collect());
                assert!(fastest.peak() <= capacity, "{seed}: stages are not independent");
                let found = named.with(|fixture| fixture.capacity = capacity).answer();
                let found = found.map_or(f64::INFINITY, |((_, plan), _)| seconds(&plan));
                if found > seconds(&fastest) * (1.0 + 1e-9) {
                    let by = found / seconds(&fastest) - 1.0;
                    beaten
                        .push(format!("{seed}: {sizes:?} {schedule} within {capacity}: {:.2} %", by * 100.0));
                }
                asked_of += 1;
            }
        }
    }
    (asked_of, beaten)
}

/// `PROPTEST_CASES=250` draws as many pipelines, with eight questions each.
#[test]
#[ignore = "slow: make test-slow"]
fn no_set_of_runs_of_any_pipeline_is_faster() {
    let pipelines = u64::from(cases(50).cases);
    let (asked_of, beaten) = beaten(0..pipelines);
    let is_whole = u64::from(asked_of) == 8 * pipelines;
    assert!(is_whole && beaten.is_empty(), "{} of {asked_of}: {beaten:#?}", beaten.len());
}

/// A pipeline with every combination of runs on devices that hold anything.
fn every_plan(asked: &Fixture, sizes: &[usize]) -> Vec<Plan> {
    let firsts = sizes.iter().scan(0, |next, size| Some(std::mem::replace(next, *next + size)));
    let of_stages: Vec<_> = firsts.zip(sizes).map(|(first, &size)| all_runs(first, size)).collect();
    combinations(&of_stages).into_iter().map(|actions| given(asked, actions)).collect()
}

/// Named stages that may recompute, and no more, are not refused where some set of runs fits. No set of runs that fits is faster
/// than the plan. Capacities are the least with which any set fits, the untouched peak, and a little more than each.
#[test]
fn no_set_of_runs_that_fits_is_faster() {
    let mut asked_of = 0;
    for (sizes, schedule, micro_batches) in [
        ([2, 3], Schedule::OneFOneB, 6),
        ([3, 2], Schedule::OneFOneB, 3),
        ([4, 1], Schedule::OneFOneB, 2),
        ([1, 4], Schedule::Gpipe, 3),
        ([3, 2], Schedule::Gpipe, 2),
    ] {
        let named = named(&sizes, schedule, micro_batches);
        let all = every_plan(&named, &sizes);
        let untouched = all.iter().map(seconds).enumerate().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap().0;
        let least = all.iter().map(Plan::peak).min().unwrap();
        for base in [least, all[untouched].peak()] {
            for part in ABOVE {
                let capacity = base + all[untouched].peak() * part / 100;
                let fastest = all.iter().filter(|plan| plan.peak() <= capacity).map(seconds);
                let fastest = fastest.min_by(f64::total_cmp).unwrap();
                let found = named.with(|fixture| fixture.capacity = capacity).plan();
                let what = format!("{sizes:?} {schedule} {micro_batches} within {capacity}");
                assert!(found.peak() <= capacity, "{what}: {}", found.peak());
                assert!(
                    seconds(&found) <= fastest * (1.0 + 1e-9),
                    "{what}: {} and {fastest}",
                    seconds(&found)
                );
                asked_of += 1;
            }
        }
    }
    assert_eq!(asked_of, 40);
}
