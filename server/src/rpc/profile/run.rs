//! `CreateProfile`: from a checked request to a campaign, or to what it would cost. `ResumeProfile` runs what an incomplete profile
//! lacks, with the software that it began with.

use std::collections::BTreeMap;

use loadmaster_predict::profiling::effort::{Ended, LayerWork, Pace};
use loadmaster_proto::error::{Invalid, required};
use loadmaster_proto::measure::run::Work;
use loadmaster_proto::model::Model;
use loadmaster_proto::model::import::ModelSource;
use loadmaster_proto::name::{ModelName, ProfileName, checked_kind};
use loadmaster_proto::profile::ProfileSettings;
use loadmaster_proto::training::TrainingSpec;
use loadmaster_proto::wire::longrunning::{Operation, operation};
use loadmaster_proto::wire::v1;
use uuid::Uuid;

use super::order::Order;
use super::{Profiles, message, software};
use crate::profile::{Prepared, StoredProfile};
use crate::rpc::blocking::blocking;
use crate::rpc::error::ApiError;
use crate::rpc::messages::{count, pack, request_key};
use crate::store::StoreError;
use crate::store::records::{
    AttemptRecord, EndedRun, NewRun, RunCounts, Software, WorkerRecord, WorkerState,
};

impl Profiles {
    pub(super) async fn run(&self, mut request: v1::CreateProfileRequest) -> Result<Operation, ApiError> {
        let id = std::mem::take(&mut request.request_id);
        let key = request_key(&id, &request)?;
        // Before anything that may have changed since: the same call gets the same answer.
        if !request.validate_only
            && let Some(first) = self.store.find_request(key.as_ref()).await?
        {
            return self.started(&first).await;
        }
        let subject = required("model", request.subject.clone())?;
        let (model, source) = self.subject(subject).await?;
        // Which scenarios can be laid out takes a while to find out for a long model.
        let (order, request, model) = blocking("a request cannot be checked", move || {
            let order = Order::check(&request, &model)?;
            Ok::<_, Invalid>((order, request, model))
        })
        .await?;
        let name = match request.profile_id.as_str() {
            "" => {
                let suffix = Uuid::new_v4().simple().to_string();
                ProfileName::from_id(format!("{}-{}", model.slug(), &suffix[..8]))
            }
            id => ProfileName::from_id(id),
        }
        .map_err(|invalid| invalid.under("profile_id"))?;
        let workers = self.workers().await?;
        let device_kind = device_kind(&request.device_kind, &workers)?;
        let settings = order.settings(name, ModelName::from_id(model.id())?, device_kind);
        let software = software::of_workers(&workers, &settings.device_kind)?;
        let prepared = self.prepare(&settings, model.clone(), Vec::new(), software).await?;
        if request.validate_only {
            return self.checked(&settings, &model, &prepared, &workers).await;
        }
        if let Some(source) = source {
            self.store.put_model(&model, &source).await?;
        }
        let operation = self.store.create_profile(settings, prepared.runs, &prepared.reused, key).await?;
        self.started(&operation).await
    }

    async fn subject(
        &self,
        subject: v1::create_profile_request::Subject,
    ) -> Result<(Model, Option<ModelSource>), ApiError> {
        match subject {
            v1::create_profile_request::Subject::Model(name) => {
                let name = ModelName::parse("model", &name)?;
                Ok((self.store.get_model(&name).await?.model, None))
            }
            v1::create_profile_request::Subject::Source(source) => {
                let (source, model) = self.imports.model(source).await?;
                Ok((model, Some(source)))
            }
        }
    }

    /// What a valid request would make: nothing of it is stored, and no operation has a name.
    async fn checked(
        &self,
        profile: &ProfileSettings,
        model: &Model,
        prepared: &Prepared,
        workers: &[WorkerRecord],
    ) -> Result<Operation, ApiError> {
        match self.store.get_profile(&profile.name).await {
            Ok(_) => return Err(StoreError::AlreadyExists { what: profile.name.to_string() }.into()),
            Err(StoreError::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let runs = u32::try_from(prepared.runs.len()).unwrap_or(u32::MAX);
        let queued = RunCounts { queued: runs, ..RunCounts::default() };
        let alive = workers.iter().filter(|worker| worker.state == WorkerState::Alive);
        let at_once = alive.map(|worker| worker.runs_at_once(&profile.device_kind));
        let ended = self.store.ended_runs(&profile.device_kind, &profile.model).await?;
        let mut layers = BTreeMap::from([(profile.model.clone(), LayerWork::of(model))]);
        for run in &ended {
            if !layers.contains_key(&run.model) {
                let stored = self.store.get_model(&run.model).await?;
                layers.insert(run.model.clone(), LayerWork::of(&stored.model));
            }
        }
        let mut told = v1::Profile {
            concurrent_run_count: count(at_once.fold(0, u32::saturating_add)),
            reused_run_count: i32::try_from(prepared.reused.len()).unwrap_or(i32::MAX),
            ..message::new(profile, queued)
        };
        write_estimate(&mut told, (&profile.model, &prepared.runs), &ended, &layers);
        let response = operation::Result::Response(pack(&told));
        Ok(Operation { done: true, result: Some(response), ..Operation::default() })
    }

    /// Which runs a profile needs besides those that it has (`attempts`), and which of them were made before in the same
    /// environment as today's.
    pub(super) async fn prepare(
        &self,
        settings: &ProfileSettings,
        model: Model,
        attempts: Vec<AttemptRecord>,
        software: Option<Software>,
    ) -> Result<Prepared, ApiError> {
        let shared = settings.clone();
        // A long model has many runs, each of which is hashed.
        let remaining = blocking("the profiling runs cannot be listed", move || {
            StoredProfile::remaining(&shared, &model, &attempts)
        })
        .await?;
        let measured = match software {
            Some(software) if !settings.fresh => {
                let wanted: Vec<(String, u32)> = remaining
                    .iter()
                    .map(|keyed| (keyed.key.clone(), keyed.run.strategy.training.micro_batch_size))
                    .collect();
                let (kind, contended) = (&settings.device_kind, settings.reuse_contended);
                self.store.find_measured(&wanted, kind, &software, contended).await?
            }
            _ => Vec::new(),
        };
        Ok(Prepared::new(settings, remaining, &measured))
    }
}

/// The kind of device to measure on: as asked, else that of the first device of the newest worker that
/// takes runs.
fn device_kind(asked: &str, workers: &[WorkerRecord]) -> Result<String, ApiError> {
    if !asked.is_empty() {
        checked_kind("device_kind", asked)?;
        return Ok(asked.to_owned());
    }
    let alive = workers.iter().filter(|worker| worker.state == WorkerState::Alive);
    let kind = alive.flat_map(|worker| &worker.devices).map(|device| device.kind.clone()).next();
    kind.ok_or_else(|| {
        let cordoned = workers.iter().find(|worker| worker.state == WorkerState::Cordoned);
        cordoned.map_or(ApiError::NoWorker, |of| ApiError::OnlyCordoned { worker: of.name.clone() })
    })
}

/// Writes the estimate of `runs` of a model into the profile that they would make, from runs that ended. `layers` has the
/// models of all.
fn write_estimate(
    profile: &mut v1::Profile,
    (model, runs): (&ModelName, &[NewRun]),
    ended: &[EndedRun],
    layers: &BTreeMap<ModelName, LayerWork>,
) {
    let kind = &profile.device_kind;
    let work = |model: &ModelName, training: &TrainingSpec, work: &Work| {
        layers.get(model).map_or(0.0, |layers| layers.multiplications(training, work))
    };
    let of_ended = |run: &EndedRun| Ended {
        multiplications: work(&run.model, &run.training, &run.work),
        iterations: run.iterations,
        iteration_seconds: run.iteration_seconds,
        held_seconds: run.held_seconds,
    };
    let Some(pace) = Pace::of(&ended.iter().map(of_ended).collect::<Vec<_>>()) else {
        profile.estimate_origin = match runs {
            [] => String::new(),
            _ => format!("no run has ended on {kind} devices yet, so the time of a run is not known"),
        };
        return;
    };
    let held = runs.iter().map(|run| {
        let multiplications = work(model, &run.strategy.training, &run.strategy.work);
        (f64::from(run.device_count), pace.held_seconds(multiplications, run.iterations))
    });
    let (device_seconds, longest) = held
        .fold((0.0, 0.0_f64), |(all, longest), (devices, each)| (all + devices * each, longest.max(each)));
    profile.estimated_device_seconds = Some(device_seconds);
    // Shorter than its longest run nothing gets, however many devices there are.
    profile.estimated_seconds = (profile.concurrent_run_count > 0)
        .then(|| (device_seconds / f64::from(profile.concurrent_run_count)).max(longest));
    let is_same = ended.iter().any(|run| run.model == *model);
    let what = if is_same { "of this model" } else { "of other models" };
    let runs = match ended.len() {
        1 => format!("the only run {what}"),
        several => format!("the {several} newest runs {what}"),
    };
    profile.estimate_origin = format!(
        "estimated from the time of {runs} on {kind} devices, scaled by the size of layers and batches"
    );
}

impl Profiles {
    pub(super) async fn resume(&self, mut request: v1::ResumeProfileRequest) -> Result<Operation, ApiError> {
        let id = std::mem::take(&mut request.request_id);
        let key = request_key(&id, &request)?;
        if let Some(first) = self.store.find_request(key.as_ref()).await? {
            return self.started(&first).await;
        }
        let name = ProfileName::parse("name", &request.name)?;
        let record = self.store.get_profile(&name).await?;
        if let Err(refused) = record.check_resumable() {
            // A twin of this call may have resumed it a moment ago.
            return match self.store.find_request(key.as_ref()).await? {
                Some(first) => self.started(&first).await,
                None => Err(refused.into()),
            };
        }
        let stored = StoredProfile::of(&self.store, &record).await?;
        let software = software::of_workers(&self.workers().await?, &stored.settings.device_kind)?;
        if let Some(software) = &software {
            software::check_same(&name, &stored.environments(), software)?;
        }
        let attempts = self.store.profile_attempts(&name).await?;
        let prepared = self.prepare(&stored.settings, stored.model, attempts, software).await?;
        let operation = self.store.resume_profile(&name, prepared.runs, &prepared.reused, key).await?;
        self.started(&operation).await
    }
}
