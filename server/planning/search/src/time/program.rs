//! The dynamic program over (node, layer): one pass for one pair of bounds.

use super::super::Stop;
use super::levels::{Level, Levels};
use super::step_classes::StepGraph;

/// Work that is done between two looks at [`Stop`].
const BETWEEN_LOOKS: u64 = 1 << 16;

/// Stages of a state that are compared for a unit of work.
const STAGES_PER_UNIT: usize = 16;

/// How the values of a path's stages become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fold {
    /// They add up.
    Sum,
    /// The largest counts.
    Largest,
}

/// The best value from every state to the end, or from the start to every state.
#[derive(Debug)]
pub(super) struct Program<'a> {
    graph: &'a StepGraph,
    layers: usize,
    /// By node and layer: whether a plan through it may still be the best.
    alive: Vec<bool>,
    /// States weighed.
    pub(super) states: u64,
    /// Work since the last look at the stop.
    work: u64,
    stop: &'a Stop,
    /// Whether it was stopped: values since then mean nothing.
    pub(super) is_stopped: bool,
}

impl<'a> Program<'a> {
    pub(super) fn new(graph: &'a StepGraph, layers: usize, stop: &'a Stop) -> Self {
        let alive = vec![true; graph.nodes.len() * (layers + 1)];
        Self { graph, layers, alive, states: 0, work: 0, stop, is_stopped: false }
    }

    /// Values from each state to the end: of node and first layer to come.
    pub(super) fn fill_to_end(&mut self, levels: &Levels, fold: Fold, values: &mut Vec<f64>) {
        let width = self.layers + 1;
        values.clear();
        values.resize(self.graph.nodes.len() * width, f64::INFINITY);
        // The end, with no layers left; nothing where no way leads there.
        let Some(end) = values.last_mut() else { return };
        *end = 0.0;
        for (index, node) in self.graph.nodes.iter().enumerate().rev() {
            let (own, later) = values.split_at_mut((index + 1) * width);
            let own = &mut own[index * width..];
            for first in 0..self.layers {
                if !self.alive[index * width + first] {
                    continue;
                }
                if self.look(node.arcs.len(), first) {
                    return;
                }
                let mut best = own[first];
                for arc in node.arcs.clone() {
                    let to = self.graph.arcs[arc].to as usize - index - 1;
                    let level = levels.get(arc);
                    let past = self.past(arc, level, first);
                    if past == first {
                        continue;
                    }
                    let row = &level.values[first * self.layers + first..first * self.layers + past];
                    let rest = &later[to * width + first + 1..to * width + past + 1];
                    best = best.min(least(row, rest, fold));
                }
                own[first] = best;
            }
        }
    }

    /// Values from the start to each state.
    pub(super) fn fill_from_start(&mut self, levels: &Levels, fold: Fold, values: &mut Vec<f64>) {
        let width = self.layers + 1;
        values.clear();
        values.resize(self.graph.nodes.len() * width, f64::INFINITY);
        for &start in &self.graph.starts {
            values[start as usize * width] = 0.0;
        }
        for (index, node) in self.graph.nodes.iter().enumerate() {
            let (own, later) = values.split_at_mut((index + 1) * width);
            let own = &own[index * width..];
            for (first, &begun) in own.iter().enumerate().take(self.layers) {
                if begun.is_infinite() || !self.alive[index * width + first] {
                    continue;
                }
                if self.look(node.arcs.len(), first) {
                    return;
                }
                for arc in node.arcs.clone() {
                    let to = self.graph.arcs[arc].to as usize - index - 1;
                    let level = levels.get(arc);
                    let past = self.past(arc, level, first);
                    let row = &level.values[first * self.layers + first..first * self.layers + past];
                    let ends = &mut later[to * width + first + 1..to * width + past + 1];
                    for (end, &value) in ends.iter_mut().zip(row) {
                        let whole = fold.of(begun, value);
                        if whole < *end {
                            *end = whole;
                        }
                    }
                }
            }
        }
    }

    /// Drops the states through which no plan is below `limit`, given what is paid at least on the way to them
    /// and from them.
    pub(super) fn keep_below(&mut self, from_start: &[f64], to_end: &[f64], limit: f64) {
        for ((alive, before), after) in self.alive.iter_mut().zip(from_start).zip(to_end) {
            *alive &= before + after < limit;
        }
    }

    /// By node and layer: whether a plan through it may still be the best.
    pub(super) fn alive(&self) -> &[bool] {
        &self.alive
    }

    /// Drops the states that another graph's program dropped at the same place and layer.
    pub(super) fn keep_places(&mut self, alive: &[bool]) {
        let width = self.layers + 1;
        for (own, node) in self.alive.chunks_mut(width).zip(&self.graph.nodes) {
            let begin = node.place as usize * width;
            for (own, kept) in own.iter_mut().zip(&alive[begin..begin + width]) {
                *own &= kept;
            }
        }
    }

    /// By place and layer: whether a state there is left.
    pub(super) fn places_left(&self, places: usize) -> Vec<bool> {
        let width = self.layers + 1;
        let mut left = vec![false; places * width];
        for (own, node) in self.alive.chunks(width).zip(&self.graph.nodes) {
            let begin = node.place as usize * width;
            for (left, own) in left[begin..begin + width].iter_mut().zip(own) {
                *left |= own;
            }
        }
        left
    }

    /// The best value of a whole plan, and the node where it begins.
    pub(super) fn best(&self, to_end: &[f64]) -> Option<(u32, f64)> {
        let starts =
            self.graph.starts.iter().map(|&start| (start, to_end[start as usize * (self.layers + 1)]));
        starts.filter(|(_, value)| value.is_finite()).min_by(|one, other| one.1.total_cmp(&other.1))
    }

    /// Follows the values of [`Self::fill_to_end`] from a node: arcs and last layers of the stages.
    pub(super) fn path(
        &self,
        levels: &Levels,
        fold: Fold,
        to_end: &[f64],
        start: u32,
    ) -> Vec<(usize, usize)> {
        let width = self.layers + 1;
        let (mut node, mut first) = (start as usize, 0);
        let mut path = Vec::new();
        while first < self.layers {
            let here = to_end[node * width + first];
            let arcs = self.graph.nodes[node].arcs.clone();
            let found = arcs.into_iter().find_map(|arc| {
                let level = levels.get(arc);
                let to = self.graph.arcs[arc].to as usize;
                let mut lasts = first..self.past(arc, level, first);
                let leads = |last: &usize| {
                    let value = level.values[first * self.layers + *last];
                    fold.of(value, to_end[to * width + *last + 1]) == here
                };
                Some((arc, lasts.find(leads)?))
            });
            let Some((arc, last)) = found else { return Vec::new() };
            path.push((arc, last));
            node = self.graph.arcs[arc].to as usize;
            first = last + 1;
        }
        path
    }

    /// Past the last layer that a stage from `first` may have on an arc.
    fn past(&self, arc: usize, level: &Level, first: usize) -> usize {
        let wall = self.graph.walls(arc).get(first).copied().unwrap_or(self.layers);
        level.reach[first].min(wall)
    }

    /// Counts a state, and now and then looks whether the search is to stop.
    fn look(&mut self, arcs: usize, first: usize) -> bool {
        self.states += 1;
        self.work(1 + (arcs * (self.layers - first) / STAGES_PER_UNIT) as u64)
    }

    /// Counts work; whether the search is to stop.
    pub(super) fn work(&mut self, work: u64) -> bool {
        self.work += work;
        if self.work >= BETWEEN_LOOKS {
            self.is_stopped |= !self.stop.take(std::mem::take(&mut self.work)) || self.stop.is_over();
        }
        self.is_stopped
    }
}

impl Fold {
    fn of(self, one: f64, other: f64) -> f64 {
        match self {
            Self::Sum => one + other,
            Self::Largest => one.max(other),
        }
    }
}

/// The least of the values of stages followed by the rest. Eight running minima, because a processor compares
/// several numbers at once where none waits for another.
fn least(stages: &[f64], rest: &[f64], fold: Fold) -> f64 {
    const LANES: usize = 8;
    let mut lanes = [f64::INFINITY; LANES];
    let (stage_chunks, stage_tail) = stages.as_chunks::<LANES>();
    let (rest_chunks, rest_tail) = rest.as_chunks::<LANES>();
    let least = |lane: &mut f64, value: f64| *lane = if value < *lane { value } else { *lane };
    match fold {
        Fold::Sum => {
            for (stages, rest) in stage_chunks.iter().zip(rest_chunks) {
                for ((lane, stage), rest) in lanes.iter_mut().zip(stages).zip(rest) {
                    least(lane, stage + rest);
                }
            }
        }
        Fold::Largest => {
            for (stages, rest) in stage_chunks.iter().zip(rest_chunks) {
                for ((lane, stage), rest) in lanes.iter_mut().zip(stages).zip(rest) {
                    least(lane, if stage > rest { *stage } else { *rest });
                }
            }
        }
    }
    for ((lane, stage), rest) in lanes.iter_mut().zip(stage_tail).zip(rest_tail) {
        least(lane, fold.of(*stage, *rest));
    }
    lanes.into_iter().fold(f64::INFINITY, f64::min)
}
