//! What is promised of plans with actions for a framework: no plan that it can run is faster on the same stages, and what it costs is
//! told.

use std::ops::RangeInclusive;

use loadmaster_proto::measure::host::Host;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::objective::{Framework, Objective, PlanShape};
use loadmaster_proto::training::actions::{Optimization, StageActions, StagedAction, Way};
use loadmaster_proto::training::overlap::Overlap;
use loadmaster_proto::training::stage::Partitioning;

use super::{error, seconds};
use crate::tests::fixture::{Fixture, gpt};
use crate::{QuestionError, RecommendError};

/// What is enough for all that is kept, for some of it, and for hardly any.
const CAPACITIES: [u64; 5] = [60_000, 75_000, 90_000, 110_000, 1 << 20];

const WITH_WAYS: [Framework; 9] = [
    Framework::Megatron,
    Framework::MegatronBridge,
    Framework::Accelerate,
    Framework::Torchtitan,
    Framework::TorchPipelining,
    Framework::Deepspeed,
    Framework::ColossalAi,
    Framework::Galvatron,
    Framework::Other,
];

fn on(host: Option<Host>, framework: Framework, objective: Objective, capacity: u64) -> Fixture {
    Fixture::of(gpt(true), host, objective, 2, capacity).with(|fixture| {
        fixture.request.goal.framework = Some(framework);
        // The same for every framework.
        fixture.request.overlap = Some(Overlap::Nothing);
    })
}

fn fixture(framework: Framework, objective: Objective, capacity: u64) -> Fixture {
    on(None, framework, objective, capacity)
}

/// Stages of the seven layers, where frameworks cut that cut between blocks: as many blocks in each, and not.
fn cuts() -> [Partitioning; 3] {
    [[3, 4], [2, 5], [4, 3]].map(|sizes| Partitioning::from_sizes(&sizes).unwrap())
}

/// What `--recompute-method block`, or `uniform`, with this number recomputes of the blocks of a stage, as Megatron's own loop
/// goes through them.
fn megatron(blocks: &[usize], is_block: bool, number: usize) -> Vec<RangeInclusive<usize>> {
    if is_block {
        return blocks.iter().take(number).map(|&block| block..=block).collect();
    }
    blocks.chunks(number).map(|of| of[0]..=of[of.len() - 1]).collect()
}

/// Every plan of these stages that Megatron can run, without a limit on memory.
fn every(fixture: &Fixture, stages: &Partitioning) -> Vec<Plan> {
    let blocks: Vec<Vec<usize>> = stages
        .stages()
        .iter()
        .map(|stage| stage.layers().filter(|layer| (1..=4).contains(layer)).collect())
        .collect();
    let most = blocks.iter().map(Vec::len).max().unwrap();
    let is_even = |number: usize| blocks.iter().all(|blocks| blocks.len().is_multiple_of(number));
    let block = (0..=most).map(|number| (true, number));
    let uniform = (1..=most).filter(|&number| is_even(number)).map(|number| (false, number));
    let all = block.chain(uniform);
    let of = |(is_block, number)| {
        let runs = blocks.iter().map(|blocks| megatron(blocks, is_block, number));
        let actions = runs.map(|runs| StageActions::recomputing(&runs)).collect();
        fixture.given(stages, 4, actions).unwrap()
    };
    all.map(of).collect()
}

/// On named stages no plan that Megatron can run is faster; where none fits none is answered.
#[test]
fn no_other_plan_that_megatron_can_run_is_faster() {
    let (mut found, mut none, mut partly) = (0, 0, 0);
    let shared = Some(Host { cores: 2, threads: 1, contention_slowdown: 1.2, copies: None });
    for (host, stages, capacity) in [None, shared].into_iter().flat_map(|host| {
        cuts().into_iter().flat_map(move |stages| CAPACITIES.map(|of| (host, stages.clone(), of)))
    }) {
        let asked = on(host, Framework::Megatron, Objective::MinIterationTime, capacity)
            .with(|fixture| fixture.request.partitioning = Some(stages.clone()));
        let all = every(&asked, &stages);
        let fit = all.iter().filter(|plan| plan.peak() <= capacity);
        let fastest = fit.map(seconds).reduce(f64::min);
        match (asked.answer(), fastest) {
            (Ok(((_, plan), _)), Some(fastest)) => {
                found += 1;
                assert_eq!(seconds(&plan), fastest, "{} within {capacity}", plan.partition());
                let again = |stage: usize| plan.stages[stage].actions.actions.len();
                partly += usize::from(again(0) > 0 && again(1) < 4);
                let certificate = plan.found.certificate.unwrap();
                assert!(certificate.bound.unwrap() <= certificate.value, "{certificate:?}");
            }
            (Err(QuestionError::Recommend(RecommendError::NoPlan { reason, .. })), None) => {
                none += 1;
                assert!(reason.contains("megatron can recompute"), "{reason}");
            }
            (answer, fastest) => panic!("{stages} within {capacity}: {answer:?}, but {fastest:?}"),
        }
    }
    assert!(found > 5 && none > 1 && partly > 1, "{found} found, {none} not, {partly} in part");
}

/// Nor has one a lower peak, where that is asked for.
#[test]
fn no_other_plan_that_megatron_can_run_has_a_lower_peak() {
    for stages in cuts() {
        let asked = fixture(Framework::Megatron, Objective::MinPeakMemory, 1 << 20)
            .with(|fixture| fixture.request.partitioning = Some(stages.clone()));
        let least = every(&asked, &stages).iter().map(Plan::peak).min().unwrap();
        assert_eq!(asked.plan().peak(), least, "{stages}");
    }
}

/// Whatever is asked for, what is chosen for a framework is what it can say: nothing is away, and all micro-batches do the same.
/// What that costs is never less than nothing, and where it costs something the rules are named.
#[test]
#[ignore = "slow: make test-slow"]
fn frameworks_are_given_what_they_can_say_and_told_what_it_costs() {
    let (mut costly, mut free) = (0, 0);
    // In fp32 a model is one stage for Megatron-Bridge.
    for framework in WITH_WAYS.into_iter().filter(|&framework| framework != Framework::MegatronBridge) {
        // Whatever is asked of one framework: of the others one question says enough.
        let all = if framework == Framework::Megatron {
            &Objective::ALL[..]
        } else {
            &[Objective::MinIterationTime]
        };
        for &objective in all {
            let asked = fixture(framework, objective, 100_000).with(|fixture| {
                fixture.price = Some(1.0);
                fixture.request.goal.constraints.micro_batch_sizes = vec![4];
            });
            let plan = match asked.answer() {
                Ok(((_, plan), _)) => plan,
                Err(QuestionError::Recommend(RecommendError::NoPlan { .. })) => continue,
                Err(other) => panic!("{framework} {objective}: {other}"),
            };
            let all = || plan.stages.iter().flat_map(|stage| &stage.actions.actions);
            if framework != Framework::Other {
                assert!(
                    all()
                        .all(|action| action.optimization == Optimization::Recompute
                            && action.slots.is_empty()),
                    "{framework}"
                );
                // Named once more, they are taken.
                let stages = plan.stages.iter().map(|stage| stage.config).collect();
                let named = asked.with(|fixture| {
                    fixture.request.partitioning = Some(Partitioning::new(stages).unwrap());
                    fixture.request.stage_actions =
                        plan.stages.iter().map(|stage| stage.actions.clone()).collect();
                    fixture.request.allowed = None;
                    fixture.devices = plan.stages.len() as u32;
                });
                assert_eq!(seconds(&named.plan()), seconds(&plan), "{framework} {objective}");
            }
            let Some(cost) = &plan.found.restriction else {
                assert_eq!(objective, Objective::MaxModel);
                continue;
            };
            let value = plan.found.certificate.as_ref().unwrap().value;
            assert_eq!(cost.restricted_value, value);
            assert!(
                cost.ratio >= 1.0 && (cost.ratio > 1.0) != cost.placement.is_empty(),
                "{framework}: {cost:?}"
            );
            if cost.ratio > 1.0 {
                costly += 1
            } else {
                free += 1
            }
            let brief = asked.with(|fixture| fixture.request.brief = true).plan();
            assert_eq!(brief.found.restriction, None);
        }
    }
    assert!(costly > 3 && costly + free > 10, "{costly} costly, {free} free");
}

/// What a framework's rules prove of its own plans is not said of all others: that no freer plan is better is proven only where the
/// search without the framework proves it.
#[test]
#[ignore = "slow: make test-slow"]
fn the_best_free_plan_is_proven_by_a_free_search_alone() {
    let (mut proven, mut unproven) = (0, 0);
    for framework in [Framework::Torchgpipe, Framework::Megatron] {
        for objective in [Objective::MinDevices, Objective::MinIterationTime, Objective::MinPeakMemory] {
            for capacity in [45_000, 60_000, 85_000, 1 << 20] {
                let asked = fixture(framework, objective, capacity).with(|fixture| {
                    fixture.request.goal.constraints.micro_batch_sizes = vec![4];
                    fixture.request.allowed.as_mut().unwrap().ways = Way::ALL.to_vec();
                });
                let Ok(((_, plan), _)) = asked.answer() else { continue };
                let Some(cost) = &plan.found.restriction else { continue };
                let free = asked.with(|fixture| {
                    fixture.request.goal.framework = None;
                    fixture.request.goal.shape = PlanShape::PerStageMesh;
                    fixture.request.brief = true;
                });
                let known = free.answer().ok().and_then(|((_, plan), _)| plan.found.certificate?.bound);
                let reaches = known.is_some_and(|bound| bound * (1.0 + 1e-6) >= cost.free_value);
                assert!(
                    !cost.free_proven || reaches,
                    "{framework} {objective} {capacity}: {cost:?}, {known:?}"
                );
                if cost.free_proven { proven += 1 } else { unproven += 1 }
            }
        }
    }
    assert!(proven > 0, "{proven} are proven, {unproven} are not");
}

/// The cost is that of asking without a framework.
#[test]
fn the_cost_is_against_the_plan_of_no_framework() {
    let of = |capacity: u64| {
        fixture(Framework::Megatron, Objective::MinIterationTime, capacity)
            .with(|fixture| fixture.request.partitioning = Some(cuts()[0].clone()))
    };
    // The least with which anything is found takes most to be recomputed.
    let found =
        (15..40).map(|step| of(step * 5_000)).find_map(|asked| Some((asked.answer().ok()?.0.1, asked)));
    let (plan, asked) = found.unwrap();
    let free = asked.with(|fixture| fixture.request.goal.framework = None).plan();
    let cost = plan.found.restriction.clone().unwrap();
    assert_eq!((cost.free_value, cost.restricted_value), (seconds(&free), seconds(&plan)));
    assert!(cost.ratio > 1.0 && cost.placement.iter().all(|rule| rule.starts_with("megatron: ")), "{cost:?}");
    assert_eq!(free.found.restriction, None, "nobody restricts");
}

/// Actions that a framework cannot say are refused by their path, and choices of which it can do none.
#[test]
fn what_cannot_be_said_is_refused() {
    let named = |actions: &[&str]| {
        let actions: Vec<StagedAction> = actions.iter().map(|text| text.parse().unwrap()).collect();
        let asked = fixture(Framework::Megatron, Objective::MinIterationTime, 1 << 20).with(|fixture| {
            fixture.request.partitioning = Some(cuts()[0].clone());
            fixture.request.allowed = None;
            fixture.request.stage_actions = StageActions::by_stage(actions);
        });
        match asked.answer() {
            Ok(_) => None,
            Err(QuestionError::Invalid(invalid)) => Some(invalid.violations()[0].field.clone()),
            Err(other) => panic!("{other}"),
        }
    };
    assert_eq!(named(&["0/1=recompute", "1/3=recompute"]), None);
    assert_eq!(named(&["0/1..2=recompute", "1/3..4=recompute"]), None, "two at once");
    assert_eq!(
        named(&["0/1=recompute", "1/4=recompute"]).as_deref(),
        Some("memory.stage_memory_optimizations[1]")
    );
    assert_eq!(
        named(&["0/0=recompute", "1/3=recompute"]).as_deref(),
        Some("memory.stage_memory_optimizations[0]")
    );
    let slots = named(&["0/1@0=recompute", "1/3=recompute"]);
    assert_eq!(
        slots.as_deref(),
        Some("memory.stage_memory_optimizations[0].optimizations[0].micro_batch_slots")
    );

    let away = fixture(Framework::Megatron, Objective::MinIterationTime, 1 << 20);
    let away = away.with(|fixture| fixture.request.allowed.as_mut().unwrap().ways = vec![Way::CpuOffload]);
    assert!(matches!(away.answer(), Err(QuestionError::Invalid(_))));
    let small = fixture(Framework::Megatron, Objective::MinIterationTime, 20_000);
    assert!(matches!(error(&small), RecommendError::NoPlan { .. }));
}
