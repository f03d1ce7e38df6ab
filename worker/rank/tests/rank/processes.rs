//! Starting ranks as the daemon does, and reading what they say.

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::device::{Backend, CPU_KIND};
use loadmaster_proto::measure::links::Collectives;
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::measure::offload::CopyPace;
use loadmaster_proto::measure::rank::{Edges, RankDevice, RankEvent, RankSpec};
use loadmaster_proto::measure::run::{RunSpec, SoloStage, Work};
use loadmaster_proto::model::Model;
use loadmaster_proto::model::zoo::{Gpt2, Vgg, Zoo};
use loadmaster_proto::training::actions::StageActions;
use loadmaster_proto::training::stage::Partitioning;
use loadmaster_proto::training::strategy;
use loadmaster_proto::training::{Optimizer, Precision, RecomputePolicy, Schedule, TrainingSpec};

/// VGG11 with a narrow classifier: 9.3 million parameters, nearly all of them convolutions'.
pub(crate) fn small_vgg() -> Model {
    Zoo::Vgg11(Vgg { image_size: 32, classes: 10, classifier_width: 16 }).build().unwrap()
}

/// A GPT-2 of three blocks with dropout.
pub(crate) fn small_gpt(untied_head: bool) -> Model {
    Zoo::Gpt2(Gpt2 {
        blocks: 3,
        hidden_size: 16,
        heads: 2,
        sequence_length: 12,
        positions: 20,
        vocabulary_size: 50,
        untied_head,
        dropout: 0.1,
    })
    .build()
    .unwrap()
}

pub(crate) fn training() -> TrainingSpec {
    TrainingSpec {
        precision: Precision::Fp32,
        optimizer: Optimizer::default(),
        schedule: Schedule::Gpipe,
        micro_batch_size: 2,
        micro_batches: 4,
        recompute: RecomputePolicy::None,
        seed: 17,
    }
}

pub(crate) fn cpu(capacity: u64) -> RankDevice {
    RankDevice {
        backend: Backend::Cpu,
        kind: CPU_KIND.to_owned(),
        ordinal: 0,
        capacity: Bytes(capacity),
        physical: Bytes(capacity),
        driver_version: String::new(),
    }
}

/// One stage of one device alone.
pub(crate) fn solo(model: &Model, training: TrainingSpec, position: SoloStage) -> RankSpec {
    RankSpec {
        model: model.clone(),
        training,
        position,
        shard: 0,
        edges: Edges::Synthetic,
        // Alone it meets no one there.
        folder: std::env::temp_dir(),
        collectives: Collectives::Host,
        iterations: 3,
        device: cpu(8 << 30),
        threads: 1,
        contention: None,
        neighbour_timeout_seconds: 60.0,
        actions: StageActions::default(),
        chunks: None,
        pace: CopyPace::default(),
        dump_gradients: None,
        dump_parameters: None,
    }
}

/// Where the stages of a pipeline with these numbers of layers are.
pub(crate) fn positions(sizes: &[usize]) -> Vec<SoloStage> {
    let partitioning = Partitioning::from_sizes(sizes).unwrap();
    let stage_count = sizes.len() as u32;
    (0..stage_count)
        .zip(partitioning.stages())
        .map(|(stage_index, &stage)| SoloStage { stage, stage_count, stage_index })
        .collect()
}

/// The connected stages of a pipeline.
pub(crate) fn pipeline(
    model: &Model,
    training: TrainingSpec,
    sizes: &[usize],
    folder: &Path,
) -> Vec<RankSpec> {
    connected(model, training, &Partitioning::from_sizes(sizes).unwrap(), folder)
}

/// The connected ranks of a pipeline whose stages may have several devices.
pub(crate) fn connected(
    model: &Model,
    training: TrainingSpec,
    partitioning: &Partitioning,
    folder: &Path,
) -> Vec<RankSpec> {
    let work = Work::Partitioning(partitioning.clone());
    RunSpec {
        model: model.clone(),
        strategy: strategy::Strategy::plain(training, work),
        iterations: 3,
        command: None,
    }
    .checked()
    .unwrap()
    .ranks()
    .into_iter()
    .map(|rank| RankSpec {
        shard: rank.shard,
        edges: Edges::Sockets { partitioning: partitioning.clone() },
        folder: folder.to_owned(),
        ..solo(model, training, rank.position)
    })
    .collect()
}

/// The ranks of one stage of several devices alone.
pub(crate) fn solo_ranks(
    model: &Model,
    training: TrainingSpec,
    position: SoloStage,
    folder: &Path,
) -> Vec<RankSpec> {
    (0..position.stage.devices())
        .map(|shard| RankSpec { shard, folder: folder.to_owned(), ..solo(model, training, position) })
        .collect()
}

/// `loadmaster-rank train`, not yet started.
pub(crate) fn rank() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_loadmaster-rank"));
    command.arg("train");
    command
}

/// Starts a rank with this on its standard input.
pub(crate) fn with_input(command: &mut Command, input: &str) -> Child {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A rank that refuses to start does not read it.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child
}

pub(crate) fn start_with(input: &str) -> Child {
    with_input(&mut rank(), input)
}

pub(crate) fn start(spec: &RankSpec) -> Child {
    start_with(&serde_json::to_string(spec).unwrap())
}

/// How a rank ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) events: Vec<RankEvent>,
    pub(crate) errors: String,
}

impl Ended {
    pub(crate) fn of(child: Child) -> Self {
        let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
        let events = String::from_utf8(stdout)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
            .collect();
        Self { code: status.code(), events, errors: String::from_utf8_lossy(&stderr).into_owned() }
    }

    pub(crate) fn measurement(self) -> Measurement {
        assert_eq!(self.code, Some(0), "{}", self.errors);
        match self.events.into_iter().last() {
            Some(RankEvent::Measured { measurement }) => *measurement,
            other => panic!("no measurement but {other:?}"),
        }
    }

    pub(crate) fn message(&self) -> &str {
        match self.events.last() {
            Some(RankEvent::Error { message }) => message,
            other => panic!("no error but {other:?}"),
        }
    }
}

pub(crate) fn run(spec: &RankSpec) -> Ended {
    Ended::of(start(spec))
}

/// Runs stages side by side and returns what each measured.
pub(crate) fn run_all(specs: &[RankSpec]) -> Vec<Measurement> {
    let children: Vec<Child> = specs.iter().map(start).collect();
    let ended: Vec<Ended> = children.into_iter().map(Ended::of).collect();
    // A stage that failed is more telling than those that lost it.
    if let Some(cause) = ended.iter().find(|ended| !matches!(ended.code, Some(0 | 76))) {
        panic!("a stage failed: {cause:?}");
    }
    ended.into_iter().map(Ended::measurement).collect()
}
