//! `PredictPlan`.
//!
//! | file | question |
//! |---|---|
//! | here | what is asked, of which profile? |
//! | `contradictions` | what must it not say together? |
//! | `subject` | which stages is it about, and how large are their devices? |
//! | `scene` | what do they need where nothing is to be chosen? |
//! | `chunk_choice` | what does a training in chunks need, of which something is? |

mod chunk_choice;
mod contradictions;
mod scene;
mod subject;

use std::sync::Arc;

use loadmaster_predict::forecast::devices;
use loadmaster_proto::chunks::stage::ChunkedStage;
use loadmaster_proto::error::{Invalid, required};
use loadmaster_proto::name::PlanName;
use loadmaster_proto::plan::chunked::MemoryMode;
use loadmaster_proto::plan::objective::Framework;
use loadmaster_proto::plan::summary::{self, SummaryModel};
use loadmaster_proto::training::actions::StageActions;
use loadmaster_proto::wire::v1::predict_plan_request::Subject as Asked;
use loadmaster_proto::wire::{ToWire as _, field, v1};

use super::Plans;
use super::request;
use super::search::SearchTerms;
use crate::rpc::blocking::blocking;
use crate::rpc::error::ApiError;
use scene::{AskedActions, Scene};
use subject::{capacities, stages};

impl Plans {
    /// What stages need. A search takes the slots and the time that its call has.
    pub(super) async fn predict(
        &self,
        mut request: v1::PredictPlanRequest,
        terms: &SearchTerms,
    ) -> Result<v1::PredictPlanResponse, ApiError> {
        let asked = required("pipeline_layout", request.subject.clone())
            .map_err(|_| Invalid::field("pipeline_layout", "required, unless `stage` or `plan` is set"))?;
        let mode: Option<MemoryMode> = field("memory.mode", request.memory().mode)?;
        let kind = field("problem.predictor", request.problem().predictor)?;
        contradictions::check(&request, mode, kind)?;
        let plan = match &asked {
            Asked::Plan(name) => Some(self.store.get_plan(&PlanName::parse("plan", name)?).await?),
            Asked::PipelineLayout(_) | Asked::Stage(_) => None,
        };
        plan.as_ref().map_or(Ok(()), |plan| plan.content.check_flat("plan", "predicted anew"))?;
        let document = std::mem::take(&mut request.problem_mut().profile_document);
        let name = match &plan {
            Some(plan) if request.problem().profile.is_empty() && document.is_empty() => {
                plan.content.profile.clone()
            }
            _ => self.profile(&request.problem().profile, document).await?,
        };
        let margin = request::margin(request.problem().safety_margin)?;
        let named: Option<Framework> = field("problem.framework", request.problem().framework.clone())?;
        let framework = named.or_else(|| plan.as_ref().and_then(|plan| plan.content.asked.framework));

        let revisions = self.revisions(std::slice::from_ref(&name), None).await?;
        let profiled = self.chain(name, kind, &revisions).await?;
        let chain = match &plan {
            Some(plan) => self.for_model_of(&plan.content, profiled).await?,
            None => profiled,
        };
        let profiled = plan.as_ref().map_or(chain.training, |plan| plan.content.training);
        let training = request::overridden(request.problem(), profiled)?;
        chain.model.as_ref().map_or(Ok(()), |model| training.check_model(model))?;
        let stages = stages(asked, plan.as_ref(), &training, &chain)?;
        let capacities = capacities(&request, plan.as_ref(), &chain, devices(&stages))?;
        let of_plan = || plan.as_ref()?.content.stages.first()?.chunks.as_deref().cloned();
        // What a plan does in chunks says nothing of it where that is chosen anew, or there are to be none.
        let is_anew = mode.is_some() && of_plan().is_some();
        let asked_actions: Vec<StageActions> =
            field("memory.stage_memory_optimizations", request.memory().stage_memory_optimizations.clone())?;
        let are_given = !asked_actions.is_empty();
        let actions = match &plan {
            // Other settings than the plan's may need other pools.
            Some(plan) if !are_given && !is_anew => without_pools(plan.content.stage_actions()),
            _ => asked_actions,
        };
        let actions = AskedActions { stages: actions, are_given };
        let given = field::<Option<ChunkedStage>, _>(
            "memory.chunk_options",
            request.memory().chunked_training.clone(),
        )?;
        // Whose chunks are given is wrong about them; those of a plan are right for the plan's own training.
        let of_training = plan.as_ref().filter(|_| given.is_none()).map(|plan| plan.content.training);
        let chunks = given.or_else(|| of_plan().filter(|_| !is_anew));
        let summed = {
            let (chain, framework) = (Arc::clone(&chain), framework.to_wire());
            move |mut answer: v1::PredictPlanResponse| {
                let model = SummaryModel::of(chain.model.as_ref(), chain.model_name.id());
                let of = |answer: &_| summary::of_prediction(answer, &model, &framework);
                answer.summary = answer.infeasible.is_none().then(|| of(&answer));
                answer
            }
        };
        let scene = Scene { chain, stages, capacities, training, margin, framework };
        if let Some(mode @ (MemoryMode::Chunks | MemoryMode::Best)) = mode {
            let or_plain = (mode == MemoryMode::Best).then_some(actions);
            return self.chosen(&request, scene, or_plain, terms).await.map(summed);
        }
        let answer = move || match chunks {
            Some(stage) => {
                scene.in_given_chunks(&stage, &actions.stages).map_err(|error| match of_training {
                    Some(own) => contradictions::of_plans_chunks(error, &own, &training),
                    None => error,
                })
            }
            None => scene.plain(&actions),
        };
        blocking("planning failed", answer).await.map(summed)
    }
}

/// Actions whose pools are to be chosen.
fn without_pools(stages: Vec<StageActions>) -> Vec<StageActions> {
    let without = |of: StageActions| StageActions { actions: of.actions, ..StageActions::default() };
    stages.into_iter().map(without).collect()
}
