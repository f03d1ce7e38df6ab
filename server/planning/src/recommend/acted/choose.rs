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

impl Writer<'_> {
    /// The plan of stages with the memory actions that are chosen for them: of several candidates the fastest.
    ///
    /// # Errors
    /// The chooser knows no such pipeline, nothing that is allowed makes one fit, or it was stopped before anything did.
    pub(in crate::recommend) fn chosen(
        &self,
        stages: &Stages,
        choice: Choice<'_>,
        stop: &Stop,
    ) -> Result<Plan, QuestionError> {
        let mut best: Option<(Asked<'_>, Plan)> = None;
        let mut error = None;
        let seconds = |plan: &Plan| plan.iteration_seconds().unwrap_or(f64::INFINITY);
        for candidate in &stages.candidates {
            // Actions only add to what its stages do.
            let least = candidate.simulated.unwrap_or(0.0);
            if best.as_ref().is_some_and(|(_, best)| least >= seconds(best)) {
                continue;
            }
            match self.chosen_for(candidate, choice, stop) {
                Ok(found) => {
                    if best.as_ref().is_none_or(|(_, best)| seconds(&found.1) < seconds(best)) {
                        best = Some(found);
                    }
                }
                Err(failed) => drop(error.get_or_insert(failed)),
            }
            if best.is_some() && stop.is_requested() {
                break;
            }
        }
        let Some((asked, mut plan)) = best else {
            return Err(error.unwrap_or_else(|| RecommendError::Stopped.into()));
        };
        self.certify(&asked, stages, choice, &mut plan, stop)?;
        plan.found.baselines = self.alone(&asked, choice, &plan, stop)?;
        Ok(plan)
    }

    fn chosen_for<'a>(
        &self,
        candidate: &'a Candidate,
        choice: Choice<'_>,
        stop: &Stop,
    ) -> Result<(Asked<'a>, Plan), QuestionError> {
        let solver = choice.chooser.solver();
        let asked = self.asked(candidate, self.plan(candidate, solver)?, choice.pace)?;
        let actions = self.actions(&asked, choice, stop)?;
        let plan = self.acted(candidate, &actions, choice.pace, solver)?;
        Ok((asked, plan))
    }

    /// Says how far from the best the plan can be.
    fn certify(
        &self,
        asked: &Asked<'_>,
        stages: &Stages,
        choice: Choice<'_>,
        plan: &mut Plan,
        stop: &Stop,
    ) -> Result<(), QuestionError> {
        let best = plan.iteration_seconds().unwrap_or(f64::INFINITY);
        // Actions only add to what the stages do, so nothing of these stages is faster than they are untouched.
        let own = asked.untouched.iteration_seconds().unwrap_or(0.0);
        let node = asked.node_within(choice.allowed);
        let question = asked.question(&node, &[], choice.allowed, stop);
        let of_actions = fastest::bound(&question, Some(&asked.needs), best).ok().flatten().unwrap_or(0.0);
        let bound = stages.bound.unwrap_or_else(|| own.max(of_actions)).min(best);
        let gap = if bound > 0.0 { (best - bound).max(0.0) / bound } else { 0.0 };
        plan.found.certificate = Some(Certificate {
            value: best,
            bound: Some(bound),
            gap: Some(gap),
            unit: "seconds".to_owned(),
            proven: gap <= EQUAL,
            stopped: stages.stopped || stop.is_requested(),
            states: stages.states,
            rejected: Vec::new(),
        });
        plan.warnings.push(if stages.bound.is_some() {
            format!(
                "the bound is of every pipeline of one device per stage, untouched and whatever memory it takes: no memory \
                 action makes one faster; actions were chosen for the stages of {} of them",
                stages.candidates.len()
            )
        } else {
            "the bound is of these stages under this schedule with any of the allowed actions, as if no copy waited for \
             another one; other partitionings were not looked at"
                .to_owned()
        });
        Ok(())
    }

    /// The same stages with nothing done, with one way alone, and with MPress's actions; stopped, with fewer of them.
    fn alone(
        &self,
        asked: &Asked<'_>,
        choice: Choice<'_>,
        best: &Plan,
        stop: &Stop,
    ) -> Result<Vec<Baseline>, QuestionError> {
        let mut baselines = vec![baseline("keep-only", Some(&asked.untouched), best, String::new())?];
        let only = |way: Way| (format!("{way}-only"), Allowed { ways: vec![way], ..choice.allowed.clone() });
        let mut others: Vec<(String, Chooser, Allowed)> = Vec::new();
        for &way in &choice.allowed.ways {
            let (name, allowed) = only(way);
            others.push((name, choice.chooser, allowed));
        }
        if choice.chooser == Chooser::Fastest {
            others.push(("mpress".to_owned(), Chooser::Mpress, choice.allowed.clone()));
        }
        for (name, chooser, allowed) in others {
            let choice = Choice { chooser, allowed: &allowed, ..choice };
            let plan = self
                .actions(asked, choice, stop)
                .and_then(|actions| self.acted(asked.candidate, &actions, choice.pace, chooser.solver()));
            if stop.is_requested() {
                break;
            }
            baselines.push(match plan {
                Ok(plan) => baseline(&name, Some(&plan), best, String::new())?,
                Err(error) => baseline(&name, None, best, error.to_string())?,
            });
        }
        Ok(baselines)
    }
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
