//! What frameworks hold besides, counted a second time: from shapes by hand, and pass by pass.

use std::collections::BTreeSet;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::model::Model;
use loadmaster_proto::model::zoo::{Bert, Zoo};
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::objective::Framework;
use loadmaster_proto::plan::prediction::{Breakdown, Interval, Verdict};
use loadmaster_proto::training::schedule::Pass;
use loadmaster_proto::training::{Precision, Schedule};
use loadmaster_proto::warning::Warning;
use proptest::prelude::*;

use super::reasons::any_case;
use super::{ask, case, export_as};
use crate::{AddedCause, Export, Exporter, StageMemory, Target, Variant, exporters};

fn exported(target: &str, plan: &Plan, model: &Model) -> Export {
    let (framework, version) = target.split_once('@').unwrap_or((target, ""));
    let target = Target::of(framework.parse().unwrap(), version).unwrap();
    let made = export_as("some", target, Variant::Usual, plan, Some(model));
    made.unwrap_or_else(|refusal| panic!("{refusal}"))
}

/// Bytes by cause, of each stage.
fn added(target: &str, plan: &Plan, model: &Model) -> Vec<Vec<(&'static str, u64)>> {
    let made = exported(target, plan, model);
    let of = |stage: &StageMemory| stage.added.iter().map(|of| (of.cause.as_str(), of.bytes.0)).collect();
    made.memory.expect("this framework's memory is known").iter().map(of).collect()
}

// Samples of a replica, tokens, hidden size and vocabulary of `case`.
const SAMPLES: u64 = 12;
const TOKENS: u64 = 16;
const HIDDEN: u64 = 24;
const ROWS: u64 = 100;

/// A GPT-2 on four stages of two replicas, four micro-batches in bf16: what crosses an edge has 2 bytes a value, and a parameter takes
/// 2 and 4 bytes, its gradient 4, the momentum of SGD 4.
#[test]
fn gpt_under_1f1b_is_counted_by_hand() {
    let case = case(vec![1, 2, 1, 1], 1.into(), 2.into());
    let (plan, model) = (case.plan(), case.model());
    let hidden = SAMPLES * TOKENS * HIDDEN * 2;
    let logits = SAMPLES * TOKENS * ROWS * 2;
    let in_flight = [4, 3, 2, 1];
    let parameter = 2 + 4 + 4 + 4;
    let deepspeed = [
        vec![("outputs", 4 * hidden), ("gradients", hidden)],
        vec![("outputs", 3 * hidden), ("gradients", hidden), ("inputs", 4 * hidden)],
        vec![("outputs", 2 * hidden), ("gradients", hidden), ("inputs", 3 * hidden)],
        // Learned positions come with the table of the tied head.
        vec![("outputs", 2 * logits), ("inputs", 2 * hidden), ("parameters", TOKENS * HIDDEN * parameter)],
    ];
    assert_eq!(added("deepspeed", &plan, &model), deepspeed);
    let older = in_flight.map(|in_flight| {
        let mut own = vec![("outputs", in_flight * hidden), ("gradients", 4 * hidden)];
        own.extend((in_flight < 4).then_some(("inputs", (4 - in_flight) * hidden)));
        own
    });
    let last = vec![("outputs", 4 * logits), ("inputs", 3 * hidden)];
    assert_eq!(added("torch-pipelining@2.8", &plan, &model), [&older[..3], &[last]].concat());
    let newer = vec![("outputs", hidden), ("gradients", hidden)];
    let last = vec![("outputs", 4 * logits)];
    assert_eq!(
        added("torch-pipelining@2.15", &plan, &model),
        [newer.clone(), newer.clone(), newer, last.clone()]
    );
    // 128 rows where there were 100: on the first stage the table, on the last one its copy and its logits.
    let rows = 28 * HIDDEN * parameter;
    let padded_logits = 28 * TOKENS * SAMPLES * (4 + 2);
    // Behind the first stage also the gradient that was sent last.
    let megatron = [
        vec![("gradients", hidden), ("vocabulary", rows)],
        vec![("gradients", hidden), ("gradients", hidden)],
        vec![("gradients", hidden), ("gradients", hidden)],
        vec![("gradients", hidden), ("vocabulary", rows + padded_logits)],
    ];
    for target in ["megatron", "accelerate", "megatron-bridge"] {
        assert_eq!(added(target, &plan, &model), megatron, "{target}");
    }
    let colossal = in_flight.map(|in_flight| vec![("outputs", in_flight * hidden), ("gradients", hidden)]);
    // Of a table that both ends share, and padded to 64 rows.
    let found = added("colossal-ai", &plan, &model);
    assert_eq!(found[1..3], colossal[1..3]);
    assert_eq!(found[3], [("vocabulary", rows + padded_logits)]);
    assert_eq!(added("other", &plan, &model), vec![Vec::new(); 4]);
}

/// Shards have a part of the rows each: 256 where there were 100, 128 instead of 50; in 2 bytes gradients are 2 bytes narrower than
/// where a framework adds them up in fp32.
#[test]
fn shards_and_formats_are_counted_by_hand() {
    let case = case(vec![1, 1], 2.into(), 1.into());
    let (mut plan, model) = (case.plan(), case.model());
    plan.training.precision = Precision::Bf16;
    let hidden = SAMPLES * TOKENS * HIDDEN * 2;
    let rows = 78 * HIDDEN * (2 + 4 + 2 + 4);
    let logits = 78 * TOKENS * SAMPLES * (4 + 2);
    let ends = [vec![("vocabulary", rows)], vec![("vocabulary", rows + logits)]];
    // Of its outputs on the first, and of the inputs that it sent last on the other.
    let expected = ends.map(|own| [vec![("gradients", hidden)], own].concat());
    // A block: queries, keys, values and their biases, halved; the output's map halved and its bias whole; both maps of the
    // MLP halved, the second one's bias whole; two norms. Then half the table and positions; a norm and half the table.
    let block = (3 * HIDDEN * HIDDEN + 3 * HIDDEN + HIDDEN * HIDDEN + 8 * HIDDEN * HIDDEN + 4 * HIDDEN) / 2
        + 2 * HIDDEN
        + 4 * HIDDEN;
    let table = ROWS / 2 * HIDDEN;
    let own = [block + table + TOKENS * HIDDEN, block + 2 * HIDDEN + table];
    // Megatron's optimizer copies gradients of 2 bytes to fp32 for its step, those of padded rows too.
    let step = own.map(|own| 4 * (own + 78 * HIDDEN));
    let with_step = |of: usize, bytes: u64| [&expected[of][..], &[("gradients of the step", bytes)]].concat();
    for its_optimizer in ["megatron", "accelerate"] {
        assert_eq!(added(its_optimizer, &plan, &model), [with_step(0, step[0]), with_step(1, step[1])]);
    }
    // What lies between the passes at the peak is gone by then: on the first stage all but 5 bytes of the copies.
    let mut with_parts = plan.clone();
    let parts = [(step[0] - 5, 0), (7, step[1])];
    for (stage, (activations, edges)) in with_parts.stages.iter_mut().zip(parts) {
        stage.breakdown = Some(Breakdown { activations, edges, ..Breakdown::default() });
    }
    assert_eq!(added("megatron", &with_parts, &model), [with_step(0, 5), expected[1].clone()]);
    let wider = own.map(|own| 2 * own);
    for (stage, (found, wider)) in added("megatron-bridge", &plan, &model).iter().zip(wider).enumerate() {
        let others: Vec<_> = found.iter().filter(|of| of.0 != "wider gradients").copied().collect();
        assert_eq!(others, expected[stage]);
        assert_eq!(found.last(), Some(&("wider gradients", wider)), "stage {stage}");
    }
}

/// The same GPT-2 on two devices with two interleaved stages each: a device holds the state of both its stages.
/// Of their tensors it holds those of one stage at a time. These are the output of its last forward pass, the input of
/// its next one, the gradient that it works on, the one that it sent, and one more input with its gradient.
#[test]
fn stages_in_turn_are_counted_by_device() {
    let mut case = case(vec![1, 2, 1, 1], 1.into(), 2.into());
    case.virtual_stages = 2;
    let (mut plan, model) = (case.plan(), case.model());
    plan.training.precision = Precision::Bf16;
    let hidden = SAMPLES * TOKENS * HIDDEN * 2;
    let between =
        [("outputs", hidden), ("gradients", hidden), ("gradients", 2 * hidden), ("inputs", 2 * hidden)];
    let rows = 28 * HIDDEN * (2 + 4 + 2 + 4);
    // The last stage has one micro-batch in flight.
    let logits = 28 * TOKENS * SAMPLES * (4 + 2);
    let expected = [
        [&between[..], &[("vocabulary", rows)]].concat(),
        [&between[..], &[("vocabulary", rows + logits)]].concat(),
    ];
    let parameters = |stage: usize| -> u64 {
        model.rank_parameters(&plan.stages[stage].config, 0).iter().map(|of| of.elements()).sum()
    };
    for (device, found) in added("megatron", &plan, &model).iter().enumerate() {
        let step = 4 * (parameters(device) + parameters(device + 2) + 28 * HIDDEN);
        assert_eq!(*found, [&expected[device][..], &[("gradients of the step", step)]].concat());
    }
    for (device, found) in added("megatron-bridge", &plan, &model).iter().enumerate() {
        let wider = 2 * (parameters(device) + parameters(device + 2));
        assert_eq!(found.last(), Some(&("wider gradients", wider)), "device {device}");
        assert_eq!(found[..5], expected[device]);
    }
    assert_eq!(added("other", &plan, &model), vec![Vec::new(); 2]);
    let memory = exported("megatron", &plan, &model).memory.unwrap();
    let least = memory[1].total();
    (1..4).step_by(2).for_each(|stage| plan.stages[stage].capacity = least.0 - 1024);
    let made = exported("megatron", &plan, &model);
    let verdicts: Vec<Verdict> = made.memory.iter().flatten().map(StageMemory::verdict).collect();
    assert_eq!(verdicts, [Verdict::Uncertain, Verdict::DoesNotFit]);
    let told = made.warnings.iter().find(|warning| warning.message.contains("does not fit")).unwrap();
    assert!(told.message.starts_with("stage 1, interleaved with 3, does not fit with megatron"), "{told}");
}

/// A BERT of three blocks on three stages: embedding and a block, a block, and the last one with pooler, dropout and classifier.
#[test]
fn bert_under_gpipe_is_counted_by_hand() {
    let bert =
        Bert { blocks: 3, hidden_size: 32, heads: 4, sequence_length: 10, classes: 7, ..Bert::default() };
    let model = Zoo::Bert(bert).build().unwrap();
    let mut case = case(vec![1, 1, 1], 1.into(), 1.into());
    case.schedule = "GPipe".to_owned();
    case.precision = "fp32".to_owned();
    (case.micro_batch, case.micro_batches) = (6, 5);
    let mut plan = case.plan();
    let ends = [(0, 1), (2, 2), (3, model.layers().len() - 1)];
    for (stage, (first, last)) in plan.stages.iter_mut().zip(ends) {
        (stage.config.first_layer, stage.config.last_layer) = (first, last);
    }
    let (hidden, classes) = (6 * 10 * 32 * 4, 6 * 7 * 4);
    let all = vec![("outputs", 5 * hidden), ("gradients", 5 * hidden)];
    let expected = [all.clone(), all, vec![("outputs", 5 * classes)]];
    // All micro-batches are in flight, so that no buffer is empty meanwhile.
    assert_eq!(added("torch-pipelining@2.8", &plan, &model), expected);
    let newer = vec![("outputs", 5 * hidden), ("gradients", hidden)];
    assert_eq!(
        added("torch-pipelining@2.15", &plan, &model),
        [newer.clone(), newer, vec![("outputs", 5 * classes)]]
    );
    let batch = [Vec::new(), Vec::new(), vec![("outputs", 5 * classes), ("gradients", 5 * classes)]];
    assert_eq!(added("torchgpipe", &plan, &model), batch);
}

/// A framework of which it is not known what the model's shapes take is uncertain and says why.
#[test]
fn unknown_memory_of_a_framework_is_uncertain() {
    let case = case(vec![1, 1], 1.into(), 1.into());
    let plan = case.plan();
    let made = |framework: Framework| ask(framework, "", &plan, None).unwrap();
    let unknown = made(Framework::Deepspeed);
    assert_eq!((unknown.verdict(), &unknown.memory), (Verdict::Uncertain, &None));
    assert!(
        unknown.warnings.iter().any(|why| why.message.contains("is not known, so the plan may not fit")),
        "{:?}",
        unknown.warnings
    );
    // A program of one's own holds what the plan says, whatever the model is.
    assert_eq!(made(Framework::Other).verdict(), Verdict::Uncertain);
}

/// A plan that a framework makes too large is exported all the same, says which stage lacks how much, and under which verdict.
#[test]
fn a_stage_that_no_longer_fits_is_named() {
    let case = case(vec![2, 3], 1.into(), 2.into());
    let (mut plan, model) = (case.plan(), case.model());
    let first = exported("deepspeed", &plan, &model).memory.unwrap()[0].added_bytes();
    let (peak, margin) = (1 << 20, 0.01);
    for stage in &mut plan.stages {
        (stage.predicted_peak, stage.capacity) = (peak, 1 << 21);
        stage.interval = Some(Interval::around(Bytes(peak), margin));
    }
    let high = Interval::around(Bytes(peak), margin).high;
    let at = |plan: &mut Plan, capacity: u64| {
        plan.stages[0].capacity = capacity;
        let made = exported("deepspeed", plan, &model);
        let stages: Vec<Verdict> = made.memory.iter().flatten().map(StageMemory::verdict).collect();
        assert_eq!(stages[1], Verdict::Fits);
        assert_eq!(made.verdict(), stages[0], "the worst of its stages");
        let is_of_memory = |warning: &&Warning| warning.message.contains("fit with deepspeed");
        let told: Vec<Warning> = made.warnings.iter().filter(is_of_memory).cloned().collect();
        assert_eq!(told, made.memory_warnings(plan));
        let told: Vec<String> = told.into_iter().map(|of| of.message).collect();
        assert!(!made.files.is_empty());
        (stages[0], told)
    };
    assert_eq!(at(&mut plan, high.0 + first.0), (Verdict::Fits, Vec::new()));
    for (capacity, lack) in [(high.0 + first.0 - 1, 1), (peak + first.0, high.0 - peak)] {
        let (verdict, told) = at(&mut plan, capacity);
        assert_eq!((verdict, told.len()), (Verdict::FitsWithoutMargin, 1));
        assert!(told[0].starts_with("stage 0 may not fit with deepspeed"), "{told:?}");
        assert!(told[0].ends_with(&format!("needs {} more than the device has", Bytes(lack))), "{told:?}");
    }
    let (verdict, told) = at(&mut plan, peak + first.0 - 1024);
    assert_eq!((verdict, told.len()), (Verdict::DoesNotFit, 1));
    assert!(told[0].starts_with("stage 0 does not fit with deepspeed"), "{told:?}");
    assert!(told[0].contains(&format!("are {} more than", Bytes(1024))), "{told:?}");
}

/// The most outputs that are there at once where each is let go of behind its backward pass.
fn most_held(schedule: Schedule, (stages, stage): (u32, u32), micro_batches: u32) -> u64 {
    let mut open = BTreeSet::new();
    let most = schedule.passes(stages, stage, micro_batches).into_iter().map(|pass| {
        match pass {
            Pass::Forward(index) => drop(open.insert(index)),
            Pass::Backward(index) => assert!(open.contains(&index)),
        }
        let held = open.len() as u64;
        if let Pass::Backward(index) = pass {
            open.remove(&index);
        }
        held
    });
    most.max().unwrap_or(0)
}

proptest! {
    /// No framework's memory is below the plan's. A framework that holds outputs up to their backward passes holds as
    /// many as a walk through the passes finds. A program of one's own holds nothing more.
    #[test]
    fn nothing_is_less_than_the_plan((case, _) in any_case()) {
        let (mut plan, model) = (case.plan(), case.model());
        for (index, stage) in plan.stages.iter_mut().enumerate() {
            stage.predicted_peak = 1_000 * (index as u64 + 1);
            stage.interval = (index % 2 == 0).then(|| Interval::around(Bytes(stage.predicted_peak), 0.1));
        }
        let count = plan.stages.len() as u32;
        for &Exporter { target, .. } in exporters() {
            let made = export_as("some", target, Variant::Usual, &plan, Some(&model));
            let Ok(Export { memory: Some(memory), .. }) = made else { continue };
            prop_assert_eq!(memory.len(), plan.stages.len());
            for (index, (of, stage)) in memory.iter().zip(&plan.stages).enumerate() {
                let sum: u64 = of.added.iter().map(|added| added.bytes.0).sum();
                prop_assert_eq!(of.predicted.0, stage.predicted_peak);
                prop_assert_eq!(of.total().0, stage.predicted_peak + sum);
                prop_assert_eq!(of.most().map(|most| most.0 - sum), stage.interval.map(|interval| interval.high.0));
                prop_assert!(of.added.iter().all(|added| added.bytes.0 > 0 && !added.counted.is_empty()));
                prop_assert!(target.framework != Framework::Other || sum == 0);
                let is_last = index + 1 == memory.len();
                let keeps = matches!(
                    target.framework,
                    Framework::Deepspeed | Framework::ColossalAi | Framework::Galvatron
                );
                if keeps && !is_last && memory.len() > 1 {
                    let config = stage.config;
                    let samples = u64::from(plan.training.micro_batch_size.div_ceil(config.data_degree));
                    let each = samples * TOKENS * HIDDEN * plan.training.precision.scalar_bytes();
                    let held =
                        most_held(plan.training.schedule, (count, index as u32), plan.training.micro_batches);
                    // Nothing is flushed: in the long run as many are in flight as stages follow.
                    let held = if plan.training.schedule == Schedule::PipeDream {
                        u64::from(count) - index as u64
                    } else {
                        held
                    };
                    let outputs = of.added.iter().filter(|added| added.cause == AddedCause::HeldOutputs);
                    prop_assert_eq!(outputs.map(|added| added.bytes.0).sum::<u64>(), held * each, "{}", target);
                }
            }
        }
    }
}
