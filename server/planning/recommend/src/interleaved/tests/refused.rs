//! What is asked for and cannot be had, by its name.

use loadmaster_proto::plan::objective::{
    Launcher, MemoryUnit, NodeSpanning, Objective, PlanShape, SearchMode,
};
use loadmaster_proto::training::actions::{Allowed, Block, StageActions, Way};
use loadmaster_proto::training::stage::Partitioning;
use loadmaster_proto::training::{RecomputePolicy, Schedule};

use super::{scene, seconds};
use crate::scene::{LAYERS, Scene};
use crate::{QuestionError, RecommendError};

/// Of what no plan with interleaved stages can do, each is refused by its field.
#[test]
fn what_they_cannot_do_is_refused_by_name() {
    let base = || scene(LAYERS, Objective::MinIterationTime, 2, 2, 1_000_000);
    let field = |change: &dyn Fn(&mut Scene)| -> String {
        let mut asked = base();
        change(&mut asked);
        match asked.answer().unwrap_err() {
            QuestionError::Invalid(invalid) => invalid.violations()[0].field.clone(),
            other => panic!("{other}"),
        }
    };
    assert!(base().answer().is_ok());
    type Change<'a> = &'a dyn Fn(&mut Scene);
    let cases: [(&str, Change<'_>); 10] = [
        ("launcher", &|scene| scene.request.goal.launcher = Some(Launcher::Deepspeed)),
        ("search_mode", &|scene| scene.request.mode = SearchMode::Amp),
        ("shape", &|scene| scene.request.goal.shape = PlanShape::PerStageMesh),
        ("constraints.schedules", &|scene| {
            scene.request.goal.constraints.schedules = vec![Schedule::Gpipe];
        }),
        ("constraints.min_stages", &|scene| scene.request.goal.constraints.min_stages = Some(2)),
        ("constraints.allow_idle_devices", &|scene| scene.request.goal.constraints.allow_idle_devices = true),
        ("constraints.spanning", &|scene| {
            scene.request.goal.constraints.spanning = Some(NodeSpanning::Never);
        }),
        ("virtual_stages", &|scene| scene.request.virtual_stages = 3),
        ("virtual_stages", &|scene| scene.devices = 1),
        ("micro_batches", &|scene| {
            scene.devices = 2;
            scene.request.goal.constraints.micro_batch_sizes = vec![32];
        }),
    ];
    for (named, change) in cases {
        assert_eq!(field(change), named);
    }
    let stages = |sizes: &[usize]| Some(Partitioning::from_sizes(sizes).unwrap());
    // Stages that are given have their devices.
    for objective in [Objective::MinDevices, Objective::MinCost] {
        let of_given = |scene: &mut Scene| {
            scene.request.partitioning = stages(&[1, 1, 1, 2]);
            scene.request.goal.objective = Some(objective);
            scene.request.allowed = Some(Allowed::default());
        };
        assert_eq!(field(&of_given), "objective");
    }
    let recomputed = |scene: &mut Scene| {
        scene.request.goal.constraints.recompute = vec![RecomputePolicy::Layer];
        scene.request.allowed = Some(Allowed::default());
    };
    assert_eq!(field(&recomputed), "recompute");
    let never = |scene: &mut Scene| {
        let blocks = vec![Block::Inputs, Block::Versions];
        scene.request.allowed = Some(Allowed { ways: vec![Way::Host], blocks, ..Allowed::default() });
    };
    assert_eq!(field(&never), "memory_blocks");
    let long = |scene: &mut Scene| {
        scene.micro_batches = 200_000;
        scene.request.partitioning = stages(&[1, 1, 1, 2]);
    };
    assert_eq!(field(&long), "micro_batches");
    assert_eq!(field(&|scene| scene.request.partitioning = stages(&[2, 3])), "partitioning");
    let slots = |scene: &mut Scene, peer: u32| {
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
            deed: loadmaster_proto::training::actions::Deed::Swap(swap(to)),
        };
        scene.request.partitioning = Some(Partitioning::from_sizes(&[1, 1, 1, 2]).unwrap());
        scene.request.goal.objective = None;
        scene.request.stage_actions = vec![StageActions { actions: vec![action], ..StageActions::default() }];
    };
    assert_eq!(field(&|scene| slots(scene, 1)), "stage_actions[0]");
    assert_eq!(field(&|scene| slots(scene, 2)), "stage_actions[0]");
}

/// Micro-batches that are too many to be simulated are not searched, and nothing is called proven of them.
#[test]
fn what_is_too_long_to_be_simulated_is_not_proven() {
    let asked = |sizes: &[u32]| {
        let asked = scene(60, Objective::MinPeakMemory, 2, 2, 1 << 40);
        asked.with(|scene| {
            scene.micro_batches = 10_000;
            scene.request.goal.constraints.micro_batch_sizes = sizes.to_vec();
            // So few cuts that all are looked at.
            scene.request.goal.constraints.keep_together = vec![(0, 55)];
        })
    };
    let proven = |scene: &Scene| scene.plan().found.certificate.unwrap().proven;
    let short = asked(&[32]);
    assert!(proven(&short));
    let with_long = asked(&[4, 32]);
    assert_eq!(with_long.plan().training, short.plan().training);
    assert!(!proven(&with_long));
}

/// Limits hold: what they rule out is not answered, and the reason is told; a share of the capacity is proven as one.
#[test]
fn limits_hold() {
    let fastest = scene(6, Objective::MinIterationTime, 3, 2, 1_000_000).plan();
    let lowest = scene(6, Objective::MinPeakMemory, 3, 2, 1_000_000);
    let unlimited = lowest.plan();
    assert!(unlimited.peak() <= fastest.peak() && seconds(&fastest) <= seconds(&unlimited));
    let within = |limit: f64| {
        lowest.with(|scene| scene.request.goal.constraints.max_iteration_seconds = Some(limit)).answer()
    };
    let ((_, limited), _) = within(seconds(&fastest) * 1.001).unwrap();
    assert!(seconds(&limited) <= seconds(&fastest) * 1.001 && limited.peak() >= unlimited.peak());
    let error = within(seconds(&fastest) * 0.999).unwrap_err();
    assert!(
        matches!(error, QuestionError::Recommend(RecommendError::Limits { is_proof: true, .. })),
        "{error}"
    );
    let small = |most: u64| {
        let asked = scene(6, Objective::MinIterationTime, 3, 2, 1_000_000);
        asked.with(|scene| scene.request.goal.constraints.max_peak_bytes = Some(most)).answer()
    };
    let ((_, plan), _) = small(unlimited.peak()).unwrap();
    assert_eq!(plan.peak(), unlimited.peak());
    assert!(small(unlimited.peak() - 1).is_err());
    let share = lowest.with(|scene| scene.request.goal.memory_unit = MemoryUnit::Share).plan();
    let certificate = share.found.certificate.unwrap();
    assert_eq!((certificate.unit.as_str(), certificate.proven), ("share", true));
    assert!((certificate.value - unlimited.peak() as f64 / 1e6).abs() < 1e-9, "{certificate:?}");
}
