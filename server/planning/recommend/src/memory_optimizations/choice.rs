//! Memory optimizations for named stages, or for those of a fast pipeline, held to a replay.
//!
//! For stages that never flush, MPress's plans over some of the blocks are tried, and the best of them with other points. Each is
//! replayed and simulated as the plan will be. The result is no slower than MPress's plan over all blocks. Only the untouched
//! stages bound it.

use std::collections::BTreeSet;

use loadmaster_proto::measure::offload::CopyPace;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::findings::Certificate;
use loadmaster_proto::training::actions::{Action, Allowed, Block, Optimization, StageActions, Swap, Way};

use super::certificate::{baseline, certificate, seconds};
use super::expressible_actions::FrameworkRules;
use super::links::CopyLinks;
use super::problem::ActionProblem;
use super::replay_fit::Incumbent;
use super::seconds::timed;
use super::{Stages, certificate, plan_with_actions};
use crate::context::Context;
use crate::plan::PlanBuilder;
use crate::result::{QuestionError, RecommendError};
use crate::search::Candidate;
use loadmaster_memory::actions::optimizer::StagePolicies;
use loadmaster_search::Stop;

/// Most candidates for which the fastest actions are looked for: those whose first ones are fastest.
const MOST_PURSUED: usize = 2;
/// The same where stages have several devices, so that candidates differ in more than where they are cut.
const MOST_OF_SEVERAL: usize = 4;

/// What a plan may be slower than its stages untouched and is not held against other plans any more, as a share of its seconds.
const NEAR: f64 = 1e-3;

/// Who chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Chooser {
    /// The fastest that is found, with a bound; MPress's planner is asked, too.
    Fastest,
    /// MPress's planner.
    Mpress,
}

impl Chooser {
    /// Solver of plans whose actions it chose.
    pub(crate) fn solver(self) -> &'static str {
        match self {
            Self::Fastest => "actions/1",
            Self::Mpress => "mpress/1",
        }
    }
}

/// What may be chosen, and how fast copies are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Choice<'a> {
    pub(crate) chooser: Chooser,
    pub(crate) allowed: &'a Allowed,
    pub(crate) pace: CopyPace,
    /// The framework whose words say which actions there are; none where all that is allowed may be chosen.
    pub(crate) framework_rules: Option<FrameworkRules<'a>>,
}

/// The fastest plan with chosen actions that was found.
pub(super) struct Fastest<'a> {
    pub(super) problem: ActionProblem<'a>,
    pub(super) plan: Plan,
    policies: StagePolicies,
}

/// The same, beside what it is compared with and what proves it.
pub(super) struct Chosen<'a> {
    pub(super) candidate: &'a Candidate,
    pub(super) plan: Plan,
    /// Of its seconds.
    pub(super) certificate: Certificate,
    /// What the bound of these seconds is of, human-readable.
    pub(super) bound_is: String,
}

/// A search for the memory optimizations of stages.
#[derive(Clone, Copy)]
pub(super) struct ActionSearch<'a> {
    pub(super) context: &'a Context<'a>,
    pub(super) choice: Choice<'a>,
    pub(super) stop: &'a Stop,
}

impl ActionSearch<'_> {
    /// The plan of a candidate whose stages do these actions.
    ///
    /// # Errors
    /// As [`plan_with_actions`].
    pub(super) fn plan(
        &self,
        candidate: &Candidate,
        actions: &[StageActions],
    ) -> Result<Plan, QuestionError> {
        let Choice { chooser, pace, .. } = self.choice;
        plan_with_actions(self.context, candidate, actions, pace, chooser.solver())
    }

    /// What is asked of a candidate.
    ///
    /// # Errors
    /// Its stages cannot be predicted, or have a recompute policy, which says what is to be chosen.
    pub(super) fn problem<'c>(&self, candidate: &'c Candidate) -> Result<ActionProblem<'c>, QuestionError> {
        let Choice { chooser, pace, .. } = self.choice;
        let untouched = PlanBuilder { context: self.context }.plan(candidate, chooser.solver())?;
        ActionProblem::new(self.context, candidate, untouched, pace)
    }

    /// The plan of stages with the memory optimizations that are chosen for them: of several candidates the fastest.
    ///
    /// # Errors
    /// The chooser knows no such pipeline, nothing that is allowed makes one fit, or it was stopped before anything did.
    pub(super) fn chosen<'s>(&self, stages: &'s Stages) -> Result<Chosen<'s>, QuestionError> {
        let found = self.fastest(stages)?;
        let Fastest { problem, mut plan, policies } = self.or_with_fewer_ways(found, stages);
        let others = self.others(&problem, (&plan, &policies));
        if self.choice.chooser == Chooser::Fastest {
            // Fewer ways are fewer to lose one's way among.
            let found = others.iter().filter_map(|(_, plan)| plan.as_ref().ok());
            let faster = found.filter(|other| seconds(other) < seconds(&plan));
            if let Some(faster) = faster.min_by(|a, b| seconds(a).total_cmp(&seconds(b))) {
                plan = faster.clone();
            }
        }
        let (certificate, bound_is) = certificate(&problem, stages, self.choice, &plan, self.stop);
        let kept = self.untouched(&problem)?;
        let mut baselines = vec![baseline("keep-only", Some(&kept), &plan, String::new())?];
        for (name, other) in &others {
            let note = other.as_ref().err().map(ToString::to_string).unwrap_or_default();
            baselines.push(baseline(name, other.as_ref().ok(), &plan, note)?);
        }
        plan.found.baselines = baselines;
        Ok(Chosen { candidate: problem.candidate, plan, certificate, bound_is })
    }

    /// Returns the plan of the untouched stages, reported as plans with actions are: with the cores that stages share.
    fn untouched(&self, problem: &ActionProblem<'_>) -> Result<Plan, QuestionError> {
        let mut plan = problem.untouched.clone();
        if !self.context.shared_cores(problem.candidate).is_empty() {
            let none = self.context.replayed(&problem.settings, &[])?;
            let copies = || CopyLinks::between(self.context, problem.candidate, self.choice.pace);
            if let Some(timed) = timed(self.context, problem.candidate, &none, &copies)? {
                timed.tell(&mut plan);
            }
        }
        Ok(plan)
    }

    /// The same plan as [`Self::chosen`] alone.
    ///
    /// # Errors
    /// As there.
    pub(super) fn fastest<'s>(&self, stages: &'s Stages) -> Result<Fastest<'s>, QuestionError> {
        self.fastest_of(stages, &|_| true)
    }

    /// The same of those candidates alone that may be worth it.
    fn fastest_of<'s>(
        &self,
        stages: &'s Stages,
        is_worth_it: &dyn Fn(&Candidate) -> bool,
    ) -> Result<Fastest<'s>, QuestionError> {
        let mut error = None;
        let has_several = |of: &Candidate| of.stages.iter().any(|stage| stage.devices.len() > 1);
        let is_several = stages.candidates.iter().any(has_several);
        let mut begun: Vec<(bool, ActionProblem<'_>, Incumbent)> =
            Vec::with_capacity(stages.candidates.len());
        let own = stages.candidates.iter().map(|of| (false, of));
        let mut candidates: Vec<(bool, &Candidate)> =
            own.chain(stages.mapped.iter().map(|of| (true, of))).collect();
        candidates.retain(|(_, of)| is_worth_it(of));
        if is_several {
            // Those that need least come last: should time run out, they are likely to fit.
            candidates.reverse();
        }
        for (is_mapped, candidate) in candidates {
            let problem = self.problem(candidate);
            match problem.and_then(|problem| Ok((self.incumbent(&problem)?, problem))) {
                Ok((of, problem)) => begun.push((is_mapped, problem, of)),
                Err(failed) => error = Some(nearer(error, failed)),
            }
            if !begun.is_empty() && self.stop.is_requested() {
                break;
            }
        }
        begun.sort_by(|(_, _, a), (_, _, b)| a.seconds().total_cmp(&b.seconds()));
        let mut best: Option<Fastest<'_>> = None;
        let mut pursued = 0;
        let most = if is_several { MOST_OF_SEVERAL } else { MOST_PURSUED };
        for (is_mapped, problem, of) in begun {
            // Actions only add to what its stages do, which on cores that are shared may be over sooner nevertheless.
            let has_own_cores = problem.node.cores.is_none();
            let least = problem.candidate.simulated.filter(|_| has_own_cores).unwrap_or(0.0);
            let is_slower = best.as_ref().is_some_and(|best| least >= seconds(&best.plan));
            // On other devices stages are a question of their own: nothing was found there soon that says how they compare.
            let is_enough = pursued >= most && !is_mapped;
            if is_slower || best.is_some() && (is_enough || self.stop.is_requested()) {
                continue;
            }
            pursued += usize::from(!is_mapped);
            let found = self.fitting_actions(&problem, of, &StagePolicies::default());
            let plan =
                found.and_then(|(actions, policies)| Ok((self.plan(problem.candidate, &actions)?, policies)));
            match plan {
                Ok((plan, policies))
                    if best.as_ref().is_none_or(|best| seconds(&plan) < seconds(&best.plan)) =>
                {
                    best = Some(Fastest { problem, plan, policies });
                }
                Ok(_) => {}
                Err(failed) => error = Some(nearer(error, failed)),
            }
        }
        best.ok_or_else(|| error.unwrap_or_else(|| RecommendError::Stopped.into()))
    }

    /// A plan, or a faster one that is found where fewer ways are allowed, or by MPress's planner, on stages that are better for
    /// these than those of the plan. Fewer ways are fewer to lose one's way among.
    fn or_with_fewer_ways<'s>(&self, mut best: Fastest<'s>, stages: &'s Stages) -> Fastest<'s> {
        let choice = self.choice;
        let has_others = stages.candidates.len() + stages.mapped.len() > 1;
        if choice.chooser != Chooser::Fastest || choice.framework_rules.is_some() || !has_others {
            return best;
        }
        let fewer = fewer_ways(choice).map(|(_, chooser, allowed)| (chooser, allowed));
        // A request for one way alone also gets the plans of MPress's planner with that way.
        let of_mpress = |way: &Way| (Chooser::Mpress, Allowed { ways: vec![*way], ..choice.allowed.clone() });
        for (chooser, allowed) in fewer.chain(choice.allowed.ways.iter().map(of_mpress)) {
            let is_as_asked = chooser == choice.chooser && allowed.ways == choice.allowed.ways;
            if is_as_asked || self.stop.is_requested() {
                continue;
            }
            // Actions only add to what stages do, unless they share cores.
            let has_own_cores = best.problem.node.cores.is_none();
            let least = seconds(&best.plan) * (1.0 - NEAR);
            let untouched = |of: &Candidate| of.simulated.filter(|_| has_own_cores);
            let may_be_faster = |of: &Candidate| untouched(of).is_none_or(|untouched| untouched < least);
            let found = ActionSearch { choice: Choice { chooser, allowed: &allowed, ..choice }, ..*self }
                .fastest_of(stages, &may_be_faster);
            let Ok(Fastest { problem, plan, policies }) = found else { continue };
            if seconds(&plan) >= seconds(&best.plan) {
                continue;
            }
            // From there all ways may lead further.
            let own = plan.stages.iter().map(|stage| stage.actions.actions.clone());
            let own = own.map(|actions| StageActions { actions, ..StageActions::default() }).collect();
            let more = self.actions(&problem, &policies).ok();
            let plans = [Some(own), more].into_iter().flatten();
            let plans = plans.filter_map(|actions| self.plan(problem.candidate, &actions).ok());
            if let Some(plan) = plans.min_by(|a, b| seconds(a).total_cmp(&seconds(b))) {
                best = Fastest { problem, plan, policies };
            }
        }
        best
    }

    /// The same stages with one way alone, and with MPress's actions; stopped, with fewer of them. Where the plan itself has
    /// that way alone and nothing is faster, it is what is found; otherwise what its stages do is where the search begins.
    fn others(
        &self,
        problem: &ActionProblem<'_>,
        (best, policies): (&Plan, &StagePolicies),
    ) -> Vec<(String, Result<Plan, QuestionError>)> {
        let ways: BTreeSet<Way> =
            best.stages.iter().flat_map(|of| &of.actions.actions).map(|of| of.optimization.way()).collect();
        let is_fastest = certificate::is_as_fast_as_untouched(problem, best);
        if self.choice.framework_rules.is_some() {
            // It has one way, and knows no other chooser.
            return vec![(format!("{}-only", Way::Recompute), Ok(best.clone()))];
        }
        let mut others = Vec::new();
        for (name, chooser, allowed) in fewer_ways(self.choice) {
            let has_all = ways.iter().all(|way| allowed.ways.contains(way));
            if is_fastest && has_all && chooser == Chooser::Fastest {
                others.push((name, Ok(best.clone())));
                continue;
            }
            let fewer =
                ActionSearch { choice: Choice { chooser, allowed: &allowed, ..self.choice }, ..*self };
            let actions = fewer.actions(problem, policies);
            let plan = actions.and_then(|actions| self.plan(problem.candidate, &actions));
            if self.stop.is_requested() {
                break;
            }
            others.push((name, plan));
        }
        others
    }
}

/// What plans are compared with: one way alone, one after another, and all of them as MPress's planner chooses; by their names.
fn fewer_ways(choice: Choice<'_>) -> impl Iterator<Item = (String, Chooser, Allowed)> {
    let only = move |way: &Way| {
        (format!("{way}-only"), choice.chooser, Allowed { ways: vec![*way], ..choice.allowed.clone() })
    };
    let mpress = (choice.chooser == Chooser::Fastest)
        .then(|| ("mpress".to_owned(), Chooser::Mpress, choice.allowed.clone()));
    choice.allowed.ways.iter().map(only).chain(mpress)
}

/// Of two errors the one that lacks less memory, the first one of equals.
fn nearer(first: Option<QuestionError>, second: QuestionError) -> QuestionError {
    let missing = |of: &QuestionError| match of {
        QuestionError::Recommend(RecommendError::NoPlan { why_not, .. }) => why_not.missing(),
        _ => None,
    };
    match first {
        Some(first)
            if missing(&second).is_some_and(|second| missing(&first).is_some_and(|of| second < of)) =>
        {
            second
        }
        Some(first) => first,
        None => second,
    }
}

/// Blocks that leave, without what is left out: what is used seldom, what is large, and each alone.
const SOME: [&[Block]; 5] = [
    &[Block::Versions],
    &[Block::Optimizer],
    &[Block::Versions, Block::Optimizer],
    &[Block::Activations, Block::Inputs],
    &[Block::Versions, Block::Activations, Block::Inputs],
];
/// Times and parts of a swap's distances that are tried.
const DISTANCES: [(u32, u32); 5] = [(2, 1), (4, 1), (1, 2), (1, 4), (0, 1)];

/// Actions, and the seconds of an iteration with them.
pub(super) struct TimedActions {
    pub(super) actions: Vec<StageActions>,
    pub(super) seconds: f64,
}

impl ActionSearch<'_> {
    /// The fastest actions that are found, after MPress's, if it found any.
    ///
    /// # Errors
    /// Nothing that is allowed makes the stages fit, as far as was found.
    pub(super) fn fastest_endless(
        &self,
        problem: &ActionProblem<'_>,
        mpress: Option<Vec<StageActions>>,
    ) -> Result<Vec<StageActions>, QuestionError> {
        let mut best: Option<TimedActions> = None;
        let mut error = None;
        if let Some(actions) = mpress {
            self.tries(problem, actions, &mut best);
        }
        for some in SOME {
            if self.stop.is_requested() {
                break;
            }
            let blocks: Vec<Block> =
                self.choice.allowed.blocks.iter().copied().filter(|block| some.contains(block)).collect();
            if blocks.is_empty() && best.is_some() {
                continue;
            }
            let allowed = Allowed { blocks, ..self.choice.allowed.clone() };
            let choice = Choice { chooser: Chooser::Mpress, allowed: &allowed, ..self.choice };
            let fewer = ActionSearch { choice, ..*self };
            match fewer.actions(problem, &StagePolicies::default()) {
                Ok(actions) => self.tries(problem, actions, &mut best),
                Err(failed) => drop(error.get_or_insert(failed)),
            }
        }
        if best.is_none()
            && let Some(actions) = self.minimum_memory(problem)
        {
            self.tries(problem, actions, &mut best);
        }
        let Some(mut best) = best else {
            return Err(error.unwrap_or_else(|| RecommendError::Stopped.into()));
        };
        self.move_points(problem, &mut best);
        Ok(best.actions)
    }

    /// Takes actions over that fit and are faster.
    fn tries(
        &self,
        problem: &ActionProblem<'_>,
        actions: Vec<StageActions>,
        best: &mut Option<TimedActions>,
    ) {
        let Ok(plan) = self.plan(problem.candidate, &actions) else { return };
        let at_host =
            plan.stages.iter().map(|stage| stage.offload.as_ref().map_or(0, |offload| offload.host_peak.0));
        let node = problem.node_within(self.choice.allowed);
        let seconds = seconds(&plan);
        let is_faster = best.as_ref().is_none_or(|best| seconds < best.seconds);
        if is_faster && node.hosts_have_room(at_host.enumerate()) {
            *best = Some(TimedActions { actions, seconds });
        }
    }

    /// Tries other distances, stage by stage and block by block, as long as that helps.
    fn move_points(&self, problem: &ActionProblem<'_>, best: &mut TimedActions) {
        let least = problem.untouched.iteration_seconds().unwrap_or(0.0);
        let moving = [Block::Versions, Block::Optimizer, Block::Activations, Block::Inputs];
        for stage in 0..best.actions.len() {
            for block in moving {
                for (times, part) in DISTANCES {
                    if self.stop.is_requested() || best.seconds <= least {
                        return;
                    }
                    let mut actions = best.actions.clone();
                    let of_stage = actions.get_mut(stage).into_iter().flat_map(|own| &mut own.actions);
                    let swaps = of_stage.filter_map(|action| match &mut action.optimization {
                        Optimization::Swap(swap) if swap.block == block => Some(swap),
                        Optimization::Swap(_) | Optimization::Recompute => None,
                    });
                    let mut has_moved = false;
                    for Swap { release_after, fetch_before, .. } in swaps {
                        for distance in [release_after, fetch_before] {
                            let moved = (*distance).max(1).saturating_mul(times) / part;
                            has_moved |= moved != *distance;
                            *distance = moved.min(Action::MAX_STEPS);
                        }
                    }
                    if has_moved {
                        let mut tried = Some(TimedActions { actions: Vec::new(), seconds: best.seconds });
                        self.tries(problem, actions, &mut tried);
                        if let Some(faster) = tried.filter(|tried| !tried.actions.is_empty()) {
                            *best = faster;
                        }
                    }
                }
            }
        }
    }
}
