//! How fast copies and updates of chunks are, and who says so.

use loadmaster_proto::cluster::device::CPU_KIND;
use loadmaster_proto::cluster::quantity;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::plan::lane_rates::LaneRates;

use super::ChunksQuestion;
use super::device::ChunkDevices;
use crate::chunks::ProfiledPasses;
use crate::predict::PredictionError;
use crate::recommend::acted::{CopyLinks, HostRates, or_other_rates};
use crate::recommend::answer::QuestionError;

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
        let (alone, updates) = self.host_update(devices)?;
        let slower = devices.slower();
        let update = alone / slower;
        let rates = LaneRates {
            up,
            down,
            copy_seconds,
            update,
            device_update: if kind == CPU_KIND { update } else { self.device_update(devices)? },
            gather: devices.inside.bytes_per_second,
            collective_seconds: devices.inside.latency_seconds,
        };
        let mut told = format!("{}; updates on the host at {updates}", or_other_rates(&links));
        if devices.ranks() > 1 {
            let inside = quantity::show_bytes_per_second(rates.gather);
            told = format!("{told}; between ranks {inside} ({})", devices.inside.origin.as_str());
        }
        if slower > 1.0 {
            let ranks = devices.ranks();
            told = format!(
                "{told}; passes and updates take {slower:.2} times as long, since {ranks} ranks share fewer cores"
            );
        }
        Ok(SourcedRates { rates, told })
    }

    /// Parameters that the host updates in a second for each rank, as for one alone, and who says so.
    fn host_update(&self, devices: &ChunkDevices<'_>) -> Result<(f64, String), QuestionError> {
        let millions = |rate: f64| format!("{:.1} M parameters/s", rate / 1e6);
        if let Some(rate) = self.asked.host_update {
            return Ok((rate, format!("{} (given)", millions(rate))));
        }
        match &devices.chain.chunk_check {
            Some(check) => {
                Ok((check.update_rate, format!("{} (measured by {})", millions(check.update_rate), check.run)))
            }
            None => Err(PredictionError::NotProfiled(format!(
                "{} does not say how fast its hosts update parameters, which a training in chunks is planned by: profile \
                 with `--host-memory`, which trains in chunks once, or name `--host-update`",
                devices.chain.profile
            ))
            .into()),
        }
    }

    /// The same of the device, from the steps of plain training.
    fn device_update(&self, devices: &ChunkDevices<'_>) -> Result<f64, QuestionError> {
        let passes = ProfiledPasses {
            predictor: &*devices.chain.predictor,
            model: self.model()?,
            training: self.writer.training,
            ranks: 1,
            margin: self.writer.margin,
            factors: [1.0; 2],
        };
        let seconds: f64 = passes.layer_costs()?.iter().map(|of| of.seconds.step).sum();
        let rate = passes.model.parameter_count() as f64 / seconds;
        if rate.is_finite() && rate > 0.0 {
            return Ok(rate);
        }
        let why = "says no seconds of the optimizer's step: profile with `--campaign minimal`";
        Err(Invalid::field("profile", why).into())
    }
}
