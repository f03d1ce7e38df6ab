//! Which stages a prediction is about, and on how large devices.

use loadmaster_predict::StageSetting;
use loadmaster_predict::forecast::settings;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::error::{Invalid, in_range, required};
use loadmaster_proto::training::stage::{Partitioning, StageConfig};
use loadmaster_proto::training::{Schedule, TrainingSpec};
use loadmaster_proto::wire::v1::predict_plan_request::Subject as Asked;
use loadmaster_proto::wire::{field, v1};
use loadmaster_recommend::ProfiledChain;

use crate::rpc::plan::request;
use crate::store::records::PlanRecord;

/// The stages that are asked about.
///
/// # Errors
/// Names what is no stage of the model, or has no position.
pub(super) fn stages(
    asked: Asked,
    plan: Option<&PlanRecord>,
    training: &TrainingSpec,
    chain: &ProfiledChain,
) -> Result<Vec<StageSetting>, Invalid> {
    let partitioning = match asked {
        Asked::Stage(solo) => {
            let setting = one_stage(solo, training, chain.layer_names.len());
            let setting = setting.map_err(|invalid| invalid.under("stage"))?;
            let size = training.micro_batch_size;
            let checked =
                chain.model.as_ref().map_or(Ok(()), |model| model.check_stage(&setting.stage, size));
            return checked.map(|()| vec![setting]).map_err(|invalid| invalid.under("stage.stage"));
        }
        Asked::PipelineLayout(wire) => {
            Partitioning::try_from(wire).map_err(|invalid| invalid.under("pipeline_layout"))?
        }
        Asked::Plan(_) => {
            let stages = plan.into_iter().flat_map(|plan| &plan.content.stages);
            Partitioning::new(stages.map(|stage| stage.config).collect())?
        }
    };
    request::check_partitioning(chain, &partitioning, training.micro_batch_size)
        .map_err(|invalid| invalid.under("pipeline_layout"))?;
    Ok(settings(training, &partitioning))
}

/// A stage in the shortest pipeline that it can be in, or where the request puts it.
fn one_stage(solo: v1::SoloStage, training: &TrainingSpec, layers: usize) -> Result<StageSetting, Invalid> {
    let stage = StageConfig::try_from(required("stage", solo.stage)?).map_err(|e| e.under("stage"))?;
    in_range("stage.last_layer", stage.last_layer, stage.first_layer..=layers.saturating_sub(1))?;
    let count: u32 = field("stage_count", solo.stage_count)?;
    let index: u32 = field("stage_index", solo.stage_index)?;
    let (stage_index, stage_count) = if count > 0 {
        let most = u32::try_from(layers).unwrap_or(u32::MAX);
        in_range("stage_count", count, 1..=most)?;
        (in_range("stage_index", index, 0..=count - 1)?, count)
    } else if training.schedule == Schedule::PipeDream
        || (training.schedule == Schedule::OneFOneB && training.micro_batches > 1)
    {
        return Err(Invalid::field(
            "stage_count",
            "required together with `stage_index` for the pipeline schedules 1F1B and PipeDream: the position of a \
             stage determines how many micro-batches the stage stores",
        ));
    } else {
        let before = u32::from(stage.first_layer > 0);
        (before, before + 1 + u32::from(stage.last_layer + 1 < layers))
    };
    Ok(StageSetting { stage, stage_index, stage_count, training: *training })
}

/// Capacity of each device: as the request says in either way, else the plan's, else none.
///
/// # Errors
/// Names the field that is out of range, or says it twice.
pub(super) fn capacities(
    request: &v1::PredictPlanRequest,
    plan: Option<&PlanRecord>,
    chain: &ProfiledChain,
    devices: usize,
) -> Result<Vec<Bytes>, Invalid> {
    match (request.problem().devices.as_slice(), request.device_capacity_bytes) {
        ([], 0) => {
            let stages = plan.into_iter().flat_map(|plan| &plan.content.stages);
            Ok(stages
                .flat_map(|stage| std::iter::repeat_n(Bytes(stage.capacity), stage.config.devices() as usize))
                .collect())
        }
        ([], bytes) => Ok(vec![request::capacity("device_capacity_bytes", bytes)?; devices]),
        (groups, _) => request::capacities(groups, chain),
    }
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::training::{Optimizer, Precision, RecomputePolicy};

    use super::*;

    fn training(schedule: Schedule) -> TrainingSpec {
        TrainingSpec {
            precision: Precision::Fp32,
            optimizer: Optimizer::default(),
            schedule,
            micro_batch_size: 8,
            micro_batches: 4,
            recompute: RecomputePolicy::None,
            seed: 0,
        }
    }

    fn solo(first: usize, last: usize, stage_index: i32, stage_count: i32) -> v1::SoloStage {
        v1::SoloStage { stage: Some(StageConfig::single(first, last).into()), stage_index, stage_count }
    }

    /// Under GPipe a stage alone has a neighbour wherever the model has layers.
    #[test]
    fn a_stage_without_a_position_is_in_the_shortest_pipeline() {
        let position = |first, last| {
            let setting = one_stage(solo(first, last, 0, 0), &training(Schedule::Gpipe), 10).unwrap();
            (setting.stage_index, setting.stage_count)
        };
        assert_eq!(position(0, 9), (0, 1));
        assert_eq!(position(0, 3), (0, 2));
        assert_eq!(position(3, 5), (1, 3));
        assert_eq!(position(7, 9), (1, 2));
    }

    /// Under 1F1B the position decides the peak, so it must be told, and must be possible.
    #[test]
    fn the_position_of_a_stage_is_checked() {
        let field = |solo, schedule| {
            one_stage(solo, &training(schedule), 10).unwrap_err().violations()[0].field.clone()
        };
        assert_eq!(field(solo(3, 5, 0, 0), Schedule::OneFOneB), "stage_count");
        assert_eq!(field(solo(3, 5, 4, 4), Schedule::OneFOneB), "stage_index");
        assert_eq!(field(solo(3, 5, 0, 11), Schedule::Gpipe), "stage_count");
        assert_eq!(field(solo(3, 10, 0, 0), Schedule::Gpipe), "stage.last_layer");
        assert_eq!(field(v1::SoloStage::default(), Schedule::Gpipe), "stage");
        let placed = one_stage(solo(3, 5, 1, 4), &training(Schedule::OneFOneB), 10).unwrap();
        assert_eq!(placed.in_flight(), 3);
        let one = TrainingSpec { micro_batches: 1, ..training(Schedule::PipeDream) };
        let refused = one_stage(solo(3, 5, 0, 0), &one, 10).unwrap_err();
        assert_eq!(
            refused.violations()[0].field,
            "stage_count",
            "however few micro-batches an iteration has"
        );
    }
}
