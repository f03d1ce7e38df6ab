//! How fast copies and updates of chunks are, and who says so.

use loadmaster_proto::cluster::device::CPU_KIND;
use loadmaster_proto::error::Invalid;

use super::ChunksQuestion;
use super::device::ChunkDevice;
use crate::chunks::{LaneRates, ProfiledPasses};
use crate::predict::PredictionError;
use crate::recommend::acted::CopyLinks;
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
    pub(super) fn rates(&self, device: &ChunkDevice<'_>) -> Result<SourcedRates, QuestionError> {
        let kind = device.placed.kind.as_str();
        let place = (device.node, device.placed.index);
        let (link, links) = CopyLinks::of(&[vec![place]], kind, self.request.copy_pace).host_way(0);
        // Both directions at once slow each other down: as if each always had its part.
        let both = link.out.bytes_per_second + link.back.bytes_per_second;
        let part = link.both_bytes_per_second.map_or(1.0, |together| (together / both).min(1.0));
        let (update, updates) = self.host_update(device)?;
        let rates = LaneRates {
            up: link.back.bytes_per_second * part,
            down: link.out.bytes_per_second * part,
            copy_seconds: link.out.latency_seconds.max(link.back.latency_seconds),
            update,
            device_update: if kind == CPU_KIND { update } else { self.device_update(device)? },
        };
        Ok(SourcedRates { rates, told: format!("{links}; updates on the host at {updates}") })
    }

    /// Parameters that the host updates in a second, and who says so.
    fn host_update(&self, device: &ChunkDevice<'_>) -> Result<(f64, String), QuestionError> {
        let millions = |rate: f64| format!("{:.1} M parameters/s", rate / 1e6);
        if let Some(rate) = self.asked.host_update {
            return Ok((rate, format!("{} (given)", millions(rate))));
        }
        match &device.chain.chunk_check {
            Some(check) => {
                Ok((check.update_rate, format!("{} (measured by {})", millions(check.update_rate), check.run)))
            }
            None => Err(PredictionError::NotProfiled(format!(
                "{} does not say how fast its hosts update parameters, which a training in chunks is planned by: profile \
                 with `--host-memory`, which trains in chunks once, or name `--host-update`",
                device.chain.profile
            ))
            .into()),
        }
    }

    /// The same of the device, from the steps of plain training.
    fn device_update(&self, device: &ChunkDevice<'_>) -> Result<f64, QuestionError> {
        let passes = ProfiledPasses {
            predictor: &*device.chain.predictor,
            model: self.model()?,
            training: self.writer.training,
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
