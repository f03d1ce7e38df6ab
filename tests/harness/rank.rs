//! What a rank is told that a test starts itself.

use std::path::Path;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::device::{Backend, CPU_KIND};
use loadmaster_proto::measure::links::Collectives;
use loadmaster_proto::measure::offload::CopyPace;
use loadmaster_proto::measure::rank::{Edges, RankDevice, RankSpec};
use loadmaster_proto::measure::run::SoloStage;
use loadmaster_proto::model::Model;
use loadmaster_proto::training::TrainingSpec;
use loadmaster_proto::training::actions::StageActions;

/// Seconds that a rank waits for another one of its stage.
const NEIGHBOUR_TIMEOUT_SECONDS: f64 = 120.0;

/// The first rank of a stage on a CPU slot of so many bytes, which computes with one thread.
pub fn rank_spec(
    model: &Model,
    training: TrainingSpec,
    position: SoloStage,
    folder: &Path,
    capacity: Bytes,
) -> RankSpec {
    RankSpec {
        model: model.clone(),
        training,
        position,
        shard: 0,
        edges: Edges::Synthetic,
        folder: folder.to_owned(),
        collectives: Collectives::Host,
        iterations: 1,
        device: RankDevice {
            backend: Backend::Cpu,
            kind: CPU_KIND.to_owned(),
            ordinal: 0,
            capacity,
            physical: capacity,
            driver_version: String::new(),
        },
        threads: 1,
        contention: None,
        neighbour_timeout_seconds: NEIGHBOUR_TIMEOUT_SECONDS,
        actions: StageActions::default(),
        chunks: None,
        pace: CopyPace::default(),
        dump_gradients: None,
        dump_parameters: None,
    }
}
