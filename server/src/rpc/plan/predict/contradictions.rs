//! What a request for a prediction must not say together of where parameters and state are.

use loadmaster_predict::choose::PredictorKind;
use loadmaster_predict::forecast::ForecastError;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::plan::chunked::MemoryMode;
use loadmaster_proto::plan::compatibility::{Setting, Settings};
use loadmaster_proto::training::TrainingSpec;
use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::predict_plan_request::Subject as Asked;

use crate::rpc::error::ApiError;
use crate::rpc::plan::request::first_choice;

/// Checks that a request says one thing alone of where parameters and state are.
///
/// # Errors
/// Names the field that contradicts the others.
pub(super) fn check(
    asked: &v1::PredictPlanRequest,
    mode: Option<MemoryMode>,
    kind: Option<PredictorKind>,
) -> Result<(), Invalid> {
    check_used(asked)?;
    let is_chosen = matches!(mode, Some(MemoryMode::Chunks | MemoryMode::Best));
    let fixed = asked.memory().chunk_options.as_ref().map(first_choice);
    let capture = kind.filter(|kind| *kind == PredictorKind::Capture);
    let settings = Settings::default()
        .when(!is_chosen, Setting::ChosenByNobody)
        .when(mode == Some(MemoryMode::Plain), Setting::Plain)
        .when(asked.memory().host_memory_bytes != 0, Setting::HostMemory)
        .when(asked.memory().cpu_optimizer_rate != 0.0, Setting::HostUpdate)
        .when(asked.memory().copy_bandwidth.is_some(), Setting::CopyRates)
        .when(asked.memory().chunked_training.is_some(), Setting::GivenChunks)
        .when(!asked.memory().stage_memory_optimizations.is_empty(), Setting::StageActions)
        .when(matches!(asked.subject, Some(Asked::Stage(_))), Setting::SoloStage)
        .says_some(Setting::CapturePredictor, capture)
        .when(!asked.problem().devices.is_empty(), Setting::Devices)
        .when(asked.device_capacity_bytes != 0, Setting::Capacity)
        .when(fixed.is_some(), Setting::ChunkChoices)
        .in_field(Setting::ChunkChoices, fixed.unwrap_or_default());
    match is_chosen {
        true => settings.says_instead(Setting::Chunks, "", "memory.chunk_options.activation_places").check(),
        false => settings.check(),
    }
}

/// Checks that a request sets no field that is for recommendations alone.
fn check_used(asked: &v1::PredictPlanRequest) -> Result<(), Invalid> {
    let (problem, memory) = (asked.problem(), asked.memory());
    let set = [
        ("problem.other_profiles", !problem.other_profiles.is_empty()),
        ("problem.cluster", !problem.cluster.is_empty()),
        ("problem.framework_version", !problem.framework_version.is_empty()),
        ("problem.global_batch_size", problem.global_batch_size != 0),
        ("problem.virtual_stage_count", problem.virtual_stage_count != 0),
        ("problem.communication_overlap", problem.communication_overlap != 0),
        ("problem.calibrate", problem.calibrate),
        ("memory.optimizations", !memory.optimizations.is_empty()),
        ("memory.blocks", !memory.blocks.is_empty()),
        ("memory.min_block_bytes", memory.min_block_bytes != 0),
    ];
    match set.into_iter().find(|(_, is_set)| *is_set) {
        Some((field, _)) => Err(Invalid::field(
            field,
            "set, but PredictPlan does not use it. Unset it, or call RecommendPlan.",
        )),
        None => Ok(()),
    }
}

/// An error of a plan's own chunks in the field that names another training than the plan's, where one does.
pub(super) fn of_plans_chunks(error: ApiError, own: &TrainingSpec, asked: &TrainingSpec) -> ApiError {
    let (ApiError::Invalid(invalid) | ApiError::Forecast(ForecastError::Actions(invalid))) = &error else {
        return error;
    };
    let Some(violation) =
        invalid.violations().first().filter(|of| of.field.starts_with("memory.chunked_training"))
    else {
        return error;
    };
    let refused = Settings::default()
        .says(Setting::PlansChunks, &violation.description)
        .when(own.recompute != asked.recompute, Setting::Recompute)
        .when(own.micro_batches != asked.micro_batches, Setting::MicroBatches)
        .when(own.schedule != asked.schedule, Setting::Schedule)
        .when(own.micro_batch_size != asked.micro_batch_size, Setting::MicroBatchSize)
        .check();
    refused.map_or_else(ApiError::Invalid, |()| error)
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::training::stage::Partitioning;
    use loadmaster_proto::training::{RecomputePolicy, Schedule};

    use super::*;

    fn some() -> v1::PredictPlanRequest {
        let partitioning = Partitioning::from_sizes(&[7]).unwrap();
        v1::PredictPlanRequest {
            subject: Some(Asked::PipelineLayout((&partitioning).into())),
            ..Default::default()
        }
    }

    /// No one's words about chunks are dropped in silence, nor are those that contradict each other.
    #[test]
    fn contradictions_are_refused_by_field() {
        let refused = |asked: &v1::PredictPlanRequest, mode, kind| {
            check(asked, mode, kind).unwrap_err().violations()[0].field.clone()
        };
        let chosen = [Some(MemoryMode::Chunks), Some(MemoryMode::Best)];
        let chunk_choices = Some(v1::ChunkOptions::default());
        let copy_pace = Some(v1::CopyBandwidth::default());
        for mode in [None, Some(MemoryMode::Plain)] {
            assert_eq!(check(&some(), mode, Some(PredictorKind::Capture)), Ok(()));
            for (asked, field) in [
                (
                    loadmaster_proto::changed!(some(), memory.chunk_options = chunk_choices.clone()),
                    "memory.chunk_options",
                ),
                (
                    loadmaster_proto::changed!(some(), memory.host_memory_bytes = 1),
                    "memory.host_memory_bytes",
                ),
                (
                    loadmaster_proto::changed!(some(), memory.cpu_optimizer_rate = 1e8),
                    "memory.cpu_optimizer_rate",
                ),
                (
                    loadmaster_proto::changed!(some(), memory.copy_bandwidth = copy_pace),
                    "memory.copy_bandwidth",
                ),
            ] {
                assert_eq!(refused(&asked, mode, None), field);
                chosen.iter().for_each(|&mode| assert_eq!(check(&asked, mode, None), Ok(())));
            }
        }
        let orders = vec![v1::MicroBatchOrder::Layer.into()];
        let chunk_choices =
            Some(v1::ChunkOptions { micro_batch_orders: orders, ..v1::ChunkOptions::default() });
        let ordered = loadmaster_proto::changed!(some(), memory.chunk_options = chunk_choices);
        assert_eq!(refused(&ordered, None, None), "memory.chunk_options.micro_batch_orders");
        let given =
            loadmaster_proto::changed!(some(), memory.chunked_training = Some(v1::ChunkedStage::default()));
        assert_eq!(check(&given, None, None), Ok(()));
        assert_eq!(refused(&given, Some(MemoryMode::Plain), None), "memory.chunked_training");
        let stage_actions = vec![v1::StageMemoryOptimizations::default()];
        let acted = loadmaster_proto::changed!(some(), memory.stage_memory_optimizations = stage_actions);
        let subject = Some(Asked::Stage(v1::SoloStage::default()));
        let part = loadmaster_proto::changed!(some(), subject = subject);
        for mode in chosen {
            assert_eq!(refused(&given, mode, None), "memory.chunked_training");
            assert_eq!(refused(&acted, mode, None), "memory.stage_memory_optimizations");
            assert_eq!(refused(&part, mode, None), "stage");
            assert_eq!(refused(&some(), mode, Some(PredictorKind::Capture)), "problem.predictor");
            for kind in [PredictorKind::Component, PredictorKind::Table] {
                assert_eq!(check(&some(), mode, Some(kind)), Ok(()));
            }
        }
    }

    /// Where the chunks are a plan's, what is wrong is the setting that is not.
    #[test]
    fn another_training_than_the_plans_is_what_its_chunks_do_not_go_with() {
        let own = loadmaster_samples::training(Schedule::Gpipe, 8, 4);
        let told = |asked: &TrainingSpec, field: &str| {
            let error = ForecastError::from(Invalid::field(field, "chunk 1 is away"));
            match of_plans_chunks(error.into(), &own, asked) {
                ApiError::Invalid(invalid) | ApiError::Forecast(ForecastError::Actions(invalid)) => {
                    invalid.violations()[0].clone()
                }
                other => panic!("{other}"),
            }
        };
        let again = TrainingSpec { recompute: RecomputePolicy::Layer, ..own };
        let violation = told(&again, "memory.chunked_training.planned_residency.intervals");
        assert_eq!(violation.field, "problem.recompute");
        assert!(violation.description.contains("chunk 1 is away"), "{}", violation.description);
        let more = TrainingSpec { micro_batches: 8, ..own };
        assert_eq!(
            told(&more, "memory.chunked_training.planned_residency.intervals").field,
            "problem.micro_batch_count"
        );
        assert_eq!(
            told(&own, "memory.chunked_training.planned_residency.intervals").field,
            "memory.chunked_training.planned_residency.intervals"
        );
        assert_eq!(
            told(&again, "memory.stage_memory_optimizations").field,
            "memory.stage_memory_optimizations"
        );
    }
}
