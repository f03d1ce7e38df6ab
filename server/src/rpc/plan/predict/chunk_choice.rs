//! A prediction of a training in chunks of which something is to be chosen: by the search of `RecommendPlan`, for the one stage
//! that is asked about.

use std::sync::Arc;

use loadmaster_predict::StageSetting;
use loadmaster_predict::forecast::ForecastError;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::error::{Invalid, Violation, required};
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::compatibility::{Setting, Settings};
use loadmaster_proto::training::stage::Partitioning;
use loadmaster_proto::warning::WarningCode;
use loadmaster_proto::wire::v1::predict_plan_request::Subject as Asked;
use loadmaster_proto::wire::{ToWire as _, v1};
use loadmaster_recommend::{PlanQuestion, RecommendError};
use loadmaster_search::Stop;
use loadmaster_search::fleet::{DeviceGroup, of_groups};

use super::scene::{AskedActions, Scene};
use crate::rpc::blocking::blocking;
use crate::rpc::error::ApiError;
use crate::rpc::plan::infeasible::Basis;
use crate::rpc::plan::search::SearchTerms;
use crate::rpc::plan::{Plans, request};

impl Plans {
    /// What the one stage needs in chunks that are chosen, unless it fits without them, with the actions `or_plain`.
    ///
    /// # Errors
    /// What contradicts a training in chunks, by its field; what the profile lacks; or, unless it may be plain, that there is no
    /// room.
    pub(super) async fn chosen(
        &self,
        asked: &v1::PredictPlanRequest,
        scene: Scene,
        or_plain: Option<AskedActions>,
        terms: &SearchTerms,
    ) -> Result<v1::PredictPlanResponse, ApiError> {
        let question = question(asked, &scene).map_err(in_own_fields)?;
        let mut plain = None;
        if let Some(actions) = or_plain {
            let (scene, question) = (scene.clone(), question.clone());
            let work = move || {
                question.check_in_chunks()?;
                scene.plain(&actions)
            };
            let found = blocking("planning failed", work).await.map_err(in_own_fields)?;
            if missing(&found) == Bytes(0) {
                return Ok(found);
            }
            plain = Some(found);
        }
        let limit = terms.limit(question.request.search_limit());
        let (basis, about) = (Basis::of(&question), scene.clone());
        let search = move |stop: &Stop| {
            let ((_, plan), _) = question.answer(stop)?;
            scene.of_plan(&plan)
        };
        match (self.searches.run(terms, limit, search).await.map_err(in_own_fields), plain) {
            (Ok((mut answer, _)), plain) => {
                let lacks = |plain: v1::PredictPlanResponse| {
                    let why = format!("without chunks, a device needs {} more", missing(&plain));
                    v1::Warning::from(WarningCode::OtherValue.says(why))
                };
                answer.warnings.extend(plain.map(lacks));
                Ok(answer)
            }
            (Err(ApiError::Recommend(why @ RecommendError::NoRoomInChunks { .. })), Some(mut plain)) => {
                let why = format!("training in chunks does not fit either: {why}");
                plain.warnings.push(WarningCode::OtherValue.says(why).into());
                Ok(plain)
            }
            (Err(why), _) => Ok(about.infeasible(basis.answer(why)?)),
        }
    }
}

impl Scene {
    /// The response where its training has no room.
    fn infeasible(&self, infeasible: v1::Infeasible) -> v1::PredictPlanResponse {
        self.headed(v1::PredictPlanResponse {
            predictor: self.chain.predictor.name().to_owned(),
            verdict: v1::Verdict::DoesNotFit.into(),
            infeasible: Some(infeasible),
            ..Default::default()
        })
    }

    /// A plan in chunks as a prediction of its stage.
    fn of_plan(&self, plan: &Plan) -> Result<v1::PredictPlanResponse, ApiError> {
        let defect = || ApiError::Defect { failed: "a plan in chunks cannot be converted".to_owned() };
        let stage = plan.stages.first().ok_or_else(defect)?;
        let chunks = stage.chunks.as_deref().ok_or_else(defect)?;
        let setting =
            StageSetting { stage: stage.config, stage_index: 0, stage_count: 1, training: plan.training };
        let scene = Self { stages: vec![setting], training: plan.training, ..self.clone() };
        let mut answer = scene.in_given_chunks(chunks, std::slice::from_ref(&stage.actions))?;
        for answered in &mut answer.stages {
            // Unlike of given chunks the seconds are known: the search has simulated them.
            answered.seconds = stage.seconds.map(Into::into);
            answered.chunk_traffic = stage.chunk_run.as_deref().map(Into::into);
            answered.offload_traffic = stage.offload.as_ref().map(Into::into);
        }
        let known = answer.warnings.clone();
        answer.warnings.extend(plan.warnings.iter().map(v1::Warning::from).filter(|of| !known.contains(of)));
        if let Some(iteration) = &plan.found.iteration {
            let why =
                format!("the predicted iteration seconds are based on these rates: {}", iteration.links);
            answer.warnings.push(WarningCode::RatesUsed.says(why).into());
        }
        if plan.found.certificate.as_ref().is_some_and(|of| of.stopped) {
            let told = "the deadline of the call stopped the search for chunks. Other choices may be faster.";
            answer.warnings.push(WarningCode::SearchStopped.says(told).into());
        }
        Ok(answer)
    }
}

/// What the device with the highest peak memory lacks, its margin included; 0 where all fit.
fn missing(answer: &v1::PredictPlanResponse) -> Bytes {
    let least = answer.stages.iter().filter_map(|stage| stage.slack_bytes).min();
    Bytes(least.unwrap_or(0).min(0).unsigned_abs())
}

/// The question that `RecommendPlan` answers for these devices.
fn question(asked: &v1::PredictPlanRequest, scene: &Scene) -> Result<PlanQuestion, ApiError> {
    let field = if matches!(asked.subject, Some(Asked::Plan(_))) { "plan" } else { "pipeline_layout" };
    Settings::default()
        .when(scene.stages.len() > 1, Setting::Pipeline)
        .in_field(Setting::Pipeline, field)
        .when(scene.stages.iter().any(|of| !of.stage.sharding.is_none()), Setting::Sharded)
        .in_field(Setting::Sharded, field)
        .when(true, Setting::Chunks)
        .check()?;
    let setting = required(field, scene.stages.first())?;
    let Some(&capacity) = scene.capacities.first() else {
        let why = "required, unless `devices` is set. The choice of chunks depends on the memory size of the devices.";
        return Err(Invalid::field("device_capacity_bytes", why).into());
    };
    let (count, given) = (setting.stage.devices(), scene.capacities.len());
    if given != count as usize {
        return Err(ForecastError::DeviceCount { needed: count as usize, given }.into());
    }
    let is_unlike = scene.capacities.iter().any(|of| *of != capacity);
    Settings::default().when(is_unlike, Setting::UnlikeDevices).when(true, Setting::Chunks).check()?;
    let group = DeviceGroup { count, capacity, kind: scene.chain.device_kind.clone() };
    let fleet = of_groups(&[group], None).map_err(|error| request::fleet_error("problem.devices", &error))?;
    Ok(PlanQuestion {
        request: request::question(&recommendation(asked, scene, setting)?)?,
        chain: Arc::clone(&scene.chain),
        others: Vec::new(),
        fleet,
        training: scene.training,
        margin: scene.margin,
        corrections: None,
    })
}

/// What is asked as a request for a recommendation.
fn recommendation(
    asked: &v1::PredictPlanRequest,
    scene: &Scene,
    setting: &StageSetting,
) -> Result<v1::RecommendPlanRequest, Invalid> {
    Ok(v1::RecommendPlanRequest {
        problem: Some(v1::Problem {
            micro_batch_size: asked.problem().micro_batch_size,
            micro_batch_count: asked.problem().micro_batch_count,
            schedule: asked.problem().schedule,
            recompute: asked.problem().recompute,
            framework: scene.framework.to_wire(),
            ..Default::default()
        }),
        constraints: Some(v1::Constraints {
            pipeline_layout: Some((&Partitioning::new(vec![setting.stage])?).into()),
            ..Default::default()
        }),
        memory: Some(v1::MemoryOptions {
            mode: v1::MemoryMode::Chunks.into(),
            chunk_options: asked.memory().chunk_options.clone(),
            host_memory_bytes: asked.memory().host_memory_bytes,
            cpu_optimizer_rate: asked.memory().cpu_optimizer_rate,
            copy_bandwidth: asked.memory().copy_bandwidth,
            ..Default::default()
        }),
        output: Some(v1::OutputOptions {
            // Nothing but the plan is told.
            skip_comparisons: true,
            alternative_count: Some(0),
        }),
        ..Default::default()
    })
}

/// The same error in fields of this request, whose stages are no constraint.
fn in_own_fields(error: ApiError) -> ApiError {
    let ApiError::Invalid(invalid) = error else { return error };
    let own = |of: &Violation| {
        let field =
            of.field.strip_prefix("constraints.").filter(|field| field.starts_with("pipeline_layout"));
        Invalid::field(field.unwrap_or(&of.field), of.description.clone())
    };
    let mut all = invalid.violations().iter().map(own);
    let Some(mut first) = all.next() else { return ApiError::Invalid(invalid) };
    all.for_each(|other| first.merge(other));
    first.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a search refuses is told by the field that this request has for it.
    #[test]
    fn choices_are_told_by_their_own_field() {
        for (theirs, own) in [
            ("constraints.pipeline_layout", "pipeline_layout"),
            ("constraints.pipeline_layout.stages[0]", "pipeline_layout.stages[0]"),
            ("constraints.recompute_policies", "constraints.recompute_policies"),
            ("memory.host_memory_bytes", "memory.host_memory_bytes"),
        ] {
            let ApiError::Invalid(told) = in_own_fields(Invalid::field(theirs, "is wrong").into()) else {
                panic!()
            };
            assert_eq!((told.violations()[0].field.as_str(), told.violations().len()), (own, 1));
        }
        assert!(matches!(in_own_fields(ApiError::Stopping), ApiError::Stopping));
    }

    /// What lacks most decides, and nothing lacks where all fit or no one asked.
    #[test]
    fn the_fullest_device_says_what_lacks() {
        let answer = |slacks: &[Option<i64>]| {
            let stage = |&slack_bytes| v1::StagePrediction { slack_bytes, ..Default::default() };
            v1::PredictPlanResponse { stages: slacks.iter().map(stage).collect(), ..Default::default() }
        };
        assert_eq!(missing(&answer(&[Some(7), Some(-5), Some(-9)])), Bytes(9));
        assert_eq!(missing(&answer(&[Some(7), None])), Bytes(0));
    }
}
