//! `RecommendPlan`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use loadmaster_proto::error::{Invalid, in_range};
use loadmaster_proto::ledger::Ledger;
use loadmaster_proto::name::{ProfileName, checked_kind};
use loadmaster_proto::plan::constraints::Constraints;
use loadmaster_proto::plan::objective::{MemoryUnit, Objective};
use loadmaster_proto::training::TrainingSpec;
use loadmaster_proto::wire::{field, v1};

use super::content::{Writer, Written, named};
use super::reach::Reach;
use super::request::{self, Overrides};
use super::site::Site;
use super::wish::Asked;
use super::{Plans, Subject};
use crate::rpc::error::ApiError;
use loadmaster_planning::correction::{Correction, Corrections};
use loadmaster_planning::merger;
use loadmaster_planning::predictor::Margin;
use loadmaster_planning::predictors::Kind;
use loadmaster_planning::recommend::{
    Factors, Prices, RecommendError, Scene, Transfers, Wish, given, recommend, transfers,
};
use loadmaster_planning::search::{Stop, Unit};
use loadmaster_proto::plan::findings::AppliedCorrection;
use loadmaster_proto::plan::goal::Goal;

/// Most profiles besides the main one, and most models to choose from.
const MAX_PROFILES: usize = 32;

/// Highest price of a device for an hour, as clusters have it.
const MAX_PRICE: f64 = 1e9;

/// What a request is answered with.
#[derive(Debug)]
pub(super) struct Answer {
    /// The plan, with its name.
    pub(super) plan: Written,
    /// The plans that it names: alternatives and points of the front.
    pub(super) others: Vec<Written>,
    /// Seconds that the search took.
    pub(super) search_seconds: f64,
    /// Nobody stopped the search: it would find the same again.
    pub(super) is_final: bool,
}

/// Everything that a search needs, gathered.
struct Task {
    asked: Asked,
    name: ProfileName,
    subject: Arc<Subject>,
    /// Profiles of the same model on other kinds of devices.
    others: Vec<Arc<Subject>>,
    site: Site,
    training: TrainingSpec,
    margin: Margin,
    corrections: Option<Corrections>,
}

impl Plans {
    /// The plan that a request asks for; it is not stored.
    pub(super) async fn recommend(
        &self,
        mut request: v1::RecommendPlanRequest,
        limit: impl Fn(f64) -> Duration,
    ) -> Result<Answer, ApiError> {
        let asked = Asked::of(&request)?;
        let limit = limit(asked.search_seconds);
        let document = std::mem::take(&mut request.profile_document);
        let candidates = std::mem::take(&mut request.candidate_profiles);
        if asked.objective != Objective::MaxModel {
            if !candidates.is_empty() {
                let why =
                    "are models to choose from: name the objective OBJECTIVE_MAX_MODEL, or leave them out";
                return Err(Invalid::field("candidate_profiles", why).into());
            }
            let name = self.profile(&request.profile, document).await?;
            let task = self.task(&request, asked, name).await?;
            return self.searched(limit, move |stop| task.search(stop)).await;
        }
        if !request.profile.is_empty() || !document.is_empty() {
            let why = "is one model, and OBJECTIVE_MAX_MODEL chooses from `candidate_profiles`: leave it out";
            return Err(Invalid::field("profile", why).into());
        }
        in_range("candidate_profiles", candidates.len(), 1..=MAX_PROFILES)?;
        let mut tasks = Vec::with_capacity(candidates.len());
        for (index, name) in candidates.iter().enumerate() {
            let field = format!("candidate_profiles[{index}]");
            let name = ProfileName::parse(&field, name)?;
            let task = self.task(&request, asked.clone(), name).await?;
            let parameters = task.subject.parameters.ok_or_else(|| {
                Invalid::field(field, "is of a chain whose parameters are not known: compare other models")
            })?;
            tasks.push((parameters, task));
        }
        self.searched(limit, move |stop| largest_model(tasks, stop)).await
    }

    async fn searched(
        &self,
        limit: Duration,
        search: impl FnOnce(&Stop) -> Result<(Written, Vec<Written>), ApiError> + Send + 'static,
    ) -> Result<Answer, ApiError> {
        let search = move |stop: &Stop| Ok((search(stop)?, !stop.is_requested()));
        let (((plan, others), is_final), search_seconds) = self.searches.run(limit, search).await?;
        Ok(Answer { plan, others, search_seconds, is_final })
    }

    async fn task(
        &self,
        request: &v1::RecommendPlanRequest,
        asked: Asked,
        name: ProfileName,
    ) -> Result<Task, ApiError> {
        let margin = request::margin(request.margin)?;
        let kind = field("predictor", request.predictor)?;
        let overrides = Overrides {
            micro_batch_size: request.micro_batch_size,
            micro_batches: request.micro_batches,
            schedule: request.schedule,
            recompute: request.recompute,
        };
        let subject = self.subject(name.clone(), kind).await?;
        let training = overrides.apply(subject.profile.settings.training)?;
        asked
            .constraints
            .check_layers(subject.layer_names.len())
            .map_err(|invalid| invalid.under("constraints"))?;
        if let Some(partitioning) = &asked.partitioning {
            request::check_partitioning(&subject, partitioning, training.micro_batch_size)?;
        }
        let site =
            Site::of(&self.store, request, &asked.constraints, &subject.profile.settings.device_kind).await?;
        let site = site.with_prices(&prices(&request.hourly_prices)?);
        let others = self.other_subjects(&request.other_profiles, &subject, kind).await?;
        for kind in site.kinds() {
            let known = others.iter().chain([&subject]).map(|of| of.device_kind());
            if !known.clone().any(|known| known == kind) {
                let known: Vec<String> = known.map(|known| format!("{known:?}")).collect();
                let why = format!(
                    "has devices of the kind {kind:?}, and the profiles were measured on {}: profile on that kind \
                     of device, and name the profile in `other_profiles`",
                    known.join(", ")
                );
                let field = if request.cluster.is_empty() { "devices" } else { "cluster" };
                return Err(Invalid::field(field, why).into());
            }
        }
        let corrections = if asked.correct { Some(self.corrections().await?) } else { None };
        Ok(Task { asked, name, subject, others, site, training, margin, corrections })
    }

    /// Profiles of the same model on other kinds of devices.
    async fn other_subjects(
        &self,
        names: &[String],
        subject: &Subject,
        kind: Option<Kind>,
    ) -> Result<Vec<Arc<Subject>>, ApiError> {
        in_range("other_profiles", names.len(), 0..=MAX_PROFILES)?;
        let mut others = Vec::with_capacity(names.len());
        for (index, name) in names.iter().enumerate() {
            let field = format!("other_profiles[{index}]");
            let other = self.subject(ProfileName::parse(&field, name)?, kind).await?;
            let (own, model) = (&subject.profile.settings, &other.profile.settings.model);
            if *model != own.model {
                let why =
                    format!("is of {model}, and {} of {}: name profiles of one model", own.name, own.model);
                return Err(Invalid::field(field, why).into());
            }
            if other.predictor.ledger() != subject.predictor.ledger() {
                let why =
                    format!("counts bytes of another ledger than {}, which cannot be compared", own.name);
                return Err(Invalid::field(field, why).into());
            }
            others.push(other);
        }
        Ok(others)
    }
}

impl Subject {
    fn device_kind(&self) -> &str {
        &self.profile.settings.device_kind
    }
}

/// Hourly prices by kind, checked.
fn prices(prices: &std::collections::HashMap<String, f64>) -> Result<BTreeMap<String, f64>, Invalid> {
    in_range("hourly_prices", prices.len(), 0..=MAX_PROFILES)?;
    for (kind, price) in prices {
        checked_kind("hourly_prices", kind)?;
        if !(0.0..=MAX_PRICE).contains(price) {
            let why = format!("is {price}, must be 0 to {MAX_PRICE}");
            return Err(Invalid::field(format!("hourly_prices[{kind}]"), why));
        }
    }
    Ok(prices.iter().map(|(kind, &price)| (kind.clone(), price)).collect())
}

impl Task {
    /// Searches, and makes what it found storable.
    fn search(&self, stop: &Stop) -> Result<(Written, Vec<Written>), ApiError> {
        let kinds = self.by_kind();
        let predictors =
            kinds.iter().map(|(subject, factors)| (&*subject.predictor as _, *factors)).collect();
        let model = self.subject.model.as_ref();
        let prices = Prices::new(predictors, self.training, self.margin, model);
        let scene = Scene {
            names: &self.subject.layer_names,
            model,
            fleet: &self.site.planned.fleet,
            devices: &self.site.names,
            optimizer: &self.training.optimizer,
        };
        let wish = self.wish()?;
        let devices = scene.fleet.devices();
        let left_out = self.asked.left_out(&wish.batches, wish.least_share, devices);
        let mut writer = Writer {
            profile: &self.name,
            subject: &self.subject,
            kinds: &kinds,
            prices: &prices,
            site: &self.site,
            training: self.training,
            margin: self.margin,
            asked: self.asked_record(),
            corrections: self.corrections(),
            notes: self.site.planned.notes.iter().cloned().chain(self.reach().note).collect(),
            transfers: self.transfers(),
        };
        if let Some(partitioning) = &self.asked.partitioning {
            // Nothing was searched.
            writer.notes.clone_from(&self.site.planned.notes);
            let plan = given(&prices, &scene, &wish, partitioning)?;
            writer.asked = Goal { objective: None, ..writer.asked };
            return Ok((named(writer.given(&plan)?)?, Vec::new()));
        }
        writer.notes.extend(left_out.clone());
        let found = recommend(&prices, &scene, &wish, stop).map_err(|error| among(error, left_out))?;
        let (content, others) = writer.recommendation(&found)?;
        Ok((named(content)?, others))
    }

    /// The tensor degrees that are searched.
    fn reach(&self) -> Reach {
        let nodes = self.site.planned.fleet.nodes.iter();
        let largest = nodes.map(|node| node.devices).max().unwrap_or(0);
        let kinds = self.by_kind();
        Reach::of(&self.asked, kinds.iter().map(|(subject, _)| &*subject.predictor), largest)
    }

    /// The profile of each kind of device, in the fleet's order, and what its predictions are multiplied with.
    fn by_kind(&self) -> Vec<(&Subject, Factors)> {
        let subjects = || std::iter::once(&self.subject).chain(&self.others).map(|subject| &**subject);
        self.site
            .kinds()
            .filter_map(|kind| subjects().find(|subject| subject.device_kind() == kind))
            .map(|subject| (subject, self.factors(subject)))
            .collect()
    }

    fn factors(&self, subject: &Subject) -> Factors {
        let (bytes, seconds) = self.learnt(subject);
        Factors {
            bytes: bytes.map_or(1.0, |(_, of)| of.factor),
            seconds: seconds.map_or(1.0, |of| of.factor),
        }
    }

    fn learnt(&self, subject: &Subject) -> (Option<(Ledger, &Correction)>, Option<&Correction>) {
        let Some(corrections) = &self.corrections else { return (None, None) };
        let (kind, predictor) = (subject.device_kind(), subject.predictor.name());
        let ledger = subject.predictor.ledger();
        let bytes = corrections.bytes(kind, predictor, ledger).map(|of| (ledger, of));
        (bytes, corrections.seconds(kind, predictor))
    }

    /// What was multiplied with what, once for each kind of device.
    fn corrections(&self) -> Vec<AppliedCorrection> {
        let record = |ledger, of: &Correction| AppliedCorrection {
            device_kind: of.subject.device_kind.clone(),
            predictor: of.subject.predictor.clone(),
            ledger,
            version: of.version.clone(),
            factor: of.factor,
            count: of.count,
            plans: of.plans,
            explanation: of.explanation.clone(),
        };
        let mut records: Vec<AppliedCorrection> = Vec::new();
        for (subject, _) in self.by_kind() {
            let (bytes, seconds) = self.learnt(subject);
            let both = bytes.map(|(ledger, of)| record(Some(ledger), of)).into_iter();
            for one in both.chain(seconds.map(|of| record(None, of))) {
                if !records.contains(&one) {
                    records.push(one);
                }
            }
        }
        records
    }

    fn wish(&self) -> Result<Wish, ApiError> {
        let Self { asked, training, site, .. } = self;
        let layers = self.subject.layer_names.len();
        let mut cuts = site.cuts(&asked.constraints, layers)?;
        let mut is_merged = false;
        if let Some(left) = asked.merge_layers_to.filter(|&left| left < layers) {
            let predictor = &*self.subject.predictor;
            let stages = site.planned.fleet.devices().min(u32::try_from(layers).unwrap_or(u32::MAX));
            let metrics = merger::metrics(predictor, training, stages);
            let metrics = metrics.map_err(|error| ApiError::Forecast(error.into()))?;
            for group in merger::merge(&metrics, left) {
                cuts.keep_together(group);
                is_merged = true;
            }
        }
        let smallest =
            self.by_kind().into_iter().filter_map(|(subject, _)| subject.predictor.smallest_share());
        let least_share = asked.least_share(smallest.max());
        Ok(Wish {
            objective: asked.objective,
            shape: asked.shape,
            rules: asked.rules,
            constraints: Constraints {
                tensor_degrees: self.reach().tensor_degrees,
                ..asked.constraints.clone()
            },
            batches: asked.batches(training, least_share)?,
            least_share,
            schedules: asked.schedules(training)?,
            recompute: asked.recompute(training),
            overlap: self.transfers().overlap,
            unit: match asked.unit {
                MemoryUnit::Bytes => Unit::Bytes,
                MemoryUnit::Share => Unit::Share,
            },
            mode: asked.mode,
            seed: asked.seed,
            cuts,
            is_merged,
            keeps_order: site.keeps_order,
            alternatives: asked.alternatives,
            brief: asked.brief,
        })
    }

    /// Whether transfers overlap computing: the same for all plans of a request.
    fn transfers(&self) -> Transfers {
        let Self { asked, subject, site, .. } = self;
        let kinds: Vec<&str> = site.kinds().collect();
        transfers(asked.overlap, asked.launcher, &subject.framework, &kinds)
    }

    fn asked_record(&self) -> Goal {
        let asked = &self.asked;
        Goal {
            objective: Some(asked.objective),
            memory_unit: asked.unit,
            shape: asked.shape,
            launcher: asked.launcher,
            launcher_version: asked.launcher_version.clone(),
            constraints: asked.constraints.clone(),
            cluster: self.site.cluster.clone(),
        }
    }
}

/// An error that says there is no plan, with what was left out of the plans that were looked at.
fn among(error: RecommendError, left_out: Option<String>) -> RecommendError {
    let Some(left_out) = left_out else { return error };
    match error {
        RecommendError::NoPlan { reason, lack, device, layer_name, remedies } => {
            let reason = format!("{reason}; {left_out}");
            RecommendError::NoPlan { reason, lack, device, layer_name, remedies }
        }
        RecommendError::Limits { reason, is_proof, remedies } => {
            RecommendError::Limits { reason: format!("{reason}; {left_out}"), is_proof, remedies }
        }
        other => other,
    }
}

/// The model with the most parameters that fits: from the largest one down.
fn largest_model(mut tasks: Vec<(u64, Task)>, stop: &Stop) -> Result<(Written, Vec<Written>), ApiError> {
    use loadmaster_proto::plan::certificate::Certificate;
    use loadmaster_proto::plan::certificate::Rejected;
    // Of equally large ones the first that was named.
    tasks.sort_by_key(|(parameters, _)| std::cmp::Reverse(*parameters));
    // The largest of which it is not proven that it does not fit.
    let mut open: Option<u64> = None;
    let mut rejected: Vec<Rejected> = Vec::new();
    let mut last = None;
    for (parameters, task) in &tasks {
        match task.search(stop) {
            Ok(((_, mut content), others)) => {
                let states = content.found.certificate.as_ref().map_or(0, |certificate| certificate.states);
                let value = *parameters as f64;
                let is_proven = open.is_none();
                let bound = open.map_or(value, |open| open as f64);
                content.found.certificate = Some(Certificate {
                    value,
                    bound: Some(bound),
                    gap: Some(if is_proven { 0.0 } else { (bound - value) / bound }),
                    unit: Objective::MaxModel.unit().to_owned(),
                    proven: is_proven,
                    stopped: false,
                    states,
                    rejected,
                });
                // How the plans that came next compare is told in bytes, not in parameters.
                return Ok((named(content)?, others));
            }
            Err(ApiError::Recommend(
                error @ (RecommendError::NoPlan { .. } | RecommendError::Limits { .. }),
            )) => {
                if !error.is_proof() {
                    open = open.or(Some(*parameters));
                }
                if rejected.len() < 3 {
                    rejected.push(Rejected {
                        what: task.name.to_string(),
                        value: Some(*parameters as f64),
                        reason: error.to_string(),
                    });
                }
                last = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    // There is at least one candidate.
    Err(last.map_or(ApiError::Recommend(RecommendError::Stopped), ApiError::Recommend))
}
