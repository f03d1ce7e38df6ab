//! `Infeasible`: why no plan satisfies a request, and the changes that lead to one.

use loadmaster_memory::chunks::{ChunkRemedy, NoRoom};
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::ledger::Ledger;
use loadmaster_proto::plan::change::FieldChange;
use loadmaster_proto::training::actions::Way;
use loadmaster_proto::wire::v1;
use loadmaster_recommend::{LackingStep, PlanQuestion, RecommendError, Remedy, WhyNot};
use serde_json::json;

use crate::rpc::error::ApiError;

/// What a request allows and measures in, which its remedies need.
pub(super) struct Basis {
    /// Accounting of the predicted bytes.
    pub(super) ledger: Ledger,
    /// Name and version of the predictor.
    pub(super) predictor: String,
    /// Memory optimizations that may be chosen.
    pub(super) ways: Vec<Way>,
}

impl Basis {
    pub(super) fn of(question: &PlanQuestion) -> Self {
        let predictor = &question.chain.predictor;
        Self {
            ledger: predictor.ledger(),
            predictor: predictor.name().to_owned(),
            ways: question.request.allowed.as_ref().map(|allowed| allowed.ways.clone()).unwrap_or_default(),
        }
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
            accounting: v1::MemoryAccounting::from(self.ledger).into(),
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
            RecommendError::Limits { remedies, .. } => {
                Ok(v1::Infeasible { accounting: 0, remedies: self.remedies(&remedies), ..of_devices(Limits) })
            }
            RecommendError::NoPlan { why_not, device, layer_name, remedies, .. } => {
                let missing = why_not.missing();
                let cause =
                    if matches!(*why_not, WhyNot::NoPlan { .. }) { Constraints } else { DeviceMemory };
                Ok(v1::Infeasible {
                    missing_bytes: missing.map(Bytes::to_wire),
                    device,
                    layer: layer_name,
                    remedies: self.remedies(&remedies),
                    ..of_devices(cause)
                })
            }
            RecommendError::NoRoomInChunks { lack, step, .. } => {
                let (layer, device, ledger) = match step.map(|step| *step) {
                    Some(LackingStep { layer, device, ledger, .. }) => (layer, device, ledger),
                    None => (String::new(), "host".to_owned(), Ledger::Host),
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

    fn remedies(&self, remedies: &[Remedy]) -> Vec<v1::Remedy> {
        let one = |remedy: &Remedy| v1::Remedy {
            changes: remedy.changes.iter().map(Into::into).collect(),
            description: remedy.what.clone(),
            predicted_peak: Some(v1::MemoryFigure {
                bytes: Bytes(remedy.plan.peak_bytes()).to_wire(),
                accounting: v1::MemoryAccounting::from(self.ledger).into(),
                origin: v1::FigureOrigin::Predicted.into(),
                producer: self.predictor.clone(),
            }),
            iteration_seconds: remedy.plan.seconds(),
            frameworks: remedy
                .frameworks(&self.ways)
                .into_iter()
                .map(|framework| framework.as_str().to_owned())
                .collect(),
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
