//! Sets of runs that a stage recomputes, each held to a replay.
//!
//! The search for actions adds blocks up ([`optimizer`](loadmaster_memory::actions::optimizer)). A replay sees less than that sum
//! where layers share tensors, and where blocks are gone by the time of the peak. The search therefore misses what fits with
//! nothing to spare, and acts on stages that fit untouched.
//!
//! Here every stage is replayed untouched. One of few layers that does not fit is replayed with every set of runs. What a stage
//! recomputes changes no other stage, so each is decided alone: it takes the set that recomputes least of those that fit. Then
//! mixtures of two sets are tried, each for some of the micro-batches in flight.

use loadmaster_proto::training::RecomputePolicy;
use loadmaster_proto::training::actions::{Action, Optimization, StageActions, Way};

use super::certificate::seconds;
use super::choice::{ActionSearch, Chooser};
use super::problem::ActionProblem;
use crate::result::QuestionError;
use loadmaster_predict::PredictionError;

/// Layers of a stage whose sets of runs are all replayed: 233 of six layers.
const MOST_LAYERS: usize = 6;

/// What a stage may do for all of its micro-batches.
#[derive(Debug, Clone)]
struct Set {
    actions: Vec<Action>,
    /// What it recomputes for each micro-batch.
    seconds: f64,
    /// What its device must hold.
    needed: u64,
}

/// What a stage does.
#[derive(Debug, Clone)]
struct RecomputeActions {
    /// The same for every micro-batch.
    alike: StageActions,
    /// Two sets for some of them each, where that computes less once more.
    mixed: StageActions,
}

impl ActionSearch<'_> {
    /// Whether all stages fit as they are.
    ///
    /// # Errors
    /// What the profile lacks.
    pub(super) fn fits_untouched(&self, problem: &ActionProblem<'_>) -> Result<bool, PredictionError> {
        for (index, &capacity) in problem.node.capacity.iter().enumerate() {
            if self.needed_with(problem, index, &[])? > capacity {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The fastest of the actions that were found, if any, and of those with which a replay of every set of runs finds all stages
    /// to fit.
    ///
    /// # Errors
    /// What the profile lacks.
    pub(super) fn or_again(
        &self,
        problem: &ActionProblem<'_>,
        found: Option<&[StageActions]>,
    ) -> Result<Option<Vec<StageActions>>, QuestionError> {
        let is_asked = self.choice.chooser == Chooser::Fastest
            && self.choice.framework_rules.is_none()
            && !problem.candidate.schedule.updates_always();
        let stages = if is_asked { self.by_stage(problem)? } else { None };
        let Some(stages) = stages else { return Ok(found.map(<[_]>::to_vec)) };
        let of = |which: fn(&RecomputeActions) -> &StageActions| {
            stages.iter().map(which).cloned().collect::<Vec<_>>()
        };
        let mut all = vec![of(|found| &found.alike), of(|found| &found.mixed)];
        all.dedup();
        if let Some(found) = found {
            // What was found may mix more than two sets in a stage, and fewer in another.
            let least = found.iter().zip(&all[all.len() - 1]).enumerate();
            let hybrid = least.map(|(stage, (one, other))| match computes_again_alone(one) {
                true if computed_again(problem, stage, one) < computed_again(problem, stage, other) => {
                    one.clone()
                }
                _ => other.clone(),
            });
            let hybrid: Vec<StageActions> = hybrid.collect();
            all.extend([hybrid, found.to_vec()]);
        }
        let timed = |actions: &[StageActions]| self.plan(problem.candidate, actions).ok();
        let plans = all.into_iter().filter_map(|actions| Some((seconds(&timed(&actions)?), actions)));
        Ok(plans.min_by(|(one, _), (other, _)| one.total_cmp(other)).map(|(_, actions)| actions))
    }

    /// What each stage does. None where a stage does not fit untouched and has too many layers, where no set makes it fit, or when
    /// stopped.
    fn by_stage(
        &self,
        problem: &ActionProblem<'_>,
    ) -> Result<Option<Vec<RecomputeActions>>, PredictionError> {
        let may_compute_again = self.choice.allowed.ways.contains(&Way::Recompute);
        let mut all = Vec::with_capacity(problem.stages.len());
        for (index, &capacity) in problem.node.capacity.iter().enumerate() {
            if self.needed_with(problem, index, &[])? <= capacity {
                let nothing = StageActions::default();
                all.push(RecomputeActions { alike: nothing.clone(), mixed: nothing });
                continue;
            }
            if !may_compute_again
                || problem.stages[index].layers.len() > MOST_LAYERS
                || self.stop.is_requested()
            {
                return Ok(None);
            }
            match self.of_stage(problem, index, capacity)? {
                Some(found) => all.push(found),
                None => return Ok(None),
            }
        }
        Ok(Some(all))
    }

    fn of_stage(
        &self,
        problem: &ActionProblem<'_>,
        index: usize,
        capacity: u64,
    ) -> Result<Option<RecomputeActions>, PredictionError> {
        let front = self.front_of(problem, index)?;
        let Some(fits) = front.iter().position(|set| set.needed <= capacity) else { return Ok(None) };
        let alike = StageActions { actions: front[fits].actions.clone(), ..StageActions::default() };
        let mut best = (computed_again(problem, index, &alike), alike.clone());
        let slots = problem.settings[index].in_flight();
        for cheap in &front[..fits] {
            for dear in &front[fits..] {
                for is_first in [true, false] {
                    // The more of the micro-batches do the cheaper, the more is held.
                    for of_cheap in (1..slots).rev() {
                        let mixed = mixture(cheap, dear, of_cheap, slots, is_first);
                        let own = computed_again(problem, index, &mixed);
                        if own >= best.0 {
                            break;
                        }
                        if self.needed_with(problem, index, &mixed.actions)? <= capacity {
                            best = (own, mixed);
                            break;
                        }
                    }
                }
            }
        }
        Ok(Some(RecomputeActions { alike, mixed: best.1 }))
    }

    /// Sets of runs of a stage of which none needs less and computes less once more, those that compute least first.
    fn front_of(&self, problem: &ActionProblem<'_>, index: usize) -> Result<Vec<Set>, PredictionError> {
        let blocks = &problem.stages[index];
        let mut sets = Vec::new();
        for actions in sets_of_runs(blocks.first_layer, blocks.layers.len()) {
            let needed = self.needed_with(problem, index, &actions)?;
            let layers = actions.iter().flat_map(Action::layers);
            let seconds = layers.filter_map(|layer| blocks.layer(layer)).map(|of| of.seconds.again).sum();
            sets.push(Set { actions, seconds, needed });
        }
        sets.sort_by(|one, other| one.seconds.total_cmp(&other.seconds).then(one.needed.cmp(&other.needed)));
        let mut least = u64::MAX;
        sets.retain(|set| {
            let needs_less = set.needed < least;
            least = least.min(set.needed);
            needs_less
        });
        Ok(sets)
    }

    /// The bytes that a device of a stage must hold with these actions.
    fn needed_with(
        &self,
        problem: &ActionProblem<'_>,
        index: usize,
        actions: &[Action],
    ) -> Result<u64, PredictionError> {
        let actions = StageActions { actions: actions.to_vec(), ..StageActions::default() };
        self.context.needed_with(&problem.settings[index], &actions)
    }
}

/// Every set of runs of so many layers, that of none included.
fn sets_of_runs(first: usize, layers: usize) -> Vec<Vec<Action>> {
    let mut sets: Vec<(usize, Vec<Action>)> = vec![(0, Vec::new())];
    let mut all = Vec::new();
    while let Some((at, set)) = sets.pop() {
        if at == layers {
            all.push(set);
            continue;
        }
        sets.push((at + 1, set.clone()));
        for last in at..layers {
            let run = Action {
                first_layer: first + at,
                last_layer: first + last,
                slots: Vec::new(),
                optimization: Optimization::Recompute,
            };
            sets.push((last + 1, [&set[..], &[run]].concat()));
        }
    }
    all
}

/// One set for so many of the slots, the first or the last of them, and the other for the rest.
fn mixture(cheap: &Set, dear: &Set, of_cheap: u32, slots: u32, is_first: bool) -> StageActions {
    let (own, rest): (Vec<u32>, Vec<u32>) =
        (0..slots).partition(|&slot| if is_first { slot < of_cheap } else { slot >= slots - of_cheap });
    let of = |set: &Set, slots: &[u32]| {
        let action = |action: &Action| Action { slots: slots.to_vec(), ..action.clone() };
        set.actions.iter().map(action).collect::<Vec<_>>()
    };
    StageActions { actions: [of(cheap, &own), of(dear, &rest)].concat(), ..StageActions::default() }
}

/// Whether a stage does nothing else.
fn computes_again_alone(actions: &StageActions) -> bool {
    actions.actions.iter().all(|action| action.optimization == Optimization::Recompute)
}

/// Seconds of an iteration in which a stage recomputes.
fn computed_again(problem: &ActionProblem<'_>, index: usize, actions: &StageActions) -> f64 {
    let (blocks, slots) = (&problem.stages[index], problem.settings[index].in_flight().max(1));
    let of_slot = |slot: u32| -> f64 {
        let runs = actions.runs(blocks.range(), RecomputePolicy::None, slot).into_iter();
        let layers = runs.filter(|run| run.is_recomputed).flat_map(|run| run.layers);
        layers.filter_map(|layer| blocks.layer(layer)).map(|of| of.seconds.again).sum()
    };
    let of_slots: Vec<f64> = (0..slots).map(of_slot).collect();
    let micro_batches = problem.candidate.batch.micro_batches;
    (0..micro_batches).filter_map(|number| of_slots.get((number % slots) as usize)).sum()
}
