//! How fast copies and updates of chunks are, and who says so.

use loadmaster_proto::cluster::device::CPU_KIND;
use loadmaster_proto::cluster::quantity;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::plan::rates::LaneRates;
use loadmaster_proto::training::step_kind::StepKind;

use super::ChunksQuestion;
use super::device::ChunkDevices;
use super::updates::{KnownUpdates, UpdateRate};
use crate::memory_optimizations::{CopyLinks, HostRates, or_other_rates};
use crate::result::QuestionError;
use loadmaster_memory::chunks::ProfiledPasses;
use loadmaster_predict::PredictionError;

/// Rates, and where they come from.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SourcedRates {
    pub(super) rates: LaneRates,
    /// For people.
    pub(super) told: String,
}

impl ChunksQuestion<'_> {
    /// # Errors
    /// Nobody knows how fast the host updates.
    pub(super) fn rates(&self, devices: &ChunkDevices<'_>) -> Result<SourcedRates, QuestionError> {
        let kind = devices.kind();
        let places = devices.placed.iter().map(|placed| (devices.node, placed.index)).collect();
        let all = CopyLinks::of(&[places], kind, self.request.copy_pace);
        let links = all.host_way(0);
        let HostRates { up, down, copy_seconds } = all.host_rates();
        let updates = self.host_update(devices)?;
        let (slower, update) = (devices.slower(), updates.each);
        let rates = LaneRates {
            up,
            down,
            copy_seconds,
            update,
            device_update: if kind == CPU_KIND { update } else { self.device_update(devices)? },
            gather: devices.inside.bytes_per_second,
            collective_seconds: devices.inside.latency_seconds,
            // All that updates go over.
            host_memory: (kind != CPU_KIND).then(|| self.step().moved_bytes() as f64 * update),
        };
        let mut told = format!("{}; updates on the host at {}", or_other_rates(&links), updates.told);
        if devices.replicas > 1 {
            let inside = quantity::show_bytes_per_second(rates.gather);
            told = format!("{told}; between ranks {inside} ({})", devices.inside.origin.as_str());
        }
        if slower > 1.0 {
            let ranks = devices.ranks();
            let what = if updates.knows_shares { "passes" } else { "passes and updates" };
            told = format!(
                "{told}; {what} take {slower:.2} times as long, since {ranks} ranks share their host's cores"
            );
        }
        Ok(SourcedRates { rates, told })
    }

    /// Parameters that the host updates in a second for each rank, all of them at once, and who says so.
    fn host_update(&self, devices: &ChunkDevices<'_>) -> Result<UpdateRate, QuestionError> {
        let known = KnownUpdates {
            given: self.asked.host_update,
            profiled: devices.chain.chunk_check.as_ref(),
            described: devices.node.and_then(|node| node.host_update(self.step())),
            ranks: devices.ranks(),
            slower: devices.slower(),
        };
        known.rate().ok_or_else(|| {
            PredictionError::NotProfiled(format!(
                "{} does not say how fast its hosts update parameters, which a training in chunks is planned by, and no cluster \
                 that is named does: profile with `--host-memory`, which trains in chunks once, plan on a cluster that was \
                 discovered after `cluster measure`, or name `--host-update`",
                devices.chain.profile
            ))
            .into()
        })
    }

    fn step(&self) -> StepKind {
        let training = &self.builder.training;
        StepKind::of(&training.optimizer, training.precision)
    }

    /// Parameters that the device updates in a second, from the steps of plain training.
    fn device_update(&self, devices: &ChunkDevices<'_>) -> Result<f64, QuestionError> {
        let passes = ProfiledPasses {
            predictor: &*devices.chain.predictor,
            model: self.model()?,
            training: self.builder.training,
            ranks: 1,
            shards: 1,
            margin: self.builder.margin,
            factors: [1.0; 2],
        };
        let seconds: f64 = passes.layer_costs()?.iter().map(|of| of.seconds.step).sum();
        let rate = passes.model.parameter_count() as f64 / seconds;
        if rate.is_finite() && rate > 0.0 {
            return Ok(rate);
        }
        let why = "says no seconds of the optimizer's step: profile with `--campaign minimal`, or give each layer of an imported \
                   table `update_seconds`";
        Err(Invalid::field("profile", why).into())
    }
}
