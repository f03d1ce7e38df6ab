//! What is promised of plans with interleaved stages, held against every way to cut a chain.

mod actions;
mod bound;
mod expressible_actions;
mod objectives;
mod refused;

use loadmaster_oracle::compositions;
use loadmaster_proto::name::ClusterName;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::findings::Certificate;
use loadmaster_proto::plan::objective::{Objective, PlanShape};
use loadmaster_proto::training::stage::{Partitioning, StageConfig};

use crate::tests::fixture::Fixture;
use crate::{QuestionError, RecommendError};

fn seconds(plan: &Plan) -> f64 {
    plan.iteration_seconds().unwrap()
}

/// A chain of so many layers on devices that take turns with so many stages each, without memory optimizations.
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

fn certificate(plan: &Plan) -> Certificate {
    plan.found.certificate.clone().unwrap()
}

fn error(fixture: &Fixture) -> RecommendError {
    match fixture.answer().unwrap_err() {
        QuestionError::Recommend(error) => error,
        other => panic!("{other}"),
    }
}

fn fits(fixture: &Fixture) -> impl Fn(&&Plan) -> bool {
    let limit = fixture.request.goal.constraints.max_iteration_seconds.unwrap_or(f64::INFINITY);
    let most = fixture.request.goal.constraints.max_peak_bytes.unwrap_or(u64::MAX).min(fixture.capacity);
    move |plan| plan.peak() <= most && seconds(plan) <= limit
}

fn is_same(one: f64, other: f64) -> bool {
    (one / other - 1.0).abs() < 1e-9
}

/// The answer to a question, held against all plans: it is as good as the best of those that keep the limits, of equals as fast as the
/// fastest, and proven. None where no plan keeps them: then that is proven.
fn best_of_all(asked: &Fixture, all: &[Plan], told: &str) -> Option<Plan> {
    let objective = asked.request.goal.objective.unwrap();
    // What is compared, before seconds are.
    let value = |plan: &Plan| match objective {
        Objective::MinPeakMemory => peaks(plan),
        Objective::MinDevices | Objective::MinCost => vec![plan.device_count()],
        Objective::MaxBatch => vec![u64::MAX - u64::from(plan.training.micro_batch_size)],
        _ => Vec::new(),
    };
    let order = |one: &&Plan, other: &&Plan| {
        value(one).cmp(&value(other)).then(seconds(one).total_cmp(&seconds(other)))
    };
    let Some(best) = all.iter().filter(fits(asked)).min_by(order) else {
        let error = error(asked);
        assert!(error.is_proof(), "{told}: {error}");
        return None;
    };
    let plan = asked.plan();
    let of_all = certificate(&plan);
    assert!(of_all.proven && of_all.bound == Some(of_all.value), "{told}: {of_all:?}");
    assert_eq!(value(&plan), value(best), "{told}: {} and {}", plan.partition(), best.partition());
    let is_as_fast = is_same(seconds(&plan), seconds(best));
    assert!(is_as_fast || objective == Objective::MinPeakMemory, "{told}: {}", plan.partition());
    Some(plan)
}

/// Of every way to cut, with every size of a micro-batch that may be chosen, the plan is the fastest that fits, or the one with the
/// lowest peaks, and is called proven; where none fits, that is called proven.
#[test]
fn the_best_cut_is_the_best_of_all() {
    let (mut found, mut refused) = (0, 0);
    for (layers, devices, each) in [(5, 2, 2), (7, 2, 3), (9, 4, 2), (6, 3, 2)] {
        for objective in [Objective::MinIterationTime, Objective::MinPeakMemory] {
            let is_timed = objective == Objective::MinIterationTime;
            let asked = fixture(layers, objective, devices, each, 0).with(|fixture| {
                fixture.request.named.micro_batch_size = !is_timed;
                // They go in groups of two, three and four.
                fixture.micro_batches = 12;
            });
            let batches: &[u32] = if is_timed { &[2, 4, 6, 8, 12, 16, 24] } else { &[4] };
            let all = batches.iter().filter(|&&size| (48 / size).is_multiple_of(devices));
            let all: Vec<Plan> = all.flat_map(|&size| every_cut(&asked, layers, size)).collect();
            for capacity in [60_000, 130_000, 400_000, 1_000_000] {
                let told = format!("{layers} layers, {devices} × {each}, {objective}, {capacity}");
                let asked = asked.with(|fixture| fixture.capacity = capacity);
                let Some(plan) = best_of_all(&asked, &all, &told) else {
                    assert!(matches!(error(&asked), RecommendError::NoPlan { .. }), "{told}");
                    refused += 1;
                    continue;
                };
                let value = certificate(&plan).value;
                assert!(!is_timed || (value - seconds(&plan)).abs() < 1e-12, "{told}");
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
    let certificate = certificate(&plan);
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
    let certificate = certificate(&plan);
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
        fixture.request.goal.cluster = Some(ClusterName::parse("problem.cluster", "clusters/two").unwrap());
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
    let certificate = certificate(&plan);
    assert!(!certificate.proven && certificate.bound.is_none_or(|bound| bound < certificate.value));
    assert!(
        plan.warnings.iter().any(|warning| warning.message.contains("in which the devices are listed")),
        "{:?}",
        plan.warnings
    );
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
