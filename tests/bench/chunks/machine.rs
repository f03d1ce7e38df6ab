//! The slot, or the part of a GPU, that models are trained on, and training on it.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::chunks::stage::ChunkedStage;
use loadmaster_proto::cluster::Link;
use loadmaster_proto::cluster::device::{Backend, CPU_KIND};
use loadmaster_proto::measure::links::{Collectives, LinkWork};
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::measure::offload::CopyPace;
use loadmaster_proto::measure::rank::{Contention, LinkSpec, RankDevice, RankEvent, RankSpec};
use loadmaster_proto::measure::run::SoloStage;
use loadmaster_proto::model::Model;
use loadmaster_proto::model::zoo::{Gpt2, Zoo};
use loadmaster_proto::training::actions::StageActions;
use loadmaster_proto::training::stage::StageConfig;
use loadmaster_proto::training::{Precision, RecomputePolicy, Schedule, TrainingSpec};
use loadmaster_samples::training;
use loadmaster_tests::{ADAM, rank_spec};
use serde::Serialize;

use crate::ranks::{self, Ended};

const VOCABULARY: i64 = 1024;
/// Longest run of ranks.
const LIMIT: Duration = Duration::from_secs(3_600);

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

/// The measurement of a training, or why it failed, as the rank says it.
pub(crate) type Trained = Result<Box<Measurement>, String>;

/// How a stage trains in chunks, and where its activations are meanwhile.
pub(crate) type InChunks<'a> = (&'a ChunkedStage, &'a StageActions);

impl Machine {
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
    pub(crate) async fn train(
        &self,
        model: &Model,
        training: TrainingSpec,
        (first, last): (usize, usize),
        chunks: Option<InChunks<'_>>,
        capacity: Bytes,
    ) -> Result<Trained> {
        let stage = StageConfig::single(first, last);
        let trained = self.train_shared(model, training, stage, chunks, capacity).await?;
        trained.into_iter().next().context("no rank was started")
    }

    /// The same by all ranks of a stage, each on a slot of its own, which share its chunks.
    pub(crate) async fn train_shared(
        &self,
        model: &Model,
        training: TrainingSpec,
        stage: StageConfig,
        chunks: Option<InChunks<'_>>,
        capacity: Bytes,
    ) -> Result<Vec<Trained>> {
        let folder = tempfile::Builder::new().prefix("lmc").tempdir()?;
        let (before, after) =
            (u32::from(stage.first_layer > 0), u32::from(stage.last_layer + 1 < model.layers().len()));
        let position = SoloStage { stage, stage_count: 1 + before + after, stage_index: before };
        let spec = |shard| RankSpec {
            shard,
            iterations: self.setting.iterations,
            device: self.device(capacity),
            threads: self.threads(),
            contention: self.contention(folder.path()),
            actions: chunks.map(|(_, actions)| actions.clone()).unwrap_or_default(),
            chunks: chunks.map(|(chunks, _)| Box::new(chunks.clone())),
            pace: self.pace(),
            ..rank_spec(model, training, position, folder.path(), capacity)
        };
        let ended = self.run("train", &(0..stage.devices()).map(spec).collect::<Vec<_>>()).await?;
        Ok(ended.into_iter().map(Ended::measurement).collect())
    }

    /// The link that a ring over so many slots would have, as their all-reduces measure it.
    pub(crate) async fn link(&self, ranks: u32) -> Result<Link> {
        let folder = tempfile::Builder::new().prefix("lmc").tempdir()?;
        let spec = |index| LinkSpec {
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
        let ended = self.run("links", &(0..ranks).map(spec).collect::<Vec<_>>()).await?;
        let link = ended.into_iter().find_map(|ended| {
            let Some(RankEvent::LinksMeasured { links }) = ended.event else { return None };
            links.groups.iter().find(|group| group.devices.len() == ranks as usize).map(|group| group.link)
        });
        link.context("the ranks measured no link between them")
    }

    async fn run(&self, command: &str, specs: &[impl Serialize]) -> Result<Vec<Ended>> {
        let ended = ranks::run(command, specs, self.threads(), self.setting.backend, LIMIT).await?;
        ended.context("ranks ran for an hour")
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
    fn contention(&self, folder: &Path) -> Option<Contention> {
        let companions = cores().saturating_sub(1);
        (!self.is_gpu()).then(|| Contention { companions, turns: folder.join("turns") })
    }
}

/// Of this machine, which ranks share.
pub(crate) fn cores() -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    u32::try_from(cores).unwrap_or(u32::MAX)
}
