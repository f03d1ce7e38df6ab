//! Bytes and seconds of every stage, asked once, in dense arrays.

use loadmaster_proto::training::Schedule;

use super::super::{LinkId, Question, StageAt, StageCosts, Stop};
use super::Limits;
use super::recompute::Squeezer;
use super::step_classes::StepClasses;

/// Work of asking for a stage.
const STAGE: u64 = 20;

/// Every stage under one choice on devices that are alike, by first and last layer.
#[derive(Debug)]
pub(super) struct Table {
    /// Its stages, but for their layers.
    at: StageAt,
    /// Seconds of both passes; infinite where the stage cannot be.
    pub(super) passes: Vec<f64>,
    /// Seconds once per iteration.
    pub(super) step: Vec<f64>,
    /// Most micro-batches that the stage can hold within the limits; 0 where not even one fits.
    pub(super) held: Vec<u32>,
}

/// A table, and the seconds of the input of its stages, by first layer.
#[derive(Debug)]
pub(super) struct Priced {
    pub(super) table: usize,
    pub(super) entry: Vec<f64>,
}

/// What a stage costs under a choice.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Cost {
    pub(super) choice: usize,
    /// Seconds of both passes, at least.
    pub(super) passes: f64,
    /// Seconds of both passes that it need not exceed.
    pub(super) passes_at_most: f64,
    /// Seconds once per iteration.
    pub(super) step: f64,
}

/// All tables of a question.
#[derive(Debug)]
pub(super) struct Tables<'a> {
    pub(super) layers: usize,
    pub(super) list: Vec<Table>,
    /// Most micro-batches that any stage holds.
    pub(super) most_held: u32,
    /// What becomes of stages that do not fit.
    pub(super) squeezer: Option<Squeezer<'a>>,
    /// The choices of each of the steps that cost differently.
    pub(super) of_step: Vec<Vec<Priced>>,
}

impl<'a> Tables<'a> {
    /// Asks the costs for every stage that may be on these steps; none where the search is over before.
    pub(super) fn of<C: StageCosts>(
        question: &'a Question<'_, C>,
        alike: &StepClasses,
        most_held: u32,
        limits: &Limits,
        stop: &Stop,
    ) -> Option<Self> {
        let layers = question.costs.layers();
        let squeezer = Squeezer::of(question, most_held, limits);
        let mut tables = Self { layers, list: Vec::new(), most_held, squeezer, of_step: Vec::new() };
        let allowed = allowed(question);
        let mut known: Vec<StageAt> = Vec::new();
        for step in &alike.list {
            let mut own = Vec::new();
            for &choice in question.choices {
                if question.costs.choices().get(choice).is_none_or(|is| is.devices() != step.devices) {
                    continue;
                }
                let at = question.stage_at(step, 0, 0, choice);
                let table = match known.iter().position(|other| *other == at) {
                    Some(table) => table,
                    None => {
                        tables.list.push(Table::of(question, &allowed, at, most_held, limits, stop)?);
                        known.push(at);
                        known.len() - 1
                    }
                };
                own.push(Priced { table, entry: entries(question, step.entry, choice) });
            }
            tables.of_step.push(own);
        }
        Some(tables)
    }

    /// A stage's cost under one choice, holding so many micro-batches; none where it cannot be, or does not fit.
    pub(super) fn cost(&self, priced: &Priced, stage: usize, in_flight: u32) -> Option<Cost> {
        let table = &self.list[priced.table];
        let (passes, step) = (table.passes[stage], table.step[stage]);
        let cost = Cost { choice: table.at.choice, passes, passes_at_most: passes, step };
        if passes.is_infinite() || table.held[stage] >= in_flight {
            return passes.is_finite().then_some(cost);
        }
        let longer = self.squeezer.as_ref()?.get(priced.table, &self.at(priced, stage), in_flight)?;
        let (passes, passes_at_most) = (passes + longer.at_least, passes + longer.at_most);
        Some(Cost { passes, passes_at_most, ..cost })
    }

    /// Finds out what a stage costs that does not fit as it is; whether that is other than it was thought.
    pub(super) fn refine(&self, priced: &Priced, stage: usize, in_flight: u32) -> bool {
        let fits = self.list[priced.table].held[stage] >= in_flight;
        let squeezer = self.squeezer.as_ref().filter(|_| !fits);
        squeezer.is_some_and(|squeezer| squeezer.refine(priced.table, &self.at(priced, stage), in_flight))
    }

    /// The longest passes of any stage that can be, nothing recomputed.
    pub(super) fn longest(&self) -> f64 {
        let passes = self.list.iter().flat_map(|table| table.passes.iter().copied());
        passes.filter(|passes| passes.is_finite()).fold(0.0, f64::max)
    }

    fn at(&self, priced: &Priced, stage: usize) -> StageAt {
        let at = self.list[priced.table].at;
        StageAt { first: stage / self.layers, last: stage % self.layers, ..at }
    }
}

/// Stages in the tables of these steps, at most.
pub(super) fn stages_of<C: StageCosts>(question: &Question<'_, C>, alike: &StepClasses) -> usize {
    let choices = question.choices.iter().filter_map(|&choice| question.costs.choices().get(choice));
    let tables: usize =
        choices.map(|choice| alike.list.iter().filter(|step| step.devices == choice.devices()).count()).sum();
    tables.saturating_mul(question.costs.layers()).saturating_mul(question.costs.layers())
}

/// Seconds of the input of a stage, by its first layer; that of the first stage comes from nowhere.
fn entries<C: StageCosts>(question: &Question<'_, C>, link: LinkId, choice: usize) -> Vec<f64> {
    let of = |first: usize| match first.checked_sub(1) {
        Some(before) => question.costs.cut_seconds(before, link, choice),
        None => 0.0,
    };
    (0..question.costs.layers()).map(of).collect()
}

/// Which stages the cuts allow, by first and last layer.
fn allowed<C: StageCosts>(question: &Question<'_, C>) -> Vec<bool> {
    let (layers, cuts) = (question.costs.layers(), question.cuts);
    let mut allowed = vec![false; layers * layers];
    for first in (0..layers).filter(|&first| first == 0 || cuts.may_end(first - 1)) {
        for last in first..layers {
            allowed[first * layers + last] = cuts.may_end(last);
            if cuts.must_end(last) {
                break;
            }
        }
    }
    allowed
}

impl Table {
    fn of<C: StageCosts>(
        question: &Question<'_, C>,
        allowed: &[bool],
        at: StageAt,
        most_held: u32,
        limits: &Limits,
        stop: &Stop,
    ) -> Option<Self> {
        let layers = question.costs.layers();
        let mut table = Self {
            at,
            passes: vec![f64::INFINITY; layers * layers],
            step: vec![0.0; layers * layers],
            held: vec![u32::MAX; layers * layers],
        };
        let is_limited = limits.are_of_bytes(question);
        for first in 0..layers {
            if !stop.take(STAGE * (layers - first) as u64) || stop.is_requested() {
                return None;
            }
            for last in first..layers {
                let index = first * layers + last;
                if !allowed[index] {
                    continue;
                }
                let stage = StageAt { first, last, ..at };
                let Some(seconds) = question.costs.seconds(&stage) else { continue };
                table.passes[index] = seconds.passes();
                table.step[index] = seconds.step;
                if is_limited {
                    table.held[index] = most_fitting(question, &stage, most_held, limits);
                }
            }
        }
        Some(table)
    }
}

/// The most micro-batches that a stage can hold within the limits: `u32::MAX` where `most` fit, and 0 where none
/// does. Peaks never fall when more are held, so halving finds it.
fn most_fitting<C: StageCosts>(
    question: &Question<'_, C>,
    stage: &StageAt,
    most: u32,
    limits: &Limits,
) -> u32 {
    let fits = |held: u32| {
        question.costs.peak(stage, held).is_some_and(|peak| limits.excess(question, stage, peak) == 0)
    };
    if fits(most) {
        return u32::MAX;
    }
    // Under GPipe a stage holds all or nothing.
    if question.schedule == Schedule::Gpipe || most == 1 || !fits(1) {
        return 0;
    }
    let (mut fitting, mut failing) = (1, most);
    while failing - fitting > 1 {
        let middle = fitting + (failing - fitting) / 2;
        if fits(middle) { fitting = middle } else { failing = middle }
    }
    fitting
}
