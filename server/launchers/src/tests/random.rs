//! Random plans: what is exported says the plan once more, read by the framework's published grammar.

use loadmaster_proto::plan::objective::Framework;
use proptest::prelude::*;

use super::{ask, case};
use loadmaster_samples::{CutTransformer, DescribedTransformer};

fn cases() -> impl Strategy<Value = CutTransformer> {
    let stages = proptest::collection::vec(0_usize..5, 1..6)
        .prop_filter("a block", |stages| stages.iter().sum::<usize>() > 0);
    (stages, 1_u32..4, 1_u32..4, 1_u32..4, 1_u32..9, any::<bool>()).prop_map(
        |(mut stages, tensor, data, micro_batch, micro_batches, tied)| {
            // No stage is empty: between the ends each has a block.
            let last = stages.len() - 1;
            stages
                .iter_mut()
                .enumerate()
                .filter(|(at, _)| *at != 0 && *at != last)
                .for_each(|(_, blocks)| *blocks = (*blocks).max(1));
            if stages.iter().sum::<usize>() == 0 {
                stages[0] = 1;
            }
            let case = case(stages, tensor.into(), data.into());
            let model = DescribedTransformer { tied, dropout: 0.1, ..case.model };
            CutTransformer { model, micro_batch, micro_batches, ..case }
        },
    )
}

/// Blocks, embeddings and heads of each stage of a Megatron layout.
fn read_layout(layout: &str) -> Vec<(usize, usize, usize)> {
    let count = |stage: &str, letter: char| stage.chars().filter(|&c| c == letter).count();
    layout.split('|').map(|stage| (count(stage, 't'), count(stage, 'E'), count(stage, 'L'))).collect()
}

proptest! {
    /// Megatron's layout, sizes and batch are the plan's, and its ranks are numbered as it numbers them.
    #[test]
    fn megatron_is_told_the_plan(case in cases()) {
        let (plan, model) = (case.plan(), case.model());
        let made = ask(Framework::Megatron, "", &plan, Some(&model)).unwrap();
        let value = |flag: &str| {
            let at = made.command.iter().position(|word| word == flag);
            at.map(|at| made.command[at + 1].as_str())
        };
        let stages = case.stages.len();
        if let Some(layout) = value("--pipeline-model-parallel-layout") {
            let read = read_layout(layout);
            let blocks: Vec<usize> = read.iter().map(|of| of.0).collect();
            prop_assert_eq!(&blocks, &case.stages);
            let ends: Vec<(usize, usize)> = read.iter().map(|of| (of.1, of.2)).collect();
            let expected: Vec<(usize, usize)> =
                (0..stages).map(|at| (usize::from(at == 0), usize::from(at + 1 == stages))).collect();
            prop_assert_eq!(ends, expected);
        } else {
            // Megatron's default: all stages have the same number of blocks.
            prop_assert!(case.stages.iter().all(|blocks| blocks * stages == case.stages.iter().sum::<usize>()));
        }
        let number = |flag: &str| value(flag).unwrap().parse::<u32>().unwrap();
        prop_assert_eq!(number("--pipeline-model-parallel-size") as usize, stages);
        prop_assert_eq!(number("--tensor-model-parallel-size"), case.tensor.of(0));
        // As many micro-batches as the framework makes of these.
        let per_step = number("--micro-batch-size") * case.data.of(0);
        prop_assert_eq!(number("--global-batch-size") / per_step, case.micro_batches);
        prop_assert_eq!(made.ranks.len() as u32, case.tensor.of(0) * case.data.of(0) * stages as u32);
        // tp is the fastest of its axes, then dp, then pp.
        let mut next = made.ranks.iter();
        for stage in 0..stages {
            for replica in 0..case.data.of(0) {
                for shard in 0..case.tensor.of(0) {
                    let place = next.next().unwrap();
                    prop_assert_eq!((place.stage, place.replica, place.shard), (stage, replica, shard));
                }
            }
        }
        prop_assert!(made.ranks.iter().enumerate().all(|(at, place)| place.rank as usize == at));
    }

    /// What cannot be expressed is refused, each stage by its number, and nothing is rounded.
    #[test]
    fn other_degrees_are_refused(case in cases(), which in any::<proptest::sample::Index>()) {
        prop_assume!(case.stages.len() > 1);
        let (mut plan, model) = (case.plan(), case.model());
        let which = which.index(plan.stages.len() - 1) + 1;
        plan.stages[which].config.tensor_degree += 1;
        let refusal = ask(Framework::Megatron, "", &plan, Some(&model)).unwrap_err();
        prop_assert_eq!(refusal.stages.len(), 1);
        prop_assert_eq!(refusal.stages[0].stage, Some(which));
        prop_assert!(refusal.to_string().contains("megatron@0.17"), "{}", refusal);
    }
}
