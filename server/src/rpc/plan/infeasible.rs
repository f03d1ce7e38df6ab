//! `Infeasible`: why no plan satisfies a request, and the changes that lead to one.

use std::time::Duration;

use loadmaster_memory::chunks::{ChunkRemedy, NoRoom};
use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::plan::change::FieldChange;
use loadmaster_proto::plan::request::{Goal, PlanRequest};
use loadmaster_proto::training::actions::Way;
use loadmaster_proto::wire::v1;
use loadmaster_recommend::{
    LackingStep, NamedPlan, PlanQuestion, QuestionError, RecommendError, Remedy, WhyNot,
};
use loadmaster_search::Stop;
use loadmaster_show::json;
use serde_json::json;

use super::request;
use crate::rpc::error::ApiError;

/// Answers the question of a request. Where no plan satisfies it, each remedy is searched as the request that it leads to, and
/// remedies without a plan are dropped. A search that is stopped leaves results out.
pub(super) fn answer(
    question: &PlanQuestion,
    (request, longest): (&v1::RecommendPlanRequest, Duration),
    stop: &Stop,
) -> Result<(NamedPlan, Vec<NamedPlan>), QuestionError> {
    let mut answer = question.answer(stop);
    if let Err(QuestionError::Recommend(error)) = &mut answer
        && let Some(remedies) = error.remedies_mut()
    {
        let stop = stop.unreported();
        remedies.retain_mut(|remedy| {
            let Some(question) = changed(question, (request, longest), remedy) else { return false };
            let found = question.answer(&stop);
            if stop.is_requested() {
                return true;
            }
            remedy.result = found.ok().map(|((_, plan), _)| (Box::new(plan), ways(&question)));
            remedy.result.is_some()
        });
    }
    answer
}

/// The question of the request with the changes of a remedy.
fn changed(
    question: &PlanQuestion,
    (request, longest): (&v1::RecommendPlanRequest, Duration),
    remedy: &Remedy,
) -> Option<PlanQuestion> {
    let change = |request, of: &FieldChange| json::with_field(&request, of.field, &of.value).ok();
    let changed = remedy.changes.iter().try_fold(request.clone(), change)?;
    let asked = request::question_within(&changed, longest).ok()?;
    let training = request::overridden(changed.problem(), question.chain.training).ok()?;
    let fleet = match &remedy.fleet {
        Some(larger) => question.fleet.grown((**larger).clone()),
        None => question.fleet.clone(),
    };
    let goal = Goal { cluster: question.request.goal.cluster.clone(), ..asked.goal };
    let request = PlanRequest { goal, brief: true, ..asked };
    Some(PlanQuestion { request, training, fleet, ..question.clone() })
}

/// Memory optimizations that may be chosen.
fn ways(question: &PlanQuestion) -> Vec<Way> {
    question.request.allowed.as_ref().map(|allowed| allowed.ways.clone()).unwrap_or_default()
}

/// Accounting of the predicted bytes of an infeasible answer.
pub(super) struct Basis(Accounting);

impl Basis {
    pub(super) fn of(question: &PlanQuestion) -> Self {
        Self(question.chain.predictor.ledger())
    }

    /// Returns the response to a request that no plan satisfies; the error again where it has another reason.
    pub(super) fn answer(&self, error: ApiError) -> Result<v1::Infeasible, ApiError> {
        match error {
            ApiError::Recommend(error) => self.infeasible(error).map_err(ApiError::Recommend),
            other => Err(other),
        }
    }

    fn infeasible(&self, error: RecommendError) -> Result<v1::Infeasible, RecommendError> {
        use v1::InfeasibleCause::{Constraints, DeviceMemory, HostMemory, Limits};

        let (message, proven) = (error.reason(), error.is_proof());
        let of_devices = |cause: v1::InfeasibleCause| v1::Infeasible {
            cause: cause.into(),
            message: message.clone(),
            accounting: v1::MemoryAccounting::from(self.0).into(),
            proven,
            ..Default::default()
        };
        match error {
            RecommendError::GivenDoesNotFit { missing, device, .. } => Ok(v1::Infeasible {
                missing_bytes: Some(missing.to_wire()),
                device,
                proven: true,
                ..of_devices(DeviceMemory)
            }),
            RecommendError::Limits { remedies, .. } => Ok(v1::Infeasible {
                accounting: 0,
                remedies: Self::remedies(&remedies),
                ..of_devices(Limits)
            }),
            RecommendError::NoPlan { why_not, device, layer_name, remedies, .. } => {
                let missing = why_not.missing();
                let cause =
                    if matches!(*why_not, WhyNot::NoPlan { .. }) { Constraints } else { DeviceMemory };
                Ok(v1::Infeasible {
                    missing_bytes: missing.map(Bytes::to_wire),
                    device,
                    layer: layer_name,
                    remedies: Self::remedies(&remedies),
                    ..of_devices(cause)
                })
            }
            RecommendError::NoRoomInChunks { lack, step, .. } => {
                let (layer, device, ledger) = match step.map(|step| *step) {
                    Some(LackingStep { layer, device, ledger, .. }) => (layer, device, ledger),
                    None => (String::new(), "host".to_owned(), Accounting::Host),
                };
                let cause = if lack.device.is_some() { DeviceMemory } else { HostMemory };
                Ok(v1::Infeasible {
                    missing_bytes: Some(Bytes(lack.missing()).to_wire()),
                    accounting: v1::MemoryAccounting::from(ledger).into(),
                    device,
                    layer,
                    remedies: in_chunks(&lack),
                    ..of_devices(cause)
                })
            }
            RecommendError::Neither { chunked, .. } => {
                let chunked = self.infeasible(*chunked)?;
                Ok(v1::Infeasible { message, ..chunked })
            }
            other => Err(other),
        }
    }

    fn remedies(remedies: &[Remedy]) -> Vec<v1::Remedy> {
        let one = |remedy: &Remedy| v1::Remedy {
            changes: remedy.changes.iter().map(Into::into).collect(),
            description: remedy.what.clone(),
            predicted_peak: remedy
                .result
                .as_ref()
                .map(|(plan, _)| v1::MemoryFigure::predicted(plan.peak(), plan.ledger, &plan.predictor)),
            iteration_seconds: remedy.result.as_ref().and_then(|(plan, _)| plan.iteration_seconds()),
            frameworks: remedy.frameworks().into_iter().map(|of| of.as_str().to_owned()).collect(),
        };
        remedies.iter().map(one).collect()
    }
}

/// What makes room for chunks; it was checked for memory alone.
fn in_chunks(lack: &NoRoom) -> Vec<v1::Remedy> {
    let described = lack.remedies.iter().zip(lack.remedies_told());
    let one = |(remedy, description): (&ChunkRemedy, String)| v1::Remedy {
        changes: chunk_changes(remedy).iter().map(Into::into).collect(),
        description,
        ..Default::default()
    };
    described.map(one).collect()
}

/// The fields that a remedy changes; none where devices or hosts have to change.
fn chunk_changes(remedy: &ChunkRemedy) -> Vec<FieldChange> {
    use v1::{
        ActivationPlace, ChunkPolicy, EmbeddingPlace, HostParameters, MicroBatchOrder, RecomputePolicy,
    };

    let change = match remedy {
        ChunkRemedy::RecomputeLayers => {
            FieldChange::new("problem.recompute", RecomputePolicy::Layer.as_str_name())
        }
        ChunkRemedy::LayerOrder => FieldChange::new(
            "memory.chunk_options.micro_batch_orders",
            json!([MicroBatchOrder::Layer.as_str_name()]),
        ),
        ChunkRemedy::MadeCopies => FieldChange::new(
            "memory.chunk_options.host_parameters",
            json!([HostParameters::Cast.as_str_name()]),
        ),
        ChunkRemedy::HostEmbedding => FieldChange::new(
            "memory.chunk_options.embedding_places",
            json!([EmbeddingPlace::Host.as_str_name()]),
        ),
        ChunkRemedy::HostActivations => FieldChange::new(
            "memory.chunk_options.activation_places",
            json!([ActivationPlace::Host.as_str_name()]),
        ),
        ChunkRemedy::Paged => {
            FieldChange::new("memory.chunk_options.policy", ChunkPolicy::Loadmaster.as_str_name())
        }
        ChunkRemedy::OtherSizes => FieldChange::new("memory.chunk_options.chunk_elements", json!([])),
        ChunkRemedy::ChosenOnDevice => {
            FieldChange::new("memory.chunk_options.resident_chunk_count", json!(null))
        }
        ChunkRemedy::Memory { .. } => return Vec::new(),
    };
    vec![change]
}
