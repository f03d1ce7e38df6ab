//! What is asked for and cannot be had, by its name.

use loadmaster_proto::plan::objective::{
    Framework, MemoryUnit, NodeSpanning, Objective, PlanShape, SearchMode,
};
use loadmaster_proto::training::actions::{Allowed, Block, StageActions, Way};
use loadmaster_proto::training::stage::Partitioning;
use loadmaster_proto::training::{RecomputePolicy, Schedule};

use super::{fixture, seconds};
use crate::tests::fixture::{Fixture, LAYERS};
use crate::{QuestionError, RecommendError};

/// Of what no plan with interleaved stages can do, each is refused by its field.
#[test]
fn what_they_cannot_do_is_refused_by_name() {
    let base = || fixture(LAYERS, Objective::MinIterationTime, 2, 2, 1_000_000);
    let field = |change: &dyn Fn(&mut Fixture)| -> String {
        let mut asked = base();
        change(&mut asked);
        match asked.answer().unwrap_err() {
            QuestionError::Invalid(invalid) => invalid.violations()[0].field.clone(),
            other => panic!("{other}"),
        }
    };
    assert!(base().answer().is_ok());
    type Change<'a> = &'a dyn Fn(&mut Fixture);
    let cases: [(&str, Change<'_>); 10] = [
        ("problem.framework", &|fixture| fixture.request.goal.framework = Some(Framework::Deepspeed)),
        ("search.mode", &|fixture| fixture.request.mode = SearchMode::Amp),
        ("constraints.parallelism_layout", &|fixture| fixture.request.goal.shape = PlanShape::PerStageMesh),
        ("constraints.schedules", &|fixture| {
            fixture.request.goal.constraints.schedules = vec![Schedule::Gpipe];
        }),
        ("constraints.min_stage_count", &|fixture| fixture.request.goal.constraints.min_stages = Some(2)),
        ("constraints.allow_idle_devices", &|fixture| {
            fixture.request.goal.constraints.allow_idle_devices = true
        }),
        ("constraints.node_spanning", &|fixture| {
            fixture.request.goal.constraints.spanning = Some(NodeSpanning::Never);
        }),
        ("problem.virtual_stage_count", &|fixture| fixture.request.virtual_stages = 3),
        ("problem.virtual_stage_count", &|fixture| fixture.devices = 1),
        ("problem.micro_batch_count", &|fixture| {
            fixture.devices = 2;
            fixture.request.goal.constraints.micro_batch_sizes = vec![32];
        }),
    ];
    for (named, change) in cases {
        assert_eq!(field(change), named);
    }
    let stages = |sizes: &[usize]| Some(Partitioning::from_sizes(sizes).unwrap());
    let recomputed = |fixture: &mut Fixture| {
        fixture.request.goal.constraints.recompute = vec![RecomputePolicy::Layer];
        fixture.request.allowed = Some(Allowed::default());
    };
    assert_eq!(field(&recomputed), "problem.recompute");
    let never = |fixture: &mut Fixture| {
        let blocks = vec![Block::Inputs, Block::Versions];
        fixture.request.allowed = Some(Allowed { ways: vec![Way::CpuOffload], blocks, ..Allowed::default() });
    };
    assert_eq!(field(&never), "memory.blocks");
    let long = |fixture: &mut Fixture| {
        fixture.micro_batches = 200_000;
        fixture.request.partitioning = stages(&[1, 1, 1, 2]);
    };
    assert_eq!(field(&long), "problem.micro_batch_count");
    assert_eq!(
        field(&|fixture| fixture.request.partitioning = stages(&[2, 3])),
        "constraints.pipeline_layout"
    );
    let slots = |fixture: &mut Fixture, peer: u32| {
        let swap = |to| loadmaster_proto::training::actions::Swap {
            block: Block::Activations,
            to,
            release_after: 0,
            fetch_before: 0,
        };
        let stripe = loadmaster_proto::training::actions::Stripe { stage: peer, share: 10_000 };
        let to = loadmaster_proto::training::actions::Destination::Peers(vec![stripe]);
        let action = loadmaster_proto::training::actions::Action {
            first_layer: 0,
            last_layer: 0,
            slots: if peer == 1 { vec![0] } else { Vec::new() },
            optimization: loadmaster_proto::training::actions::Optimization::Swap(swap(to)),
        };
        fixture.request.partitioning = Some(Partitioning::from_sizes(&[1, 1, 1, 2]).unwrap());
        fixture.request.goal.objective = None;
        fixture.request.stage_actions =
            vec![StageActions { actions: vec![action], ..StageActions::default() }];
    };
    assert_eq!(field(&|fixture| slots(fixture, 1)), "memory.stage_memory_optimizations[0]");
    assert_eq!(field(&|fixture| slots(fixture, 2)), "memory.stage_memory_optimizations[0]");
}

/// Micro-batches that are too many to be simulated are not searched, and nothing is called proven of them.
#[test]
fn what_is_too_long_to_be_simulated_is_not_proven() {
    let asked = |sizes: &[u32]| {
        let asked = fixture(60, Objective::MinPeakMemory, 2, 2, 1 << 40);
        asked.with(|fixture| {
            fixture.micro_batches = 10_000;
            fixture.request.goal.constraints.micro_batch_sizes = sizes.to_vec();
            // So few cuts that all are looked at.
            fixture.request.goal.constraints.keep_together = vec![(0, 55)];
        })
    };
    let proven = |fixture: &Fixture| fixture.plan().found.certificate.unwrap().proven;
    let short = asked(&[32]);
    assert!(proven(&short));
    let with_long = asked(&[4, 32]);
    assert_eq!(with_long.plan().training, short.plan().training);
    assert!(!proven(&with_long));
}

/// Limits hold: a plan that they rule out is not returned, and the error reports the reason. A share of the capacity is
/// proven as a share.
#[test]
fn limits_hold() {
    let fastest = fixture(6, Objective::MinIterationTime, 3, 2, 1_000_000).plan();
    let lowest = fixture(6, Objective::MinPeakMemory, 3, 2, 1_000_000);
    let unlimited = lowest.plan();
    assert!(unlimited.peak() <= fastest.peak() && seconds(&fastest) <= seconds(&unlimited));
    let within = |limit: f64| {
        lowest.with(|fixture| fixture.request.goal.constraints.max_iteration_seconds = Some(limit)).answer()
    };
    let ((_, limited), _) = within(seconds(&fastest) * 1.001).unwrap();
    assert!(seconds(&limited) <= seconds(&fastest) * 1.001 && limited.peak() >= unlimited.peak());
    let error = within(seconds(&fastest) * 0.999).unwrap_err();
    assert!(
        matches!(error, QuestionError::Recommend(RecommendError::Limits { is_proof: true, .. })),
        "{error}"
    );
    let small = |most: u64| {
        let asked = fixture(6, Objective::MinIterationTime, 3, 2, 1_000_000);
        asked.with(|fixture| fixture.request.goal.constraints.max_peak_bytes = Some(most)).answer()
    };
    let ((_, plan), _) = small(unlimited.peak()).unwrap();
    assert_eq!(plan.peak(), unlimited.peak());
    assert!(small(unlimited.peak() - 1).is_err());
    let share = lowest.with(|fixture| fixture.request.goal.memory_unit = MemoryUnit::Share).plan();
    let certificate = share.found.certificate.unwrap();
    assert_eq!((certificate.unit.as_str(), certificate.proven), ("share", true));
    assert!((certificate.value - unlimited.peak() as f64 / 1e6).abs() < 1e-9, "{certificate:?}");
}
