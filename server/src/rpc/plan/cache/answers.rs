//! `RecommendPlan`, answered as before where nothing has changed since: a question is a request with the revisions of all that its
//! answer depends on.

use std::collections::HashMap;

use loadmaster_proto::name::PlanName;
use loadmaster_proto::warning::WarningCode;
use loadmaster_proto::wire::v1;
use prost::Message as _;
use sha2::{Digest, Sha256};

use super::{Named, Revisions};
use crate::rpc::error::ApiError;
use crate::rpc::plan::Plans;
use crate::rpc::plan::recommend::Outcome;
use crate::rpc::plan::search::SearchTerms;
use crate::store::StoreError;

/// Equal questions have equal answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Question([u8; 32]);

impl Question {
    /// Of a request without a document, and what it names, in order: `revisions`, and of the corrections that it is
    /// to be answered with `corrections`.
    pub(super) fn new(request: &v1::RecommendPlanRequest, revisions: &[&str], corrections: &[&str]) -> Self {
        // A map has no order.
        let mut prices: Vec<(&String, &f64)> = request.objective().hourly_prices.iter().collect();
        prices.sort_unstable_by_key(|(kind, _)| *kind);
        let request = loadmaster_proto::changed!(request.clone(), objective.hourly_prices = HashMap::new());
        let mut hash = Sha256::new();
        let mut add = |bytes: &[u8]| {
            // With its length, so that no two lists of parts are the same bytes.
            hash.update(bytes.len().to_le_bytes());
            hash.update(bytes);
        };
        add(&request.encode_to_vec());
        add(&prices.len().to_le_bytes());
        for (kind, price) in prices {
            add(kind.as_bytes());
            add(&price.to_bits().to_le_bytes());
        }
        for parts in [revisions, corrections] {
            add(&parts.len().to_le_bytes());
            parts.iter().for_each(|part| add(part.as_bytes()));
        }
        Self(hash.finalize().into())
    }
}

/// Equal for equal requests, whose bytes may differ.
pub(in crate::rpc::plan) fn fingerprint(request: &v1::RecommendPlanRequest) -> String {
    let Question(hash) = Question::new(request, &[], &[]);
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a request was answered with.
#[derive(Debug, Clone)]
pub(super) struct Answered {
    plan: PlanName,
    /// Seconds that its search took.
    search_seconds: f64,
    /// Why its framework cannot run it all the same.
    refusal: Option<String>,
}

impl Plans {
    /// A recommendation: the plan that answered the same request before, else what a search finds. What a search
    /// found that was stopped answers nothing else: the next one may have more time.
    pub(in crate::rpc::plan) async fn recommended(
        &self,
        request: v1::RecommendPlanRequest,
        terms: &SearchTerms,
    ) -> Result<v1::RecommendPlanResponse, ApiError> {
        use v1::recommend_plan_response::Result as Answer;

        let respond = |result: Answer| v1::RecommendPlanResponse { result: Some(result) };
        let named = Named::by(&request);
        let revisions = match &named {
            Some(Named { profiles, cluster }) => self.revisions(profiles, cluster.as_ref()).await?,
            None => Revisions::default(),
        };
        let question = match named {
            Some(named) => self.question(&request, &named, &revisions).await?,
            None => None,
        };
        if let Some(question) = &question
            && let Some(plan) = self.answered(question).await?
        {
            return Ok(respond(Answer::Plan(plan)));
        }
        let validate_only = request.validate_only;
        let answer = match self.recommend(request, &revisions, terms).await? {
            Outcome::Plan(answer) => *answer,
            Outcome::Infeasible(infeasible) => return Ok(respond(Answer::Infeasible(*infeasible))),
        };
        let (name, content) = &answer.plan;
        let is_stopped = content.found.certificate.as_ref().is_some_and(|certificate| certificate.stopped);
        let refusal = self.not_exportable(name, content).await?;
        let known =
            Answered { plan: name.clone(), search_seconds: answer.search_seconds, refusal: refusal.clone() };
        let is_final = answer.is_final && !is_stopped;
        let mut plan = self.answer(answer, validate_only).await?;
        plan.warnings.extend(refusal.map(|why| WarningCode::FrameworkCannotTrain.says(why).into()));
        if let Some(question) = question.filter(|_| is_final) {
            // Each weighs as much as any other.
            self.memory.0.answers.put(question, known, 1);
        }
        Ok(respond(Answer::Plan(plan)))
    }

    /// The plan that answered a question before, as it is shown now; none where no one asked it, or the plan was
    /// deleted.
    async fn answered(&self, question: &Question) -> Result<Option<v1::Plan>, ApiError> {
        let Some(Answered { plan, search_seconds, refusal }) = self.memory.0.answers.get(question) else {
            return Ok(None);
        };
        let mut plan = match self.asked_again(&plan).await {
            Ok(plan) => plan,
            Err(ApiError::Store(StoreError::NotFound { .. })) => {
                self.memory.0.answers.forget(question);
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        tracing::debug!(plan = plan.name, "returned the stored plan of an equal request");
        if let Some(certificate) = &mut plan.certificate {
            certificate.search_seconds = search_seconds;
        }
        plan.warnings.extend(refusal.map(|why| WarningCode::FrameworkCannotTrain.says(why).into()));
        Ok(Some(plan))
    }

    /// What a request asks, with the revisions of what it names, as they are before anything is read. None where its
    /// answer is not stored, it brings its profile along, or it names what is not there: that is for the search to
    /// say.
    async fn question(
        &self,
        request: &v1::RecommendPlanRequest,
        Named { profiles, cluster }: &Named,
        revisions: &Revisions,
    ) -> Result<Option<Question>, ApiError> {
        if request.validate_only || !request.problem().profile_document.is_empty() {
            return Ok(None);
        }
        let of_profiles = profiles.iter().map(|name| revisions.of(name));
        let of_cluster = cluster.iter().map(|name| revisions.of(name));
        let revisions: Option<Vec<&str>> = of_profiles.chain(of_cluster).collect();
        let Some(revisions) = revisions else { return Ok(None) };
        let corrections = if request.problem().calibrate { Some(self.corrections().await?) } else { None };
        let versions = corrections.as_ref().map(|of| of.versions()).unwrap_or_default();
        Ok(Some(Question::new(request, &revisions, &versions)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever can change an answer changes the question, and nothing else does.
    #[test]
    fn questions_differ_where_answers_may() {
        let prices = |pairs: &[(&str, f64)]| {
            pairs.iter().map(|&(kind, price)| (kind.to_owned(), price)).collect::<HashMap<_, _>>()
        };
        let request = v1::RecommendPlanRequest {
            problem: Some(v1::Problem { profile: "profiles/p".to_owned(), ..Default::default() }),
            objective: Some(v1::ObjectiveOptions {
                hourly_prices: prices(&[("a", 1.0), ("b", 2.0), ("c", 3.0)]),
                ..Default::default()
            }),
            ..Default::default()
        };
        let same = loadmaster_proto::changed!(
            request.clone(),
            objective.hourly_prices = prices(&[("c", 3.0), ("b", 2.0), ("a", 1.0)])
        );
        let asked = Question::new(&request, &["7", "8"], &[]);
        assert_eq!(asked, Question::new(&same, &["7", "8"], &[]));
        let dearer = loadmaster_proto::changed!(
            request.clone(),
            objective.hourly_prices = prices(&[("a", 1.0), ("b", 2.0), ("c", 4.0)])
        );
        let other = loadmaster_proto::changed!(request.clone(), problem.safety_margin = Some(0.0));
        for (request, revisions, corrections) in [
            (&dearer, &["7", "8"][..], &[][..]),
            (&other, &["7", "8"], &[]),
            (&request, &["7", "9"], &[]),
            (&request, &["8", "7"], &[]),
            (&request, &["78"], &[]),
            (&request, &["7"], &["8"]),
            (&request, &["7", "8"], &["c"]),
        ] {
            assert_ne!(
                asked,
                Question::new(request, revisions, corrections),
                "{revisions:?} {corrections:?}"
            );
        }
    }
}
