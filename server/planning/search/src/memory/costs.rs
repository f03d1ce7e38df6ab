//! What every stage of a question costs, asked for once.

use std::collections::HashSet;
use std::ops::Range;

use loadmaster_proto::bytes::Bytes;

use super::super::{Peak, Question, StageAt, StageCosts, Unit};
use super::bits::Bits;
use super::classes::{Class, ClassGraph};
use super::effort::{MemoryEffort, Unfinished};

/// A stage that must not be.
pub(super) const NONE: u64 = u64::MAX;

/// What a stage is weighed by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Measure {
    /// Its peak, if it fits where that is asked.
    Peak(Unit),
    /// The bytes that its devices lack.
    Lack,
    /// Nothing: whether there is a plan at all, if every stage could be run.
    Nothing,
}

/// Costs by class, first layer and end (the layer after the last).
#[derive(Debug)]
pub(super) struct Costs {
    /// By class and first layer.
    rows: Vec<CostRow>,
    pub(super) values: Vec<u64>,
    layers: usize,
}

/// The stages of a class from one layer on.
#[derive(Debug, Clone, Copy, Default)]
struct CostRow {
    /// Where its costs begin in [`Costs::values`].
    begin: usize,
    /// The end that the first of them is for.
    end: usize,
    /// How many there are, one per end.
    length: usize,
}

impl Costs {
    /// Asks for the stages that paths can meet, and no others: neither those to which no stages lead that fit.
    pub(super) fn ask<C: StageCosts>(
        question: &Question<'_, C>,
        graph: &ClassGraph,
        classes: &[Class],
        measure: Measure,
        effort: &MemoryEffort<'_>,
    ) -> Result<Self, Unfinished> {
        let layers = graph.layers;
        let rows = vec![CostRow::default(); classes.len().saturating_mul(layers)];
        let mut costs = Self { rows, values: Vec::new(), layers };
        let square = layers.saturating_mul(layers + 1) / 2;
        if classes.len().saturating_mul(square) > effort.limits.cells {
            return Err(Unfinished::TooMany);
        }
        let met = met(graph, classes.len());
        let asked = classes.iter().map(|class| ClassQuestion::of(question, class, measure));
        let asked: Vec<ClassQuestion<'_, C>> = asked.collect();
        // To see what leads where costs a look at every move from every layer, which has to be worth it.
        let may_miss = question.within_capacity && matches!(measure, Measure::Peak(_));
        if may_miss && graph.arcs.len() <= classes.len().saturating_mul(layers) {
            costs.ask_on_the_way(graph, &asked, &met, effort)?;
            return Ok(costs);
        }
        for (class, asked) in asked.iter().enumerate() {
            for first in 0..layers {
                costs.ask_row(graph, asked, (class, first), &met, effort)?;
            }
        }
        Ok(costs)
    }

    /// Asks for the stages that follow on others that fit, from the first layer on. Where nothing fits that ends soon.
    fn ask_on_the_way<C: StageCosts>(
        &mut self,
        graph: &ClassGraph,
        asked: &[ClassQuestion<'_, C>],
        met: &Bits,
        effort: &MemoryEffort<'_>,
    ) -> Result<(), Unfinished> {
        let layers = self.layers;
        let mut firsts = Bits::new(graph.nodes.len(), layers + 1);
        for (index, node) in graph.nodes.iter().enumerate() {
            firsts.set_all(index, graph.firsts(node));
        }
        let mut reached = Bits::new(graph.nodes.len(), layers + 1);
        graph.starts.iter().for_each(|&start| reached.set(start as usize, 0));
        // The ends of the stages that can be, by class and first layer.
        let mut open = Bits::new(self.rows.len(), layers + 1);
        let mut is_asked = vec![false; self.rows.len()];
        for (index, node) in graph.nodes.iter().enumerate() {
            let here: Vec<usize> =
                Bits::ones(reached.row(index)).take_while(|&first| first < layers).collect();
            for arc in &graph.arcs[node.arcs.clone()] {
                let (class, to) = (arc.label.class(), arc.to as usize);
                for &first in &here {
                    let row = class * layers + first;
                    if !std::mem::replace(&mut is_asked[row], true) {
                        self.ask_row(graph, &asked[class], (class, first), met, effort)?;
                        let CostRow { begin, end, length } = self.rows[row];
                        for (offset, &value) in self.values[begin..begin + length].iter().enumerate() {
                            open.set_if(row, end + offset, value != NONE);
                        }
                    }
                    reached.add_common(to, open.row(row), firsts.row(to));
                }
            }
        }
        Ok(())
    }

    /// Asks for the stages of a class from one layer on.
    fn ask_row<C: StageCosts>(
        &mut self,
        graph: &ClassGraph,
        asked: &ClassQuestion<'_, C>,
        (class, first): (usize, usize),
        met: &Bits,
        effort: &MemoryEffort<'_>,
    ) -> Result<(), Unfinished> {
        let question = asked.question;
        let mut row = CostRow { begin: self.values.len(), ..CostRow::default() };
        let most = farthest(question, &graph.walls[asked.walls as usize], first);
        let ends = || Bits::ones(met.row(class * self.layers + first)).take_while(|&end| end <= most);
        let (Some(least), Some(last)) = (ends().next(), ends().last()) else { return Ok(()) };
        // Those in between that no path meets are few.
        let values = asked.values(first, least..last + 1);
        for end in ends() {
            effort.ask(asked.choices.len())?;
            if !question.cuts.may_end(end - 1) {
                continue;
            }
            if row.end == 0 {
                row.end = end;
            }
            // A gap is as good as a stage that must not be.
            self.values.resize(row.begin + end - row.end, NONE);
            self.values.push(values[end - least]);
        }
        row.length = self.values.len() - row.begin;
        self.rows[class * self.layers + first] = row;
        Ok(())
    }

    /// The cost of a stage, [`NONE`] where it must not be.
    pub(super) fn get(&self, class: usize, first: usize, end: usize) -> u64 {
        let row = self.rows[class * self.layers + first];
        match end.checked_sub(row.end) {
            Some(offset) if offset < row.length => self.values[row.begin + offset],
            _ => NONE,
        }
    }

    /// The ends of the stages that cost at most `limit`, by class and first layer.
    pub(super) fn within(&self, limit: u64) -> Bits {
        let mut within = Bits::new(self.rows.len(), self.layers + 1);
        for (index, row) in self.rows.iter().enumerate() {
            for (offset, &value) in self.values[row.begin..row.begin + row.length].iter().enumerate() {
                within.set_if(index, row.end + offset, value <= limit && value != NONE);
            }
        }
        within
    }
}

/// Which stages some path can meet: the ends by class and first layer.
fn met(graph: &ClassGraph, classes: usize) -> Bits {
    let layers = graph.layers;
    let mut met = Bits::new(classes * layers, layers + 1);
    let mut seen = HashSet::new();
    for node in &graph.nodes {
        let firsts = graph.firsts(node);
        for arc in &graph.arcs[node.arcs.clone()] {
            let (class, ends) = (arc.label.class(), graph.firsts(&graph.nodes[arc.to as usize]));
            if seen.insert((class, firsts.clone(), ends.clone())) {
                for first in firsts.start..firsts.end.min(layers) {
                    met.set_all(class * layers + first, ends.start.max(first + 1)..ends.end);
                }
            }
        }
    }
    met
}

/// The farthest end that a stage from `first` on may have by pins and by cuts that must be; 0 where none may
/// begin there.
fn farthest<C: StageCosts>(question: &Question<'_, C>, walls: &[usize], first: usize) -> usize {
    if first > 0 && !question.cuts.may_end(first - 1) {
        return 0;
    }
    let cut = (first..question.costs.layers()).find(|&layer| question.cuts.must_end(layer));
    let pinned = walls.get(first);
    cut.map_or(0, |layer| layer + 1).min(pinned.copied().unwrap_or(usize::MAX))
}

/// The choice with the least cost for a stage, and that cost: the first of several.
pub(super) fn best_choice<C: StageCosts>(
    question: &Question<'_, C>,
    class: &Class,
    layers: Range<usize>,
    measure: Measure,
) -> Option<(usize, u64)> {
    ClassQuestion::of(question, class, measure).best(layers)
}

/// What is asked about all stages of a class.
struct ClassQuestion<'a, C> {
    question: &'a Question<'a, C>,
    /// The question's choices for as many devices, whatever the layers.
    choices: Vec<StageAt>,
    in_flight: u32,
    walls: u32,
    capacity: Bytes,
    measure: Measure,
}

impl<'a, C: StageCosts> ClassQuestion<'a, C> {
    fn of(question: &'a Question<'a, C>, class: &Class, measure: Measure) -> Self {
        let takes = |&&choice: &&usize| {
            let known = question.costs.choices().get(choice);
            known.is_some_and(|choice| choice.devices() == class.step.devices)
        };
        let choices = question.choices.iter().filter(takes);
        Self {
            question,
            choices: choices.map(|&choice| question.stage_at(&class.step, 0, 0, choice)).collect(),
            in_flight: class.in_flight,
            walls: class.walls,
            capacity: question.fleet.capacity(class.step.kinds),
            measure,
        }
    }

    fn best(&self, layers: Range<usize>) -> Option<(usize, u64)> {
        let (first, last) = (layers.start, layers.end - 1);
        let weighed = self.choices.iter().filter_map(|&stage| {
            let peak = || self.question.costs.peak(&StageAt { first, last, ..stage }, self.in_flight);
            Some((stage.choice, self.weigh(if self.is_weighed() { peak() } else { None })?))
        });
        weighed.min_by_key(|&(_, value)| value)
    }

    /// The least cost of the stages from a layer on, by end; [`NONE`] of those that must not be.
    fn values(&self, first: usize, ends: Range<usize>) -> Vec<u64> {
        if !self.is_weighed() {
            return vec![if self.choices.is_empty() { NONE } else { 0 }; ends.len()];
        }
        let mut values = vec![NONE; ends.len()];
        for &stage in &self.choices {
            let lasts = ends.start - 1..ends.end - 1;
            let peaks = self.question.costs.peaks(&StageAt { first, ..stage }, lasts, self.in_flight);
            for (least, peak) in values.iter_mut().zip(peaks) {
                *least = self.weigh(peak).map_or(*least, |value| value.min(*least));
            }
        }
        values
    }

    /// Whether what a stage costs depends on its peak.
    fn is_weighed(&self) -> bool {
        self.measure != Measure::Nothing
    }

    fn weigh(&self, peak: Option<Peak>) -> Option<u64> {
        let fits = |needed: u64| !self.question.within_capacity || needed <= self.capacity.0;
        let value = match self.measure {
            Measure::Peak(unit) => unit.of(peak.filter(|peak| fits(peak.needed))?.bytes, self.capacity),
            Measure::Lack => peak?.needed.saturating_sub(self.capacity.0),
            Measure::Nothing => 0,
        };
        Some(value.min(NONE - 1))
    }
}
