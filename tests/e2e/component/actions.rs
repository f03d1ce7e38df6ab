//! Stages that do random memory actions against real ranks: the device, the host and what is set aside for others, to the
//! byte.

use loadmaster_predict::PipelineActions;
use loadmaster_proto::measure::offload::{CopyCount, Offload};
use loadmaster_proto::training::actions::{
    Action, ActionContext, Block, Destination, Optimization, StageActions, Stripe, Swap,
};
use loadmaster_proto::training::stage::Partitioning;
use loadmaster_tests::Sampler;

use super::*;

pub(super) fn pick<T: Copy>(dice: &mut Sampler, of: &[T]) -> T {
    of[dice.below(of.len())]
}

fn one_in(dice: &mut Sampler, count: usize) -> bool {
    dice.below(count) == 0
}

/// Random actions that can be done in a stage; blocks go to the host, or to these stages as well.
pub(super) fn actions(
    model: &Model,
    training: &TrainingSpec,
    position: &SoloStage,
    peers: &[u32],
    dice: &mut Sampler,
) -> StageActions {
    let SoloStage { stage, stage_count, stage_index } = position;
    let of = ActionContext { model: Some(model), training, stage, index: *stage_index, count: *stage_count };
    let in_flight = training.schedule.in_flight(*stage_count, *stage_index, training.micro_batches);
    let mut all = StageActions::default();
    let count = 1 + dice.below(6);
    for _ in 0..20 * count {
        if all.actions.len() == count {
            break;
        }
        let first_layer = stage.first_layer + dice.below(stage.layer_count());
        let last_layer = first_layer + dice.below(stage.last_layer - first_layer + 1);
        let optimization = if one_in(dice, 3) {
            Optimization::Recompute
        } else {
            let block = pick(
                dice,
                &[
                    Block::Activations,
                    Block::Activations,
                    Block::Activations,
                    Block::Inputs,
                    Block::Versions,
                    Block::Weights,
                    Block::Gradients,
                    Block::Optimizer,
                ],
            );
            Optimization::Swap(Swap {
                block,
                to: destination(peers, dice),
                release_after: dice.below(4) as u32,
                fetch_before: dice.below(4) as u32,
            })
        };
        let is_shared = matches!(&optimization, Optimization::Swap(swap) if !swap.block.is_of_micro_batch());
        let slots = (0..in_flight).filter(|_| one_in(dice, 2)).collect();
        let slots = if is_shared || one_in(dice, 2) { Vec::new() } else { slots };
        let mut tried = all.clone();
        tried.actions.push(Action { first_layer, last_layer, slots, optimization });
        if tried.check(of).is_ok() {
            all = tried;
        }
    }
    all
}

fn destination(peers: &[u32], dice: &mut Sampler) -> Destination {
    if peers.is_empty() || one_in(dice, 2) {
        return Destination::Host;
    }
    let first = pick(dice, peers);
    let second = peers.iter().copied().find(|&peer| peer != first).filter(|_| one_in(dice, 2));
    let share = 1 + dice.below(9_998) as u32;
    Destination::Peers(match second {
        None => vec![Stripe { stage: first, share: Stripe::WHOLE }],
        Some(second) => {
            vec![Stripe { stage: first, share }, Stripe { stage: second, share: Stripe::WHOLE - share }]
        }
    })
}

/// A run's stages with their actions, pools as large as predicted.
pub(super) struct ActedRun {
    runs: Vec<Run>,
    stages: PipelineActions,
}

impl ActedRun {
    pub(super) fn new(
        model: &Model,
        component: &Component,
        runs: Vec<Run>,
        actions: &[StageActions],
    ) -> Self {
        let settings: Vec<StageSetting> = runs
            .iter()
            .map(|run| {
                let SoloStage { stage, stage_count, stage_index } = run.position;
                StageSetting { stage, stage_index, stage_count, training: run.training }
            })
            .collect();
        let stages = PipelineActions::of(component, Some(model), &settings, actions).unwrap();
        Self { runs, stages }
    }

    /// What differs between what was predicted and what was measured, for people.
    pub(super) fn differences(&self, model: &Model) -> Vec<String> {
        let measured = self.train(model);
        let mut differences = Vec::new();
        for (index, measured) in measured.iter().enumerate() {
            let run = &self.runs[index];
            let predicted = self.stages.prediction(index).unwrap();
            let acted = &self.stages.acted[index];
            let offload = measured.offload.as_deref().cloned().unwrap_or_default();
            let expected =
                [predicted.bytes.0, acted.host_peak(), acted.pools.iter().map(|pool| pool.moved_bytes).sum()];
            let out = |offload: &Offload| offload.copies.iter().map(|copies| copies.out_bytes).sum();
            let places = |copies: &[CopyCount]| copies.iter().map(|copies| copies.peer).collect::<Vec<_>>();
            let predicted_copies = self.stages.offload(index, |_| 0.0).unwrap_or_default().copies;
            assert_eq!(places(&offload.copies), places(&predicted_copies), "where blocks go");
            let found = [measured.peak_allocated.0, offload.host_peak.0, out(&offload)];
            if expected != found {
                let SoloStage { stage, stage_count, stage_index } = run.position;
                let listed: Vec<String> =
                    self.stages.actions[index].actions.iter().map(ToString::to_string).collect();
                differences.push(format!(
                    "{} {stage} ({stage_index} of {stage_count}) {} {} of {} steps, {listed:?}: device, host and moved \
                     bytes {expected:?} predicted, {found:?} measured; {:?}",
                    model.family(),
                    run.training.schedule,
                    run.training.precision,
                    acted.steps.all().len(),
                    predicted.breakdown
                ));
            }
        }
        differences
    }

    fn train(&self, model: &Model) -> Vec<Measurement> {
        let folder = tempfile::Builder::new().prefix("lma").tempdir().unwrap();
        let children: Vec<Child> = self
            .runs
            .iter()
            .zip(&self.stages.actions)
            .map(|(run, actions)| {
                let edges = match &run.pipeline {
                    Some(partitioning) => Edges::Sockets { partitioning: partitioning.clone() },
                    None => Edges::Synthetic,
                };
                start(&RankSpec {
                    edges,
                    actions: actions.clone(),
                    iterations: 2,
                    ..run.spec(model, 0, folder.path())
                })
            })
            .collect();
        children.into_iter().map(end).collect()
    }
}

/// How many cases are tried: `PROPTEST_CASES` asks for more, as it does of property tests.
pub(super) fn cases(few: usize) -> usize {
    std::env::var("PROPTEST_CASES").ok().and_then(|count| count.parse().ok()).unwrap_or(few)
}

/// Solo stages of a model with random actions.
fn assert_solo_exact(model: &Model, component: &Component, training: TrainingSpec, seed: u64, count: usize) {
    let (mut dice, count) = (Sampler::new(seed), cases(count));
    let last = model.layers().len() - 1;
    let mut differences = Vec::new();
    for index in 0..count {
        let first = dice.below(last + 1);
        let stage = (first, first + dice.below(last - first + 1));
        let schedule = if index % 2 == 0 { Schedule::Gpipe } else { Schedule::OneFOneB };
        let run = Run::new(model, TrainingSpec { schedule, ..training }, stage, WHOLE);
        let actions = actions(model, &run.training, &run.position, &[], &mut dice);
        let acted = ActedRun::new(model, component, vec![run], &[actions]);
        differences.extend(acted.differences(model));
    }
    assert!(differences.is_empty(), "{} of {count}:\n{}", differences.len(), differences.join("\n"));
}

#[test]
#[ignore = "slow: make test-slow"]
fn acted_stages_of_vgg_are_predicted_to_the_byte() {
    let (model, training) = (vgg(), training());
    let component = profile(&model, training, &[4], &[WHOLE]);
    assert_solo_exact(&model, &component, training, 1, 12);
}

#[test]
fn acted_stages_of_gpt2_are_predicted_to_the_byte() {
    let (model, training) = (gpt2(false), TrainingSpec { optimizer: ADAM, ..training() });
    let component = profile(&model, training, &[4], &[WHOLE]);
    assert_solo_exact(&model, &component, training, 2, 16);
}

#[test]
fn acted_stages_in_bf16_are_predicted_to_the_byte() {
    for precision in [Precision::Bf16, Precision::Bf16Fp32Gradients] {
        let training = TrainingSpec { optimizer: ADAM, precision, ..training() };
        let model = gpt2(true);
        let component = profile(&model, training, &[4], &[WHOLE]);
        assert_solo_exact(&model, &component, training, 3, 8);
    }
}

#[test]
fn acted_stages_of_amoebanet_are_predicted_to_the_byte() {
    let model =
        Zoo::AmoebaNetD(AmoebaNet { cells: 3, filters: 16, image_size: 64, classes: 10 }).build().unwrap();
    let component = profile(&model, training(), &[4], &[WHOLE]);
    assert_solo_exact(&model, &component, training(), 4, 12);
}

/// Pipelines whose stages put blocks on each other's devices: each device's peak with what it has of the others.
#[test]
fn stages_that_keep_blocks_of_others_are_predicted_to_the_byte() {
    let (model, training) = (gpt2(false), TrainingSpec { optimizer: ADAM, ..training() });
    let component = profile(&model, training, &[4], &[WHOLE]);
    let mut dice = Sampler::new(5);
    let mut differences = Vec::new();
    for index in 0..cases(6) {
        let sizes = pick(&mut dice, &[[2, 2, 2], [1, 3, 2], [3, 2, 1]]);
        let schedule = if index % 2 == 0 { Schedule::OneFOneB } else { Schedule::Gpipe };
        let training = TrainingSpec { schedule, ..training };
        differences.extend(acted_pipeline(&model, &component, training, sizes, &mut dice));
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// What differs where stages of these sizes do random actions, with blocks on each other's devices.
pub(super) fn acted_pipeline(
    model: &Model,
    component: &Component,
    training: TrainingSpec,
    sizes: [usize; 3],
    dice: &mut Sampler,
) -> Vec<String> {
    let partitioning = Partitioning::from_sizes(&sizes).unwrap();
    let runs: Vec<Run> = (0..3)
        .map(|stage_index| Run {
            training,
            position: SoloStage {
                stage: partitioning.stages()[stage_index as usize],
                stage_count: 3,
                stage_index,
            },
            pipeline: Some(partitioning.clone()),
        })
        .collect();
    let all: Vec<StageActions> = runs
        .iter()
        .map(|run| {
            let own = run.position.stage_index;
            let peers: Vec<u32> = (0..3).filter(|&peer| peer != own).collect();
            actions(model, &training, &run.position, &peers, dice)
        })
        .collect();
    ActedRun::new(model, component, runs, &all).differences(model)
}
