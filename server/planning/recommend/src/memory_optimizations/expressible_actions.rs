//! Actions that a framework can say: recomputation alone, of the few layers that its own words leave to be chosen.
//!
//! Each choice is replayed as the plan will be. Computing less once more takes no longer where every device has
//! cores of its own, and choices come with the least first, so the first that fits is the fastest. Where slots share
//! cores all that fit are simulated. A bound of any actions is one of these, too: the gap says what is not proven.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use loadmaster_launchers::{Choices, Rules, Runs};
use loadmaster_proto::model::Model;
use loadmaster_proto::training::actions::StageActions;

use super::certificate::seconds;
use super::choice::{ActionSearch, TimedActions};
use super::problem::ActionProblem;
use super::replay_fit::stage_lacks;
use crate::context::Context;
use crate::result::{QuestionError, RecommendError};

/// Who is to run the plan, and of which model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FrameworkRules<'a> {
    pub(crate) rules: Rules,
    pub(crate) model: Option<&'a Model>,
}

impl FrameworkRules<'_> {
    /// All that the framework can recompute.
    pub(crate) fn with_all(&self) -> String {
        let Rules { framework, recomputing, .. } = self.rules;
        format!("with all that {framework} can recompute ({recomputing})")
    }
}

impl ActionSearch<'_> {
    /// The fastest actions that fit.
    ///
    /// # Errors
    /// None of the choices fits, or the search was stopped before one did.
    pub(super) fn expressible(
        &self,
        problem: &ActionProblem<'_>,
        framework_rules: FrameworkRules<'_>,
    ) -> Result<TimedActions, QuestionError> {
        let mut replays = ExpressibleReplays { context: self.context, problem, known: HashMap::new() };
        let mut best: Option<TimedActions> = None;
        let mut nearest: Option<(usize, u64)> = None;
        let shares_cores = problem.node.cores.is_some();
        for runs in replays.candidates(framework_rules)? {
            if self.stop.is_requested() {
                break;
            }
            if let Some(lacks) = replays.lacks(&runs)? {
                nearest = Some(nearest.filter(|(_, least)| *least <= lacks.1).unwrap_or(lacks));
                continue;
            }
            let actions: Vec<StageActions> =
                runs.iter().map(|runs| StageActions::recomputing(runs)).collect();
            let seconds = seconds(&self.plan(problem.candidate, &actions)?);
            if best.as_ref().is_none_or(|best| seconds < best.seconds) {
                best = Some(TimedActions { actions, seconds });
            }
            if !shares_cores {
                break;
            }
        }
        best.ok_or_else(|| match nearest {
            Some(lacks) if !self.stop.is_requested() => {
                let all = format!("{}; other frameworks may support more", framework_rules.with_all());
                stage_lacks(self.context, problem, lacks, &all).into()
            }
            _ => RecommendError::Stopped.into(),
        })
    }

    /// Those with which a replay finds the device with the highest peak to hold least.
    pub(super) fn least_expressible(
        &self,
        problem: &ActionProblem<'_>,
        framework_rules: FrameworkRules<'_>,
    ) -> Option<Vec<StageActions>> {
        let mut replays = ExpressibleReplays { context: self.context, problem, known: HashMap::new() };
        let mut least: Option<(u64, Vec<Runs>)> = None;
        for runs in replays.every(framework_rules).ok()? {
            let peaks: Result<Vec<u64>, QuestionError> =
                runs.iter().enumerate().map(|(stage, runs)| replays.needed(stage, runs)).collect();
            let peak = peaks.ok()?.into_iter().max().unwrap_or(0);
            if least.as_ref().is_none_or(|(least, _)| peak < *least) {
                least = Some((peak, runs));
            }
        }
        least.map(|(_, runs)| runs.iter().map(|runs| StageActions::recomputing(runs)).collect())
    }
}

/// What stages were found to need.
struct ExpressibleReplays<'a> {
    context: &'a Context<'a>,
    problem: &'a ActionProblem<'a>,
    known: HashMap<(usize, Runs), u64>,
}

impl ExpressibleReplays<'_> {
    /// What is looked at of all stages at once, the least first. Where stages choose for themselves, each takes the first that
    /// fits: none else can be part of a faster plan.
    fn candidates(&mut self, framework_rules: FrameworkRules<'_>) -> Result<Vec<Vec<Runs>>, QuestionError> {
        self.chosen(framework_rules, |replays, stage, choices| {
            for runs in choices {
                if replays.missing(stage, runs)? == 0 {
                    return Ok(runs.clone());
                }
            }
            replays.least(stage, choices)
        })
    }

    /// The same to find how little can be held: where stages choose for themselves, each takes what needs least.
    fn every(&mut self, framework_rules: FrameworkRules<'_>) -> Result<Vec<Vec<Runs>>, QuestionError> {
        self.chosen(framework_rules, Self::least)
    }

    fn chosen(
        &mut self,
        framework_rules: FrameworkRules<'_>,
        of_stage: impl Fn(&mut Self, usize, &[Runs]) -> Result<Runs, QuestionError>,
    ) -> Result<Vec<Vec<Runs>>, QuestionError> {
        let stages: Vec<RangeInclusive<usize>> =
            self.problem.settings.iter().map(|of| of.stage.layers()).collect();
        match framework_rules.rules.recomputing.choices(framework_rules.model, &stages) {
            // No one asks here for a framework that can do anything.
            None => Ok(vec![vec![Runs::new(); stages.len()]]),
            Some(Choices::Alike(all)) => Ok(all),
            Some(Choices::Each(choices)) => {
                let each = choices.iter().enumerate();
                let chosen = each.map(|(stage, choices)| of_stage(self, stage, choices));
                Ok(vec![chosen.collect::<Result<_, _>>()?])
            }
        }
    }

    /// What a stage needs least of some choices.
    fn least(&mut self, stage: usize, choices: &[Runs]) -> Result<Runs, QuestionError> {
        let mut least: Option<(u64, &Runs)> = None;
        for runs in choices {
            let needed = self.needed(stage, runs)?;
            if least.is_none_or(|(least, _)| needed < least) {
                least = Some((needed, runs));
            }
        }
        Ok(least.map(|(_, runs)| runs.clone()).unwrap_or_default())
    }

    /// The stage that lacks most, and what; none where all fit.
    fn lacks(&mut self, runs: &[Runs]) -> Result<Option<(usize, u64)>, QuestionError> {
        let mut most: Option<(usize, u64)> = None;
        for (stage, runs) in runs.iter().enumerate() {
            let missing = self.missing(stage, runs)?;
            if missing > most.map_or(0, |(_, most)| most) {
                most = Some((stage, missing));
            }
        }
        Ok(most)
    }

    fn missing(&mut self, stage: usize, runs: &Runs) -> Result<u64, QuestionError> {
        let capacity = self.problem.node.capacity.get(stage).copied().unwrap_or(0);
        Ok(self.needed(stage, runs)?.saturating_sub(capacity))
    }

    fn needed(&mut self, stage: usize, runs: &Runs) -> Result<u64, QuestionError> {
        let key = (stage, runs.clone());
        if let Some(&known) = self.known.get(&key) {
            return Ok(known);
        }
        let Some(setting) = self.problem.settings.get(stage) else { return Ok(0) };
        let needed = self.context.needed_with(setting, &StageActions::recomputing(runs))?;
        self.known.insert(key, needed);
        Ok(needed)
    }
}
