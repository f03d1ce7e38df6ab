//! A run that trains next to nothing.

use loadmaster_proto::measure::run::{RunSpec, SoloStage, Work};
use loadmaster_proto::model::layer::{Layer, LayerKind};
use loadmaster_proto::model::{Model, ModelInput};
use loadmaster_proto::training::stage::{Partitioning, StageConfig};
use loadmaster_proto::training::strategy::Strategy;
use loadmaster_proto::training::{Schedule, TrainingSpec};

/// One iteration of a model of two layers: a stage of both alone, or a stage of each.
pub fn run(stages: usize) -> RunSpec {
    let layer = |name: &str, kind| Layer { name: name.into(), kind };
    let layers = vec![
        layer("flatten", LayerKind::Flatten),
        layer("out", LayerKind::Linear { in_features: 4, out_features: 2 }),
    ];
    let input = ModelInput::Image { channels: 1, height: 2, width: 2 };
    let work = match stages {
        2 => Work::Partitioning(Partitioning::from_sizes(&[1, 1]).unwrap()),
        _ => Work::Solo(SoloStage { stage: StageConfig::single(0, 1), stage_count: 1, stage_index: 0 }),
    };
    RunSpec {
        model: Model::new("test".into(), input, layers).unwrap(),
        strategy: Strategy::plain(TrainingSpec { seed: 0, ..crate::training(Schedule::Gpipe, 1, 1) }, work),
        iterations: 1,
        command: None,
    }
}
