//! The profile of a request, with a predictor that answers for it.

use std::sync::Arc;

use loadmaster_memory::chunks::ChunkCheck;
use loadmaster_predict::choose::{
    Evidence, NoPredictor, PredictorKind, Profiled, imported_profile, stored_profile,
};
use loadmaster_predict::profiling::runs::layer_names;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::measure::environment::Environment;
use loadmaster_proto::measure::host::Host;
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::model::import::ModelSource;
use loadmaster_proto::name::ProfileName;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::profile::document::ProfileDocument;
use loadmaster_recommend::{Family, ProfiledChain};

use super::Plans;
use super::cache::json_bytes;
use crate::profile::StoredProfile;
use crate::rpc::blocking::blocking;
use crate::rpc::error::ApiError;
use crate::store::records::{MeasurementRecord, ProfileRecord, ProfileState};

/// A profile as plans ask about it, and about how many bytes it takes, but for what its predictor remembers of its
/// answers.
pub(super) type ReadChain = (ProfiledChain, usize);

impl Plans {
    /// The profile that a request names or brings along.
    pub(super) async fn profile(&self, name: &str, document: String) -> Result<ProfileName, ApiError> {
        match (name, document.as_str()) {
            (name, "") => Ok(ProfileName::parse("profile", name)?),
            ("", _) => {
                let import = self.imports.document("profile_document", document, None).await?;
                import.store(&self.store).await?;
                Ok(import.settings.name)
            }
            (_, _) => {
                Err(Invalid::field("problem.profile_document", "set beside `problem.profile`. Use one.")
                    .into())
            }
        }
    }

    /// The models whose layers a profile has measured.
    pub(super) async fn family(&self, name: &ProfileName) -> Result<Family, ApiError> {
        let profile = self.store.get_profile(name).await?;
        let source = self.store.get_model(&profile.settings.model).await?.source;
        let ModelSource::Zoo(zoo) = source else {
            let why = format!(
                "{} was imported, so Loadmaster cannot vary its size. Profile a model that \
                 `loadmaster model create` makes.",
                profile.settings.model
            );
            return Err(Invalid::field("objective.model_scaling", why).into());
        };
        let stored = StoredProfile::of(&self.store, &profile).await?;
        blocking("planning failed", move || {
            let StoredProfile { settings, model, measurements } = stored;
            let evidence: Vec<Evidence> = measurements.into_iter().map(evidence).collect();
            let profiled = Profiled { settings: &settings, model: &model, evidence: &evidence };
            let component = stored_profile::component(profiled).map_err(|why| without(&profile, why))?;
            Ok::<_, ApiError>(Family { zoo, component })
        })
        .await
    }

    /// The profile that a plan was made of, for the plan's model: of a larger model than was profiled it has the same recordings.
    /// A profile of another name stays as it is.
    pub(super) async fn for_model_of(
        &self,
        plan: &Plan,
        profiled: Arc<ProfiledChain>,
    ) -> Result<Arc<ProfiledChain>, ApiError> {
        if plan.model == profiled.model_name || plan.profile != profiled.profile {
            return Ok(profiled);
        }
        let model = self.store.get_model(&plan.model).await?.model;
        let family = self.family(&profiled.profile).await?;
        Ok(Arc::new(family.chain(&profiled, &model)?))
    }

    /// The profile of a request with a predictor made from its measurements, or from the document that it was imported
    /// from.
    pub(super) async fn read_chain(
        &self,
        name: ProfileName,
        kind: Option<PredictorKind>,
    ) -> Result<ReadChain, ApiError> {
        let profile = self.store.get_profile(&name).await?;
        refuse_unfinished(&profile)?;
        if let Some(document) = self.store.find_document(&profile.settings.name).await? {
            return blocking("planning failed", move || of_document(&profile, &document, kind)).await;
        }
        let stored = StoredProfile::of(&self.store, &profile).await?;
        blocking("planning failed", move || of_measurements(&profile, stored, kind)).await
    }
}

fn of_document(
    profile: &ProfileRecord,
    document: &ProfileDocument,
    kind: Option<PredictorKind>,
) -> Result<ReadChain, ApiError> {
    let settings = &profile.settings;
    let predictor =
        imported_profile::predictor(document, settings, kind).map_err(|why| without(profile, why))?;
    let chain = ProfiledChain {
        profile: settings.name.clone(),
        model_name: settings.model.clone(),
        device_kind: settings.device_kind.clone(),
        training: settings.training,
        model: document.model.model().ok().cloned(),
        layer_names: document.model.layer_names(),
        parameters: document.model.total_parameters(),
        framework: document.provenance.framework.clone(),
        predictor,
        known: Arc::default(),
        chunk_check: chunk_check_of(document),
        host: Host::of(document.measurements.iter().map(|of| timed(&of.measurement))),
    };
    Ok((chain, json_bytes(document)))
}

fn of_measurements(
    profile: &ProfileRecord,
    read: StoredProfile,
    kind: Option<PredictorKind>,
) -> Result<ReadChain, ApiError> {
    let StoredProfile { settings, model, measurements } = read;
    let first = measurements.first();
    let framework = first.map(|record| record.measurement.environment.framework.clone()).unwrap_or_default();
    let evidence: Vec<Evidence> = measurements.into_iter().map(evidence).collect();
    let profiled = Profiled { settings: &settings, model: &model, evidence: &evidence };
    let named = evidence.iter().map(|of| (of.name.clone(), &of.measurement));
    let chunk_check = ChunkCheck::last_of(named, model.parameter_count());
    let predictor = stored_profile::predictor(profiled, kind).map_err(|why| without(profile, why))?;
    let chain = ProfiledChain {
        profile: profile.settings.name.clone(),
        model_name: profile.settings.model.clone(),
        device_kind: profile.settings.device_kind.clone(),
        training: profile.settings.training,
        layer_names: layer_names(&model),
        parameters: Some(model.parameter_count()),
        model: Some(model),
        framework,
        predictor,
        known: Arc::default(),
        host: Host::of(evidence.iter().map(|of| timed(&of.measurement))),
        chunk_check,
    };
    Ok((chain, evidence.iter().map(|of| json_bytes(&of.measurement)).sum()))
}

fn chunk_check_of(document: &ProfileDocument) -> Option<ChunkCheck> {
    let parameters = document.model.model().ok()?.parameter_count();
    ChunkCheck::last_of(document.measurements.iter().map(|of| (of.name(), &of.measurement)), parameters)
}

/// Where something was measured, and how long an iteration took there.
fn timed(of: &Measurement) -> (&Environment, f64) {
    (&of.environment, of.iteration_seconds)
}

fn evidence(record: MeasurementRecord) -> Evidence {
    Evidence { name: record.name(), held_out: record.held_out, measurement: record.measurement }
}

fn without(profile: &ProfileRecord, why: NoPredictor) -> ApiError {
    ApiError::NoPredictor { profile: profile.settings.name.to_string(), why }
}

fn refuse_unfinished(profile: &ProfileRecord) -> Result<(), ApiError> {
    let name = &profile.settings.name;
    let why = match profile.state {
        ProfileState::Complete => return Ok(()),
        ProfileState::Running => {
            format!("it is being measured. Wait with `loadmaster operation wait {}`.", profile.operation)
        }
        ProfileState::Incomplete => {
            let missing = profile.missing.join("; ");
            format!("it lacks: {missing}. Measure these with `loadmaster profile resume {}`.", name.id())
        }
        ProfileState::Cancelled => format!(
            "it was cancelled before it was complete. Continue with `loadmaster profile resume {}`.",
            name.id()
        ),
    };
    Err(ApiError::ProfileIncomplete { profile: name.to_string(), why })
}
