//! Plans with interleaved stages for frameworks that take turns: what is recommended is exported.

use loadmaster_launchers::{Export, ExportQuestion, Refusal, Target, Variant, export};
use loadmaster_proto::name::{ClusterName, PlanName};
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::objective::{Framework, Objective, PlanShape};
use loadmaster_proto::training::actions::{Optimization, StageActions, Way};
use loadmaster_proto::training::stage::Partitioning;

use super::seconds;
use crate::tests::fixture::{Fixture, gpt};
use crate::{QuestionError, RecommendError};
use loadmaster_search::Stop;

/// A GPT-2 of four blocks on devices that take turns with two stages each.
fn asked(framework: Framework, devices: u32, capacity: u64) -> Fixture {
    Fixture::of(gpt(false), None, Objective::MinIterationTime, devices, capacity).with(|fixture| {
        fixture.request.virtual_stages = 2;
        fixture.request.goal.framework = Some(framework);
        fixture.request.goal.shape = PlanShape::UniformGrid;
        fixture.request.named.micro_batch_size = true;
        fixture.micro_batches = 12;
    })
}

fn exported(framework: Framework, fixture: &Fixture, plan: &Plan) -> Result<Export, Box<Refusal>> {
    let (name, target) = (PlanName::from_id("some").unwrap(), Target::of(framework, "").unwrap());
    let model = fixture.chain.model.as_ref();
    export(&ExportQuestion { name: &name, plan, model, target, named: None, variant: Variant::Usual })
}

fn invalid(error: QuestionError) -> String {
    match error {
        QuestionError::Invalid(invalid) => invalid.violations()[0].field.clone(),
        other => panic!("{other}"),
    }
}

/// Whatever memory there is, with memory optimizations and without: the plan fits, is exported, and is no faster
/// than one for no one.
#[test]
fn what_is_recommended_for_megatron_is_exported() {
    let (mut plain, mut acted) = (0, 0);
    let every: &[u64] = &[60_000, 80_000, 100_000, 130_000, 160_000, 200_000, 1_000_000];
    for (framework, capacities) in [(Framework::Megatron, every), (Framework::Other, &[100_000])] {
        for devices in [2, 3] {
            for &capacity in capacities {
                for acts in [false, true] {
                    let fixture = asked(framework, devices, capacity).with(|fixture| {
                        if !acts {
                            fixture.request.allowed = None;
                        }
                    });
                    let told = format!("{framework}, {devices} devices of {capacity}, {acts}");
                    let free = fixture.with(|fixture| fixture.request.goal.framework = None);
                    let Ok(((_, plan), _)) = fixture.answer() else { continue };
                    assert!(plan.peak() <= capacity, "{told}");
                    let swaps = plan
                        .stages
                        .iter()
                        .flat_map(|of| &of.actions.actions)
                        .any(|of| of.optimization != Optimization::Recompute);
                    // A program of one's own does what it likes with its host's memory, which no framework's file says.
                    assert!(framework == Framework::Other || !swaps, "{told}");
                    exported(framework, &fixture, &plan)
                        .unwrap_or_else(|refusal| panic!("{told}: {refusal}"));
                    if !acts {
                        assert!(seconds(&free.plan()) <= seconds(&plan) * (1.0 + 1e-9), "{told}");
                    }
                    plain += usize::from(plan.stages.iter().all(|of| of.actions.is_empty()));
                    acted += usize::from(plan.stages.iter().any(|of| !of.actions.is_empty()));
                }
            }
        }
    }
    assert!(plain >= 8 && acted >= 3, "{plain} do nothing about their memory, {acted} do");
}

/// Where all that Megatron can recompute is not enough, the error reports it.
#[test]
fn what_megatron_lacks_is_told() {
    let error = asked(Framework::Megatron, 2, 10_000).answer().unwrap_err();
    assert!(matches!(error, QuestionError::Recommend(RecommendError::NoPlan { .. })), "{error}");
    assert!(error.to_string().contains("with all that megatron can recompute"), "{error}");
}

/// Stages that are given must end where the framework cuts, and recompute what it counts.
#[test]
fn what_is_given_must_be_sayable() {
    let given = |sizes: &[usize], actions: Vec<StageActions>| {
        asked(Framework::Megatron, 2, 1 << 30).with(|fixture| {
            fixture.request.partitioning = Some(Partitioning::from_sizes(sizes).unwrap());
            fixture.request.stage_actions = actions.clone();
            fixture.request.allowed = None;
            fixture.request.goal.objective = None;
        })
    };
    // Embedding, four blocks, norm and head.
    let fixture = given(&[2, 1, 1, 3], Vec::new());
    exported(Framework::Megatron, &fixture, &fixture.plan()).unwrap();
    assert_eq!(
        invalid(given(&[2, 1, 3, 1], Vec::new()).answer().unwrap_err()),
        "constraints.pipeline_layout"
    );
    let alike = [1, 2, 3, 4].map(|layer| StageActions::recomputing(&[layer..=layer])).to_vec();
    let fixture = given(&[2, 1, 1, 3], alike.clone());
    exported(Framework::Megatron, &fixture, &fixture.plan()).unwrap();
    let unlike = [&alike[..3], &[StageActions::default()]].concat();
    assert!(
        invalid(given(&[2, 1, 1, 3], unlike).answer().unwrap_err())
            .starts_with("memory.stage_memory_optimizations")
    );
}

/// Nothing that may be chosen is what it can say.
#[test]
fn ways_that_megatron_has_not_are_refused() {
    let fixture = asked(Framework::Megatron, 2, 1 << 30);
    let peer_pools =
        fixture.with(|fixture| fixture.request.allowed.as_mut().unwrap().ways = vec![Way::CpuOffload]);
    assert_eq!(invalid(peer_pools.answer().unwrap_err()), "memory.optimizations");
}

/// It starts as many processes on each node, and all devices are taken.
#[test]
fn nodes_of_other_sizes_are_refused() {
    let fixture = asked(Framework::Megatron, 4, 1 << 30).with(|fixture| {
        fixture.nodes = 2;
        fixture.request.goal.cluster = Some(ClusterName::parse("problem.cluster", "clusters/two").unwrap());
    });
    let mut question = fixture.question();
    question.answer(&Stop::default()).unwrap();
    question.fleet.fleet.nodes[0].devices += 2;
    assert_eq!(invalid(question.answer(&Stop::default()).unwrap_err()), "problem.cluster");
    // On fewer of them it does.
    question.request.goal.objective = Some(Objective::MinDevices);
    let ((_, plan), _) = question.answer(&Stop::default()).unwrap();
    assert_eq!((plan.device_count(), plan.found.certificate.unwrap().proven), (2, true));
}
