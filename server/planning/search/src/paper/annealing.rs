//! AMP's other placement: simulated annealing over domino tilings (its 6.3, Algorithm 2).

use std::collections::HashMap;

use super::super::time::Time;
use super::super::{Assignment, Ended, Fleet, Places, Searched, Stop};
use super::Random;
use super::domino::Grid;

/// A way to run the whole job: all stages alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Strategy {
    /// Replicas of each stage.
    pub data: u32,
    /// Shards of each replica.
    pub tensor: u32,
    /// Samples of one pass of a stage.
    pub micro_batch: u32,
}

/// How long to anneal, and by which lots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Annealing {
    /// Lots are drawn from this.
    pub seed: u64,
    /// Strategies that are drawn.
    pub iterations: u32,
}

impl Default for Annealing {
    /// As many as the authors' script tries.
    fn default() -> Self {
        Self { seed: 0, iterations: 100 }
    }
}

/// The best strategy that annealing came by.
#[derive(Debug, Clone, PartialEq)]
pub struct Annealed {
    /// Its degrees and micro-batch.
    pub strategy: Strategy,
    /// Its stages' devices.
    pub places: Places,
}

/// Anneals over the strategies: at each step another number of replicas or of shards, a micro-batch and a random
/// tiling of the devices by stages. `estimate` says what a strategy on places is worth, at its best assignment
/// of layers, or that it cannot be; its stages are those of the plan in the answer.
///
/// Temperatures fall from 1 to 0 along a straight line, in units of the first strategy's seconds. Devices
/// are laid out as a grid whose columns are nodes, or equal parts of nodes. Nothing is proven.
pub fn annealing(
    fleet: &Fleet,
    strategies: &[Strategy],
    settings: Annealing,
    stop: &Stop,
    mut estimate: impl FnMut(&Strategy, &Places) -> Option<Assignment<Time>>,
) -> (Option<Annealed>, Searched<Time>) {
    let mut random = Random::new(settings.seed);
    let mut answer = Searched { best: None, bound: None, states: 0, ended: Ended::Bounded };
    let mut annealed = None;
    let rows = fleet.nodes.iter().fold(0, |rows, node| greatest_common_divisor(rows, node.devices)) as usize;
    let devices = fleet.devices() as usize;
    if rows == 0 || strategies.is_empty() {
        return (None, answer);
    }
    let grid = Grid { rows, columns: devices / rows };
    let mut current: Option<(Strategy, f64)> = None;
    let mut unit = None;
    for iteration in 0..settings.iterations {
        if stop.is_requested() {
            answer.ended = Ended::Stopped;
            break;
        }
        let temperature = 1.0 - f64::from(iteration) / f64::from(settings.iterations);
        let next = draw(strategies, current.map(|(strategy, _)| strategy), &mut random);
        let tiles = grid.tiling(next.tensor as usize, next.data as usize, &mut random);
        let stages = tiles.map(|tiles| tiles.into_iter().map(|tile| (tile, next.tensor)).collect::<Vec<_>>());
        let Some(places) = stages.and_then(|stages| Places::given(fleet, &stages)) else { continue };
        answer.states += 1;
        let Some(plan) = estimate(&next, &places) else { continue };
        let seconds = plan.value.0;
        let unit = *unit.get_or_insert(seconds);
        let is_accepted = current.is_none_or(|(_, before)| {
            let gain = ((before - seconds) / unit).min(0.0);
            random.fraction() < (gain / temperature).exp()
        });
        if is_accepted {
            current = Some((next, seconds));
        }
        if answer.best.as_ref().is_none_or(|best| plan.value < best.value) {
            answer.best = Some(plan);
            annealed = Some(Annealed { strategy: next, places });
        }
    }
    (annealed, answer)
}

/// Another strategy: as many replicas as the current one, or as many shards, the rest drawn.
fn draw(strategies: &[Strategy], current: Option<Strategy>, random: &mut Random) -> Strategy {
    let keeps_replicas = random.below(2) == 0;
    let is_neighbour = |other: &&Strategy| {
        current.is_none_or(|current| match keeps_replicas {
            true => other.data == current.data,
            false => other.tensor == current.tensor,
        })
    };
    // Degrees first, so that those with many micro-batches are not drawn more often.
    let mut by_degrees: HashMap<(u32, u32), Vec<Strategy>> = HashMap::new();
    let mut degrees = Vec::new();
    for strategy in strategies.iter().filter(is_neighbour) {
        let key = (strategy.data, strategy.tensor);
        let alike = by_degrees.entry(key).or_default();
        if alike.is_empty() {
            degrees.push(key);
        }
        alike.push(*strategy);
    }
    // The current strategy is its own neighbour, so there is one.
    let drawn = degrees.get(random.below(degrees.len())).and_then(|key| by_degrees.get(key));
    let drawn = drawn.map_or(strategies, Vec::as_slice);
    drawn[random.below(drawn.len())]
}

fn greatest_common_divisor(one: u32, other: u32) -> u32 {
    if other == 0 { one } else { greatest_common_divisor(other, one % other) }
}
