//! Whatever a stage does about its memory, it trains the same, to the bit.

mod cuda;
pub(crate) mod pools;
pub(crate) mod random;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::measure::rank::RankSpec;
use loadmaster_proto::model::Model;
use loadmaster_proto::training::actions::{Action, Block, Destination, Optimization, StageActions, Swap};
use loadmaster_proto::training::stage::{Partitioning, StageConfig};
use loadmaster_proto::training::{Precision, Schedule, TrainingSpec};
use tch::Tensor;

use crate::correctness::{ADAM, SGD, assert_close};
use crate::models::{small_amoebanet, small_bert, small_llama, small_qwen3, small_transgan};
use crate::processes::{connected, run_all, small_gpt, small_vgg, training};
use random::Random;

/// What training leaves behind: gradients of the first iteration, parameters after the last one, losses.
#[derive(Debug)]
pub(crate) struct Trained {
    pub(crate) tensors: BTreeMap<String, Tensor>,
    pub(crate) losses: Vec<f64>,
}

/// Runs ranks and reads what they leave behind.
pub(crate) fn train(mut specs: Vec<RankSpec>, folder: &Path) -> (Trained, Vec<Measurement>) {
    let file = |what: &str, index: usize| Some(folder.join(format!("{what}-{index}.safetensors")));
    for (index, spec) in specs.iter_mut().enumerate() {
        spec.dump_gradients = file("gradients", index);
        spec.dump_parameters = file("parameters", index);
    }
    let measured = run_all(&specs);
    let read = |path: &Option<PathBuf>| Tensor::read_safetensors(path.as_ref().unwrap()).unwrap();
    let tensors = specs
        .iter()
        .enumerate()
        .flat_map(|(index, spec)| {
            let named =
                |what: &str, (name, tensor): (String, Tensor)| (format!("{index} {what} {name}"), tensor);
            let gradients =
                read(&spec.dump_gradients).into_iter().map(move |read| named("gradient of", read));
            let parameters =
                read(&spec.dump_parameters).into_iter().map(move |read| named("parameter", read));
            gradients.chain(parameters).collect::<Vec<_>>()
        })
        .collect();
    let losses = measured.iter().flat_map(|measured| measured.losses.clone()).collect();
    (Trained { tensors, losses }, measured)
}

pub(crate) fn assert_same_bits(acted: &Trained, untouched: &Trained, what: &str) {
    assert_eq!(acted.losses, untouched.losses, "{what}");
    assert_eq!(acted.tensors.len(), untouched.tensors.len(), "{what}");
    for ((name, acted), (expected_name, expected)) in acted.tensors.iter().zip(&untouched.tensors) {
        assert_eq!(name, expected_name, "{what}");
        assert!(acted.equal(expected), "{what}: {name} differs");
    }
}

fn recompute(first_layer: usize, last_layer: usize, slots: &[u32]) -> Action {
    Action { first_layer, last_layer, slots: slots.to_vec(), optimization: Optimization::Recompute }
}

/// Runs that are recomputed for some of the micro-batches in flight, of any length, beside kept ones, change
/// nothing but what is held.
#[test]
#[ignore = "slow: make test-slow"]
fn any_mix_of_kept_and_recomputed_runs_trains_the_same() {
    let mut random = Random::new(12);
    for model in
        [small_gpt(true), small_bert(), small_llama(), small_amoebanet(), small_transgan(), small_vgg()]
    {
        let schedule = if random.below(2) == 0 { Schedule::Gpipe } else { Schedule::OneFOneB };
        let precision = random.of(&[Precision::Fp32, Precision::Bf16, Precision::Bf16Fp32Gradients]);
        let training = TrainingSpec { schedule, precision, optimizer: random.of(&[ADAM, SGD]), ..training() };
        let partitioning = random.partitioning(&model, 2, (1, 1));
        let folder = tempfile::tempdir().unwrap();
        let specs = connected(&model, training, &partitioning, folder.path());
        let (untouched, kept) = train(specs.clone(), folder.path());
        let folder = tempfile::tempdir().unwrap();
        let mut specs = connected(&model, training, &partitioning, folder.path());
        for spec in &mut specs {
            spec.actions.actions = random.recomputed(spec);
        }
        let what = format!(
            "{} {training:?} {:?}",
            model.family(),
            specs.iter().map(|spec| &spec.actions).collect::<Vec<_>>()
        );
        let (acted, _) = train(specs, folder.path());
        assert_same_bits(&acted, &untouched, &what);
        assert!(kept.iter().all(|measured| measured.offload.is_none()));
    }
}

/// Where one stage has both ends of a tied weight, recomputed layers between them decide the order in which the two
/// gradients of the weight are added. Sums then differ in their last bits, and by no more. So do weights under SGD. Adam
/// enlarges the difference where a gradient is 0 but for its rounding.
#[test]
fn a_tied_weight_of_one_stage_differs_by_the_order_of_its_sums_alone() {
    let model = small_gpt(false);
    let last = model.layers().len() - 1;
    let training = TrainingSpec { optimizer: SGD, ..training() };
    let partitioning = Partitioning::from_sizes(&[last + 1]).unwrap();
    let of = |actions: Vec<Action>| {
        let folder = tempfile::tempdir().unwrap();
        let mut specs = connected(&model, training, &partitioning, folder.path());
        specs[0].actions.actions = actions;
        train(specs, folder.path()).0
    };
    let untouched = of(Vec::new());
    for (first, end) in [(1, last - 1), (1, 1), (last - 1, last - 1)] {
        let acted = of(vec![recompute(first, end, &[])]);
        let what = format!("layers {first} to {end} again");
        // Nothing was added yet. The last bit of fp32 depends on where memory lies, on processors that MKL does not know by name
        // (`MKL_CBWR=COMPATIBLE`: the same bits).
        let differ = (acted.losses[0] - untouched.losses[0]).abs();
        assert!(differ <= f64::from(f32::EPSILON) * untouched.losses[0], "{what}: {differ}");
        for ((name, acted), (expected_name, expected)) in acted.tensors.iter().zip(&untouched.tensors) {
            assert_eq!(name, expected_name, "{what}");
            assert_close(acted, expected, 1e-6, &format!("{what}: {name}"));
        }
    }
}

/// One run, untouched and with random actions of every kind: the same bits.
fn assert_random_actions_train_the_same(
    random: &mut Random,
    model: &Model,
    stages: usize,
    degrees: (u32, u32),
    schedules: &[Schedule],
) {
    let training = TrainingSpec {
        schedule: random.of(schedules),
        precision: random.of(&[Precision::Fp32, Precision::Bf16, Precision::Bf16Fp32Gradients]),
        optimizer: random.of(&[ADAM, SGD]),
        micro_batches: 1 + random.below(6) as u32,
        ..training()
    };
    let partitioning = random.partitioning(model, stages, degrees);
    let folder = tempfile::tempdir().unwrap();
    let specs = connected(model, training, &partitioning, folder.path());
    let (untouched, _) = train(specs, folder.path());
    let folder = tempfile::tempdir().unwrap();
    let mut specs = connected(model, training, &partitioning, folder.path());
    random.act(&mut specs);
    let actions: Vec<&StageActions> = specs.iter().map(|spec| &spec.actions).collect();
    let what = format!("{} {training:?} {partitioning} {actions:?}", model.family());
    let moves = |spec: &RankSpec| {
        spec.actions.actions.iter().any(|action| action.optimization != Optimization::Recompute)
    };
    let moving: Vec<bool> = specs.iter().map(moves).collect();
    println!("{what}");
    let (acted, measured) = train(specs, folder.path());
    assert_same_bits(&acted, &untouched, &what);
    for (measured, moves) in measured.iter().zip(moving) {
        let offload = measured.offload.as_deref().unwrap();
        for copies in &offload.copies {
            assert_eq!(copies.out_bytes, copies.in_bytes, "what left is back: {what}");
        }
        let moved: u64 = offload.copies.iter().map(|copies| copies.out_bytes).sum();
        assert!(moves || moved == 0, "{what}");
        println!("{moved} bytes each way, {} in the host at most", offload.host_peak);
    }
}

/// Whatever leaves, wherever it goes and whenever it comes back: pipelines, replicas and shards.
/// `RANDOM_ACTIONS=100` tries more of them, and `RANDOM_SEED=7` others.
#[test]
fn random_actions_train_the_same() {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let mut random = Random::new(number("RANDOM_SEED").unwrap_or(1));
    for _ in 0..number("RANDOM_ACTIONS").unwrap_or(4) {
        let model = match random.below(8) {
            0 => small_gpt(true),
            1 => small_gpt(false),
            2 => small_bert(),
            3 => small_llama(),
            4 => small_qwen3(),
            5 => small_transgan(),
            6 => small_vgg(),
            _ => small_amoebanet(),
        };
        let (mut stages, degrees) =
            random.of(&[(1, (1, 1)), (2, (1, 1)), (3, (1, 1)), (2, (2, 1)), (2, (1, 2))]);
        if model.has_tied_head() {
            // With both ends in one stage, runs between them decide in which order the two gradients of the weight are
            // added to what is there, as recompute policies do.
            stages = stages.max(2);
        }
        let flushing = [Schedule::Gpipe, Schedule::OneFOneB];
        assert_random_actions_train_the_same(&mut random, &model, stages, degrees, &flushing);
    }
}

/// The same where nothing is flushed: versions of the weights leave, too, and few micro-batches or many are an iteration.
#[test]
fn random_actions_train_the_same_under_pipedream() {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let mut random = Random::new(number("RANDOM_SEED").unwrap_or(5));
    for _ in 0..number("RANDOM_ACTIONS").unwrap_or(4) {
        let models = [small_gpt(true), small_bert(), small_llama(), small_vgg(), small_amoebanet()];
        let model = random.of(&models);
        let (stages, degrees) =
            random.of(&[(1, (1, 1)), (2, (1, 1)), (3, (1, 1)), (4, (1, 1)), (3, (2, 1)), (3, (1, 2))]);
        assert_random_actions_train_the_same(&mut random, &model, stages, degrees, &[Schedule::PipeDream]);
    }
}

/// While a micro-batch waits for its backward pass the weights that it went forward with are elsewhere, and nothing else is
/// held than before: of k in flight all versions but two are away at once, that of the micro-batch that goes back and the newest.
#[test]
fn versions_of_the_weights_leave_and_come_back() {
    let model = small_vgg();
    let training = TrainingSpec { schedule: Schedule::PipeDream, optimizer: SGD, ..training() };
    let stages = Partitioning::from_sizes(&[10, 10, 6, 4]).unwrap();
    let of = |moved: bool, capacity: Option<Bytes>| {
        let folder = tempfile::tempdir().unwrap();
        let mut specs = connected(&model, training, &stages, folder.path());
        let StageConfig { first_layer, last_layer, .. } = specs[0].position.stage;
        let swap = Swap { block: Block::Versions, to: Destination::Host, release_after: 0, fetch_before: 0 };
        let optimization = Optimization::Swap(swap);
        if moved {
            specs[0].actions.actions =
                vec![Action { first_layer, last_layer, slots: Vec::new(), optimization }];
            specs[0].actions.host_pool = Bytes(1 << 24);
        }
        specs[0].device.capacity = capacity.unwrap_or(specs[0].device.capacity);
        train(specs, folder.path())
    };
    let ((untouched, kept), (moved, measured)) = (of(false, None), of(true, None));
    assert_same_bits(&moved, &untouched, "versions");
    let weights = kept[0].static_bytes.parameters;
    let offload = measured[0].offload.as_deref().unwrap();
    // Four in flight: of three older versions the one that goes back next is there when it does.
    assert_eq!(offload.host_peak.0, 3 * weights, "{offload:?}");
    let each = u64::from(training.micro_batches) * weights;
    assert_eq!((offload.copies[0].out_bytes, offload.copies[0].in_bytes), (each, each));
    let peak = measured[0].peak_allocated;
    assert!(peak.0 + 2 * weights <= kept[0].peak_allocated.0, "{measured:?}");
    // Nor does it need more while the pipeline is filled, and when it runs dry.
    let (within, _) = of(true, Some(peak));
    assert_same_bits(&within, &untouched, "versions within their peak");
}

/// What is recomputed for one slot of four is not held for it.
#[test]
fn runs_of_slots_save_in_their_slots() {
    let model: Model = small_gpt(true);
    let peak = |actions: Vec<Action>| {
        let folder = tempfile::tempdir().unwrap();
        let partitioning = Random::new(1).partitioning(&model, 1, (1, 1));
        let mut specs = connected(&model, training(), &partitioning, folder.path());
        specs[0].actions = StageActions { actions, ..StageActions::default() };
        run_all(&specs)[0].peak_allocated.0
    };
    let peaks = [&[][..], &[0], &[0, 2], &[0, 1, 2]]
        .map(|slots: &[u32]| peak(if slots.is_empty() { Vec::new() } else { vec![recompute(1, 3, slots)] }));
    assert!(peaks.is_sorted_by(|more, less| more > less), "{peaks:?}");
}
