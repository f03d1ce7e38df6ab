//! `RecommendPlan`.

use jiff::Timestamp;
use loadmaster_proto::error::{Invalid, in_range};
use loadmaster_proto::layer::fingerprint;
use loadmaster_proto::model::MAX_LAYERS;
use loadmaster_proto::name::PlanName;
use loadmaster_proto::stage::Partitioning;
use loadmaster_proto::wire::v1;

use super::Plans;
use super::request::{self, Overrides};
use crate::planning::predict::on_top;
use crate::planning::recommend::{Limits, Recommendation, given, recommend};
use crate::rpc::blocking::blocking;
use crate::rpc::error::ApiError;
use crate::store::records::{PlanContent, PlanRecord, PlanStageRecord};

impl Plans {
    /// The plan that a request asks for; it is not stored.
    pub(super) async fn recommend(&self, request: v1::RecommendPlanRequest) -> Result<PlanRecord, ApiError> {
        check_shape(request.shape)?;
        let margin = request::margin(request.margin)?;
        let limits = Limits { margin, merge_layers_to: merge_layers_to(request.merge_layers_to)? };
        let partitioning = request.partitioning.map(Partitioning::try_from).transpose();
        let partitioning = partitioning.map_err(|invalid| invalid.under("partitioning"))?;
        if partitioning.is_some() && limits.merge_layers_to.is_some() {
            return Err(Invalid::field(
                "merge_layers_to",
                "restricts a search, and `partitioning` leaves nothing to search: name one of the two",
            )
            .into());
        }
        let kind = request::kind(request.predictor)?;
        let overrides = Overrides {
            micro_batch_size: request.micro_batch_size,
            micro_batches: request.micro_batches,
            schedule: request.schedule,
            recompute: request.recompute,
        };

        let name = self.profile(&request.profile, request.profile_document).await?;
        let subject = self.subject(name.clone(), kind).await?;
        let training = overrides.apply(subject.profile.settings.training)?;
        if let Some(partitioning) = &partitioning {
            request::check_partitioning(&subject, partitioning, training.micro_batch_size)?;
        }
        let capacities = request::capacities(&request.devices, &subject.profile)?;
        if capacities.is_empty() {
            return Err(Invalid::field("devices", "is required: how many devices, and how large?").into());
        }
        blocking("planning failed", move || {
            let predictor = &*subject.predictor;
            let found = match partitioning {
                Some(partitioning) => given(predictor, &training, partitioning, &capacities, margin)?,
                None => recommend(predictor, &subject.layer_names, &training, &capacities, limits)?,
            };
            let settings = subject.profile.settings;
            let mut warnings: Vec<String> =
                on_top(predictor.ledger()).map(str::to_owned).into_iter().collect();
            warnings.extend(found.warnings.iter().cloned());
            let content = PlanContent {
                profile: name,
                model: settings.model,
                training,
                device_kind: settings.device_kind,
                stages: stages(&found),
                predictor: predictor.name().to_owned(),
                ledger: predictor.ledger(),
                solver: found.solver.to_owned(),
                warnings,
            };
            let id = &fingerprint(&content)[..16];
            Ok::<_, ApiError>(PlanRecord {
                name: PlanName::from_id(id)?,
                content,
                create_time: Timestamp::now(),
            })
        })
        .await
    }
}

fn stages(found: &Recommendation) -> Vec<PlanStageRecord> {
    found
        .stages
        .iter()
        .map(|stage| PlanStageRecord {
            config: stage.setting.stage,
            capacity: stage.smallest.map_or(0, |device| device.capacity.0),
            predicted_peak: stage.prediction.bytes.0,
            breakdown: stage.prediction.breakdown,
            interval: stage.interval,
            seconds: stage.prediction.seconds,
            origin: stage.prediction.origin,
            in_flight: stage.setting.in_flight(),
        })
        .collect()
}

fn check_shape(shape: i32) -> Result<(), Invalid> {
    match v1::PlanShape::try_from(shape) {
        Ok(v1::PlanShape::Unspecified | v1::PlanShape::SinglePipeline) => Ok(()),
        Err(_) => Err(Invalid::field("shape", format!("{shape} is unknown"))),
    }
}

fn merge_layers_to(left: i32) -> Result<Option<usize>, Invalid> {
    let most = i32::try_from(MAX_LAYERS).unwrap_or(i32::MAX);
    let left = in_range("merge_layers_to", left, 0..=most)?;
    Ok((left > 0).then(|| left.unsigned_abs() as usize))
}
