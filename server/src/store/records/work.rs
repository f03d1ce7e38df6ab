//! What a run does, as its row says it: stages of a model that are trained with settings, or links, and nothing else.

use loadmaster_proto::chunks::stage::ChunkedStage;
use loadmaster_proto::measure::links::LinkWork;
use loadmaster_proto::measure::run::{RunSpec, Task, Work};
use loadmaster_proto::model::Model;
use loadmaster_proto::name::CommandName;
use loadmaster_proto::training::actions::StageActions;
use loadmaster_proto::training::strategy::Strategy;
use loadmaster_proto::training::{RecomputePolicy, TrainingSpec};
use serde::Deserialize;
use sqlx::FromRow;
use sqlx::types::Json;

use super::{RunWork, TrainedWork};
use crate::store::columns::Stored;
use crate::store::error::{Result, StoreError};

/// The columns of a run's work. `M` is what is read of its model: its name, or all of it.
#[derive(FromRow)]
pub(super) struct WorkRow<M> {
    model: Option<M>,
    training: Option<Json<TrainingSpec>>,
    #[sqlx(json)]
    work: StoredWork,
    #[sqlx(json)]
    stage_recompute: Vec<RecomputePolicy>,
    #[sqlx(json)]
    stage_actions: Vec<StageActions>,
    chunks: Option<Json<Box<ChunkedStage>>>,
    #[sqlx(try_from = "i32")]
    iterations: u32,
    #[sqlx(try_from = "Stored<Option<String>>")]
    command: Option<CommandName>,
}

/// The document in a run's column `work`.
#[derive(Deserialize)]
#[serde(untagged)]
enum StoredWork {
    /// Exchanges between devices.
    Links { links: LinkWork },
    /// Stages to train.
    Stages(Work),
}

/// What the columns say together.
enum WorkColumns<M> {
    Links(LinkWork),
    Stages { model: M, strategy: Strategy, iterations: u32, command: Option<CommandName> },
}

fn told<M>(row: WorkRow<M>) -> Result<WorkColumns<M>> {
    let WorkRow { model, training, work, stage_recompute, stage_actions, chunks, iterations, command } = row;
    match (work, model, training) {
        (StoredWork::Links { links }, None, None) => Ok(WorkColumns::Links(links)),
        (StoredWork::Stages(work), Some(model), Some(Json(training))) => {
            let strategy = Strategy::plain(training, work)
                .with_recompute(stage_recompute)
                .and_then(|strategy| strategy.with_actions(stage_actions))
                .map_err(|invalid| StoreError::corrupt(format!("a stored run is not consistent: {invalid}")))?
                .with_chunks(chunks.map(|Json(chunks)| chunks));
            Ok(WorkColumns::Stages { model, strategy, iterations, command })
        }
        _ => Err(StoreError::corrupt(
            "a stored run is not consistent: expected a training with a model and settings, or a link \
             measurement without a model and settings",
        )),
    }
}

/// For lists: the model's name is enough.
impl TryFrom<WorkRow<Stored<String>>> for RunWork {
    type Error = StoreError;

    fn try_from(row: WorkRow<Stored<String>>) -> Result<Self> {
        Ok(match told(row)? {
            WorkColumns::Links(links) => Self::Links(links),
            WorkColumns::Stages { model, strategy, iterations, command } => {
                Self::Stages(TrainedWork { model: model.try_into()?, strategy, iterations, command })
            }
        })
    }
}

/// For workers: all that they need.
impl TryFrom<WorkRow<Json<Model>>> for Task {
    type Error = StoreError;

    fn try_from(row: WorkRow<Json<Model>>) -> Result<Self> {
        Ok(match told(row)? {
            WorkColumns::Links(links) => Self::Links(links),
            WorkColumns::Stages { model: Json(model), strategy, iterations, command } => {
                Self::Train(Box::new(RunSpec { model, strategy, iterations, command }))
            }
        })
    }
}
