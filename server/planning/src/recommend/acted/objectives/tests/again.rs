//! Computing again alone, held to every set of runs, each asked about as given actions.

use loadmaster_proto::training::actions::{Action, Deed, StageActions};

use super::*;

/// How far above the least, and above the untouched peak, a capacity is: parts in a hundred of that peak.
const ABOVE: [u64; 4] = [0, 2, 5, 10];

/// Every way to cut so many layers into runs, each kept or computed again.
fn all_runs(first: usize, layers: usize) -> Vec<Vec<Action>> {
    // Of each layer: kept (0), the first of a run that is computed again (1), or one more of the run before (2).
    let all = (0..3_usize.pow(layers as u32)).filter_map(|number| {
        let mut actions: Vec<Action> = Vec::new();
        let mut is_open = false;
        for layer in 0..layers {
            match number / 3_usize.pow(layer as u32) % 3 {
                0 => is_open = false,
                1 => {
                    let (first_layer, deed) = (first + layer, Deed::Recompute);
                    actions.push(Action { first_layer, last_layer: first_layer, slots: Vec::new(), deed });
                    is_open = true;
                }
                _ if !is_open => return None,
                _ => actions.last_mut()?.last_layer = first + layer,
            }
        }
        Some(actions)
    });
    all.collect()
}

/// A pipeline with every combination of runs on devices that hold anything.
fn every_plan(asked: &Scene, sizes: &[usize]) -> Vec<Plan> {
    let mut combinations: Vec<Vec<StageActions>> = vec![Vec::new()];
    let mut first = 0;
    for &size in sizes {
        let of_stage = all_runs(first, size);
        let longer = |before: &Vec<StageActions>| {
            let with = |actions: &Vec<Action>| {
                let own = StageActions { actions: actions.clone(), ..StageActions::default() };
                [&before[..], &[own]].concat()
            };
            of_stage.iter().map(with).collect::<Vec<_>>()
        };
        combinations = combinations.iter().flat_map(longer).collect();
        first += size;
    }
    let given = |actions: Vec<StageActions>| {
        let of = asked.with(|scene| {
            scene.capacity = 1 << 40;
            scene.request.allowed = None;
            scene.request.stage_actions = actions;
        });
        of.plan()
    };
    combinations.into_iter().map(given).collect()
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
        let named = Scene::new(Objective::MinIterationTime, 2, 1 << 30).with(|scene| {
            scene.micro_batches = micro_batches;
            scene.request.goal.constraints.schedules = vec![schedule];
            scene.request.partitioning = Some(Partitioning::from_sizes(&sizes).unwrap());
            scene.request.allowed.as_mut().unwrap().ways = vec![Way::Recompute];
        });
        let all = every_plan(&named, &sizes);
        let untouched = all.iter().map(seconds).enumerate().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap().0;
        let least = all.iter().map(Plan::peak).min().unwrap();
        for base in [least, all[untouched].peak()] {
            for part in ABOVE {
                let capacity = base + all[untouched].peak() * part / 100;
                let fastest = all.iter().filter(|plan| plan.peak() <= capacity).map(seconds);
                let fastest = fastest.min_by(f64::total_cmp).unwrap();
                let found = named.with(|scene| scene.capacity = capacity).plan();
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
