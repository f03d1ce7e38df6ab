//! The cheapest way to run each stage under bounds: what one pass of the program reads.

use super::step_classes::{StepClass, StepGraph};
use super::tables::{Priced, Tables};

/// Bounds on a plan's largest stage.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Bounds {
    /// On the seconds of both passes.
    pub(super) passes: f64,
    /// On the seconds of a step.
    pub(super) step: f64,
}

impl Bounds {
    pub(super) const NONE: Self = Self { passes: f64::INFINITY, step: f64::INFINITY };
}

/// Stages that are compared for a unit of work.
const STAGES_PER_UNIT: usize = 4;

/// What is minimised for each stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// Passes and input: these add up.
    Sum,
    /// Passes alone, of which the largest counts.
    LargestPasses,
    /// The step alone, of which the largest counts.
    LargestStep,
}

/// Values of all stages on devices that are alike, holding equally many micro-batches.
#[derive(Debug, Clone, Default)]
pub(super) struct Level {
    /// By first and last layer; infinite where no choice keeps to the bounds.
    pub(super) values: Vec<f64>,
    /// By first layer: past the last layer of its longest stage that has a value; the first layer if none has.
    pub(super) reach: Vec<usize>,
}

/// All levels of a graph, for the bounds they were last filled for.
#[derive(Debug)]
pub(super) struct Levels {
    /// Those of one step follow each other, micro-batches held ascending.
    keys: Vec<Key>,
    list: Vec<Level>,
    /// The level of each arc.
    of_arc: Vec<u32>,
}

/// Which stages a level is of.
#[derive(Debug)]
struct Key {
    step: usize,
    /// Micro-batches that they hold.
    in_flight: u32,
    /// Whether the level before it is of the same step.
    follows: bool,
    /// The stages that this level looks at one by one. Those that under some choice can hold as many micro-batches
    /// as the level before, but not as many as this one; or, where stages can be squeezed, all that cannot.
    apart: Vec<u32>,
    /// By first layer: whether its stages are looked at at all.
    rows: Vec<bool>,
}

/// What becomes of stages that do not fit as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Squeezing {
    /// They count as if they did: quick, and never too much.
    Ignored,
    /// They recompute layers, or cannot be.
    Asked,
}

impl Levels {
    /// Arcs share a level where the difference of their in-flight numbers changes no stage's cost.
    pub(super) fn of(graph: &StepGraph, tables: &Tables<'_>) -> Self {
        let thresholds: Vec<Vec<u32>> =
            (0..tables.of_step.len()).map(|step| thresholds(tables, step)).collect();
        let class = |taken: StepClass| {
            let step = taken.like as usize;
            (step, thresholds[step].partition_point(|&held| held < taken.in_flight))
        };
        let mut known: Vec<Vec<Option<u32>>> =
            thresholds.iter().map(|thresholds| vec![None; thresholds.len() + 1]).collect();
        for arc in &graph.arcs {
            let (step, class) = class(arc.label);
            known[step][class] = Some(arc.label.in_flight);
        }
        let mut keys = Vec::new();
        for (step, classes) in known.iter_mut().enumerate() {
            let mut before = None;
            for in_flight in classes.iter_mut().flatten() {
                let fewer = if tables.squeezer.is_some() { Some(0) } else { before };
                let apart = fewer.map_or_else(Vec::new, |fewer| apart(tables, step, fewer, *in_flight));
                let rows = vec![true; tables.layers];
                keys.push(Key { step, in_flight: *in_flight, follows: before.is_some(), apart, rows });
                before = Some(*in_flight);
                // From here on the index of the level.
                *in_flight = keys.len() as u32 - 1;
            }
        }
        let level = |taken: StepClass| {
            let (step, class) = class(taken);
            known[step][class].unwrap_or_default()
        };
        let of_arc = graph.arcs.iter().map(|arc| level(arc.label)).collect();
        Self { list: keys.iter().map(|_| Level::default()).collect(), keys, of_arc }
    }

    /// What it takes to fill them.
    pub(super) fn work(&self) -> u64 {
        let stages =
            self.keys.iter().map(|key| key.rows.len() * key.rows.len() / STAGES_PER_UNIT + key.apart.len());
        stages.sum::<usize>() as u64
    }

    /// The level of an arc.
    pub(super) fn get(&self, arc: usize) -> &Level {
        &self.list[self.of_arc[arc] as usize]
    }

    /// From now on only bounds up to these are filled in, and only stages that begin where some state of the
    /// level's arcs is left.
    pub(super) fn focus(&mut self, graph: &StepGraph, tables: &Tables<'_>, high: Bounds, alive: &[bool]) {
        let layers = tables.layers;
        for key in &mut self.keys {
            key.rows.fill(false);
        }
        for (index, node) in graph.nodes.iter().enumerate() {
            let alive = &alive[index * (layers + 1)..][..layers];
            for arc in node.arcs.clone() {
                let rows = &mut self.keys[self.of_arc[arc] as usize].rows;
                rows.iter_mut().zip(alive).for_each(|(row, alive)| *row |= alive);
            }
        }
        // A level takes most stages from the one before it.
        for index in (1..self.keys.len()).rev() {
            let (before, key) = self.keys.split_at_mut(index);
            if let (Some(before), true) = (before.last_mut(), key[0].follows) {
                before.rows.iter_mut().zip(&key[0].rows).for_each(|(row, own)| *row |= own);
            }
        }
        for key in &mut self.keys {
            let choices = &tables.of_step[key.step];
            let can_be = |stage: usize| {
                choices.iter().any(|priced| {
                    let table = &tables.list[priced.table];
                    table.passes[stage] <= high.passes && table.step[stage] <= high.step
                })
            };
            let rows = &key.rows;
            key.apart.retain(|&stage| rows[stage as usize / layers] && can_be(stage as usize));
        }
    }

    /// Fills all levels with the least values within bounds.
    pub(super) fn fill(&mut self, tables: &Tables<'_>, by: By, bounds: Bounds, squeezing: Squeezing) {
        let layers = tables.layers;
        for (index, key) in self.keys.iter().enumerate() {
            let (before, level) = self.list.split_at_mut(index);
            let level = &mut level[0];
            let choices = &tables.of_step[key.step];
            match before.last().filter(|_| key.follows) {
                // Most stages are as in the level before.
                Some(before) => level.values.clone_from(&before.values),
                None => {
                    level.values.clear();
                    level.values.resize(layers * layers, f64::INFINITY);
                    for priced in choices {
                        level.lower(tables, priced, by, bounds, key);
                    }
                }
            }
            for &stage in &key.apart {
                let stage = stage as usize;
                let value = |priced| tables.value(priced, stage, by, bounds, key.in_flight, squeezing);
                level.values[stage] = choices.iter().filter_map(value).fold(f64::INFINITY, f64::min);
            }
            level.reach.clear();
            level.reach.resize(layers, layers);
            for (first, reach) in level.reach.iter_mut().enumerate() {
                while *reach > first && level.values[first * layers + *reach - 1].is_infinite() {
                    *reach -= 1;
                }
            }
        }
    }
}

impl Tables<'_> {
    /// A stage's value under one choice; none where that breaks the bounds.
    pub(super) fn value(
        &self,
        priced: &Priced,
        stage: usize,
        by: By,
        bounds: Bounds,
        in_flight: u32,
        squeezing: Squeezing,
    ) -> Option<f64> {
        let table = &self.list[priced.table];
        // Without what is recomputed it is no less: often that is enough.
        if table.passes[stage] > bounds.passes || table.step[stage] > bounds.step {
            return None;
        }
        let in_flight = match squeezing {
            Squeezing::Asked => in_flight,
            Squeezing::Ignored if self.squeezer.is_some() => 0,
            Squeezing::Ignored => in_flight,
        };
        let cost = self.cost(priced, stage, in_flight)?;
        let value = match by {
            By::Sum => cost.passes + priced.entry[stage / self.layers],
            By::LargestPasses => cost.passes,
            By::LargestStep => cost.step,
        };
        (cost.passes <= bounds.passes).then_some(value)
    }
}

impl Level {
    /// Takes in what stages cost under one more choice.
    fn lower(&mut self, tables: &Tables<'_>, priced: &Priced, by: By, bounds: Bounds, key: &Key) {
        let (layers, table) = (tables.layers, &tables.list[priced.table]);
        for first in (0..layers).filter(|&first| key.rows[first]) {
            let row = first * layers + first..(first + 1) * layers;
            let entry = if by == By::Sum { priced.entry[first] } else { 0.0 };
            let steps = &table.step[row.clone()];
            let stages = table.passes[row.clone()].iter().zip(steps).zip(&table.held[row.clone()]);
            for (value, ((&passes, &step), &held)) in self.values[row].iter_mut().zip(stages) {
                let is_within = passes <= bounds.passes && step <= bounds.step && held >= key.in_flight;
                let own = if by == By::LargestStep && passes.is_finite() { step } else { passes + entry };
                if is_within && own < *value {
                    *value = own;
                }
            }
        }
    }
}

/// The numbers of micro-batches past which stages on such devices cost something else, ascending: those that some
/// stage can just hold; all, where stages can be squeezed and some does not fit.
fn thresholds(tables: &Tables<'_>, step: usize) -> Vec<u32> {
    let held = tables.of_step[step].iter().flat_map(|priced| &tables.list[priced.table].held);
    let mut held: Vec<u32> = held.copied().filter(|&held| held != u32::MAX).collect();
    if tables.squeezer.is_some() && !held.is_empty() {
        return (0..tables.most_held).collect();
    }
    held.sort_unstable();
    held.dedup();
    held
}

/// The stages that can hold `fewer` micro-batches under some choice, but not `more`, ascending.
fn apart(tables: &Tables<'_>, step: usize, fewer: u32, more: u32) -> Vec<u32> {
    let mut is_apart = vec![false; tables.layers * tables.layers];
    for priced in &tables.of_step[step] {
        for (is_apart, held) in is_apart.iter_mut().zip(&tables.list[priced.table].held) {
            *is_apart |= (fewer..more).contains(held);
        }
    }
    (0..is_apart.len()).filter(|&stage| is_apart[stage]).map(|stage| stage as u32).collect()
}
