//! Memory optimizations asked of a predictor with a model, from recordings as a rank makes them.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::model::layer::{Layer, LayerKind};
use loadmaster_proto::model::{Model, ModelInput};
use loadmaster_proto::training::actions::{
    Action, Block, Destination, Optimization, PeerPool, StageActions, Step, Stripe, Swap,
};
use loadmaster_proto::training::stage::{Partitioning, StageConfig};
use loadmaster_proto::training::{Optimizer, Precision, RecomputePolicy, Schedule, TrainingSpec};
use proptest::prelude::*;

use super::promise::{self, PACKED, measurement, recorded, trace};
use crate::component::Component;
use crate::forecast::{Forecast, ForecastError, forecast, settings, with_actions};
use crate::tests::training;
use crate::{ActionsPrediction, Margin, PredictionError, Predictor, StageSetting};

const WIDTH: i64 = 32;
/// Weight and bias, in fp32.
const PARAMETERS: [u64; 2] = [4 * 32 * 32, 4 * 32];
/// What a micro-batch has at each edge.
const EDGE: u64 = 512;

fn spec(schedule: Schedule, recompute: RecomputePolicy, micro_batches: u32) -> TrainingSpec {
    let optimizer =
        Optimizer::Adam { learning_rate: 1e-3, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0 };
    TrainingSpec { recompute, optimizer, precision: Precision::Fp32, ..training(schedule, 4, micro_batches) }
}

/// Four linear maps.
fn chain() -> Model {
    let linear = LayerKind::Linear { in_features: WIDTH, out_features: WIDTH };
    let layers = [linear; 4].map(|kind| Layer { name: "linear".to_owned(), kind });
    Model::new("chain".to_owned(), ModelInput::Vector { size: WIDTH }, layers.to_vec()).unwrap()
}

/// What predicts them; their recordings say what autograd saved, or are older.
fn predictor(training: TrainingSpec, has_saved: bool) -> Component {
    let model = chain();
    let of = |layer: usize| {
        let mut trace = trace(&model, layer, EDGE, 64);
        trace.has_saved = has_saved;
        for passage in [&mut trace.first, &mut trace.later] {
            passage.saved = if has_saved { vec![0] } else { Vec::new() };
        }
        measurement(trace, 4, (0, 1), "cpu")
    };
    let measured: Vec<Measurement> = [0, 1, 3].map(of).to_vec();
    Component::new(&model, &training, measured.iter().map(|measured| ("run", measured))).unwrap()
}

fn setting(
    training: TrainingSpec,
    (first, last): (usize, usize),
    (index, count): (u32, u32),
) -> StageSetting {
    let stage = StageConfig::single(first, last);
    StageSetting { stage, stage_index: index, stage_count: count, training }
}

fn swap(block: Block, layers: (usize, usize), to: Destination) -> Action {
    let swap = Swap { block, to, release_after: 0, fetch_before: 0 };
    Action {
        first_layer: layers.0,
        last_layer: layers.1,
        slots: Vec::new(),
        optimization: Optimization::Swap(swap),
    }
}

fn doing(actions: &[Action]) -> StageActions {
    StageActions { actions: actions.to_vec(), ..StageActions::default() }
}

/// Without memory optimizations, the replay of every step yields the bytes predicted without a replay, to the byte.
#[test]
fn nothing_done_is_nothing_changed() {
    for recompute in [RecomputePolicy::None, RecomputePolicy::Stage, RecomputePolicy::Layer] {
        for (schedule, micro_batches) in
            [(Schedule::Gpipe, 5), (Schedule::OneFOneB, 5), (Schedule::OneFOneB, 1)]
        {
            let training = spec(schedule, recompute, micro_batches);
            let predictor = predictor(training, false);
            for (layers, place) in [((0, 3), (0, 1)), ((0, 1), (0, 2)), ((1, 2), (1, 3)), ((2, 3), (1, 2))] {
                for data_degree in [1, 2] {
                    let mut setting = setting(training, layers, place);
                    setting.stage.data_degree = data_degree;
                    setting.training.micro_batch_size = 4 * data_degree;
                    let acted = predictor.acted(&setting, &StageActions::default()).unwrap();
                    assert_eq!(acted.prediction(0), predictor.stage(&setting).unwrap());
                    assert_eq!((acted.pools.len(), acted.away.len()), (0, 0));
                    assert_eq!(acted.steps.all().contains(&Step::Exchange), data_degree > 1);
                }
            }
        }
    }
}

/// Recordings that do not say what autograd saved say nothing of what can leave; of all else they do.
#[test]
fn older_recordings_answer_but_for_activations() {
    let training = spec(Schedule::Gpipe, RecomputePolicy::None, 3);
    let setting = setting(training, (0, 3), (0, 1));
    let ask = |has_saved, block| {
        let actions = doing(&[swap(block, (1, 2), Destination::Host)]);
        predictor(training, has_saved).acted(&setting, &actions)
    };
    let refused = ask(false, Block::Activations).unwrap_err().to_string();
    assert!(refused.starts_with("the allocation trace of layer 0 (linear) does not contain"), "{refused}");
    assert!(refused.contains("`profiling_mode` PROFILING_MODE_PER_LAYER"), "{refused}");
    for block in [Block::Weights, Block::Gradients, Block::Optimizer] {
        assert_eq!(ask(false, block), ask(true, block));
        assert!(ask(false, block).unwrap().host_peak() > 0);
    }
    assert!(ask(true, Block::Activations).unwrap().host_peak() > 0);
}

/// A recording that says what autograd saved stands in for one that does not, whichever comes first.
#[test]
fn a_newer_recording_completes_an_older_one() {
    let training = spec(Schedule::Gpipe, RecomputePolicy::None, 3);
    let linear = LayerKind::Linear { in_features: WIDTH, out_features: WIDTH };
    let layer = Layer { name: "linear".to_owned(), kind: linear };
    let input = ModelInput::Vector { size: WIDTH };
    let model = Model::new("one".to_owned(), input, vec![layer]).unwrap();
    let old = trace(&model, 0, EDGE, 64);
    let mut new = old.clone();
    new.has_saved = true;
    let [old, new] = [old, new].map(|trace| measurement(trace, 4, (0, 1), "cpu"));
    let setting = setting(training, (0, 0), (0, 1));
    let actions = doing(&[swap(Block::Activations, (0, 0), Destination::Host)]);
    for (measured, answers) in [([&old, &old], false), ([&old, &new], true), ([&new, &old], true)] {
        let predictor = Component::new(&model, &training, measured.map(|of| ("run", of))).unwrap();
        assert_eq!(predictor.acted(&setting, &actions).is_ok(), answers);
    }
}

fn most(acted: &ActionsPrediction, which: impl Fn(&Step) -> bool) -> u64 {
    let steps = acted.steps.all().iter().zip(&acted.curve);
    steps.filter(|(step, _)| which(step)).map(|(_, bytes)| bytes.most.total()).max().unwrap()
}

/// Parameters and what the optimizer keeps are away but for the steps that use them, over the end of an iteration too,
/// tensor by tensor: what a peer has of each is split for itself.
#[test]
fn what_is_there_all_the_time_can_be_away_to_the_byte() {
    let training = spec(Schedule::OneFOneB, RecomputePolicy::None, 2);
    let predictor = predictor(training, true);
    let setting = setting(training, (0, 3), (0, 2));
    let stripes = [(1, 5_000), (2, 5_000)].map(|(stage, share)| Stripe { stage, share });
    let actions = doing(&[
        swap(Block::Weights, (1, 2), Destination::Host),
        swap(Block::Optimizer, (1, 1), Destination::Peers(stripes.to_vec())),
    ]);
    let without = predictor.acted(&setting, &StageActions::default()).unwrap();
    let acted = predictor.acted(&setting, &actions).unwrap();
    let [of_layer, state] = [PARAMETERS.iter().sum::<u64>(), 2 * PARAMETERS.iter().sum::<u64>()];
    let update = |layer| move |step: &Step| *step == Step::Update { layer };
    let saved = |which: &dyn Fn(&Step) -> bool| most(&without, which) - most(&acted, which);
    assert_eq!(saved(&update(0)), 2 * of_layer + state);
    assert_eq!(saved(&update(1)), of_layer);
    assert_eq!(saved(&update(2)), of_layer + state);
    assert_eq!(saved(&|step| matches!(step, Step::Forward { layer: 0, .. })), 2 * of_layer + state);
    assert_eq!(saved(&|step| matches!(step, Step::Backward { layer: 2, .. })), of_layer + state);
    // While one comes, the other leaves.
    assert_eq!(acted.host_peak(), 2 * of_layer);
    // Two moments of 4,096 and of 128 bytes.
    assert_eq!([1, 2].map(|stage| acted.peak_on(stage)), [state / 2; 2]);
    let away = acted.away.iter().find(|away| away.absence.block == Block::Optimizer).unwrap();
    assert_eq!(
        (away.bytes, away.tensors, away.stripes.as_slice()),
        (state, 4, &[(1, state / 2), (2, state / 2)][..])
    );
    let weights = acted.away.iter().filter(|away| away.absence.block == Block::Weights);
    assert!(weights.clone().all(|away| (away.bytes, away.tensors) == (of_layer, 2)));
    // Forward, backward, forward, backward, update.
    assert_eq!(weights.count(), 2 * 5);
    assert_eq!(acted.pools[0].moved_bytes, 10 * of_layer);
}

/// Gradients are away between the backward passes that add to them; what a linear map saved is its input.
#[test]
fn gradients_and_inputs_leave_between_backward_passes() {
    let training = spec(Schedule::Gpipe, RecomputePolicy::None, 3);
    let predictor = predictor(training, true);
    let setting = setting(training, (1, 2), (1, 3));
    let of = |block| predictor.acted(&setting, &doing(&[swap(block, (1, 2), Destination::Host)])).unwrap();
    let gradients = of(Block::Gradients);
    // Three backward passes and the update, which follows the last one of layer 1 at once.
    assert_eq!(gradients.away.iter().map(|away| away.bytes).collect::<Vec<_>>(), [2_048; 5]);
    assert_eq!(gradients.host_peak(), 2 * 2_048);
    let activations = of(Block::Activations);
    // Nothing but the inputs is saved: those of layer 2 are the outputs of layer 1, and its own.
    let bytes = |layer: usize| -> u64 {
        activations.away.iter().filter(|away| away.absence.layer == layer).map(|away| away.bytes).sum()
    };
    assert_eq!([bytes(1), bytes(2)], [3 * EDGE, 2 * EDGE]);
}

/// A forecast of a pipeline counts what stages set aside for each other, as much as they need unless it is said.
#[test]
fn a_forecast_counts_what_is_set_aside() {
    let training = spec(Schedule::OneFOneB, RecomputePolicy::None, 5);
    let predictor = predictor(training, true);
    let (model, settings) = (chain(), settings(&training, &Partitioning::from_sizes(&[2, 2]).unwrap()));
    let to_last = Destination::Peers(vec![Stripe { stage: 1, share: Stripe::WHOLE }]);
    let actions = [doing(&[swap(Block::Optimizer, (0, 1), to_last)]), doing(&[])];
    let capacities = [Bytes(1 << 20); 2];
    let found =
        with_actions(&predictor, Some(&model), &settings, &actions, &capacities, Margin::Known).unwrap();
    let untouched = forecast(&predictor, &settings, &capacities, Margin::Known).unwrap();
    let state = 2 * 2 * PARAMETERS.iter().sum::<u64>();
    let peer_pools = PeerPool { stage: 0, bytes: Bytes(state) };
    assert_eq!(found.stages.actions[1].peer_pools, [peer_pools]);
    let bytes = |of: &Forecast, stage: usize| of.stages[stage].prediction.bytes.0;
    assert_eq!(bytes(&found.forecast, 1), bytes(&untouched, 1) + state);
    assert!(bytes(&found.forecast, 0) < bytes(&untouched, 0));
    assert_eq!((&found.forecast.sources, found.stages.acted.len()), (&untouched.sources, 2));
    let larger = PeerPool { bytes: Bytes(2 * state), ..peer_pools };
    let said = [actions[0].clone(), StageActions { peer_pools: vec![larger], ..actions[1].clone() }];
    let found = with_actions(&predictor, Some(&model), &settings, &said, &[], Margin::Known).unwrap();
    assert_eq!(bytes(&found.forecast, 1), bytes(&untouched, 1) + 2 * state);
    let two = with_actions(&predictor, Some(&model), &settings, &said, &capacities[..1], Margin::Known);
    assert_eq!(two.unwrap_err(), ForecastError::DeviceCount { needed: 2, given: 1 });
    let smaller = PeerPool { bytes: Bytes(state - 1), ..peer_pools };
    let said = [actions[0].clone(), StageActions { peer_pools: vec![smaller], ..actions[1].clone() }];
    let refused = with_actions(&predictor, Some(&model), &settings, &said, &[], Margin::Known).unwrap_err();
    let ForecastError::Actions(invalid) = refused else { panic!("{refused}") };
    assert_eq!(invalid.violations()[0].field, "memory.stage_memory_optimizations[1].peer_pools[0].bytes");
    // A peer pool for a stage that sends nothing is rejected.
    let unsent = PeerPool { stage: 1, bytes: Bytes(state) };
    let said = [StageActions { peer_pools: vec![unsent], ..actions[0].clone() }, actions[1].clone()];
    let refused = with_actions(&predictor, Some(&model), &settings, &said, &[], Margin::Known).unwrap_err();
    let ForecastError::Actions(invalid) = refused else { panic!("{refused}") };
    assert_eq!(invalid.violations()[0].field, "memory.stage_memory_optimizations[0].peer_pools[0].stage");
}

/// What a device sets aside for others comes on top, and is as large as it is said to be.
#[test]
fn pools_for_others_come_on_top_without_a_margin() {
    let training = spec(Schedule::Gpipe, RecomputePolicy::None, 3);
    let predictor = predictor(training, true);
    let acted = predictor.acted(&setting(training, (1, 2), (1, 3)), &StageActions::default()).unwrap();
    let (alone, hosting) = (acted.prediction(0), acted.prediction(1 << 30));
    assert_eq!(hosting.bytes, Bytes(alone.bytes.0 + (1 << 30)));
    assert_eq!(hosting.breakdown.unwrap().total(), hosting.bytes.0);
    let width = |of: crate::Prediction| of.interval().unwrap().high.0 - of.bytes.0;
    assert!(width(hosting).abs_diff(width(alone)) <= 1);
}

/// What kernels may take in bf16 at sizes that were not recorded is within the upper end with actions, too: for a stage
/// that was recorded there needs no more.
#[test]
fn the_upper_end_holds_with_actions() {
    let training =
        TrainingSpec { precision: Precision::Bf16, ..spec(Schedule::Gpipe, RecomputePolicy::None, 5) };
    let actions = doing(&[
        Action { first_layer: 0, last_layer: 0, slots: vec![1], optimization: Optimization::Recompute },
        swap(Block::Optimizer, (0, 1), Destination::Host),
        swap(Block::Gradients, (1, 1), Destination::Host),
    ]);
    let most = |recorded_at: &[(u32, u64)], size| {
        let setting = setting(training.with_micro_batch_size(size), (0, 1), (0, 1));
        recorded(training, recorded_at, "cpu").acted(&setting, &actions).unwrap().prediction(0)
    };
    for (index, &low) in PACKED.iter().enumerate() {
        for &high in &PACKED[index + 1..] {
            for (size, _) in PACKED {
                let high_end = most(&[low, high], size).interval().unwrap().high;
                assert!(most(&PACKED, size).bytes <= high_end, "{low:?} {high:?} at {size}");
            }
        }
    }
}

/// Shards of unequal parts set as much aside as the highest peak of them, whichever was recorded first.
#[test]
fn pools_hold_the_fullest_shard() {
    let training = spec(Schedule::Gpipe, RecomputePolicy::None, 5);
    let model = promise::model();
    let of = |shard: u32, edge| {
        [0, 1].map(|layer| {
            let mut trace = trace(&model, layer, edge, 0);
            trace.has_saved = true;
            trace.first.saved = vec![0];
            trace.later.saved = vec![0];
            measurement(trace, 4, (shard, 2), "cpu")
        })
    };
    let actions = doing(&[swap(Block::Activations, (0, 1), Destination::Host)]);
    let mut setting = setting(training, (0, 1), (0, 1));
    setting.stage.tensor_degree = 2;
    let ask = |shards: &[[Measurement; 2]]| {
        let measured = shards.iter().flatten().map(|measured| ("run", measured));
        Component::new(&model, &training, measured).unwrap().acted(&setting, &actions).unwrap()
    };
    let (fuller, other) = (1_026, 1_000);
    let alone = ask(&[of(0, fuller)]);
    for shards in [[of(0, fuller), of(1, other)], [of(0, other), of(1, fuller)]] {
        let both = ask(&shards);
        assert_eq!(both.prediction(0).bytes, alone.prediction(0).bytes);
        assert_eq!((both.host_peak(), both.pools.len()), (alone.host_peak(), 1));
        assert!(ask(&[of(0, other)]).host_peak() < both.host_peak());
    }
}

/// Who has no recordings of single layers says so, and who has.
#[test]
fn other_predictors_name_the_one_that_can() {
    struct Other;
    impl Predictor for Other {
        fn name(&self) -> &'static str {
            "other/1"
        }

        fn layers(&self) -> usize {
            4
        }

        fn stage(&self, _: &StageSetting) -> Result<crate::Prediction, PredictionError> {
            Err(PredictionError::NoActions { predictor: "other/1" })
        }

        fn sources(&self, _: &StageSetting) -> Vec<String> {
            Vec::new()
        }
    }
    let setting = setting(spec(Schedule::Gpipe, RecomputePolicy::None, 3), (0, 3), (0, 1));
    let refused = Other.acted(&setting, &StageActions::default()).unwrap_err().to_string();
    assert!(refused.contains("`other/1`") && refused.contains("PROFILING_MODE_PER_LAYER"), "{refused}");
}

proptest! {
    /// Actions that were not checked are no one's, but nothing breaks of them.
    #[test]
    fn actions_that_make_no_sense_break_nothing(
        ranges in prop::collection::vec((0_usize..9, 0_usize..9, prop::collection::vec(0_u32..9, 0..3), 0_u8..7), 0..5),
        points in (0..=u32::MAX, 0..=u32::MAX),
        policy in prop_oneof![Just(RecomputePolicy::None), Just(RecomputePolicy::Layer)],
    ) {
        let training = spec(Schedule::OneFOneB, policy, 4);
        let blocks =
            [Block::Activations, Block::Inputs, Block::Versions, Block::Weights, Block::Gradients, Block::Optimizer];
        let action = |(first_layer, last_layer, slots, which): (usize, usize, Vec<u32>, u8)| {
            let swap = |&block: &Block| {
                let to = Destination::Peers(Vec::new());
                Optimization::Swap(Swap { block, to, release_after: points.0, fetch_before: points.1 })
            };
            let optimization = blocks.get(usize::from(which)).map_or(Optimization::Recompute, swap);
            Action { first_layer, last_layer, slots, optimization }
        };
        let actions = StageActions {
            actions: ranges.into_iter().map(action).collect(),
            ..StageActions::default()
        };
        let acted = predictor(training, true).acted(&setting(training, (1, 2), (1, 3)), &actions);
        prop_assert!(acted.is_ok());
    }
}
