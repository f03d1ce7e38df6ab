//! The slot, or the part of a GPU, that models are trained on, and training on it.

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::chunks::stage::ChunkedStage;
use loadmaster_proto::cluster::Link;
use loadmaster_proto::cluster::device::{Backend, CPU_KIND};
use loadmaster_proto::measure::links::{Collectives, LinkWork};
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::measure::offload::CopyPace;
use loadmaster_proto::measure::rank::{Crowd, Edges, HUGE_PAGES, LinkSpec, RankDevice, RankEvent, RankSpec};
use loadmaster_proto::measure::run::SoloStage;
use loadmaster_proto::model::Model;
use loadmaster_proto::model::zoo::{Gpt2, Zoo};
use loadmaster_proto::training::actions::StageActions;
use loadmaster_proto::training::stage::StageConfig;
use loadmaster_proto::training::{Precision, RecomputePolicy, Schedule, TrainingSpec};
use loadmaster_samples::training;
use loadmaster_tests::{ADAM, binary};
use serde::Serialize;

const VOCABULARY: i64 = 1024;

/// What models are trained on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting {
    pub(crate) backend: Backend,
    pub(crate) device: Bytes,
    pub(crate) host: Bytes,
    pub(crate) hidden_size: i64,
    /// Tokens of a sample.
    pub(crate) sequence_length: i64,
    pub(crate) micro_batches: u32,
    pub(crate) iterations: u32,
    /// Of copies each way, bytes per second. A CPU slot makes them so fast; of a GPU, plans take it that they are.
    pub(crate) pace: f64,
}

/// A CPU slot, or the first GPU.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) setting: Setting,
}

/// How a training ended.
#[derive(Debug)]
pub(crate) enum Ended {
    Trained(Box<Measurement>),
    /// Why not, as the rank says it.
    Not(String),
}

/// How a stage trains in chunks, and where its activations are meanwhile.
pub(crate) type InChunks<'a> = (&'a ChunkedStage, &'a StageActions);

impl Machine {
    pub(crate) fn new(setting: Setting) -> Self {
        Self { setting }
    }

    /// A GPT-2 of so many blocks.
    pub(crate) fn model(&self, blocks: u32) -> Result<Model> {
        let Setting { hidden_size, sequence_length, .. } = self.setting;
        let gpt = Gpt2 {
            blocks: blocks.into(),
            hidden_size,
            heads: (hidden_size / 64).max(1),
            sequence_length,
            positions: sequence_length,
            vocabulary_size: VOCABULARY,
            dropout: 0.0,
            ..Gpt2::default()
        };
        Ok(Zoo::Gpt2(gpt).build()?)
    }

    pub(crate) fn training(&self, micro_batches: u32, recompute: RecomputePolicy) -> TrainingSpec {
        let usual = training(Schedule::Gpipe, 1, micro_batches);
        TrainingSpec { precision: Precision::Bf16, optimizer: ADAM, recompute, ..usual }
    }

    /// Trains layers of a model, all of them in chunks if these are named.
    pub(crate) fn train(
        &self,
        model: &Model,
        training: TrainingSpec,
        (first, last): (usize, usize),
        chunks: Option<InChunks<'_>>,
        capacity: Bytes,
    ) -> Result<Ended> {
        let layers = model.layers().len();
        let (before, after) = (u32::from(first > 0), u32::from(last + 1 < layers));
        let position = SoloStage {
            stage: StageConfig::single(first, last),
            stage_count: 1 + before + after,
            stage_index: before,
        };
        let folder = std::env::temp_dir();
        let spec = RankSpec {
            chunks: chunks.map(|(chunks, _)| Box::new(chunks.clone())),
            actions: chunks.map(|(_, actions)| actions.clone()).unwrap_or_default(),
            device: self.device(capacity),
            ..self.spec(model, training, position, &folder)
        };
        end(self.start("train", &spec)?)
    }

    /// Trains a model by so many ranks that share its chunks, each on a slot of its own.
    pub(crate) fn train_shared(
        &self,
        model: &Model,
        training: TrainingSpec,
        (chunks, actions): InChunks<'_>,
        ranks: u32,
    ) -> Result<Vec<Ended>> {
        let folder = tempfile::Builder::new().prefix("lmc").tempdir()?;
        let whole = StageConfig::single(0, model.layers().len() - 1);
        let stage = StageConfig { data_degree: ranks, ..whole };
        let position = SoloStage { stage, stage_count: 1, stage_index: 0 };
        let one = |shard| {
            let spec = self.spec(model, training, position, folder.path());
            let (chunks, actions) = (Some(Box::new(chunks.clone())), actions.clone());
            self.start("train", &RankSpec { shard, chunks, actions, ..spec })
        };
        let ranks: Vec<Child> = (0..ranks).map(one).collect::<Result<_>>()?;
        ranks.into_iter().map(end).collect()
    }

    /// The link that a ring over so many slots would have, as their all-reduces measure it.
    pub(crate) fn link(&self, ranks: u32) -> Result<Link> {
        let folder = tempfile::Builder::new().prefix("lmc").tempdir()?;
        let one = |index| {
            let spec = LinkSpec {
                work: LinkWork::standard(ranks, self.setting.device.0),
                index,
                device_id: format!("slot{index}"),
                folder: folder.path().to_owned(),
                collectives: Collectives::Host,
                device: self.device(self.setting.device),
                threads: self.threads(),
                neighbour_timeout_seconds: 60.0,
                pace: self.pace(),
            };
            self.start("links", &spec)
        };
        let ranks: Vec<Child> = (0..ranks).map(one).collect::<Result<_>>()?;
        let count = ranks.len();
        let mut found = None;
        for rank in ranks {
            if let RankEvent::LinksMeasured { links } = last_event(rank)? {
                found = found
                    .or_else(|| links.groups.iter().find(|of| of.devices.len() == count).map(|of| of.link));
            }
        }
        found.context("the ranks measured no link between them")
    }

    fn start(&self, command: &str, spec: &impl Serialize) -> Result<Child> {
        let mut rank = Command::new(binary("loadmaster-rank"));
        rank.arg(command).env("OMP_NUM_THREADS", self.threads().to_string()).envs([HUGE_PAGES]);
        rank.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = rank.stderr(Stdio::null()).spawn().context("the rank cannot be started")?;
        if let Some(mut input) = child.stdin.take() {
            input.write_all(&serde_json::to_vec(spec)?).context("the rank reads no specification")?;
        }
        Ok(child)
    }

    pub(crate) fn is_gpu(&self) -> bool {
        self.setting.backend == Backend::Cuda
    }

    fn pace(&self) -> CopyPace {
        CopyPace { host: (!self.is_gpu()).then_some(self.setting.pace), peer: None }
    }

    /// A slot's one core; what a GPU's host updates takes all of them.
    fn threads(&self) -> u32 {
        if self.is_gpu() { cores() } else { 1 }
    }

    /// As much memory as recording wants.
    pub(crate) fn plenty(&self) -> Bytes {
        Bytes(if self.is_gpu() { 64 } else { 8 } << 30)
    }

    /// What a rank may take where plans count on so many bytes. A GPU's allocator hands out whole blocks and keeps what is left
    /// of them, which no plan counts, so that there only what is allocated is held to the plan.
    pub(crate) fn granted(&self, planned: Bytes) -> Bytes {
        if self.is_gpu() { self.plenty() } else { planned }
    }

    pub(crate) fn kind(&self) -> &'static str {
        if self.is_gpu() { "GPU" } else { CPU_KIND }
    }

    /// So many bytes of the device.
    fn device(&self, capacity: Bytes) -> RankDevice {
        RankDevice {
            backend: self.setting.backend,
            kind: self.kind().to_owned(),
            ordinal: 0,
            capacity,
            // A GPU says itself what more than there is cannot be had.
            physical: if self.is_gpu() { Bytes(capacity.0.max(1 << 38)) } else { capacity },
            driver_version: String::new(),
        }
    }

    /// Those that share cores with a slot while it is timed; a GPU computes alone.
    fn crowd(&self, folder: &Path) -> Option<Crowd> {
        let companions = cores().saturating_sub(1);
        (!self.is_gpu()).then(|| Crowd { companions, turns: folder.join("turns") })
    }

    fn spec(&self, model: &Model, training: TrainingSpec, position: SoloStage, folder: &Path) -> RankSpec {
        RankSpec {
            model: model.clone(),
            training,
            position,
            shard: 0,
            edges: Edges::Synthetic,
            folder: folder.to_owned(),
            collectives: Collectives::Host,
            iterations: self.setting.iterations,
            device: self.device(self.setting.device),
            threads: self.threads(),
            crowd: self.crowd(folder),
            neighbour_timeout_seconds: 60.0,
            actions: StageActions::default(),
            chunks: None,
            pace: self.pace(),
            dump_gradients: None,
            dump_parameters: None,
        }
    }
}

/// Of this machine, which ranks share.
pub(crate) fn cores() -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    u32::try_from(cores).unwrap_or(u32::MAX)
}

fn last_event(child: Child) -> Result<RankEvent> {
    let output = child.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let Some(last) = text.lines().last() else { bail!("the rank ended without a word: {}", output.status) };
    Ok(serde_json::from_str(last)?)
}

fn end(child: Child) -> Result<Ended> {
    Ok(match last_event(child)? {
        RankEvent::Measured { measurement } => Ended::Trained(measurement),
        RankEvent::OutOfMemory { out_of_memory } => Ended::Not(format!(
            "out of memory in {}: asked for {} with {} of {}",
            out_of_memory.phase, out_of_memory.asked, out_of_memory.held, out_of_memory.allowed
        )),
        RankEvent::Error { message } => Ended::Not(message),
        RankEvent::Progress { .. } | RankEvent::LinksMeasured { .. } => {
            bail!("the rank ended before it was done")
        }
    })
}
