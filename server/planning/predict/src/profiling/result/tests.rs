use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::chunks::stage::ChunkResidency;
use loadmaster_proto::cluster::device::CPU_KIND;
use loadmaster_proto::measure::chunked::ChunkRun;
use loadmaster_proto::measure::environment::Environment;
use loadmaster_proto::measure::links::LinkWork;
use loadmaster_proto::measure::links::updates::{DeviceUpdates, TimedUpdate};
use loadmaster_proto::measure::measurement::LayerTimes;
use loadmaster_proto::measure::offload::{CopyCount, Offload};
use loadmaster_proto::measure::run::SoloStage;
use loadmaster_proto::measure::trace::{LayerContent, LayerTrace, Passage, TraceStep};
use loadmaster_proto::model::Model;
use loadmaster_proto::model::zoo::{Gpt2, Vgg, Zoo};
use loadmaster_proto::name::CommandName;
use loadmaster_proto::training::actions::{PeerPool, StageActions, StagedAction};
use loadmaster_proto::training::stage::{Partitioning, StageConfig};
use loadmaster_proto::training::step_kind::StepKind;
use loadmaster_proto::training::strategy;
use loadmaster_proto::training::{
    Optimizer, Precision, RecomputePolicy, Schedule, StaticBytes, TrainingSpec,
};
use proptest::prelude::*;

use super::*;
use crate::tests::{measurement, training};

const CAPACITY: u64 = 1 << 32;
const DEADLINE: u32 = 600;

fn models() -> impl Strategy<Value = Model> {
    let gpt2 = |untied_head| {
        Zoo::Gpt2(Gpt2 {
            blocks: 2,
            hidden_size: 8,
            heads: 2,
            sequence_length: 4,
            positions: 4,
            vocabulary_size: 16,
            untied_head,
            dropout: 0.1,
        })
    };
    prop_oneof![
        any::<bool>().prop_map(move |untied| gpt2(untied).build().unwrap()),
        Just(Zoo::Vgg11(Vgg { image_size: 32, classes: 10, classifier_width: 64 }).build().unwrap()),
    ]
}

/// Runs of every kind: single layers and longer stages alone, whole pipelines, replicas, tensor shards,
/// schedules, recomputation of single stages, commands.
fn specs() -> impl Strategy<Value = RunSpec> {
    let numbers = (any::<prop::sample::Index>(), any::<prop::sample::Index>(), 1..=2_u32, any::<bool>());
    let choices = (0..3_usize, any::<bool>(), any::<bool>(), 1..=3_u32, 1..=4_u32);
    (models(), numbers, choices).prop_map(|(model, (first, last, data, tensor), choices)| {
        let (kind, gpipe, is_command, iterations, micro_batches) = choices;
        let layers = model.layers().len();
        let first = first.index(layers);
        let last = if kind == 0 { first } else { first + last.index(layers - first) };
        let stage = StageConfig {
            data_degree: data,
            tensor_degree: if tensor { 2 } else { 1 },
            ..StageConfig::single(first, last)
        };
        let work = if kind == 2 {
            let cut = first.clamp(1, layers - 1);
            let stages = [
                StageConfig { data_degree: data, ..StageConfig::single(0, cut - 1) },
                StageConfig::single(cut, layers - 1),
            ];
            Work::Partitioning(Partitioning::new(stages.to_vec()).unwrap())
        } else {
            Work::Solo(SoloStage { stage, stage_count: 3, stage_index: 1 })
        };
        let stages = work.positions().len();
        let policies = [RecomputePolicy::Layer, RecomputePolicy::None];
        let training = training(if gpipe { Schedule::Gpipe } else { Schedule::OneFOneB }, 4, micro_batches);
        let policies = if gpipe { policies[..stages].to_vec() } else { Vec::new() };
        RunSpec {
            strategy: strategy::Strategy::plain(training, work).with_recompute(policies).unwrap(),
            iterations,
            command: is_command.then(|| CommandName::parse("command", "megatron").unwrap()),
            model,
        }
        .checked()
        .unwrap()
    })
}

fn devices() -> Vec<Device> {
    [CAPACITY, CAPACITY / 2]
        .iter()
        .enumerate()
        .map(|(ordinal, &capacity)| Device {
            id: format!("cpu{ordinal}"),
            backend: Backend::Cpu,
            kind: CPU_KIND.to_owned(),
            capacity: Bytes(capacity),
            physical: Bytes(capacity),
            uuid: String::new(),
            ordinal: ordinal as u32,
            driver_version: String::new(),
            pci_bus_id: String::new(),
        })
        .collect()
}

fn leased<'a>(spec: &'a RunSpec, devices: &'a [Device]) -> Leased<'a> {
    Leased { spec, device_kind: CPU_KIND, deadline_seconds: DEADLINE, devices }
}

/// What an honest rank or command reports.
fn honest(spec: &RunSpec) -> Vec<Measurement> {
    spec.ranks().iter().map(|rank| measured(spec, rank)).collect()
}

fn measured(spec: &RunSpec, rank: &RankPosition) -> Measurement {
    let RankPosition { position, shard } = *rank;
    let training = spec.strategy.training_at(&position);
    let statics = spec.model.rank_static_bytes(&position.stage, shard, &training);
    let is_solo = matches!(spec.strategy.work, Work::Solo(_));
    let is_recorded = is_solo && position.stage.layer_count() == 1 && spec.command.is_none();
    let times =
        |layer| LayerTimes { layer, forward_seconds: 0.01, backward_seconds: 0.02, recompute_seconds: 0.0 };
    Measurement {
        stage_index: position.stage_index,
        shard,
        stage_count: position.stage_count,
        solo: is_solo,
        micro_batch_size: training.micro_batch_size,
        in_flight: training.schedule.in_flight(
            position.stage_count,
            position.stage_index,
            training.micro_batches,
        ),
        recompute: training.recompute,
        peak_allocated: Bytes(statics.total() + (64 << 20)),
        static_bytes: statics,
        capacity: Bytes(CAPACITY),
        iteration_seconds: 0.5,
        step_seconds: 0.1,
        layers: position.stage.layers().map(times).collect(),
        trace: is_recorded
            .then(|| Box::new(trace(&spec.model, position.stage.first_layer, statics.gradients))),
        losses: vec![f64::NAN; spec.iterations as usize],
        environment: Environment {
            device_kind: CPU_KIND.to_owned(),
            command: spec.command.as_ref().map(ToString::to_string).unwrap_or_default(),
            ..Environment::default()
        },
        ..measurement(position.stage)
    }
}

fn trace(model: &Model, layer: usize, gradients: u64) -> LayerTrace {
    let content = LayerContent::of(model, layer).unwrap();
    let passage = |blocks: Vec<u64>, backward: Vec<i32>| {
        let slots = [Vec::new(), vec![1], Vec::new(), Vec::new(), backward, Vec::new()];
        Passage { blocks, slots, ..Passage::default() }
    };
    let later = passage(vec![64], vec![-1]);
    let untrained = layer > 0 && content.untrained_before;
    LayerTrace {
        layer,
        content: content.fingerprint(),
        first: passage(vec![64, gradients], vec![2, -1]),
        without_graph: later.clone(),
        untrained_input: untrained.then(|| Box::new([later.clone(), later.clone()])),
        later,
        step: TraceStep::default(),
        has_saved: false,
        overhead: 0,
    }
    .checked()
    .unwrap()
}

/// Bends one number of a measurement, and says which field is to be named.
type Lie = (&'static str, fn(&mut Measurement));

const LIES: [Lie; 17] = [
    ("stage", |of| of.stage.first_layer += 100),
    ("stage", |of| of.stage.data_degree += 1),
    ("stage_count", |of| of.stage_count += 1),
    ("stage_index", |of| of.stage_index += 7),
    ("stage_index", |of| of.shard += 1_000),
    ("solo", |of| of.solo = !of.solo),
    ("micro_batch_size", |of| of.micro_batch_size *= 2),
    ("in_flight", |of| of.in_flight += 1),
    ("recompute", |of| of.recompute = RecomputePolicy::Stage),
    ("peak_allocated_bytes", |of| of.peak_allocated = Bytes(CAPACITY + 1)),
    ("peak_allocated_bytes", |of| of.peak_allocated = Bytes(0)),
    ("capacity_bytes", |of| of.capacity = Bytes(CAPACITY - 1)),
    ("optimizer_bytes", |of| of.static_bytes.optimizer = u64::MAX),
    ("iteration_seconds", |of| of.iteration_seconds = f64::NAN),
    ("iteration_seconds", |of| of.iteration_seconds = 1e308),
    ("environment.device_kind", |of| of.environment.device_kind.push('x')),
    ("environment.framework", |of| of.environment.framework = "x".repeat(1 << 20)),
];

/// Those that only follow from the run where Loadmaster's own rank did it.
const RANK_LIES: [Lie; 6] = [
    ("gradient_bytes", |of| of.static_bytes.gradients += 4),
    ("peak_ledger", |of| of.peak_ledger = Accounting::Device),
    ("peak_reserved_bytes", |of| of.peak_reserved = Some(Bytes(1))),
    ("layers", |of| of.layers.truncate(of.layers.len() - 1)),
    ("losses", |of| of.losses.push(0.0)),
    ("step_seconds", |of| of.step_seconds = f64::from(DEADLINE) * 2.0),
];

fn refused(spec: &RunSpec, measurements: &[Measurement]) -> String {
    let invalid = check(&leased(spec, &devices()), measurements).unwrap_err();
    invalid.violations()[0].field.clone()
}

proptest! {
    /// Whatever the run: what it asks for passes.
    #[test]
    fn what_an_honest_worker_measured_is_never_refused(spec in specs()) {
        prop_assert_eq!(check(&leased(&spec, &devices()), &honest(&spec)), Ok(()));
    }

    /// One field that contradicts the run is enough, in the measurement of any rank, and it is named.
    #[test]
    fn whatever_contradicts_the_run_is_refused_by_its_name(
        spec in specs(), rank in any::<prop::sample::Index>(), lie in any::<prop::sample::Index>(),
    ) {
        let mut lies = LIES.to_vec();
        if spec.command.is_none() {
            lies.extend(RANK_LIES);
        }
        let (field, bend) = lies[lie.index(lies.len())];
        let mut measurements = honest(&spec);
        let index = rank.index(measurements.len());
        bend(&mut measurements[index]);
        prop_assert_eq!(refused(&spec, &measurements), format!("measurements[{index}].{field}"));
    }

    /// As many measurements as ranks, each of another one.
    #[test]
    fn every_rank_is_measured_once(spec in specs(), rank in any::<prop::sample::Index>()) {
        let mut measurements = honest(&spec);
        let index = rank.index(measurements.len());
        let twice = measurements[index].clone();
        measurements.push(twice);
        prop_assert_eq!(refused(&spec, &measurements), "measurements");
        measurements.pop();
        measurements.remove(index);
        prop_assert_eq!(refused(&spec, &measurements), "measurements");
    }
}

/// A layer of the embedding's kind, alone, on one device.
fn single_layer() -> RunSpec {
    let model = Zoo::Vgg11(Vgg { image_size: 32, classes: 10, classifier_width: 64 }).build().unwrap();
    let work = Work::Solo(SoloStage { stage: StageConfig::single(0, 0), stage_count: 3, stage_index: 0 });
    RunSpec {
        strategy: strategy::Strategy::plain(training(Schedule::Gpipe, 4, 3), work),
        iterations: 3,
        command: None,
        model,
    }
}

fn with_actions(spec: RunSpec, actions: Vec<StageActions>) -> RunSpec {
    RunSpec { strategy: spec.strategy.with_actions(actions).unwrap(), ..spec }
}

#[test]
fn a_tape_must_be_of_the_layer_and_leave_no_more_than_was_there() {
    let spec = single_layer();
    let field = |bend: &dyn Fn(&mut LayerTrace)| {
        let mut measurements = honest(&spec);
        bend(measurements[0].trace.as_mut().unwrap());
        refused(&spec, &measurements)
    };
    assert_eq!(field(&|trace| trace.layer = 5), "measurements[0].tape.layer");
    assert_eq!(field(&|trace| trace.content = "other".to_owned()), "measurements[0].tape.content");
    assert_eq!(field(&|trace| trace.overhead = u64::MAX), "measurements[0].tape.overhead_bytes");
    let huge = |trace: &mut LayerTrace| trace.later.blocks[0] = CAPACITY + 1;
    assert_eq!(field(&huge), "measurements[0].tape.later");
    let leaks = |trace: &mut LayerTrace| {
        trace.later.blocks[0] = 128 << 20;
        trace.later.slots[4].clear();
    };
    assert_eq!(field(&leaks), "measurements[0].tape.first");

    let mut without = honest(&spec);
    without[0].trace = None;
    assert_eq!(refused(&spec, &without), "measurements[0].tape");
}

/// A GPU's caching allocator takes memory in large pieces, and a share of a GPU is not enforced to the byte.
#[test]
fn a_gpu_that_was_shared_may_reserve_more_than_its_share_but_not_more_than_there_is() {
    let spec = single_layer();
    let gpu = Device {
        id: "gpu0.0".to_owned(),
        backend: Backend::Cuda,
        kind: "NVIDIA H200".to_owned(),
        capacity: Bytes(CAPACITY),
        physical: Bytes(2 * CAPACITY),
        ..devices().remove(0)
    };
    let check_with = |reserved: u64| {
        let mut measurements = honest(&spec);
        measurements[0].environment.device_kind = gpu.kind.clone();
        measurements[0].peak_reserved = Some(Bytes(reserved));
        let devices = [gpu.clone()];
        check(&Leased { device_kind: &gpu.kind, ..leased(&spec, &devices) }, &measurements)
    };
    assert_eq!(check_with(CAPACITY + (2 << 20)), Ok(()));
    let field = check_with(2 * CAPACITY + 1).unwrap_err().violations()[0].field.clone();
    assert_eq!(field, "measurements[0].peak_reserved_bytes");
}

/// What actions moved is there where there are any, within its pool, by the places that blocks go to.
#[test]
fn what_actions_moved_is_what_they_ask_for() {
    let typed: StagedAction = "0/0=activations:host:1,1".parse().unwrap();
    let mut actions = StageActions::by_stage(vec![typed]);
    actions[0].host_pool = Bytes(1 << 20);
    let spec = with_actions(single_layer(), actions);
    let copies = CopyCount { peer: None, out_bytes: 3 << 20, in_bytes: 3 << 20, waited_seconds: 0.5 };
    let moved = Offload { host_peak: Bytes(1 << 20), peer_pool_peak: Bytes(0), copies: vec![copies] };
    let measured = |bend: &dyn Fn(&mut Offload)| {
        let mut measurements = honest(&spec);
        let mut offload = moved.clone();
        bend(&mut offload);
        measurements[0].offload = Some(Box::new(offload));
        measurements
    };
    assert_eq!(check(&leased(&spec, &devices()), &measured(&|_| {})), Ok(()));
    let field = |bend: &dyn Fn(&mut Offload)| refused(&spec, &measured(bend));
    let of = |field: &str| format!("measurements[0].offload.{field}");
    assert_eq!(field(&|of| of.host_peak.0 += 1), of("host_peak_bytes"));
    assert_eq!(field(&|of| of.copies[0].peer = Some(1)), of("copies[0].peer"));
    assert_eq!(field(&|of| of.copies.push(copies)), of("copies[1].peer"));
    assert_eq!(field(&|of| of.copies[0].waited_seconds = 1e9), of("copies[0].waited_seconds"));
    assert_eq!(refused(&spec, &honest(&spec)), "measurements[0].offload", "it is missing");
    let again = StageActions::by_stage(vec!["0/0=recompute".parse::<StagedAction>().unwrap()]);
    let again = with_actions(single_layer(), again);
    assert_eq!(check(&leased(&again, &devices()), &honest(&again)), Ok(()), "nothing moves");
    assert_eq!(
        refused(&single_layer(), &measured(&|_| {})),
        "measurements[0].offload",
        "nobody asked for it"
    );
}

/// A stage's second device has nothing of a stage that has only one: it says nothing, and the first one has to,
/// unless what it has takes no bytes.
#[test]
fn only_devices_that_others_send_to_tell_what_they_host() {
    let typed: StagedAction = "0/0=activations:1:1,1".parse().unwrap();
    let mut actions = StageActions::by_stage(vec![typed]);
    let peer_pools = vec![PeerPool { stage: 0, bytes: Bytes(1 << 20) }];
    actions.push(StageActions { peer_pools, ..StageActions::default() });
    let layers = single_layer().model.layers().len();
    let stages =
        [StageConfig::single(0, 0), StageConfig { data_degree: 2, ..StageConfig::single(1, layers - 1) }];
    let work = Work::Partitioning(Partitioning::new(stages.to_vec()).unwrap());
    let whole = single_layer();
    let strategy = strategy::Strategy::plain(whole.strategy.training, work);
    let spec = with_actions(RunSpec { strategy, ..whole }, actions).checked().unwrap();
    let mut measurements = honest(&spec);
    let copies = CopyCount { peer: Some(1), out_bytes: 3 << 20, in_bytes: 3 << 20, waited_seconds: 0.5 };
    let out = Offload { host_peak: Bytes(0), peer_pool_peak: Bytes(0), copies: vec![copies] };
    measurements[0].offload = Some(Box::new(out));
    assert_eq!(refused(&spec, &measurements), "measurements[1].offload");
    let hosts = Offload { host_peak: Bytes(0), peer_pool_peak: Bytes(1 << 20), copies: Vec::new() };
    let without = measurements.clone();
    measurements[1].offload = Some(Box::new(hosts));
    assert_eq!(check(&leased(&spec, &devices()), &measurements), Ok(()));
    let mut empty = spec;
    empty.strategy.stages[1].actions.peer_pools[0].bytes = Bytes(0);
    assert_eq!(check(&leased(&empty, &devices()), &without), Ok(()));
}

/// A stage may hold less at once than it trains, where that leaves its device; then the device may be smaller than it, too.
#[test]
fn what_leaves_need_not_have_been_on_the_device() {
    let with = |actions: &[&str], peak: &dyn Fn(&Measurement) -> u64| {
        let typed = actions.iter().map(|action| action.parse::<StagedAction>().unwrap()).collect();
        let adam = Optimizer::Adam {
            learning_rate: 1e-3,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: 0.0,
        };
        let mut spec = with_actions(single_layer(), StageActions::by_stage(typed));
        spec.strategy.training.optimizer = adam;
        let mut measurements = honest(&spec);
        for of in &mut measurements {
            of.peak_allocated = Bytes(peak(of));
            of.trace = None;
            let copies = CopyCount { peer: None, out_bytes: 1, in_bytes: 1, waited_seconds: 0.0 };
            let moved = Offload { host_peak: Bytes(0), peer_pool_peak: Bytes(0), copies: vec![copies] };
            of.offload = (!actions.is_empty()).then(|| Box::new(moved));
        }
        refused(&spec, &measurements)
    };
    let without_state = |of: &Measurement| of.static_bytes.parameters + of.static_bytes.gradients;
    let missing = "measurements[0].tape";
    assert_eq!(with(&[], &without_state), "measurements[0].peak_allocated_bytes");
    assert_eq!(with(&["0/0=optimizer:host:0,0"], &without_state), missing, "the peak is as it can be");
    let nearly = |of: &Measurement| of.static_bytes.parameters + of.static_bytes.gradients - 1;
    assert_eq!(with(&["0/0=optimizer:host:0,0"], &nearly), "measurements[0].peak_allocated_bytes");
    assert_eq!(with(&["0/0=optimizer:host:0,0", "0/0=weights:host:0,0"], &nearly), missing);

    let mut measurement = honest(&single_layer()).remove(0);
    measurement.static_bytes.parameters = CAPACITY + 1;
    let most = Bytes(CAPACITY);
    let field = |actions: &StageActions| {
        super::bytes(&measurement, most, actions).map_err(|of| of.violations()[0].field.clone())
    };
    assert_eq!(field(&StageActions::default()), Err("parameter_bytes".to_owned()));
    let weights = StageActions::by_stage(vec!["0/0=weights:host:0,0".parse::<StagedAction>().unwrap()]);
    assert_eq!(field(&weights[0]), Ok(()));
}

/// The least bytes that each part of a stage needs follow from its layers, so a forged result cannot report a smaller
/// peak.
#[test]
fn a_peak_below_the_sum_of_its_parts_is_refused() {
    // The first block of a GPT-2 of 8 channels, alone; four micro-batches of 2 samples of 4 tokens are in flight.
    let gpt2 = Gpt2 {
        blocks: 2,
        hidden_size: 8,
        heads: 2,
        sequence_length: 4,
        positions: 4,
        vocabulary_size: 16,
        untied_head: false,
        dropout: 0.1,
    };
    let solo = SoloStage { stage: StageConfig::single(1, 1), stage_count: 3, stage_index: 1 };
    let training = TrainingSpec {
        precision: Precision::Fp32,
        optimizer: Optimizer::Sgd { learning_rate: 0.1, momentum: 0.9, weight_decay: 0.0 },
        ..training(Schedule::Gpipe, 2, 4)
    };
    let model = Zoo::Gpt2(gpt2).build().unwrap();
    let strategy = strategy::Strategy::plain(training, Work::Solo(solo));
    let spec = RunSpec { model, strategy, ..single_layer() }.checked().unwrap();
    // Attention 4 h² + 4 h, the MLP 8 h² + 5 h, two norms 4 h.
    let scalars = 12 * 8 * 8 + 13 * 8;
    // Weights, gradients and momentum, and the inputs of three micro-batches that wait: 3 × 2 samples of 4 × 8 scalars.
    let least = 4 * (3 * scalars + 3 * 2 * 4 * 8);
    let with = |peak: u64, change: &dyn Fn(&mut Measurement)| {
        let mut measurements = honest(&spec);
        measurements[0].peak_allocated = Bytes(peak);
        change(&mut measurements[0]);
        check(&leased(&spec, &devices()), &measurements).map_err(|of| of.violations()[0].field.clone())
    };
    assert_eq!(with(least, &|_| {}), Ok(()));
    assert_eq!(with(least - 1, &|_| {}), Err("measurements[0].peak_allocated_bytes".to_owned()));
    let small = |of: &mut Measurement| {
        of.trace = Some(Box::new(trace(&spec.model, 1, 4 * scalars - 1)));
    };
    assert_eq!(with(least, &small), Err("measurements[0].tape.first".to_owned()));

    // Of a command what it reports itself.
    let command = RunSpec { command: Some(CommandName::parse("command", "c").unwrap()), ..spec.clone() };
    let mut measurements = honest(&command);
    let parts = measurements[0].static_bytes;
    measurements[0].peak_allocated = Bytes(parts.parameters + parts.optimizer);
    assert_eq!(check(&leased(&command, &devices()), &measurements), Ok(()));
    measurements[0].peak_allocated.0 -= 1;
    assert_eq!(refused(&command, &measurements), "measurements[0].peak_allocated_bytes");
}

/// A whole model in chunks, on so many replicas.
fn in_chunks(data_degree: u32, intervals: bool) -> RunSpec {
    let whole = single_layer();
    let stage = StageConfig { data_degree, ..StageConfig::single(0, whole.model.layers().len() - 1) };
    let work = Work::Partitioning(Partitioning::new(vec![stage]).unwrap());
    let training = TrainingSpec { micro_batch_size: 4 * data_degree, ..whole.strategy.training };
    let mut chunks = loadmaster_samples::chunked(1 << 30);
    if intervals {
        let laid = chunks.lay_out_shared(&whole.model, &training, data_degree).unwrap();
        chunks.residency = ChunkResidency::Planned(chunks.bare_intervals(&laid).unwrap());
    }
    let strategy = strategy::Strategy::plain(training, work).with_chunks(Some(Box::new(chunks)));
    RunSpec { strategy, ..whole }.checked().unwrap()
}

/// What ranks in chunks report: neither parameters nor state, for these come and go.
fn honest_in_chunks(spec: &RunSpec) -> Vec<Measurement> {
    let chunks = spec.strategy.chunks().unwrap();
    let position = spec.stages()[0];
    let laid = chunks
        .lay_out_shared(&spec.model, &spec.strategy.training_at(&position), position.stage.data_degree)
        .unwrap();
    let shared = u64::from(position.stage.data_degree > 1);
    let run = ChunkRun {
        other_bytes: vec![1 << 10; laid.steps.all().len()],
        payload_bytes: vec![1 << 24; laid.steps.all().len()],
        host_bytes: Bytes(laid.host.bytes),
        up_bytes: 7,
        down_bytes: 8,
        gathered_bytes: 9 * shared,
        scattered_bytes: 10 * shared,
        fetches: 2,
        fetch_seconds: 0.1,
        leave_seconds: 0.1,
        step_seconds: 0.2,
        ..ChunkRun::default()
    };
    let mut measurements = honest(spec);
    for of in &mut measurements {
        of.static_bytes = StaticBytes { buffers: of.static_bytes.buffers, ..StaticBytes::default() };
        of.peak_allocated = Bytes(of.static_bytes.buffers + (1 << 24));
        of.chunks = Some(Box::new(run.clone()));
    }
    measurements
}

#[test]
fn what_ranks_in_chunks_measured_is_what_they_were_asked() {
    for (data_degree, intervals) in [(1, false), (1, true), (2, false), (2, true)] {
        let spec = in_chunks(data_degree, intervals);
        let honest = honest_in_chunks(&spec);
        assert_eq!(honest.len(), data_degree as usize);
        assert_eq!(check(&leased(&spec, &devices()), &honest), Ok(()));
    }
    // Planned visits may turn out to lack room.
    let planned = in_chunks(1, true);
    let mut replanned = honest_in_chunks(&planned);
    replanned[0].chunks.as_mut().unwrap().is_replanned = true;
    assert_eq!(check(&leased(&planned, &devices()), &replanned), Ok(()));
}

#[test]
fn whatever_contradicts_chunks_is_refused_by_its_name() {
    let spec = in_chunks(1, false);
    let with = |bend: &dyn Fn(&mut Measurement)| {
        let mut measurements = honest_in_chunks(&spec);
        bend(&mut measurements[0]);
        refused(&spec, &measurements)
    };
    let of_run = |bend: fn(&mut ChunkRun)| with(&|of| bend(of.chunks.as_mut().unwrap()));
    let of = |field: &str| format!("measurements[0].chunks.{field}");
    assert_eq!(of_run(|run| run.other_bytes.push(1)), of("other_bytes"));
    assert_eq!(of_run(|run| run.payload_bytes.truncate(1)), of("payload_bytes"));
    assert_eq!(of_run(|run| run.other_bytes[3] = CAPACITY + 1), of("other_bytes[3]"));
    assert_eq!(of_run(|run| run.payload_bytes[0] = u64::MAX), of("payload_bytes[0]"));
    assert_eq!(of_run(|run| run.host_bytes.0 += 1), of("host_bytes"));
    assert_eq!(of_run(|run| run.host_bytes.0 -= 1), of("host_bytes"));
    assert_eq!(of_run(|run| run.gathered_bytes = 1), of("gathered_bytes"), "nobody else has any");
    assert_eq!(of_run(|run| run.scattered_bytes = 1), of("scattered_bytes"));
    assert_eq!(of_run(|run| run.fetch_seconds = 2.0 * f64::from(DEADLINE)), of("fetch_seconds"));
    assert_eq!(of_run(|run| run.leave_seconds = -1.0), of("leave_seconds"));
    assert_eq!(of_run(|run| run.step_seconds = f64::NAN), of("step_seconds"));
    assert_eq!(of_run(|run| run.is_replanned = true), of("replanned"), "nothing was planned");

    assert_eq!(with(&|of| of.chunks = None), "measurements[0].chunks", "it is missing");
    let lie = "measurements[0].parameter_bytes";
    assert_eq!(with(&|of| of.static_bytes.parameters = 4), lie, "they are not there all the time");
    assert_eq!(with(&|of| of.static_bytes.buffers += 4), "measurements[0].buffer_bytes");
    assert_eq!(
        with(&|of| of.peak_allocated.0 -= 1),
        "measurements[0].peak_allocated_bytes",
        "less than its chunks"
    );
    assert_eq!(with(&|of| of.recompute = RecomputePolicy::Layer), "measurements[0].recompute");

    let plain = single_layer();
    let mut unasked = honest(&plain);
    unasked[0].chunks = honest_in_chunks(&spec)[0].chunks.clone();
    assert_eq!(refused(&plain, &unasked), "measurements[0].chunks", "nobody asked for it");
}

/// Frameworks tell less, in memory accountings of their own.
#[test]
fn a_command_need_not_know_parts_of_its_peak_nor_times_of_layers() {
    let spec = RunSpec { command: Some(CommandName::parse("command", "c").unwrap()), ..single_layer() };
    let mut measurements = honest(&spec);
    measurements[0].static_bytes = Default::default();
    measurements[0].layers.clear();
    measurements[0].peak_ledger = Accounting::Device;
    measurements[0].peak_allocated = Bytes(CAPACITY);
    measurements[0].losses = vec![0.0; 1_000];
    assert_eq!(check(&leased(&spec, &devices()), &measurements), Ok(()));
    measurements[0].trace = honest(&single_layer())[0].trace.clone();
    assert_eq!(refused(&spec, &measurements), "measurements[0].tape", "it would be believed");
    measurements[0].trace = None;
    measurements[0].environment.command = "other".to_owned();
    assert_eq!(refused(&spec, &measurements), "measurements[0].environment.command");
}

#[test]
fn links_are_those_of_the_workers_devices() {
    let work = LinkWork { devices: 2, payload_bytes: vec![1 << 10, 1 << 20], repeats: 1 };
    let measured = LinkMeasurement {
        device_ids: vec!["cpu0".to_owned(), "cpu1".to_owned()],
        transport: loadmaster_proto::measure::links::Collectives::Host,
        pairs: Vec::new(),
        groups: Vec::new(),
        environment: Environment { device_kind: CPU_KIND.to_owned(), ..Environment::default() },
        copies: None,
        updates: Vec::new(),
    };
    assert_eq!(check_links(&work, CPU_KIND, &devices(), &measured), Ok(()));
    let other =
        LinkMeasurement { device_ids: vec!["cpu0".to_owned(), "cpu7".to_owned()], ..measured.clone() };
    let field = |measured| {
        check_links(&work, CPU_KIND, &devices(), &measured).unwrap_err().violations()[0].field.clone()
    };
    assert_eq!(field(other), "device_ids[1]");
    let timed = |parameters| TimedUpdate {
        step: StepKind::AdamBf16,
        parameters,
        alone_seconds: 1e-3,
        together_seconds: 2e-3,
    };
    let updating = |parameters| LinkMeasurement {
        updates: vec![DeviceUpdates { device: 0, steps: vec![timed(parameters)] }],
        ..measured.clone()
    };
    assert_eq!(check_links(&work, CPU_KIND, &devices(), &updating(1 << 18)), Ok(()));
    assert_eq!(field(updating(1 << 17)), "updates[0].steps[0].parameters");
    assert_eq!(field(LinkMeasurement { device_ids: Vec::new(), ..measured }), "device_ids");
}
