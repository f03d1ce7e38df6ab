//! What is promised of plans with interleaved stages, held against every way to cut a chain.

mod actions;
mod bound;
mod expressible_actions;
mod objectives;
mod refused;

use loadmaster_proto::name::ClusterName;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::objective::{Objective, PlanShape};
use loadmaster_proto::training::stage::{Partitioning, StageConfig};

use crate::tests::fixture::{Fixture, compositions};
use crate::{QuestionError, RecommendError};

fn seconds(plan: &Plan) -> f64 {
    plan.iteration_seconds().unwrap()
}

/// A chain of so many layers on devices that take turns with so many stages each, without memory actions.
fn fixture(layers: usize, objective: Objective, devices: u32, each: u32, capacity: u64) -> Fixture {
    Fixture::of_layers(layers, objective, devices, capacity).with(|fixture| {
        fixture.request.virtual_stages = each;
        fixture.request.allowed = None;
        fixture.micro_batches = 4 * devices;
    })
}

/// Every way to cut the chain of a scene, as a plan that is asked for by its stages on devices without a limit.
fn every_cut(fixture: &Fixture, layers: usize, batch: u32) -> Vec<Plan> {
    let stages = (fixture.devices * fixture.request.virtual_stages) as usize;
    let all = compositions(layers, stages).into_iter();
    let all = all.map(|sizes| Partitioning::from_sizes(&sizes).unwrap());
    all.map(|stages| fixture.given(&stages, batch, Vec::new()).unwrap()).collect()
}

fn peaks(plan: &Plan) -> Vec<u64> {
    let mut peaks: Vec<u64> = plan.first_stages().iter().map(|stage| stage.predicted_peak).collect();
    peaks.sort_unstable_by(|one, other| other.cmp(one));
    peaks
}

/// Of every way to cut, with every size of a micro-batch that may be chosen, the plan is the fastest that fits, or the one with the
/// lowest peaks, and is called proven; where none fits, that is called proven.
#[test]
fn the_best_cut_is_the_best_of_all() {
    let (mut found, mut refused) = (0, 0);
    for (layers, devices, each) in [(5, 2, 2), (7, 2, 3), (9, 4, 2), (6, 3, 2)] {
        for objective in [Objective::MinIterationTime, Objective::MinPeakMemory] {
            for capacity in [60_000, 130_000, 400_000, 1_000_000] {
                let is_timed = objective == Objective::MinIterationTime;
                let asked = fixture(layers, objective, devices, each, capacity).with(|fixture| {
                    fixture.request.named.micro_batch_size = !is_timed;
                    // They go in groups of two, three and four.
                    fixture.micro_batches = 12;
                });
                let batches: &[u32] = if is_timed { &[2, 4, 6, 8, 12, 16, 24] } else { &[4] };
                let all = batches.iter().filter(|&&size| (48 / size).is_multiple_of(devices));
                let all: Vec<Plan> = all.flat_map(|&size| every_cut(&asked, layers, size)).collect();
                let fits = all.iter().filter(|plan| plan.peak() <= capacity);
                let answer = asked.answer();
                let Some(best) = (match is_timed {
                    true => fits.min_by(|one, other| seconds(one).total_cmp(&seconds(other))),
                    false => fits.min_by_key(|plan| peaks(plan)),
                }) else {
                    let error = match answer.unwrap_err() {
                        QuestionError::Recommend(error) => error,
                        other => panic!("{other}"),
                    };
                    assert!(matches!(error, RecommendError::NoPlan { .. }) && error.is_proof(), "{error}");
                    refused += 1;
                    continue;
                };
                let ((_, plan), _) = answer.unwrap();
                let told = format!(
                    "{layers} layers, {devices} × {each}, {objective}, {capacity}: {}",
                    plan.partition()
                );
                let certificate = plan.found.certificate.clone().unwrap();
                assert!(
                    certificate.proven && certificate.bound == Some(certificate.value),
                    "{told}: {certificate:?}"
                );
                match is_timed {
                    true => {
                        assert!(
                            (seconds(&plan) / seconds(best) - 1.0).abs() < 1e-9,
                            "{told}: {}",
                            best.partition()
                        );
                        assert!((certificate.value - seconds(&plan)).abs() < 1e-12, "{told}");
                    }
                    false => assert_eq!(peaks(&plan), peaks(best), "{told}: {}", best.partition()),
                }
                assert_eq!((plan.virtual_stages, plan.device_count()), (each, u64::from(devices)), "{told}");
                found += 1;
            }
        }
    }
    assert!(found >= 15 && refused >= 2, "{found} found, {refused} refused");
}

/// Where there are too many ways to cut, no plan that is given is below the bound that is stated.
#[test]
fn no_cut_is_faster_than_the_bound() {
    let (layers, devices, each) = (24, 4, 3);
    let asked = fixture(layers, Objective::MinIterationTime, devices, each, 10_000_000);
    let plan = asked.plan();
    let certificate = plan.found.certificate.clone().unwrap();
    let bound = certificate.bound.unwrap();
    assert!(!certificate.proven && bound < certificate.value, "{certificate:?}");
    let mut faster = 0;
    for step in 1..200_usize {
        // Some way to cut: twelve parts of twenty-four layers, by a walk through them.
        let mut sizes = vec![1; 12];
        (0..12).for_each(|more| sizes[(more * step + step / 12) % 12] += 1);
        let partitioning = Partitioning::from_sizes(&sizes).unwrap();
        let other = asked.given(&partitioning, 4, Vec::new()).unwrap();
        assert!(seconds(&other) >= bound, "{sizes:?} takes {}, bound {bound}", seconds(&other));
        faster += usize::from(seconds(&other) < seconds(&plan) * (1.0 - 1e-9));
    }
    assert_eq!(faster, 0, "of {}", plan.partition());
}

/// Of a uniform grid every degree is looked at: the plan is the best of all cuts of single devices and of pairs of replicas.
#[test]
fn grids_are_cut_best_of_all_degrees() {
    let asked = fixture(9, Objective::MinIterationTime, 4, 2, 1_000_000);
    let asked = asked.with(|fixture| fixture.request.goal.shape = PlanShape::UniformGrid);
    let pairs = asked.with(|fixture| fixture.devices = 2);
    let replicated = |plan: &Plan| {
        let stages = plan.stages.iter().map(|stage| StageConfig { data_degree: 2, ..stage.config });
        asked.given(&Partitioning::new(stages.collect()).unwrap(), 4, Vec::new()).unwrap()
    };
    let single = every_cut(&asked, 9, 4);
    let all: Vec<Plan> = every_cut(&pairs, 9, 4).iter().map(replicated).chain(single).collect();
    assert!(all.iter().all(|plan| plan.device_count() == 4));
    let plan = asked.plan();
    let best = all.iter().map(seconds).fold(f64::INFINITY, f64::min);
    let certificate = plan.found.certificate.clone().unwrap();
    assert!((seconds(&plan) / best - 1.0).abs() < 1e-9 && certificate.proven, "{certificate:?}, {best}");
    assert_eq!(plan.device_count(), 4);
}

/// On two nodes the way from the last device back to the first one crosses the network, as the one from node to node does; other
/// orders of the devices were not looked at, which the certificate does not hide.
#[test]
fn the_way_back_crosses_the_nodes() {
    let asked = fixture(9, Objective::MinIterationTime, 4, 2, 1_000_000).with(|fixture| {
        fixture.nodes = 2;
        // Devices that are named keep their order; those of a cluster need not.
        fixture.request.goal.cluster = Some(ClusterName::parse("cluster", "clusters/two").unwrap());
    });
    let plan = asked.plan();
    let edges = &plan.found.edge_seconds;
    assert_eq!(edges.len(), 7);
    for (edge, seconds) in edges.iter().enumerate() {
        let crosses = edge % 4 == 1 || edge % 4 == 3;
        assert_eq!(*seconds > 2.0 * edges[0], crosses, "{edges:?}");
    }
    let nodes: Vec<&str> = plan.stages.iter().map(|stage| stage.devices[0].node.as_str()).collect();
    assert_eq!(nodes, ["n0", "n0", "n1", "n1", "n0", "n0", "n1", "n1"]);
    let certificate = plan.found.certificate.clone().unwrap();
    assert!(!certificate.proven && certificate.bound.is_none_or(|bound| bound < certificate.value));
    assert!(plan.warnings.iter().any(|warning| warning.contains("in their order")), "{:?}", plan.warnings);
    // No order is faster than all of it on one node; and what takes too long in this one is not said to do so in all.
    let near = asked.with(|fixture| (fixture.nodes, fixture.request.goal.cluster) = (0, None)).plan();
    assert!(certificate.bound.unwrap() <= seconds(&near), "{certificate:?}, {}", seconds(&near));
    let limit = Some(seconds(&plan) * 0.999);
    let error = asked
        .with(|fixture| fixture.request.goal.constraints.max_iteration_seconds = limit)
        .answer()
        .unwrap_err();
    assert!(
        matches!(error, QuestionError::Recommend(RecommendError::Limits { is_proof: false, .. })),
        "{error}"
    );
}
