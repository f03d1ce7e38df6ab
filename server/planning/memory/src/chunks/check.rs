//! What a profile's run in chunks taught.

use loadmaster_proto::measure::chunked::ChunkRun;
use loadmaster_proto::measure::measurement::Measurement;

/// What a run of the whole model in chunks, all of them updated on the host, told of its machine.
#[derive(Debug, Clone, PartialEq)]
pub struct ChunkCheck {
    /// Name of its measurement.
    pub run: String,
    /// Parameters that the host updates in a second.
    pub update_rate: f64,
    /// What it moved and held.
    pub measured: ChunkRun,
}

impl ChunkCheck {
    /// What the last of these measurements, by name, that was in chunks taught.
    pub fn last_of<'a>(
        named: impl Iterator<Item = (String, &'a Measurement)>,
        parameters: u64,
    ) -> Option<Self> {
        named.filter_map(|(name, measurement)| Self::of(name, parameters, measurement)).last()
    }

    /// Returns what a measurement of this name contains about a model of so many parameters. None where nothing was
    /// trained in chunks, or the host's seconds are no time in which it can have updated them.
    pub fn of(run: String, parameters: u64, measurement: &Measurement) -> Option<Self> {
        let measured = measurement.chunks.as_deref()?;
        let update_rate = parameters as f64 / measured.step_seconds;
        let is_rate = update_rate.is_finite() && update_rate > 0.0;
        is_rate.then(|| Self { run, update_rate, measured: measured.clone() })
    }
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::training::stage::StageConfig;

    use super::*;
    use loadmaster_samples::measurement;

    fn rate(parameters: u64, seconds: Option<f64>) -> Option<f64> {
        let chunks = seconds.map(|step_seconds| Box::new(ChunkRun { step_seconds, ..ChunkRun::default() }));
        let measurement = Measurement { chunks, ..measurement(StageConfig::single(0, 3)) };
        ChunkCheck::of("runs/1/measurements/0-0".to_owned(), parameters, &measurement)
            .map(|of| of.update_rate)
    }

    #[test]
    fn the_host_updates_a_models_parameters_in_the_seconds_of_its_steps() {
        assert_eq!(rate(3_000_000, Some(0.5)), Some(6e6));
    }

    #[test]
    fn what_is_no_rate_teaches_nothing() {
        for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-320] {
            assert_eq!(rate(3_000_000, Some(seconds)), None, "{seconds}");
        }
        assert_eq!(rate(0, Some(0.5)), None, "nothing was updated");
        assert_eq!(rate(3_000_000, None), None, "nothing was in chunks");
    }
}
