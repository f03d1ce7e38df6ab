//! What is promised of objectives beside the fastest plan and the lowest peaks, held against every way to cut a chain, alone and with
//! everything recomputed that may be; and against actions drawn by lot.

use loadmaster_oracle::{combinations, compositions, recomputed_runs};
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::objective::{MemoryUnit, Objective, PlanShape};
use loadmaster_proto::training::actions::{Allowed, StageActions, Way};
use loadmaster_proto::training::stage::{Partitioning, StageConfig};

use super::{best_of_all, certificate, error, every_cut, fits, fixture, is_same, peaks, seconds};
use crate::tests::fixture::{Fixture, LAYERS};
use crate::{QuestionError, RecommendError, largest_model};
use loadmaster_search::Stop;

/// Micro-batches that are few or many samples of the same iteration.
const SIZES: [u32; 7] = [1, 2, 4, 8, 12, 16, 24];

/// Every plan of a chain whose stages compute some of their layers once more, on devices without a limit.
fn every_recomputed(fixture: &Fixture, layers: usize, batch: u32) -> Vec<Plan> {
    let stages = (fixture.devices * fixture.request.virtual_stages) as usize;
    let mut plans = Vec::new();
    for sizes in compositions(layers, stages) {
        let partitioning = Partitioning::from_sizes(&sizes).unwrap();
        let of_stage = |stage: &StageConfig| -> Vec<StageActions> {
            let actions = |runs: Vec<(usize, usize)>| {
                let runs: Vec<_> = runs.into_iter().map(|(first, last)| first..=last).collect();
                StageActions::recomputing(&runs)
            };
            recomputed_runs(stage.first_layer, stage.layer_count()).into_iter().map(actions).collect()
        };
        let all = combinations(&partitioning.stages().iter().map(of_stage).collect::<Vec<_>>());
        plans.extend(all.into_iter().map(|actions| fixture.given(&partitioning, batch, actions).unwrap()));
    }
    plans
}

/// A chain of five layers on two devices with two stages each, of which everything may be recomputed.
fn recomputed(objective: Objective, capacity: u64) -> Fixture {
    let asked = fixture(LAYERS, objective, 2, 2, capacity);
    asked.with(|fixture| {
        fixture.micro_batches = 4;
        fixture.request.allowed = Some(Allowed { ways: vec![Way::Recompute], ..Allowed::default() });
    })
}

/// Of every size that is named, the largest is answered of which a way to cut fits within the limits, with the fastest plan of it, and is
/// called proven; where none fits, that is.
#[test]
fn the_largest_micro_batch_is_the_largest_of_all() {
    let (mut found, mut refused) = (0, 0);
    for (layers, devices, each) in [(5, 2, 2), (7, 2, 3), (6, 3, 2)] {
        let asked = fixture(layers, Objective::MaxBatch, devices, each, 0).with(|fixture| {
            fixture.micro_batches = 12;
            fixture.request.goal.constraints.micro_batch_sizes = SIZES.to_vec();
        });
        let sizes = SIZES.into_iter().rev().filter(|size| (48 / size).is_multiple_of(devices));
        let all: Vec<Plan> = sizes.flat_map(|size| every_cut(&asked, layers, size)).collect();
        for capacity in [60_000, 110_000, 160_000, 260_000, 700_000] {
            for limit in [None, Some(0.8), Some(0.4)] {
                let asked = asked.with(|fixture| {
                    fixture.capacity = capacity;
                    fixture.request.goal.constraints.max_iteration_seconds = limit;
                });
                let told = format!("{layers} layers, {devices} × {each}, {capacity}, {limit:?}");
                let Some(plan) = best_of_all(&asked, &all, &told) else {
                    refused += 1;
                    continue;
                };
                let (size, certificate) = (plan.training.micro_batch_size, certificate(&plan));
                assert_eq!((certificate.unit.as_str(), certificate.value), ("samples", f64::from(size)));
                found += 1;
            }
        }
    }
    assert!(found >= 12 && refused >= 5, "{found} found, {refused} refused");
}

/// Where no sizes are named, none of those up to the bound is left out, and no way to cut fits of the next one above it.
#[test]
fn no_size_above_the_largest_fits() {
    for capacity in [150_000, 311_000, 3_000_000, 20_000_000] {
        let asked = fixture(7, Objective::MaxBatch, 3, 2, capacity)
            .with(|fixture| fixture.request.named.micro_batch_size = false);
        let plan = asked.plan();
        let certificate = certificate(&plan);
        let size = plan.training.micro_batch_size;
        assert_eq!((plan.training.micro_batches, certificate.value), (12, f64::from(size)), "{capacity}");
        assert!(certificate.proven, "{capacity}: {certificate:?}");
        // As many of them as ever, whatever their size.
        let of = |size: u32| asked.with(|fixture| fixture.micro_batches = 3 * size);
        let step = if size < 64 {
            1
        } else if size < 512 {
            8
        } else {
            64
        };
        for (size, is_fit) in [(size, true), (size + step, false)] {
            let all = every_cut(&of(size), 7, size);
            assert_eq!(all.iter().any(|plan| plan.peak() <= capacity), is_fit, "{size} in {capacity}");
        }
    }
}

/// With actions the largest micro-batch is one that fits, no plan whose stages compute some of their layers once
/// more is of more samples than the bound, and what is called proven is the largest of all of them.
#[test]
fn with_actions_no_micro_batch_is_above_the_bound() {
    let (mut proven, mut larger) = (0, 0);
    let asked = recomputed(Objective::MaxBatch, 0)
        .with(|fixture| fixture.request.goal.constraints.micro_batch_sizes = vec![1, 2, 4, 8]);
    let least = [8, 4, 2, 1].map(|size| {
        let all = every_recomputed(&asked, LAYERS, size);
        (size, all.iter().map(Plan::peak).min().unwrap())
    });
    for capacity in (30_000..250_000).step_by(20_000) {
        let asked = asked.with(|fixture| fixture.capacity = capacity);
        let largest = least.iter().find(|(_, least)| *least <= capacity).map(|(size, _)| *size);
        let Ok(((_, plan), _)) = asked.answer() else {
            assert_eq!(largest, None, "{capacity}");
            continue;
        };
        let largest = largest.unwrap();
        let certificate = certificate(&plan);
        assert!(
            plan.peak() <= capacity && certificate.value <= f64::from(largest),
            "{capacity}: {certificate:?}"
        );
        assert!(certificate.bound.unwrap() >= f64::from(largest), "{capacity}: {certificate:?}");
        assert_eq!(certificate.proven, certificate.bound == Some(certificate.value));
        assert!(!certificate.proven || certificate.value == f64::from(largest));
        assert_eq!(certificate.value, f64::from(largest), "{capacity}: as large as any");
        let plain = asked.with(|fixture| fixture.request.allowed = None).answer();
        larger +=
            usize::from(plain.is_ok_and(|((_, plain), _)| {
                plain.training.micro_batch_size < plan.training.micro_batch_size
            }));
        proven += usize::from(certificate.proven);
    }
    assert!(larger > 0 && proven > 0, "{larger} larger ones than without, {proven} proven");
}

/// With actions the lowest peak is reached, no plan whose stages compute some of their layers once more is below the
/// bound, and none of actions that are drawn by lot; a limit on time is kept.
#[test]
fn with_actions_no_peak_is_below_the_bound() {
    for (ways, is_every) in
        [(vec![Way::Recompute], true), (Way::ALL.to_vec(), false), (vec![Way::CpuOffload], false)]
    {
        let mut asked = recomputed(Objective::MinPeakMemory, 1 << 30);
        asked.request.allowed = Fixture::new(Objective::MinPeakMemory, 2, 0).request.allowed;
        asked.request.allowed.as_mut().unwrap().ways = ways.clone();
        let others = if is_every { every_recomputed(&asked, LAYERS, 4) } else { asked.drawn(4, 4, 20) };
        let least = others.iter().map(Plan::peak).min().unwrap();
        let plan = asked.plan();
        let of_all = certificate(&plan);
        assert_eq!((of_all.unit.as_str(), of_all.value), ("bytes", plan.peak() as f64));
        let bound = of_all.bound.unwrap();
        assert!(
            0.0 < bound && bound <= least as f64 && bound <= of_all.value,
            "{ways:?}: {of_all:?}, {least}"
        );
        assert_eq!(of_all.proven, bound == of_all.value);
        let untouched = asked.with(|fixture| fixture.request.allowed = None).plan();
        assert!(plan.peak() < untouched.peak(), "{ways:?}");
        assert!(plan.peak() as f64 <= least as f64 * 1.01, "{ways:?}: {} beside {least}", plan.peak());
        let same = plan.stages.iter().map(|stage| stage.actions.clone()).collect();
        let sizes: Vec<usize> = plan.stages.iter().map(|stage| stage.config.layer_count()).collect();
        let same = asked.given(&Partitioning::from_sizes(&sizes).unwrap(), 4, same).unwrap();
        assert_eq!(same.peak(), plan.peak(), "{ways:?}");

        if !is_every {
            continue;
        }
        let limit = (seconds(&plan) + seconds(&untouched)) / 2.0;
        let limited =
            asked.with(|fixture| fixture.request.goal.constraints.max_iteration_seconds = Some(limit));
        let limited = limited.plan();
        assert!(seconds(&limited) <= limit && limited.peak() >= plan.peak(), "{ways:?}");
        let share = asked.with(|fixture| {
            fixture.capacity = 1 << 20;
            fixture.request.goal.memory_unit = MemoryUnit::Share;
        });
        let share = share.plan();
        let of_share = certificate(&share);
        assert_eq!(of_share.unit, "share");
        assert!((of_share.value - share.peak() as f64 / f64::from(1 << 20)).abs() < 1e-9, "{of_share:?}");
        assert!(of_share.bound.unwrap() <= of_share.value, "{of_share:?}");
    }
}

/// The front of all ways to cut is whole, and is called proven: every plan is beaten by a point of it or is one, and each point is a plan.
#[test]
fn the_front_is_that_of_all_cuts() {
    let mut points = 0;
    for (layers, devices, each) in [(5, 2, 2), (7, 2, 3), (6, 3, 2), (8, 2, 2)] {
        for (capacity, limit) in [(1_000_000, None), (1_000_000, Some(0.5)), (220_000, None)] {
            for sizes in [vec![4], vec![2, 4, 8]] {
                let asked = fixture(layers, Objective::Pareto, devices, each, capacity).with(|fixture| {
                    fixture.request.goal.constraints.micro_batch_sizes = sizes.clone();
                    fixture.request.goal.constraints.max_iteration_seconds = limit;
                    fixture.micro_batches = 12;
                });
                let all: Vec<Plan> = sizes.iter().flat_map(|&size| every_cut(&asked, layers, size)).collect();
                let all: Vec<&Plan> = all.iter().filter(fits(&asked)).collect();
                let told = format!("{layers} layers, {devices} × {each}, {capacity}, {limit:?}, {sizes:?}");
                let Ok(((_, plan), others)) = asked.answer() else {
                    assert!(all.is_empty() && error(&asked).is_proof(), "{told}: {}", error(&asked));
                    continue;
                };
                let front: Vec<(u64, f64)> = plan
                    .found
                    .front
                    .iter()
                    .map(|of| (of.summary.peak, of.summary.seconds.unwrap()))
                    .collect();
                let whole = !plan.warnings.iter().any(|warning| warning.message.contains("sampled"));
                assert_eq!(certificate(&plan).proven, whole, "{told}");
                assert!(
                    front.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 > two[1].1),
                    "{told}: {front:?}"
                );
                for &(peak, taken) in &front {
                    let is_it = |other: &&Plan| other.peak() == peak && is_same(seconds(other), taken);
                    assert!(all.iter().any(is_it), "{told}: {peak}, {taken}");
                    let beats = |other: &&Plan| other.peak() <= peak && seconds(other) < taken * (1.0 - 1e-9);
                    assert!(!all.iter().any(beats), "{told}: {peak}, {taken} is beaten");
                }
                let is_beaten = |other: &&Plan| {
                    let beats = |&(peak, taken): &(u64, f64)| {
                        peak <= other.peak() && taken <= seconds(other) * (1.0 + 1e-9)
                    };
                    front.iter().any(beats)
                };
                assert!(!whole || all.iter().all(is_beaten), "{told}: {front:?}");
                assert!(is_same(seconds(&plan), front.last().unwrap().1), "{told}");
                for point in &plan.found.front {
                    let (_, own) = others.iter().find(|(name, _)| Some(name) == point.plan.as_ref()).unwrap();
                    assert_eq!(
                        (own.peak(), own.iteration_seconds()),
                        (point.summary.peak, point.summary.seconds)
                    );
                }
                points += usize::from(whole) * front.len();
            }
        }
    }
    assert!(points >= 30, "{points} points of whole fronts");
}

/// With actions the front is sampled, and says so: each point is a plan, none beats another one in both, the fastest is no faster than the
/// bound, and what is recomputed by any plan is not much better anywhere.
#[test]
fn with_actions_the_front_is_sampled() {
    let asked = recomputed(Objective::Pareto, 1 << 30);
    let ((_, plan), others) = asked.answer().unwrap();
    assert!(
        plan.warnings.iter().any(|warning| warning.message.contains("the Pareto front is a sample")),
        "{:?}",
        plan.warnings
    );
    let certificate = certificate(&plan);
    assert!(!certificate.proven && certificate.bound.unwrap() <= seconds(&plan), "{certificate:?}");
    let front = &plan.found.front;
    assert!((3..=32).contains(&front.len()), "{} points", front.len());
    let every = every_recomputed(&asked, LAYERS, 4);
    for point in front {
        let (_, own) = others.iter().find(|(name, _)| Some(name) == point.plan.as_ref()).unwrap();
        let sizes: Vec<usize> = own.stages.iter().map(|stage| stage.config.layer_count()).collect();
        let same = own.stages.iter().map(|stage| stage.actions.clone()).collect();
        let same = asked.given(&Partitioning::from_sizes(&sizes).unwrap(), 4, same).unwrap();
        assert!(same.peak() == point.summary.peak && is_same(seconds(&same), point.summary.seconds.unwrap()));
        let within = every.iter().filter(|plan| plan.peak() <= own.peak());
        let fastest = within.map(seconds).fold(f64::INFINITY, f64::min);
        assert!(seconds(own) < fastest * 1.05, "{} is {}, not {fastest}", own.peak(), seconds(own));
    }
    for pair in front.windows(2) {
        let [one, next] = [&pair[0].summary, &pair[1].summary];
        assert!(one.peak < next.peak && one.seconds > next.seconds, "{one:?} {next:?}");
    }
}

/// Every plan of a grid of so many devices: single ones, or as many replicas of each stage as split a micro-batch.
fn every_grid(fixture: &Fixture, layers: usize, devices: u32) -> Vec<Plan> {
    let is_grid = fixture.request.goal.shape == PlanShape::UniformGrid;
    let mut plans = Vec::new();
    for data in [1, 2, 4] {
        let places = devices / data;
        let stages = places * fixture.request.virtual_stages;
        let is_possible = devices.is_multiple_of(data) && places >= 2 && (data == 1 || is_grid);
        if !is_possible || !fixture.micro_batches.is_multiple_of(places) || stages as usize > layers {
            continue;
        }
        for sizes in compositions(layers, stages as usize) {
            let single = Partitioning::from_sizes(&sizes).unwrap();
            let stages = single.stages().iter().map(|stage| StageConfig { data_degree: data, ..*stage });
            plans.push(fixture.given(&Partitioning::new(stages.collect()).unwrap(), 4, Vec::new()).unwrap());
        }
    }
    plans
}

/// No fewer devices are enough, of single pipelines and of grids, with a limit on time and without, on a node and on two: that is called
/// proven, and the plan is the fastest on as many.
#[test]
fn the_fewest_devices_are_the_fewest_of_all() {
    let (mut found, mut refused, mut fewer) = (0, 0, 0);
    for shape in [PlanShape::SinglePipeline, PlanShape::UniformGrid] {
        let asked = fixture(9, Objective::MinDevices, 6, 2, 0).with(|fixture| {
            fixture.micro_batches = 12;
            fixture.request.goal.shape = shape;
            fixture.price = Some(1.5);
        });
        let all: Vec<Plan> = (2..=6).flat_map(|devices| every_grid(&asked, 9, devices)).collect();
        for (capacity, limit) in [
            (80_000, None),
            (160_000, None),
            (300_000, None),
            (400_000, None),
            (600_000, None),
            (600_000, Some(1.0)),
            (600_000, Some(0.3)),
        ] {
            let asked = asked.with(|fixture| {
                fixture.capacity = capacity;
                fixture.request.goal.constraints.max_iteration_seconds = limit;
            });
            let told = format!("{shape}, {capacity}, {limit:?}");
            let Some(plan) = best_of_all(&asked, &all, &told) else {
                refused += 1;
                continue;
            };
            let (devices, of_all) = (plan.device_count(), certificate(&plan));
            assert_eq!((of_all.unit.as_str(), of_all.value), ("devices", devices as f64));
            let cost = asked.with(|fixture| fixture.request.goal.objective = Some(Objective::MinCost)).plan();
            let of_cost = certificate(&cost);
            assert_eq!((of_cost.value, of_cost.proven), (1.5 * devices as f64, true), "{told}");
            assert_eq!(cost.found.hourly_price, Some(of_cost.value), "{told}");
            if limit.is_none() {
                let apart = asked.with(|fixture| fixture.nodes = 2).plan();
                assert_eq!((apart.device_count(), certificate(&apart).proven), (devices, true), "{told}");
            }
            (found, fewer) = (found + 1, fewer + usize::from(devices < 6));
        }
    }
    assert!(found >= 6 && refused >= 2 && fewer >= 4, "{found} found, {refused} refused, {fewer} on fewer");
    let free = fixture(9, Objective::MinCost, 6, 2, 300_000);
    assert!(matches!(error(&free), RecommendError::NoPrices { .. }));
}

/// With actions no fewer devices than the bound are enough for any plan that computes some of its layers once more;
/// and they may be enough where none are without.
#[test]
fn with_actions_fewer_devices_are_enough() {
    let (mut fewer, mut proven) = (0, 0);
    let asked = fixture(6, Objective::MinDevices, 3, 2, 0).with(|fixture| {
        fixture.micro_batches = 6;
        fixture.request.allowed = Some(Allowed { ways: vec![Way::Recompute], ..Allowed::default() });
    });
    let least = [2, 3].map(|devices| {
        let all = every_recomputed(&asked.with(|fixture| fixture.devices = devices), 6, 4);
        (devices, all.iter().map(Plan::peak).min().unwrap())
    });
    for capacity in [50_000, 65_000, 80_000, 100_000, 400_000] {
        let asked = asked.with(|fixture| fixture.capacity = capacity);
        let fewest = least.iter().find(|(_, least)| *least <= capacity).map(|(devices, _)| *devices);
        let Ok(((_, plan), _)) = asked.answer() else {
            assert_eq!(fewest, None, "{capacity}");
            continue;
        };
        let of_all = certificate(&plan);
        let fewest = f64::from(fewest.unwrap());
        assert!(plan.peak() <= capacity && of_all.bound.unwrap() <= fewest, "{capacity}: {of_all:?}");
        assert_eq!((of_all.value, plan.device_count() as f64), (fewest, fewest), "{capacity}: {of_all:?}");
        proven += usize::from(of_all.proven);
        let plain = asked.with(|fixture| fixture.request.allowed = None);
        fewer +=
            usize::from(!plain.answer().is_ok_and(|((_, plain), _)| plain.device_count() as f64 <= fewest));
    }
    assert!(fewer > 0 && proven > 0, "{fewer}, {proven} proven");
}

/// The plans that come next are those that do, in their order, with their values; with actions they are others that fit.
#[test]
fn the_next_plans_are_the_next_best() {
    for objective in [Objective::MinIterationTime, Objective::MinPeakMemory] {
        for (layers, devices, each, capacity) in
            [(5, 2, 2, 200_000), (8, 2, 2, 250_000), (9, 4, 2, 1_000_000)]
        {
            let asked = fixture(layers, objective, devices, each, capacity)
                .with(|fixture| fixture.request.alternatives = 5);
            let mut all = every_cut(&asked, layers, 4);
            all.retain(|plan| plan.peak() <= capacity);
            let is_timed = objective == Objective::MinIterationTime;
            match is_timed {
                true => all.sort_by(|one, other| seconds(one).total_cmp(&seconds(other))),
                false => all.sort_by_key(peaks),
            }
            let ((_, plan), others) = asked.answer().unwrap();
            let next = &plan.found.alternatives;
            assert_eq!(next.len(), (all.len() - 1).min(5), "{objective}: {layers}");
            for (next, best) in next.iter().zip(&all[1..]) {
                let (_, own) = others.iter().find(|(name, _)| Some(name) == next.plan.as_ref()).unwrap();
                let (value, of_best) = match is_timed {
                    true => (seconds(own), seconds(best)),
                    false => (own.peak() as f64, best.peak() as f64),
                };
                assert!(
                    is_same(next.value, value) && is_same(value, of_best),
                    "{objective}: {value}, {of_best}"
                );
                assert!(own.partition() != plan.partition() && own.peak() <= capacity);
            }
        }
    }
    let asked =
        recomputed(Objective::MinIterationTime, 130_000).with(|fixture| fixture.request.alternatives = 3);
    let ((_, plan), others) = asked.answer().unwrap();
    for next in &plan.found.alternatives {
        let (_, own) = others.iter().find(|(name, _)| Some(name) == next.plan.as_ref()).unwrap();
        assert!(own.peak() <= 130_000 && next.value == seconds(own) && next.value >= seconds(&plan));
    }
}

/// Of models of which some fit the largest one is answered, and is proven where no larger one is cut so that it fits; with actions it may
/// be a larger one.
#[test]
fn the_largest_model_is_the_largest_of_all() {
    let of = |layers: usize, capacity: u64, is_acted: bool| {
        fixture(layers, Objective::MaxModel, 2, 2, capacity).with(|fixture| {
            let allowed = Allowed { ways: vec![Way::Recompute], ..Allowed::default() };
            fixture.request.allowed = is_acted.then_some(allowed);
        })
    };
    let largest = |capacity: u64, is_acted: bool| {
        let all = (4..=8).map(|layers| (layers as u64, of(layers, capacity, is_acted).question()));
        largest_model(all.collect(), &Stop::default())
    };
    let mut larger = 0;
    for capacity in [60_000, 90_000, 130_000, 200_000] {
        let fits = |layers: &usize| {
            every_cut(&of(*layers, capacity, false), *layers, 4).iter().any(|plan| plan.peak() <= capacity)
        };
        let expected = (4..=8).rev().find(fits);
        let plain = largest(capacity, false);
        match (&plain, expected) {
            (Ok(((_, plan), _)), Some(layers)) => {
                let of_all = certificate(plan);
                assert_eq!((of_all.value, of_all.proven), (layers as f64, true), "{capacity}: {of_all:?}");
            }
            (Err(QuestionError::Recommend(error)), None) => assert!(error.is_proof(), "{error}"),
            other => panic!("{capacity}: {other:?}"),
        }
        let Ok(((_, acted), _)) = largest(capacity, true) else { continue };
        assert!(acted.peak() <= capacity && certificate(&acted).value >= expected.unwrap_or(0) as f64);
        larger += usize::from(certificate(&acted).value > expected.unwrap_or(0) as f64);
    }
    assert!(larger > 0, "no larger model with actions");
}

/// Stages that are given have their actions chosen for every objective that leaves something to choose.
#[test]
fn given_stages_have_actions_for_other_objectives() {
    let given = |objective: Objective, capacity: u64| {
        recomputed(objective, capacity).with(|fixture| {
            fixture.request.partitioning = Some(Partitioning::from_sizes(&[1, 2, 1, 1]).unwrap());
            fixture.request.goal.constraints.micro_batch_sizes = vec![2, 4, 8];
        })
    };
    let lowest = given(Objective::MinPeakMemory, 1 << 30).plan();
    let fastest = given(Objective::MinIterationTime, 1 << 30).plan();
    let front = given(Objective::Pareto, 1 << 30).plan();
    let batch = given(Objective::MaxBatch, lowest.peak() * 2).plan();
    for plan in [&lowest, &fastest, &front, &batch] {
        let sizes: Vec<usize> = plan.stages.iter().map(|stage| stage.config.layer_count()).collect();
        assert_eq!(sizes, [1, 2, 1, 1]);
    }
    assert!(lowest.peak() < fastest.peak() && front.found.front.len() > 1);
    assert!(!certificate(&front).proven && certificate(&lowest).bound.is_some());
    assert!(
        batch.peak() <= lowest.peak() * 2 && certificate(&batch).value > 2.0,
        "{:?}",
        certificate(&batch)
    );
}

/// A search that is stopped at once says so, or answers with something that fits and is not called proven beyond what it looked at.
#[test]
fn stopped_searches_prove_nothing() {
    let stop = Stop::default();
    stop.request();
    for objective in [Objective::MaxBatch, Objective::MinDevices, Objective::Pareto, Objective::MinPeakMemory]
    {
        for is_acted in [false, true] {
            let asked = fixture(8, objective, 2, 2, 1_000_000).with(|fixture| {
                fixture.request.allowed = is_acted.then(Allowed::default);
                fixture.request.goal.constraints.micro_batch_sizes = vec![2, 4];
                fixture.micro_batches = 12;
            });
            match asked.answer_until(&stop) {
                Ok(((_, plan), _)) => {
                    let of_all = certificate(&plan);
                    assert!(
                        plan.peak() <= 1_000_000 && of_all.stopped && !of_all.proven,
                        "{objective}: {of_all:?}"
                    );
                }
                Err(QuestionError::Recommend(RecommendError::Stopped)) => {}
                Err(other) => panic!("{objective}: {other}"),
            }
        }
    }
}
