//! Every plan there is.

use super::super::memory::{Peaks, Run};
use super::super::{
    Assignment, Ended, PlaceId, PlacedStage, Question, Searched, StageCosts, Step, Stop, Unit,
};

/// Stages that are weighed between two looks at the flag.
const STAGES_BETWEEN_LOOKS: u64 = 1 << 12;

/// CAPTURE's recommender (III-C, Algorithm 4): all placements of all stages, without those whose peak is above
/// the highest one of the best plan so far. Of plans with equal highest peaks the next highest decide.
///
/// The states of the answer are whole plans. Stages are placed from the last to the first, because under 1F1B those after a stage decide what it holds.
pub fn enumeration<C: StageCosts>(question: &Question<'_, C>, unit: Unit, stop: &Stop) -> Searched<Peaks> {
    search(question, unit, true, stop)
}

/// mCAP's brute force: all C(L−1, G−1) ways to cut L layers into a stage for each of G devices, with nothing
/// left out. Choices that take more than one device are ignored.
pub fn brute_force<C: StageCosts>(question: &Question<'_, C>, unit: Unit, stop: &Stop) -> Searched<Peaks> {
    let is_single =
        |&&choice: &&usize| question.costs.choices().get(choice).is_some_and(|choice| choice.devices() == 1);
    let choices: Vec<usize> = question.choices.iter().filter(is_single).copied().collect();
    let question = Question { choices: &choices, stages: question.stages.clone(), ..*question };
    search(&question, unit, false, stop)
}

fn search<C: StageCosts>(
    question: &Question<'_, C>,
    unit: Unit,
    prunes: bool,
    stop: &Stop,
) -> Searched<Peaks> {
    let mut before = vec![Vec::new(); question.places.count()];
    for from in 0..question.places.last() {
        for (index, step) in question.places.steps(from).iter().enumerate() {
            before[step.to as usize].push((from, index, *step));
        }
    }
    let mut enumeration =
        Enumeration { question, unit, prunes, before, best: None, weighed: 0, plans: 0, stop };
    let is_done = enumeration.place(question.places.last(), question.costs.layers(), &mut Vec::new());
    let best = enumeration.best.map(|(value, _, stages)| Assignment { stages, value });
    let (bound, ended) = match is_done {
        true => (best.as_ref().map(|best| best.value.clone()), Ended::Proven),
        false => (None, Ended::Stopped),
    };
    Searched { best, bound, states: enumeration.plans, ended }
}

struct Enumeration<'a, C> {
    question: &'a Question<'a, C>,
    unit: Unit,
    prunes: bool,
    /// The steps that lead to each place.
    before: Vec<Vec<(PlaceId, usize, Step)>>,
    best: Option<(Peaks, TieBreak, Vec<PlacedStage>)>,
    /// Stages that were weighed, whether or not they may be.
    weighed: u64,
    /// Whole plans that were weighed.
    plans: u64,
    stop: &'a Stop,
}

/// The place of a plan among equals: layers and steps of its stages from the first on, then choices.
type TieBreak = (Vec<(usize, usize)>, Vec<usize>);

impl<C: StageCosts> Enumeration<'_, C> {
    /// Places the stages before those that are `placed`, which begin at a place and a layer. False when stopped.
    fn place(&mut self, to: PlaceId, end: usize, placed: &mut Vec<(PlacedStage, Run)>) -> bool {
        if end == 0 {
            if to == 0 && self.question.stages.contains(&placed.len()) {
                self.offer(placed);
            }
            return true;
        }
        if placed.len() >= *self.question.stages.end() {
            return true;
        }
        for index in 0..self.before[to as usize].len() {
            let (from, step, taken) = self.before[to as usize][index];
            for first in 0..end {
                for &choice in self.question.choices {
                    let stage = PlacedStage { first, last: end - 1, choice, from, step };
                    self.weighed += 1;
                    if self.weighed.is_multiple_of(STAGES_BETWEEN_LOOKS) && self.stop.is_requested() {
                        return false;
                    }
                    let Some(run) = self.weigh(&stage, &taken, placed.len()) else { continue };
                    placed.push((stage, run));
                    let goes_on = self.place(from, first, placed);
                    placed.pop();
                    if !goes_on {
                        return false;
                    }
                }
            }
        }
        true
    }

    /// The peak of a stage; none where it must not be, or is pruned.
    fn weigh(&self, stage: &PlacedStage, step: &Step, after: usize) -> Option<Run> {
        let question = self.question;
        let devices = question.costs.choices().get(stage.choice)?.devices();
        let at = question.stage_at(step, stage.first, stage.last, stage.choice);
        let fits = |needed: u64| !question.within_capacity || needed <= question.fleet.capacity(step.kinds).0;
        let may_be = devices == step.devices && super::is_allowed(question, stage);
        let peak = may_be.then(|| question.costs.peak(&at, question.in_flight(after)))??;
        let peak =
            fits(peak.needed).then(|| self.unit.of(peak.bytes, question.fleet.capacity(step.kinds)))?;
        let limit = self.best.as_ref().filter(|_| self.prunes).and_then(|(best, ..)| best.highest());
        limit.is_none_or(|limit| peak <= limit).then_some(Run { peak, devices })
    }

    fn offer(&mut self, placed: &[(PlacedStage, Run)]) {
        self.plans += 1;
        let peaks = Peaks::of(placed.iter().map(|&(_, run)| run));
        if self.best.as_ref().is_some_and(|(best, ..)| peaks > *best) {
            return;
        }
        let stages: Vec<PlacedStage> = placed.iter().rev().map(|&(stage, _)| stage).collect();
        let cuts = stages.iter().map(|stage| (stage.last, stage.step)).collect();
        let place =
            |stage: &PlacedStage| self.question.choices.iter().position(|&choice| choice == stage.choice);
        let order: TieBreak = (cuts, stages.iter().filter_map(place).collect());
        if self.best.as_ref().is_none_or(|(best, first, _)| (&peaks, &order) < (best, first)) {
            self.best = Some((peaks, order, stages));
        }
    }
}
