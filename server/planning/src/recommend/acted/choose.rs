//! Memory actions for named stages, or for those of a fast pipeline, held to a replay.

use loadmaster_proto::error::Invalid;
use loadmaster_proto::measure::offload::CopyPace;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::certificate::Certificate;
use loadmaster_proto::plan::compared::{Baseline, Outline};
use loadmaster_proto::training::actions::{Allowed, Way};
use loadmaster_proto::training::stage::Partitioning;

use super::Stages;
use super::asked::Asked;
use crate::actions::fastest;
use crate::recommend::answer::{QuestionError, RecommendError};
use crate::recommend::find::Candidate;
use crate::recommend::plan::Writer;
use crate::search::Stop;

/// Within which share of the bound a value is as good.
const EQUAL: f64 = 1e-9;

/// Who chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::recommend) enum Chooser {
    /// The fastest that is found, with a bound; MPress's planner is asked, too.
    Fastest,
    /// MPress's planner.
    Mpress,
}

impl Chooser {
    /// Solver of plans whose actions it chose.
    pub(in crate::recommend) fn solver(self) -> &'static str {
        match self {
            Self::Fastest => "actions/1",
            Self::Mpress => "mpress/1",
        }
    }
}

/// What may be chosen, and how fast copies are.
#[derive(Debug, Clone, Copy)]
pub(in crate::recommend) struct Choice<'a> {
    pub(in crate::recommend) chooser: Chooser,
    pub(in crate::recommend) allowed: &'a Allowed,
    pub(in crate::recommend) pace: CopyPace,
}

/// The fastest plan with chosen actions that was found.
pub(super) struct Fastest<'a> {
    pub(super) asked: Asked<'a>,
    pub(super) plan: Plan,
}

/// The same, beside what it is compared with and what proves it.
pub(super) struct Chosen<'a> {
    pub(super) candidate: &'a Candidate,
    pub(super) plan: Plan,
    /// Of its seconds.
    pub(super) certificate: Certificate,
    /// What the bound of these seconds is of, for people.
    pub(super) bound_is: String,
}

impl Writer<'_> {
    /// The plan of stages with the memory actions that are chosen for them: of several candidates the fastest.
    ///
    /// # Errors
    /// The chooser knows no such pipeline, nothing that is allowed makes one fit, or it was stopped before anything did.
    pub(super) fn chosen<'a>(
        &self,
        stages: &'a Stages,
        choice: Choice<'_>,
        stop: &Stop,
    ) -> Result<Chosen<'a>, QuestionError> {
        let Fastest { asked, mut plan } = self.fastest(stages, choice, stop)?;
        let others = self.others(&asked, choice, stop);
        if choice.chooser == Chooser::Fastest {
            // Fewer ways are fewer to lose one's way among.
            let found = others.iter().filter_map(|(_, plan)| plan.as_ref().ok());
            let faster = found.filter(|other| seconds(other) < seconds(&plan));
            if let Some(faster) = faster.min_by(|a, b| seconds(a).total_cmp(&seconds(b))) {
                plan = faster.clone();
            }
        }
        let (certificate, bound_is) = certificate(&asked, stages, choice, &plan, stop);
        let mut baselines = vec![baseline("keep-only", Some(&asked.untouched), &plan, String::new())?];
        for (name, other) in &others {
            baselines.push(match other {
                Ok(other) => baseline(name, Some(other), &plan, String::new())?,
                Err(error) => baseline(name, None, &plan, error.to_string())?,
            });
        }
        plan.found.baselines = baselines;
        Ok(Chosen { candidate: asked.candidate, plan, certificate, bound_is })
    }

    /// The same plan alone.
    ///
    /// # Errors
    /// As there.
    pub(super) fn fastest<'a>(
        &self,
        stages: &'a Stages,
        choice: Choice<'_>,
        stop: &Stop,
    ) -> Result<Fastest<'a>, QuestionError> {
        let mut best: Option<Fastest<'_>> = None;
        let mut error = None;
        for candidate in &stages.candidates {
            // Actions only add to what its stages do.
            let least = candidate.simulated.unwrap_or(0.0);
            if best.as_ref().is_some_and(|best| least >= seconds(&best.plan)) {
                continue;
            }
            match self.chosen_for(candidate, choice, stop) {
                Ok(found) => {
                    if best.as_ref().is_none_or(|best| seconds(&found.plan) < seconds(&best.plan)) {
                        best = Some(found);
                    }
                }
                Err(failed) => drop(error.get_or_insert(failed)),
            }
            if best.is_some() && stop.is_requested() {
                break;
            }
        }
        best.ok_or_else(|| error.unwrap_or_else(|| RecommendError::Stopped.into()))
    }

    fn chosen_for<'a>(
        &self,
        candidate: &'a Candidate,
        choice: Choice<'_>,
        stop: &Stop,
    ) -> Result<Fastest<'a>, QuestionError> {
        let solver = choice.chooser.solver();
        let asked = self.asked(candidate, self.plan(candidate, solver)?, choice.pace)?;
        let actions = self.actions(&asked, choice, stop)?;
        let plan = self.acted(candidate, &actions, choice.pace, solver)?;
        Ok(Fastest { asked, plan })
    }

    /// The same stages with one way alone, and with MPress's actions; stopped, with fewer of them.
    fn others(
        &self,
        asked: &Asked<'_>,
        choice: Choice<'_>,
        stop: &Stop,
    ) -> Vec<(String, Result<Plan, QuestionError>)> {
        let only = |way: &Way| {
            (format!("{way}-only"), choice.chooser, Allowed { ways: vec![*way], ..choice.allowed.clone() })
        };
        let mut asked_for: Vec<(String, Chooser, Allowed)> = choice.allowed.ways.iter().map(only).collect();
        if choice.chooser == Chooser::Fastest {
            asked_for.push(("mpress".to_owned(), Chooser::Mpress, choice.allowed.clone()));
        }
        let mut others = Vec::new();
        for (name, chooser, allowed) in asked_for {
            let of = Choice { chooser, allowed: &allowed, ..choice };
            let plan = self
                .actions(asked, of, stop)
                .and_then(|actions| self.acted(asked.candidate, &actions, of.pace, choice.chooser.solver()));
            if stop.is_requested() {
                break;
            }
            others.push((name, plan));
        }
        others
    }
}

fn seconds(plan: &Plan) -> f64 {
    plan.iteration_seconds().unwrap_or(f64::INFINITY)
}

/// How far from the best the plan's seconds can be, and of what their bound is.
fn certificate(
    asked: &Asked<'_>,
    stages: &Stages,
    choice: Choice<'_>,
    plan: &Plan,
    stop: &Stop,
) -> (Certificate, String) {
    let best = seconds(plan);
    // Actions only add to what the stages do, so nothing of these stages is faster than they are untouched.
    let own = asked.untouched.iteration_seconds().unwrap_or(0.0);
    let node = asked.node_within(choice.allowed);
    let question = asked.question(&node, &[], choice.allowed, stop);
    let of_actions = fastest::bound(&question, asked.known(), best).ok().flatten().unwrap_or(0.0);
    let bound = stages.bound.unwrap_or_else(|| own.max(of_actions)).min(best);
    let gap = if bound > 0.0 { (best - bound).max(0.0) / bound } else { 0.0 };
    let certificate = Certificate {
        value: best,
        bound: Some(bound),
        gap: Some(gap),
        unit: "seconds".to_owned(),
        proven: gap <= EQUAL,
        stopped: stages.stopped || stop.is_requested(),
        states: stages.states,
        rejected: Vec::new(),
    };
    let bound_is = if stages.bound.is_some() {
        format!(
            "the bound is of every pipeline of one device per stage, untouched and whatever memory it takes: no memory \
             action makes one faster; actions were chosen for the stages of {} of them",
            stages.candidates.len()
        )
    } else {
        "the bound is of these stages under this schedule with any of the allowed actions, as if no copy waited for \
         another one; other partitionings were not looked at"
            .to_owned()
    };
    (certificate, bound_is)
}

fn baseline(name: &str, plan: Option<&Plan>, best: &Plan, note: String) -> Result<Baseline, Invalid> {
    let ratio = |own: f64, of: f64| (of > 0.0).then_some(own / of);
    let outline = |plan: &Plan| {
        Ok::<_, Invalid>(Outline {
            partitioning: Partitioning::new(plan.stages.iter().map(|stage| stage.config).collect())?,
            micro_batch_size: plan.training.micro_batch_size,
            peak: plan.peak(),
            seconds: plan.iteration_seconds(),
        })
    };
    Ok(Baseline {
        name: name.to_owned(),
        fits: plan.is_some_and(|plan| plan.stages.iter().all(super::fits)),
        peak_ratio: plan.and_then(|plan| ratio(plan.peak() as f64, best.peak() as f64)),
        time_ratio: plan.and_then(|plan| ratio(plan.iteration_seconds()?, best.iteration_seconds()?)),
        plan: plan.map(outline).transpose()?,
        note,
    })
}
