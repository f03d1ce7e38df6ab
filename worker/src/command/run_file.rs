//! What a command is told: the file that `LOADMASTER_RUN` names.

use std::path::Path;

use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::device::Backend;
use loadmaster_proto::measure::run::{RunSpec, Work};
use loadmaster_proto::model::Model;
use loadmaster_proto::training::{RecomputePolicy, TrainingSpec};
use serde::Serialize;

use crate::run::Job;

/// First key of the file. Keys may be added within a version.
const FORMAT: &str = "loadmaster.run/1";

/// A run as a training command sees it. Documented for its readers in deploy/command/README.md.
#[derive(Debug, Serialize)]
pub(super) struct RunFile<'a> {
    format: &'static str,
    run: String,
    /// Where `rank-N.json` belongs.
    results: &'a Path,
    /// Ledger that the peaks are expected in.
    ledger: Accounting,
    deadline_seconds: f64,
    /// Iterations to measure, after one that is not.
    iterations: u32,
    warm_up_iterations: u32,
    training: TrainingSpec,
    model: &'a Model,
    /// One stage alone, its neighbours to be made up.
    solo: bool,
    /// Stages of the pipeline, of which a solo run has but one.
    stage_count: u32,
    stages: Vec<Stage>,
    ranks: Vec<Rank<'a>>,
}

/// A stage that the run has.
#[derive(Debug, Serialize)]
struct Stage {
    stage_index: u32,
    first_layer: usize,
    last_layer: usize,
    data_degree: u32,
    tensor_degree: u32,
    /// What its backward pass computes again.
    recompute: RecomputePolicy,
    /// The most micro-batches between forward and backward at once.
    in_flight: u32,
    /// Its ranks, by number.
    ranks: Vec<usize>,
}

/// A rank and its device.
#[derive(Debug, Serialize)]
struct Rank<'a> {
    rank: usize,
    stage_index: u32,
    /// Which device of the stage.
    shard: u32,
    device: DeviceOfRank<'a>,
}

#[derive(Debug, Serialize)]
struct DeviceOfRank<'a> {
    id: &'a str,
    backend: Backend,
    kind: &'a str,
    /// The index that CUDA gives it in the command; none on CPU slots.
    cuda_index: Option<usize>,
    /// Bytes that the rank may use.
    capacity_bytes: Bytes,
}

/// Iterations before the measured ones, which create the optimizer's state.
const WARM_UP_ITERATIONS: u32 = 1;

impl<'a> RunFile<'a> {
    /// The run of a job whose GPUs CUDA shows in the order of `visible`.
    pub(super) fn of(
        job: &'a Job<RunSpec>,
        results: &'a Path,
        ledger: Accounting,
        visible: &[&str],
        deadline_seconds: f64,
    ) -> Self {
        let places = job.task.ranks();
        let positions = job.task.stages();
        let stages = positions
            .iter()
            .map(|position| Stage {
                stage_index: position.stage_index,
                first_layer: position.stage.first_layer,
                last_layer: position.stage.last_layer,
                data_degree: position.stage.data_degree,
                tensor_degree: position.stage.tensor_degree,
                recompute: job.task.strategy.training_at(position).recompute,
                in_flight: job.task.strategy.training.schedule.in_flight(
                    position.stage_count,
                    position.stage_index,
                    job.task.strategy.training.micro_batches,
                ),
                ranks: (0..places.len())
                    .filter(|&rank| places[rank].position.stage_index == position.stage_index)
                    .collect(),
            })
            .collect();
        let ranks = places
            .iter()
            .zip(&job.lease.devices)
            .enumerate()
            .map(|(rank, (place, device))| Rank {
                rank,
                stage_index: place.position.stage_index,
                shard: place.shard,
                device: DeviceOfRank {
                    id: &device.id,
                    backend: device.backend,
                    kind: &device.kind,
                    cuda_index: visible.iter().position(|&uuid| uuid == device.uuid),
                    capacity_bytes: device.capacity,
                },
            })
            .collect();
        Self {
            format: FORMAT,
            run: job.lease.claim.run.to_string(),
            results,
            ledger,
            deadline_seconds,
            iterations: job.task.iterations,
            warm_up_iterations: WARM_UP_ITERATIONS,
            training: job.task.strategy.training,
            model: &job.task.model,
            solo: matches!(job.task.strategy.work, Work::Solo(_)),
            stage_count: positions.first().map_or(0, |position| position.stage_count),
            stages,
            ranks,
        }
    }
}
