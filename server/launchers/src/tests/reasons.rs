//! Plans that frameworks cannot express: each is refused by stage and with the remedy, and none is rounded.

use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::objective::Framework;
use loadmaster_proto::training::{Optimizer, Precision, RecomputePolicy, Schedule};
use proptest::prelude::*;

use super::{ask, case, export_as};
use crate::{Export, Exporter, Refusal, Variant, exporters};
use loadmaster_samples::{CutTransformer, Degrees};

fn exported(
    framework: Framework,
    case: &CutTransformer,
    bend: impl Fn(&mut Plan),
) -> Result<Export, Box<Refusal>> {
    let (mut plan, model) = (case.plan(), case.model());
    bend(&mut plan);
    ask(framework, "", &plan, Some(&model))
}

#[test]
fn what_a_framework_cannot_say_is_refused_with_the_reason() {
    let whole = case(vec![2, 3], 2.into(), 2.into());
    let bare = case(vec![3, 0], 1.into(), 1.into());
    let unlike = case(vec![2, 3], Degrees::Each(vec![2, 1]), Degrees::Each(vec![2, 2]));
    let replicas = case(vec![5], 1.into(), 3.into());
    let recompute = |policy: RecomputePolicy| move |plan: &mut Plan| plan.stages[1].recompute = policy;
    let all_recompute = |policy: RecomputePolicy| {
        move |plan: &mut Plan| plan.stages.iter_mut().for_each(|stage| stage.recompute = policy)
    };
    let schedule = |schedule: Schedule| move |plan: &mut Plan| plan.training.schedule = schedule;
    type Bend = Box<dyn Fn(&mut Plan)>;
    let same = || -> Bend { Box::new(|_| {}) };
    let table: Vec<(Framework, &CutTransformer, Bend, Option<usize>, &str)> = vec![
        (Framework::Galvatron, &unlike, same(), Some(1), "has 2 devices, but the first stage has 4"),
        (Framework::Galvatron, &bare, same(), Some(1), "has no transformer block"),
        (
            Framework::Galvatron,
            &whole,
            Box::new(recompute(RecomputePolicy::Stage)),
            Some(1),
            "recompute policy `layer` or `none`",
        ),
        (
            Framework::Galvatron,
            &whole,
            Box::new(schedule(Schedule::PipeDream)),
            None,
            "this framework supports",
        ),
        (Framework::Accelerate, &unlike, same(), Some(1), "Use equal sizes for all stages"),
        (
            Framework::Accelerate,
            &whole,
            Box::new(schedule(Schedule::Gpipe)),
            None,
            "this framework supports 1f1b",
        ),
        (
            Framework::Accelerate,
            &whole,
            Box::new(recompute(RecomputePolicy::Layer)),
            Some(1),
            "one policy for all stages",
        ),
        (
            Framework::MegatronBridge,
            &whole,
            Box::new(all_recompute(RecomputePolicy::Stage)),
            None,
            "recompute policy `layer`",
        ),
        (
            Framework::MegatronBridge,
            &whole,
            Box::new(|plan| plan.training.precision = Precision::Fp32),
            None,
            "Request a plan in bf16",
        ),
        (Framework::Trainer, &whole, same(), Some(1), "is a second stage"),
        (Framework::Trainer, &whole, same(), Some(0), "has tensor-parallel size 2"),
        (
            Framework::Trainer,
            &replicas,
            Box::new(all_recompute(RecomputePolicy::Stage)),
            Some(0),
            "recompute policy `layer` or `none`",
        ),
    ];
    for (framework, case, bend, stage, why) in table {
        let refusal = exported(framework, case, bend).unwrap_err();
        let found = refusal.stages.iter().any(|refused| refused.stage == stage && refused.why.contains(why));
        assert!(found, "{framework}: {why} at {stage:?} is not in {refusal}");
    }
}

/// A plan's bytes are those of its optimizer: either the files say it, or a warning does.
#[test]
fn the_optimizer_of_the_bytes_is_said() {
    let case = case(vec![4], 1.into(), 1.into());
    let rules = [
        (
            Optimizer::Sgd { learning_rate: 0.1, momentum: 0.0, weight_decay: 0.0 },
            "SGD (momentum 0, weight decay 0)",
        ),
        (
            Optimizer::Adam { learning_rate: 0.1, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weight_decay: 0.0 },
            "Adam (betas 0.9 and 0.95, epsilon 1e-8, weight decay 0)",
        ),
        (
            Optimizer::AdamW {
                learning_rate: 0.1,
                beta1: 0.9,
                beta2: 0.95,
                epsilon: 1e-8,
                weight_decay: 0.1,
            },
            "AdamW (betas 0.9 and 0.95, epsilon 1e-8, weight decay 0.1)",
        ),
    ];
    for (optimizer, words) in rules {
        for exporter in exporters() {
            let framework = exporter.target.framework;
            let Ok(made) = exported(framework, &case, |plan| plan.training.optimizer = optimizer) else {
                continue;
            };
            let is_warned = made.warnings.iter().any(|warning| warning.message.contains(words));
            let says_it =
                matches!(framework, Framework::Megatron | Framework::MegatronBridge | Framework::Other);
            assert_eq!(is_warned, !says_it, "{framework}: {:?}", made.warnings);
        }
    }
    let adam = |weight_decay: f64| Optimizer::Adam {
        learning_rate: 0.1,
        beta1: 0.9,
        beta2: 0.95,
        epsilon: 1e-8,
        weight_decay,
    };
    let made = |framework: Framework, optimizer: Optimizer| {
        exported(framework, &case, |plan| plan.training.optimizer = optimizer).unwrap()
    };
    let flags = "--optimizer adam --adam-beta1 0.9 --adam-beta2 0.95 --adam-eps 1e-8 --weight-decay 0.1";
    let megatron = made(Framework::Megatron, adam(0.1));
    assert!(megatron.command.join(" ").contains(flags), "{:?}", megatron.command);
    let decoupled =
        |export: &Export| export.warnings.iter().any(|warning| warning.message.contains("as AdamW does"));
    assert!(decoupled(&megatron) && !decoupled(&made(Framework::Megatron, adam(0.0))));
    let yaml = &made(Framework::MegatronBridge, adam(0.1)).files[0].contents;
    let lines =
        "  adam_beta2: 0.95\n  adam_eps: 1.0e-8\n  weight_decay: 0.1\n  decoupled_weight_decay: false\n";
    assert!(yaml.contains(lines), "{yaml}");
}

#[test]
fn another_variant_than_a_framework_has_is_refused() {
    let case = case(vec![2], 1.into(), 1.into());
    let (plan, model) = (case.plan(), case.model());
    for Exporter { target, .. } in exporters() {
        let made = export_as("some", *target, Variant::Hybrid, &plan, Some(&model));
        assert_eq!(made.is_ok(), target.framework == Framework::Megatron, "{target}");
    }
}

pub(super) fn any_case() -> impl Strategy<Value = (CutTransformer, bool)> {
    let stage = (0_usize..4, 0_u32..3, 1_u32..4);
    let settings = (1_u32..4, 0_u32..3, 0_u32..4, any::<bool>(), any::<bool>());
    (proptest::collection::vec(stage, 1..5), settings).prop_map(
        |(mut stages, (micro_batch, policy, schedule, bf16, known))| {
            stages[0].0 = stages[0].0.max(1);
            let blocks = stages.iter().map(|stage| stage.0).collect();
            let tensor = Degrees::Each(stages.iter().map(|stage| 1 << stage.1).collect());
            let data = Degrees::Each(stages.iter().map(|stage| stage.2).collect());
            let mut case = case(blocks, tensor, data);
            // Between the ends each stage has a block.
            let last = case.stages.len() - 1;
            case.stages.iter_mut().take(last).for_each(|blocks| *blocks = (*blocks).max(1));
            case.model.blocks = case.stages.iter().sum::<usize>() as i64;
            case.micro_batch = micro_batch;
            case.recompute = ["none", "layer", "stage"][policy as usize].to_owned();
            case.schedule = ["1F1B", "GPipe", "PipeDream", "1F1B"][schedule as usize].to_owned();
            case.precision = if bf16 { "bf16" } else { "fp32" }.to_owned();
            (case, known)
        },
    )
}

proptest! {
    /// Whatever the plan: every rank is placed once and on its own device, or there is a reason for each stage that is refused.
    #[test]
    fn plans_are_exported_whole_or_refused_with_reasons((case, known) in any_case()) {
        let (plan, model) = (case.plan(), case.model());
        for &Exporter { target, .. } in exporters() {
            match export_as("some", target, Variant::Usual, &plan, known.then_some(&model)) {
                Ok(made) => {
                    let devices: u32 = plan.stages.iter().map(|stage| stage.config.devices()).sum();
                    prop_assert_eq!(made.ranks.len() as u32, devices, "{}", target);
                    prop_assert!(!made.files.is_empty());
                    for (rank, place) in made.ranks.iter().enumerate() {
                        prop_assert_eq!(place.rank as usize, rank);
                        let config = plan.stages[place.stage].config;
                        let device = place.replica * config.tensor_degree + place.shard;
                        prop_assert_eq!(place.device.as_ref(), plan.stages[place.stage].devices.get(device as usize));
                    }
                }
                Err(refusal) => {
                    prop_assert!(!refusal.stages.is_empty(), "{}", target);
                    for refused in &refusal.stages {
                        prop_assert!(refused.stage.is_none_or(|stage| stage < plan.stages.len()));
                        prop_assert!(!refused.why.is_empty());
                    }
                    prop_assert!(target.framework != Framework::Other, "{}", refusal);
                }
            }
        }
    }
}
