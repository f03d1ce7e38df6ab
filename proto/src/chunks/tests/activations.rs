//! Activations on the host: when they leave and come, and what cannot be said of them.

use proptest::prelude::*;

use crate::bytes::Bytes;
use crate::chunks::activations::{ActivationPlace, ActivationPoints, check, on_host, place_of};
use crate::chunks::stage::ChunkedStage;
use crate::measure::run::{RunSpec, SoloStage, Work};
use crate::model::Model;
use crate::model::zoo::{Gpt2, Zoo};
use crate::training::actions::{
    Action, ActionContext, Block, Destination, Optimization, Part, StageActions, Step, Steps, Stripe, Swap,
};
use crate::training::chunk_order::ChunkOrder;
use crate::training::stage::StageConfig;
use crate::training::strategy;
use crate::training::{Optimizer, Precision, RecomputePolicy, Schedule, TrainingSpec};

fn gpt() -> Model {
    let gpt = Gpt2 {
        blocks: 2,
        hidden_size: 16,
        heads: 2,
        vocabulary_size: 50,
        sequence_length: 8,
        ..Gpt2::default()
    };
    Zoo::Gpt2(gpt).build().unwrap()
}

fn training(schedule: Schedule, recompute: RecomputePolicy, micro_batches: u32) -> TrainingSpec {
    TrainingSpec {
        micro_batch_size: 3,
        micro_batches,
        schedule,
        recompute,
        optimizer: Optimizer::default(),
        precision: Precision::Fp32,
        seed: 0,
    }
}

fn points(release_after: u32, fetch_before: u32) -> ActivationPoints {
    ActivationPoints { release_after, fetch_before }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Of every layer and micro-batch: it leaves behind the step that computed it, or of what is at an edge behind the one that
    /// read that, is there once more in front of the first step of its backward pass, and is away only where points
    /// leave a step between. All of it happens within an iteration.
    #[test]
    fn every_layer_is_away_between_its_passes(
        layers in 1_usize..5, micro_batches in 1_u32..5,
        schedule in prop_oneof![Just(Schedule::Gpipe), Just(Schedule::OneFOneB)],
        recompute in prop_oneof![Just(RecomputePolicy::None), Just(RecomputePolicy::Layer)],
        order in prop_oneof![Just(ChunkOrder::Layer), Just(ChunkOrder::MicroBatch)],
        (after, before) in (0_u32..6, 0_u32..6),
    ) {
        let steps = Steps::of_chunks(&training(schedule, recompute, micro_batches), layers, order);
        let actions = on_host(layers, recompute, points(after, before));
        let found = actions.absences(&steps);
        let at = |step: Step| steps.all().iter().position(|of| *of == step);
        let mut expected = Vec::new();
        for micro_batch in 0..micro_batches {
            for layer in 0..layers {
                let is_kept = recompute == RecomputePolicy::None;
                let back = if is_kept { Step::Backward { micro_batch, layer } } else { Step::Again { micro_batch, layer } };
                let needed = at(back).unwrap();
                let own = (Part::Own, at(Step::Forward { micro_batch, layer }));
                let above = (Part::Above, at(Step::Forward { micro_batch, layer: layer + 1 }).filter(|_| is_kept));
                for (part, left) in [own, above] {
                    let Some(left) = left else { continue };
                    let (freed, fetched) = (left + 1 + after as usize, needed.saturating_sub(before as usize));
                    if freed < fetched {
                        expected.push((left + 1, freed, fetched, needed, layer, part, Some(micro_batch)));
                    }
                }
            }
        }
        let mut found: Vec<_> = found
            .iter()
            .map(|of| (of.at.leaves, of.at.freed, of.at.fetched, of.at.needed, of.layer, of.part, of.micro_batch))
            .collect();
        prop_assert!(found.iter().all(|of| of.3 < steps.all().len()));
        found.sort_unstable();
        expected.sort_unstable();
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn where_activations_are_follows_from_what_is_done() {
    assert_eq!(place_of(&StageActions::default()), ActivationPlace::Device);
    assert_eq!(place_of(&on_host(3, RecomputePolicy::None, points(1, 1))), ActivationPlace::Host);
}

/// What is done for a policy is what can be done under it, and nothing of the other.
#[test]
fn blocks_are_those_that_the_policy_leaves() {
    let (model, stage) = (gpt(), StageConfig::single(0, 4));
    for policy in [RecomputePolicy::None, RecomputePolicy::Layer] {
        for of in [RecomputePolicy::None, RecomputePolicy::Layer] {
            let training = training(Schedule::OneFOneB, policy, 2);
            let acted =
                ActionContext { model: Some(&model), training: &training, stage: &stage, index: 0, count: 1 };
            let checked = check(&on_host(5, of, points(1, 1)), acted);
            assert_eq!(checked.is_ok(), policy == of, "{policy} {of}: {checked:?}");
        }
    }
}

/// What chunks have, other stages would have to lend, or not all micro-batches do, is refused by its field.
#[test]
fn other_actions_are_refused_by_field() {
    let (model, stage) = (gpt(), StageConfig::single(0, 4));
    let training = training(Schedule::Gpipe, RecomputePolicy::None, 2);
    let acted = ActionContext { model: Some(&model), training: &training, stage: &stage, index: 0, count: 1 };
    let swap = |block, to| Optimization::Swap(Swap { block, to, release_after: 0, fetch_before: 0 });
    let peer = Destination::Peers(vec![Stripe { stage: 1, share: Stripe::WHOLE }]);
    let cases = [
        (Optimization::Recompute, vec![], "optimizations[0].recompute"),
        (swap(Block::Activations, Destination::Host), vec![1], "optimizations[0].micro_batch_slots"),
        (swap(Block::Weights, Destination::Host), vec![], "optimizations[0].swap.block"),
        (swap(Block::Gradients, Destination::Host), vec![], "optimizations[0].swap.block"),
        (swap(Block::Optimizer, Destination::Host), vec![], "optimizations[0].swap.block"),
        (swap(Block::Activations, peer), vec![], "optimizations[0].swap.peer_stripes"),
    ];
    for (optimization, slots, field) in cases {
        let action = Action { first_layer: 0, last_layer: 4, slots, optimization };
        let actions = StageActions { actions: vec![action], ..StageActions::default() };
        let refused = check(&actions, acted).unwrap_err();
        assert_eq!(refused.violations()[0].field, field);
    }
}

/// A run in chunks may have them, and takes the memory of both on the host, of each of its ranks.
#[test]
fn a_run_takes_chunks_and_pools() {
    let chunks = ChunkedStage { staging: 1, ..ChunkedStage::on_demand(1 << 20, Bytes(1 << 30)) };
    let stage = StageConfig { data_degree: 3, ..StageConfig::single(0, 4) };
    let actions = StageActions { host_pool: Bytes(100), ..on_host(5, RecomputePolicy::None, points(1, 1)) };
    let spec = RunSpec {
        model: gpt(),
        strategy: strategy::Strategy::plain(
            training(Schedule::Gpipe, RecomputePolicy::None, 2),
            Work::Solo(SoloStage { stage, stage_count: 1, stage_index: 0 }),
        )
        .with_actions(vec![actions])
        .unwrap()
        .with_chunks(Some(Box::new(chunks))),
        iterations: 1,
        command: None,
    };
    let spec = spec.checked().unwrap();
    assert_eq!(spec.strategy.host_memory(), Bytes(3 * ((1 << 30) + 100)));
    let weights = Swap { block: Block::Weights, to: Destination::Host, release_after: 1, fetch_before: 1 };
    let mut other = spec;
    other.strategy.stages[0].actions.actions[0].optimization = Optimization::Swap(weights);
    let refused = other.checked().unwrap_err();
    assert_eq!(refused.violations()[0].field, "stage_memory_optimizations[0].optimizations[0].swap.block");
}
