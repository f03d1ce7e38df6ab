//! One run of a profiling, before anybody looked whether it has been made.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::chunks::stage::ChunkedStage;
use loadmaster_proto::measure::run::{SoloStage, Work};
use loadmaster_proto::model::Model;
use loadmaster_proto::model::layer::fingerprint;
use loadmaster_proto::name::CommandName;
use loadmaster_proto::profile::ProfileSettings;
use loadmaster_proto::training::TrainingSpec;
use loadmaster_proto::training::scenario::Scenario;
use loadmaster_proto::training::sharding::StateSharding;
use loadmaster_proto::training::stage::StageConfig;
use loadmaster_proto::training::strategy::Strategy;
use serde::Serialize;

use super::stages::stage_key;

/// Version of what a measurement means. A change in what ranks measure, or in how runs are distinguished,
/// raises it, so that older measurements are not taken for new ones. Ranks of an older release must not
/// measure for newer keys: a raise that concerns ranks raises
/// [`WORKER_PROTOCOL_VERSION`](loadmaster_proto::WORKER_PROTOCOL_VERSION) too.
pub const MEASUREMENT_VERSION: u32 = 4;

/// What to train, and what for.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedRun {
    /// How stages are trained, with the micro-batch size of this run.
    pub strategy: Strategy,
    /// What its measurements are for.
    pub purpose: Purpose,
}

/// A planned run with [its key](PlannedRun::key).
#[derive(Debug, Clone, PartialEq)]
pub struct KeyedRun {
    /// What it measures.
    pub key: String,
    pub run: PlannedRun,
}

/// What the measurements of a run are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Predictors are made from them.
    Fit,
    /// Predictors are held against them, and learn nothing from them.
    Check,
}

impl PlannedRun {
    /// The same run at another micro-batch size.
    #[must_use]
    pub fn at(&self, micro_batch_size: u32) -> Self {
        let training = self.strategy.training.with_micro_batch_size(micro_batch_size);
        Self { strategy: Strategy { training, ..self.strategy.clone() }, ..self.clone() }
    }

    /// Index of the first layer that it trains.
    pub fn first_layer(&self) -> usize {
        match &self.strategy.work {
            Work::Solo(solo) => solo.stage.first_layer,
            Work::Partitioning(_) => 0,
        }
    }

    /// Devices that it needs at once.
    pub fn device_count(&self) -> u32 {
        self.strategy.device_count()
    }

    /// How its stages are shared among devices: the most devices of any stage count. No profiling shares a
    /// stage in two ways at once.
    pub fn scenario(&self) -> Scenario {
        self.stages().iter().filter_map(StageConfig::scenario).max_by_key(|of| of.degree).unwrap_or_default()
    }

    /// The smallest micro-batch size to try when it does not fit, and the step between sizes; none for a
    /// run that is not worth a second attempt.
    pub fn smallest_micro_batch_size(&self) -> Option<u32> {
        match self.purpose {
            Purpose::Fit => Some(self.scenario().micro_batch_step()),
            Purpose::Check => None,
        }
    }

    /// A content id of all that decides what it measures, but for its micro-batch size and the software
    /// and device that it runs on. Runs of equal keys and sizes in equal environments measure the same,
    /// whatever model and profile they were made for. Seeds do not count: they change values, not bytes. Nor does how much
    /// of the host chunks may take, for they take what they need.
    pub fn key(&self, model: &Model, settings: &ProfileSettings) -> String {
        #[derive(Serialize)]
        struct Key<'a> {
            version: u32,
            solo: bool,
            stages: Vec<(String, u32, u32, u32)>,
            training: TrainingSpec,
            iterations: u32,
            command: Option<&'a CommandName>,
            #[serde(skip_serializing_if = "Option::is_none")]
            chunks: Option<ChunkedStage>,
            #[serde(skip_serializing_if = "Vec::is_empty")]
            shardings: Vec<StateSharding>,
        }
        let in_flight = |position: &SoloStage| {
            let TrainingSpec { schedule, micro_batches, .. } = self.strategy.training;
            schedule.in_flight(position.stage_count, position.stage_index, micro_batches)
        };
        let stages = self.strategy.positions();
        let shardings: Vec<StateSharding> = stages.iter().map(|position| position.stage.sharding).collect();
        let are_none = shardings.iter().all(StateSharding::is_none);
        fingerprint(&Key {
            version: MEASUREMENT_VERSION,
            solo: matches!(self.strategy.work, Work::Solo(_)),
            stages: stages
                .iter()
                .map(|position| {
                    let StageConfig { first_layer, last_layer, data_degree, tensor_degree, .. } =
                        position.stage;
                    let content = stage_key(model, first_layer, last_layer);
                    (content, data_degree, tensor_degree, in_flight(position))
                })
                .collect(),
            training: TrainingSpec { micro_batch_size: 0, seed: 0, ..self.strategy.training },
            iterations: settings.iterations,
            command: settings.command.as_ref(),
            chunks: self
                .strategy
                .chunks()
                .map(|chunks| ChunkedStage { host_memory: Bytes(0), ..chunks.clone() }),
            shardings: if are_none { Vec::new() } else { shardings },
        })
    }

    fn stages(&self) -> Vec<StageConfig> {
        self.strategy.positions().iter().map(|position| position.stage).collect()
    }
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::measure::run::ProfilingMode;
    use loadmaster_proto::training::Schedule;

    use super::*;
    use crate::tests::{gpt2, settings, training};

    /// Stored runs are found by their keys: a run without chunks has the one that it had before there were any.
    #[test]
    fn keys_without_chunks_are_what_they_were() {
        #[derive(Serialize)]
        struct Before {
            version: u32,
            solo: bool,
            stages: Vec<(String, u32, u32, u32)>,
            training: TrainingSpec,
            iterations: u32,
            command: Option<String>,
        }
        let model = gpt2(2);
        let training = training(Schedule::Gpipe, 8, 3);
        let settings = settings(ProfilingMode::PerLayer, training, None);
        let position = SoloStage { stage: StageConfig::single(1, 2), stage_count: 3, stage_index: 1 };
        let run =
            PlannedRun { strategy: Strategy::plain(training, Work::Solo(position)), purpose: Purpose::Fit };
        let before = Before {
            version: 4,
            solo: true,
            stages: vec![(stage_key(&model, 1, 2), 1, 1, 3)],
            training: TrainingSpec { micro_batch_size: 0, seed: 0, ..training },
            iterations: settings.iterations,
            command: None,
        };
        assert_eq!(run.key(&model, &settings), fingerprint(&before));
    }
}
