//! `PredictMemory`.

use std::sync::Arc;

use loadmaster_planning::chunks::in_chunks;
use loadmaster_planning::predict::cores;
use loadmaster_planning::predict::forecast::{
    ActedForecast, devices, excluded, forecast, settings, with_actions,
};
use loadmaster_planning::predict::{Margin, Prediction, StageSetting};
use loadmaster_planning::recommend::{ProfiledChain, holds};
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::chunks::stage::ChunkedStage;
use loadmaster_proto::error::{Invalid, in_range, required};
use loadmaster_proto::name::PlanName;
use loadmaster_proto::plan::objective::Launcher;
use loadmaster_proto::training::actions::StageActions;
use loadmaster_proto::training::stage::{Partitioning, StageConfig};
use loadmaster_proto::training::{Schedule, TrainingSpec};
use loadmaster_proto::wire::v1::predict_memory_request::Subject as Asked;
use loadmaster_proto::wire::{field, v1};

use super::request::{self, Overrides};
use super::{Plans, message};
use crate::rpc::blocking::blocking;
use crate::rpc::error::ApiError;
use crate::store::records::PlanRecord;

impl Plans {
    pub(super) async fn predict(
        &self,
        mut request: v1::PredictMemoryRequest,
    ) -> Result<v1::PredictMemoryResponse, ApiError> {
        let asked = required("partitioning", request.subject.clone())
            .map_err(|_| Invalid::field("partitioning", "is required, or `stage`, or `plan`"))?;
        let plan = match &asked {
            Asked::Plan(name) => Some(self.store.get_plan(&PlanName::parse("plan", name)?).await?),
            Asked::Partitioning(_) | Asked::Stage(_) => None,
        };
        let document = std::mem::take(&mut request.profile_document);
        let name = match &plan {
            Some(plan) if request.profile.is_empty() && document.is_empty() => plan.content.profile.clone(),
            _ => self.profile(&request.profile, document).await?,
        };
        let margin = request::margin(request.margin)?;
        let kind = field("predictor", request.predictor)?;
        let named: Option<Launcher> = field("launcher", request.launcher)?;
        let launcher = named.or_else(|| plan.as_ref().and_then(|plan| plan.content.asked.launcher));
        let overrides = Overrides {
            micro_batch_size: request.micro_batch_size,
            micro_batches: request.micro_batches,
            schedule: request.schedule,
            recompute: request.recompute,
        };

        let revisions = self.revisions(std::slice::from_ref(&name), None).await?;
        let profiled = self.chain(name, kind, &revisions).await?;
        let chain = match &plan {
            // Of a larger model than was profiled.
            Some(plan)
                if plan.content.model != profiled.model_name && plan.content.profile == profiled.profile =>
            {
                let model = self.store.get_model(&plan.content.model).await?.model;
                Arc::new(self.family(&profiled.profile).await?.chain(&profiled, &model)?)
            }
            _ => profiled,
        };
        let training = overrides.apply(plan.as_ref().map_or(chain.training, |plan| plan.content.training))?;
        chain.model.as_ref().map_or(Ok(()), |model| training.check_model(model))?;
        let stages = stages(asked, plan.as_ref(), &training, &chain)?;
        let asked_actions: Vec<StageActions> = field("stage_actions", request.stage_actions.clone())?;
        let are_given = !asked_actions.is_empty();
        let actions = match &plan {
            // Other settings than the plan's may need other pools.
            Some(plan) if asked_actions.is_empty() => without_pools(plan.content.stage_actions()),
            _ => asked_actions,
        };
        let given = field::<Option<ChunkedStage>, _>("chunks", request.chunks.clone())?;
        let of_plan = || plan.as_ref()?.content.stages.first()?.chunks.as_deref().cloned();
        let chunks = given.or_else(of_plan);
        let capacities = capacities(&request, plan.as_ref(), &chain, devices(&stages))?;
        blocking("planning failed", move || {
            let ProfiledChain { profile, model_name, device_kind, layer_names, predictor, host, .. } =
                &*chain;
            if let Some(stage) = chunks {
                return in_given_chunks(&chain, &stages, (&stage, &actions), &capacities, (training, margin));
            }
            let (mut found, acted) = if actions.is_empty() {
                (forecast(&**predictor, &stages, &capacities, margin)?, None)
            } else {
                let model = chain.model.as_ref();
                let found = with_actions(&**predictor, model, &stages, &actions, &capacities, margin)?;
                let ActedForecast { forecast, stages } = found;
                if are_given {
                    stages.check_points()?;
                }
                (forecast, Some(stages))
            };
            if found.stages.iter().any(|of| of.prediction.seconds.is_some()) {
                let count = stages.iter().map(|of| of.stage_count).max().unwrap_or(0);
                found.warnings.extend(cores::of_stages(device_kind, devices(&stages), count, *host));
            }
            let predictions: Vec<Prediction> = found.stages.iter().map(|stage| stage.prediction).collect();
            let copies = predictor.copies_bytes_per_parameter();
            let held = launcher.and_then(|launcher| holds::note(launcher, &stages, &predictions, copies));
            found.warnings.extend(held);
            let communicates = stages.iter().any(|of| of.stage_count > 1 || of.stage.devices() > 1);
            let excluded = excluded(predictor.ledger(), device_kind, communicates);
            let mut answer = v1::PredictMemoryResponse {
                profile: profile.to_string(),
                model: model_name.to_string(),
                training: Some(training.into()),
                device_kind: device_kind.clone(),
                ..message::forecast(&found, predictor.name(), predictor.ledger(), layer_names, excluded)
            };
            if let Some(acted) = acted {
                for (index, stage) in answer.stages.iter_mut().enumerate() {
                    // Seconds are of whole iterations, which a recommendation simulates.
                    stage.offload = acted.offload(index, |_| 0.0).map(Into::into);
                    stage.actions =
                        stage.offload.as_ref().and_then(|_| acted.actions.get(index)).map(Into::into);
                }
            }
            Ok::<_, ApiError>(answer)
        })
        .await
    }
}

/// What the one stage of a training needs in these chunks, with these actions.
fn in_given_chunks(
    chain: &ProfiledChain,
    stages: &[StageSetting],
    (stage, actions): (&ChunkedStage, &[StageActions]),
    capacities: &[Bytes],
    (training, margin): (TrainingSpec, Margin),
) -> Result<v1::PredictMemoryResponse, ApiError> {
    let [setting] = stages else {
        let why = "are of one stage with the whole model, and the request has a pipeline: name one stage";
        return Err(Invalid::field("chunks", why).into());
    };
    let actions = match actions {
        [] => &StageActions::default(),
        [actions] => actions,
        several => {
            let why = format!("has {} entries, and a training in chunks has one stage", several.len());
            return Err(Invalid::field("stage_actions", why).into());
        }
    };
    let ProfiledChain { profile, model_name, device_kind, layer_names, predictor, model, .. } = chain;
    let found = in_chunks(&**predictor, model.as_ref(), setting, (stage, actions), capacities, margin)?;
    let ledger = predictor.ledger();
    let mut answer = v1::PredictMemoryResponse {
        profile: profile.to_string(),
        model: model_name.to_string(),
        training: Some(training.into()),
        device_kind: device_kind.clone(),
        ..message::forecast(
            &found.forecast,
            predictor.name(),
            ledger,
            layer_names,
            excluded(ledger, device_kind, false),
        )
    };
    for answered in &mut answer.stages {
        answered.chunks = Some(stage.into());
        answered.chunk_run = Some((&found.run).into());
        answered.offload = found.offload.clone().map(Into::into);
        answered.actions = found.offload.as_ref().map(|_| (&found.actions).into());
    }
    Ok(answer)
}

/// Actions whose pools are to be chosen.
fn without_pools(stages: Vec<StageActions>) -> Vec<StageActions> {
    let without = |of: StageActions| StageActions { actions: of.actions, ..StageActions::default() };
    stages.into_iter().map(without).collect()
}

/// The stages that are asked about.
fn stages(
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
        Asked::Partitioning(wire) => {
            Partitioning::try_from(wire).map_err(|invalid| invalid.under("partitioning"))?
        }
        Asked::Plan(_) => {
            let stages = plan.into_iter().flat_map(|plan| &plan.content.stages);
            Partitioning::new(stages.map(|stage| stage.config).collect())?
        }
    };
    request::check_partitioning(chain, &partitioning, training.micro_batch_size)?;
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
            "is required under 1F1B and PipeDream, and stage_index: the position decides how many micro-batches the \
             stage holds",
        ));
    } else {
        let before = u32::from(stage.first_layer > 0);
        (before, before + 1 + u32::from(stage.last_layer + 1 < layers))
    };
    Ok(StageSetting { stage, stage_index, stage_count, training: *training })
}

/// Capacity of each device: as the request says in either way, else the plan's, else none.
fn capacities(
    request: &v1::PredictMemoryRequest,
    plan: Option<&PlanRecord>,
    chain: &ProfiledChain,
    devices: usize,
) -> Result<Vec<Bytes>, Invalid> {
    match (request.devices.as_slice(), request.capacity_bytes) {
        ([], 0) => {
            let stages = plan.into_iter().flat_map(|plan| &plan.content.stages);
            Ok(stages
                .flat_map(|stage| std::iter::repeat_n(Bytes(stage.capacity), stage.config.devices() as usize))
                .collect())
        }
        ([], bytes) => Ok(vec![request::capacity("capacity_bytes", bytes)?; devices]),
        (groups, 0) => request::capacities(groups, chain),
        (_, _) => Err(Invalid::field("capacity_bytes", "and devices say the same: name one of the two")),
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
