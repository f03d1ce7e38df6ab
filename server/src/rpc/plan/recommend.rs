//! `RecommendPlan`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use loadmaster_predict::choose::PredictorKind;
use loadmaster_proto::error::{Invalid, in_range};
use loadmaster_proto::model::import::ModelSource;
use loadmaster_proto::name::{ProfileName, checked_kind};
use loadmaster_proto::plan::objective::Objective;
use loadmaster_proto::plan::request::{GrownModel, PlanRequest};
use loadmaster_proto::warning::{Warning, WarningCode};
use loadmaster_proto::wire::{field, v1};
use loadmaster_recommend::{
    NamedPlan, PlanQuestion, ProfiledChain, QuestionError, ScaledModel, largest_model,
};
use loadmaster_search::Stop;
use loadmaster_search::fleet::PlannedFleet;

use super::Plans;
use super::cache::Revisions;
use super::infeasible::{self, Basis};
use super::request;
use super::search::SearchTerms;
use crate::rpc::error::ApiError;

/// Most profiles besides the main one, and most models to choose from.
const MAX_PROFILES: usize = 32;

/// Profiles of one call that are read at once.
const READ_AT_ONCE: usize = 4;

/// Highest price of a device for an hour, as clusters have it.
const MAX_PRICE: f64 = 1e9;

/// The result of a search.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The best plan.
    Plan(Box<Recommended>),
    /// No plan satisfies the request.
    Infeasible(Box<v1::Infeasible>),
}

/// A plan that a request leads to.
#[derive(Debug)]
pub(super) struct Recommended {
    /// The plan, with its name.
    pub(super) plan: NamedPlan,
    /// The plans that it names: alternatives and points of the front.
    pub(super) others: Vec<NamedPlan>,
    /// Seconds that the search took.
    pub(super) search_seconds: f64,
    /// No one stopped the search: it would find the same again.
    pub(super) is_final: bool,
}

impl Plans {
    /// The plan that a request asks for; it is not stored.
    pub(super) async fn recommend(
        &self,
        mut request: v1::RecommendPlanRequest,
        revisions: &Revisions,
        terms: &SearchTerms,
    ) -> Result<Outcome, ApiError> {
        let asked = request::question_within(&request, terms.longest)?;
        let limit = terms.limit(asked.search_limit());
        let document = std::mem::take(&mut request.problem_mut().profile_document);
        let candidates = std::mem::take(&mut request.objective_mut().candidate_profiles);
        let grown = asked.grow.clone();
        if asked.objective() != Objective::MaxModel || grown.is_some() {
            let is_imported = !document.is_empty();
            let name = self.profile(&request.problem().profile, document).await?;
            // Of a profile that has come with the request nothing is known yet.
            let own = match is_imported {
                true => Some(self.revisions(std::slice::from_ref(&name), None).await?),
                false => None,
            };
            let question = self
                .plan_question(&request, asked, name, own.as_ref().unwrap_or(revisions), revisions)
                .await?;
            return match grown {
                Some(grown) => self.grown(question, grown, (terms, limit)).await,
                None => {
                    let (basis, longest) = (Basis::of(&question), terms.longest);
                    let search = move |stop: &Stop| infeasible::answer(&question, (&request, longest), stop);
                    self.searched(basis, (terms, limit), search).await
                }
            };
        }
        in_range("objective.candidate_profiles", candidates.len(), 1..=MAX_PROFILES)?;
        let (request, asked) = (&request, &asked);
        let questions = candidates.into_iter().enumerate().map(|(index, name)| async move {
            let field = format!("objective.candidate_profiles[{index}]");
            let name = ProfileName::parse(&field, &name)?;
            let question = self.plan_question(request, asked.clone(), name, revisions, revisions).await?;
            let parameters = question.chain.parameters.ok_or_else(|| {
                let why = "OBJECTIVE_MAX_MODEL compares parameter counts, but the parameter count of this profile's \
                           model is not known. Name a profile of another model.";
                Invalid::field(field, why)
            })?;
            Ok::<_, ApiError>((parameters, question))
        });
        // Each waits for the database. What is wrong with the first of them is told.
        let questions = stream::iter(questions).buffered(READ_AT_ONCE).try_collect::<Vec<_>>().await?;
        let Some((_, first)) = questions.first() else {
            return Err(Invalid::field("objective.candidate_profiles", "is required").into());
        };
        let basis = Basis::of(first);
        self.searched(basis, (terms, limit), move |stop| largest_model(questions, stop)).await
    }

    /// The largest model of a profile's family, which is stored, since its plan names it.
    async fn grown(
        &self,
        question: PlanQuestion,
        grown: GrownModel,
        (terms, limit): (&SearchTerms, Duration),
    ) -> Result<Outcome, ApiError> {
        let basis = Basis::of(&question);
        let family = self.family(&question.chain.profile).await?;
        let search = move |stop: &Stop| Ok(question.largest_of(&family, &grown, stop)?);
        let found = match self.searches.run(terms, limit, search).await {
            Ok(found) => found,
            Err(error) => return Ok(Outcome::Infeasible(Box::new(basis.answer(error)?))),
        };
        let (ScaledModel { zoo, model, plan, others }, search_seconds) = found;
        self.store.put_model(&model, &ModelSource::Zoo(zoo)).await?;
        // Asked again it stores the model again, which may have been deleted.
        Ok(Outcome::Plan(Box::new(Recommended { plan, others, search_seconds, is_final: false })))
    }

    async fn searched(
        &self,
        basis: Basis,
        (terms, limit): (&SearchTerms, Duration),
        search: impl FnOnce(&Stop) -> Result<(NamedPlan, Vec<NamedPlan>), QuestionError> + Send + 'static,
    ) -> Result<Outcome, ApiError> {
        let search = move |stop: &Stop| Ok((search(stop)?, !stop.is_requested()));
        Ok(match self.searches.run(terms, limit, search).await {
            Ok((((plan, others), is_final), search_seconds)) => {
                Outcome::Plan(Box::new(Recommended { plan, others, search_seconds, is_final }))
            }
            Err(error) => Outcome::Infeasible(Box::new(basis.answer(error)?)),
        })
    }

    /// A question with all that it asks about, to be answered beside the calls. `own` has the revision of the profile,
    /// `revisions` those of everything else that the request names.
    async fn plan_question(
        &self,
        request: &v1::RecommendPlanRequest,
        mut asked: PlanRequest,
        name: ProfileName,
        own: &Revisions,
        revisions: &Revisions,
    ) -> Result<PlanQuestion, ApiError> {
        let margin = request::margin(request.problem().safety_margin)?;
        let kind = field("problem.predictor", request.problem().predictor)?;
        let chain = self.chain(name, kind, own).await?;
        let training = request::overridden(request.problem(), chain.training)?;
        let constraints = &asked.goal.constraints;
        // Models that are made of this one have other numbers of layers.
        if asked.grow.is_none() {
            constraints
                .check_layers(chain.layer_names.len())
                .map_err(|invalid| invalid.under("constraints"))?;
        }
        if let Some(partitioning) = &asked.partitioning {
            request::check_partitioning(&chain, partitioning, training.micro_batch_size)
                .map_err(|invalid| invalid.under("constraints.pipeline_layout"))?;
        }
        let others = self.other_chains(&request.problem().other_profiles, &chain, kind, revisions).await?;
        let kinds: Vec<&str> =
            [&chain].into_iter().chain(&others).map(|of| of.device_kind.as_str()).collect();
        let (fleet, cluster) = self.devices(request, constraints, &kinds, revisions).await?;
        asked.goal.cluster = cluster;
        let prices = prices(&request.objective().hourly_prices, &fleet)?;
        let mut fleet = fleet.with_prices(&prices);
        let unused = |kind: &str| !fleet.kinds().any(|known| known == kind);
        let mut notes: Vec<Warning> = Vec::new();
        for other in others.iter().filter(|other| unused(&other.device_kind)) {
            notes.push(WarningCode::InputUnused.says(format!(
                "{} is not used: it was measured on {:?}, and no device is of that kind",
                other.profile, other.device_kind
            )));
        }
        for (kind, price) in prices.iter().filter(|(kind, _)| unused(kind)) {
            let why = format!("the price {price} is not used: no device is of the kind {kind:?}");
            notes.push(WarningCode::InputUnused.says(why));
        }
        fleet.notes.extend(notes);
        for kind in fleet.kinds() {
            let known = others.iter().chain([&chain]).map(|of| of.device_kind.as_str());
            if !known.clone().any(|known| known == kind) {
                let known: Vec<String> = known.map(|known| format!("{known:?}")).collect();
                let why = format!(
                    "the cluster has devices of the kind {kind:?}, but the profiles were measured on {}. Create a profile on \
                     that kind of device, and name it in `problem.other_profiles`.",
                    known.join(", ")
                );
                return Err(Invalid::field(asked.goal.devices_field(), why).into());
            }
        }
        let corrections = if asked.correct { Some(self.corrections().await?) } else { None };
        Ok(PlanQuestion { request: asked, chain, others, fleet, training, margin, corrections })
    }

    /// Profiles of the same model on other kinds of devices.
    async fn other_chains(
        &self,
        names: &[String],
        chain: &ProfiledChain,
        kind: Option<PredictorKind>,
        revisions: &Revisions,
    ) -> Result<Vec<Arc<ProfiledChain>>, ApiError> {
        in_range("problem.other_profiles", names.len(), 0..=MAX_PROFILES)?;
        let mut others = Vec::with_capacity(names.len());
        for (index, name) in names.iter().enumerate() {
            let field = format!("problem.other_profiles[{index}]");
            let other = self.chain(ProfileName::parse(&field, name)?, kind, revisions).await?;
            let (own, model) = (&chain.profile, &other.model_name);
            if *model != chain.model_name {
                let why = format!(
                    "is a profile of {model}, but {own} is of {}. Use profiles of one model.",
                    chain.model_name
                );
                return Err(Invalid::field(field, why).into());
            }
            if other.predictor.ledger() != chain.predictor.ledger() {
                let why = format!(
                    "the profile's memory accounting (allocated, reserved or device) differs from the accounting of \
                     {own}. Use profiles with equal memory accounting."
                );
                return Err(Invalid::field(field, why).into());
            }
            others.push(other);
        }
        Ok(others)
    }
}

/// Hourly prices by kind, checked; kinds as the fleet names them.
fn prices(
    prices: &std::collections::HashMap<String, f64>,
    fleet: &PlannedFleet,
) -> Result<BTreeMap<String, f64>, Invalid> {
    in_range("objective.hourly_prices", prices.len(), 0..=MAX_PROFILES)?;
    for (kind, price) in prices {
        checked_kind("objective.hourly_prices", kind)?;
        if !(0.0..=MAX_PRICE).contains(price) {
            let why = format!("{price} is out of range. Use 0 to {MAX_PRICE}.");
            return Err(Invalid::field(format!("objective.hourly_prices[{kind}]"), why));
        }
    }
    let named = |kind: &String| request::known_kind(kind, fleet.kinds()).unwrap_or(kind).to_owned();
    Ok(prices.iter().map(|(kind, &price)| (named(kind), price)).collect())
}
