//! The recomputation that a framework may be asked for, against requests and against its export.

use std::ops::RangeInclusive;

use loadmaster_proto::model::Model;
use loadmaster_proto::model::zoo::{Gpt2, Llama, Zoo};
use loadmaster_proto::plan::objective::Framework;
use loadmaster_proto::training::RecomputePolicy;
use loadmaster_proto::training::actions::{StageActions, StagedAction};
use loadmaster_samples::CutTransformer;

use super::ask;
use super::recomputation::{SAYING, cut};
use crate::{Choices, CutUnit, Runs, rules};

/// Embedding, five blocks, norm and head, on stages that have two and three blocks.
const STAGES: [RangeInclusive<usize>; 2] = [0..=2, 3..=7];

fn gpt() -> Model {
    Zoo::Gpt2(Gpt2 { blocks: 5, ..Gpt2::default() }).build().unwrap()
}

fn actions(texts: [&[&str]; 2]) -> Vec<StageActions> {
    let of = |(stage, texts): (usize, &&[&str])| StageActions {
        actions: texts
            .iter()
            .map(|text| format!("{stage}/{text}").parse().map(|staged: StagedAction| staged.action))
            .collect::<Result<_, _>>()
            .unwrap(),
        ..StageActions::default()
    };
    texts.iter().enumerate().map(of).collect()
}

/// The field that is refused of these actions; none where the framework can say them.
fn refused(framework: Framework, model: &Model, texts: [&[&str]; 2]) -> Option<String> {
    let checked = rules(framework).check_recomputed(Some(model), &STAGES, &actions(texts));
    checked.err().map(|invalid| invalid.violations()[0].field.clone())
}

#[test]
fn megatron_counts_alike_from_the_first_block_of_every_stage() {
    let Some(Choices::Alike(all)) = rules(Framework::Megatron).recomputing.choices(Some(&gpt()), &STAGES)
    else {
        panic!("all stages do the same");
    };
    let of = |first: &[RangeInclusive<usize>], second: &[RangeInclusive<usize>]| {
        vec![first.to_vec(), second.to_vec()]
    };
    assert_eq!(
        all,
        [
            of(&[], &[]),
            of(&[1..=1], &[3..=3]),
            of(&[1..=1, 2..=2], &[3..=3, 4..=4]),
            of(&[1..=1, 2..=2], &[3..=3, 4..=4, 5..=5]),
        ],
        "no number but one divides two and three"
    );
    let even = rules(Framework::Megatron).recomputing.choices(Some(&gpt()), &[0..=2, 3..=4]);
    let Some(Choices::Alike(all)) = even else { panic!("all stages do the same") };
    assert_eq!(all.last(), Some(&of(&[1..=2], &[3..=4])));
}

#[test]
fn what_a_framework_cannot_say_is_refused_by_stage_or_action() {
    let (gpt, llama) = (gpt(), Zoo::Llama(Llama { blocks: 5, ..Llama::default() }).build().unwrap());
    let one: [&[&str]; 2] = [&["1=recompute"], &["3=recompute"]];
    let unlike: [&[&str]; 2] = [&["1=recompute", "2=recompute"], &["3=recompute"]];
    let all: [&[&str]; 2] = [&["1=recompute", "2=recompute"], &["3=recompute", "4=recompute", "5=recompute"]];
    let whole: [&[&str]; 2] = [&["0..2=recompute"], &["3..7=recompute"]];
    let at = |stage: usize| Some(format!("memory.stage_memory_optimizations[{stage}]"));
    for (framework, texts, field) in [
        (Framework::Megatron, one, None),
        (Framework::Megatron, unlike, at(0)),
        (Framework::Megatron, [&["1=recompute"], &["4=recompute"]], at(1)),
        (Framework::Megatron, [&["1=recompute"], &[]], at(0)),
        (Framework::Megatron, whole, at(0)),
        (Framework::Galvatron, [&["2=recompute"], &["4=recompute"]], None),
        (Framework::Galvatron, [&[], &["3..4=recompute"]], at(1)),
        (Framework::ColossalAi, unlike, at(1)),
        (Framework::ColossalAi, all, None),
        (Framework::Torchtitan, all, None),
        (Framework::Torchtitan, one, at(0)),
        (Framework::Torchgpipe, whole, None),
        (Framework::Deepspeed, whole, None),
        (Framework::Deepspeed, all, at(0)),
        (Framework::Other, [&["0..1@0=recompute"], &[]], None),
    ] {
        assert_eq!(refused(framework, &gpt, texts), field, "{framework} {texts:?}");
    }
    assert_eq!(refused(Framework::ColossalAi, &llama, unlike), None);
    let slots = refused(Framework::Galvatron, &gpt, [&[], &["3=recompute", "4@0=recompute"]]);
    assert_eq!(
        slots.as_deref(),
        Some("memory.stage_memory_optimizations[1].optimizations[1].micro_batch_slots")
    );
    // A tied head alone is nothing that DeepSpeed recomputes.
    let every: [&[&str]; 2] = [
        &["0=recompute", "1=recompute", "2=recompute"],
        &["3=recompute", "4=recompute", "5=recompute", "6=recompute"],
    ];
    assert_eq!(refused(Framework::Deepspeed, &gpt, every), None);
}

#[test]
fn what_a_framework_cannot_do_is_told_in_words() {
    let actions = actions([&["1=activations:host"], &["4=recompute"]]);
    let told = rules(Framework::Megatron).broken_by(Some(&gpt()), &STAGES, &actions);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].contains("(1=activations:host)") && told[1].contains("4=recompute"), "{told:?}");
    assert!(rules(Framework::Other).broken_by(Some(&gpt()), &STAGES, &actions).is_empty());
}

/// Whatever may be chosen for a framework is exported for it: what a search tries is what its files can say.
#[test]
fn every_choice_of_a_framework_is_exported() {
    let mut exported = 0;
    for framework in SAYING {
        for (is_llama, stages) in
            [(false, vec![2, 3]), (true, vec![4, 2]), (true, vec![1, 5, 2]), (true, vec![6])]
        {
            let stages = if framework == Framework::Trainer { vec![stages.iter().sum()] } else { stages };
            let case = cut(framework, stages, is_llama, framework == Framework::Deepspeed);
            let (plan, model) = (case.plan(), case.model());
            let layers: Vec<_> = plan.stages.iter().map(|stage| stage.config.layers()).collect();
            let all = match rules(framework).recomputing.choices(Some(&model), &layers) {
                Some(Choices::Alike(all)) => all,
                // The first stages do more than the last.
                Some(Choices::Each(each)) => {
                    let most = each.iter().map(Vec::len).max().unwrap_or(0);
                    let of = |turn: usize| {
                        let stage = |(stage, of): (usize, &Vec<Runs>)| {
                            of[turn.saturating_sub(stage).min(of.len() - 1)].clone()
                        };
                        each.iter().enumerate().map(stage).collect()
                    };
                    (0..most).map(of).collect()
                }
                None => panic!("{framework} can say anything"),
            };
            assert!(all.len() > 1, "{framework}");
            for runs in all {
                let mut plan = plan.clone();
                for (stage, runs) in plan.stages.iter_mut().zip(&runs) {
                    stage.actions = StageActions::recomputing(runs);
                }
                let made = ask(framework, "", &plan, Some(&model));
                made.unwrap_or_else(|refusal| panic!("{framework} {runs:?}: {refusal}"));
                exported += 1;
            }
        }
    }
    assert!(exported > 60, "{exported}");
}

/// A policy and a precision are taken of a question exactly where the plan can be exported.
#[test]
fn policies_and_precisions_are_taken_where_they_are_exported() {
    let (mut exported, mut refused) = (0, 0);
    for framework in SAYING {
        for stages in [vec![2, 3], vec![3, 3], vec![5], vec![1, 1, 1]] {
            let stages = if framework == Framework::Trainer { vec![stages.iter().sum()] } else { stages };
            for (precision, policy) in ["fp32", "bf16"]
                .into_iter()
                .flat_map(|precision| RecomputePolicy::ALL.into_iter().map(move |policy| (precision, policy)))
            {
                let case = CutTransformer {
                    precision: precision.to_owned(),
                    recompute: policy.to_string(),
                    ..cut(framework, stages.clone(), false, framework == Framework::Deepspeed)
                };
                let (plan, model) = (case.plan(), case.model());
                let layers: Vec<_> = plan.stages.iter().map(|stage| stage.config.layers()).collect();
                let rules = rules(framework).in_precision(plan.training.precision);
                let is_cut = layers.len() > 1;
                let may = rules.check_policies(("problem.recompute", &[policy]), Some(&model), Some(&layers));
                let is_taken = may.is_ok() && !(is_cut && rules.cut == CutUnit::Nowhere);
                let made = ask(framework, "", &plan, Some(&model));
                let told = made.as_ref().err().map(ToString::to_string);
                assert_eq!(
                    is_taken,
                    made.is_ok(),
                    "{framework} {stages:?} {precision} {policy}: {may:?} {told:?}"
                );
                *(if is_taken { &mut exported } else { &mut refused }) += 1;
            }
        }
    }
    assert!(exported > 150 && refused > 50, "{exported} {refused}");
}

/// Where stages are not given it is not known whether they will have equally many blocks.
#[test]
fn whole_stages_of_megatron_must_be_given() {
    const STAGE: (&str, &[RecomputePolicy]) = ("constraints.recompute_policies", &[RecomputePolicy::Stage]);
    let rules = rules(Framework::Megatron);
    assert!(rules.check_policies(STAGE, Some(&gpt()), Some(&[0..=7])).is_ok());
    assert!(rules.check_policies(STAGE, None, None).is_ok(), "its blocks are not known");
    let told = rules.check_policies(STAGE, Some(&gpt()), None).unwrap_err().to_string();
    assert!(
        told.contains("constraints.recompute_policies") && told.contains("`constraints.pipeline_layout`"),
        "{told}"
    );
    let uneven = rules.check_policies(STAGE, Some(&gpt()), Some(&STAGES));
    assert!(uneven.is_err());
}
