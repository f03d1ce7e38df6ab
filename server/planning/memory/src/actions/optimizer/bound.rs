//! Seconds that no actions get below.
//!
//! At one moment of a stage's iteration, in front of the first backward pass that meets all micro-batches in flight, so many
//! bytes must be absent. What recomputing a layer saves is all that it keeps, its input included, but for the layer
//! that goes backward next. The host's link is taken to bring
//! away as many as it can move in an iteration, peers as many as are free anywhere, both without a wait.
//!
//! The rest is
//! recomputed, by any parts of layers. An iteration without copies is a longest path, so that for
//! every path, and every mixture of paths, its seconds are at least those of the path with what is recomputed on
//! its way. Which paths make the bound highest is a game against who computes least once more: both answer the mean of the
//! other's answers so far, and every round's answer is a bound.

use super::chain::Chain;
use loadmaster_search::Stop;

/// Rounds of the game at most.
const ROUNDS: u32 = 96;
/// Within which share of each other the players' values end the game.
const CLOSE: f64 = 1e-4;

/// What a stage must do.
#[derive(Debug, Clone, Default)]
pub(super) struct MemoryDemand {
    /// Bytes that must be absent at its moment of the highest peak; below 0 what is free then.
    pub(super) need: f64,
    /// As many of them as its host's link can have brought away.
    pub(super) host: f64,
    /// What computing its layers once more saves of a slot, from below: bytes, and seconds of a micro-batch for them.
    pub(super) again: Vec<(f64, f64)>,
    /// The slot that goes backward at that moment, where it is one moment.
    pub(super) oldest: Option<usize>,
}

/// What is recomputed, at least, where passes have these weights.
struct Answer {
    /// By stage and slot, seconds of a micro-batch.
    added: Vec<Vec<f64>>,
    weighted: f64,
}

/// What the game ends with.
#[derive(Debug, Clone, Default)]
pub(super) struct Bound {
    /// The highest bound that was found.
    pub(super) seconds: f64,
    /// By stage and slot: how often the longest ways go through its backward passes, on average.
    pub(super) weights: Vec<Vec<f64>>,
}

/// Plays the game; none where not even this is possible. With `peers`, what is free anywhere is free for all: a device
/// that stores another's blocks must free as much more of its own.
pub(super) fn bound(chain: &Chain, demands: &[MemoryDemand], peers: bool, stop: &Stop) -> Option<Bound> {
    let mut weights: Vec<Vec<f64>> = chain.in_flight.iter().map(|&slots| vec![1.0; slots as usize]).collect();
    let mut answer = answer(demands, &weights, peers)?;
    let mut added = answer.added.clone();
    let mut best = 0.0_f64;
    let (mut constant, mut least) = (0.0, f64::INFINITY);
    for round in 0..ROUNDS {
        let longest = chain.longest(&added);
        least = least.min(longest.seconds);
        let visited = |visits: &[Vec<f64>], added: &[Vec<f64>]| -> f64 {
            let pairs = visits.iter().zip(added).flat_map(|(visits, added)| visits.iter().zip(added));
            pairs.map(|(visits, added)| visits * added).sum()
        };
        // Later answers are to better means, and count more.
        let share = 2.0 / f64::from(round + 2);
        let of_path = longest.seconds - visited(&longest.visits, &added);
        constant += (of_path - constant) * share;
        for (weights, visits) in weights.iter_mut().flatten().zip(longest.visits.iter().flatten()) {
            *weights += (*visits - *weights) * share;
        }
        answer = self::answer(demands, &weights, peers)?;
        best = best.max(constant + answer.weighted);
        if best >= least * (1.0 - CLOSE) || stop.is_requested() {
            break;
        }
        for (mean, own) in added.iter_mut().flatten().zip(answer.added.iter().flatten()) {
            *mean += (own - *mean) * share;
        }
    }
    Some(Bound { seconds: best, weights })
}

/// A part of what is recomputed.
struct Piece {
    stage: usize,
    slot: usize,
    bytes: f64,
    seconds: f64,
    price: f64,
}

fn answer(demands: &[MemoryDemand], weights: &[Vec<f64>], peers: bool) -> Option<Answer> {
    let mut answer =
        Answer { added: weights.iter().map(|slots| vec![0.0; slots.len()]).collect(), weighted: 0.0 };
    let missing = |demand: &MemoryDemand| demand.need - demand.host;
    let pieces = |stage: usize| pieces(stage, &demands[stage], &weights[stage]);
    let all = 0..demands.len();
    if peers {
        let missing: f64 = demands.iter().map(missing).sum();
        return answer.cover(missing, || all.flat_map(pieces).collect()).then_some(answer);
    }
    for stage in all {
        if !answer.cover(missing(&demands[stage]), || pieces(stage)) {
            return None;
        }
    }
    Some(answer)
}

fn pieces(stage: usize, demand: &MemoryDemand, weights: &[f64]) -> Vec<Piece> {
    let of_slot = |(slot, weight): (usize, &f64)| {
        let layers = demand.again.len().saturating_sub(usize::from(Some(slot) == demand.oldest));
        let weight = *weight;
        demand.again.iter().take(layers).filter(|(bytes, _)| *bytes > 0.0).map(move |&(bytes, seconds)| {
            Piece { stage, slot, bytes, seconds, price: weight * seconds / bytes }
        })
    };
    weights.iter().enumerate().flat_map(of_slot).collect()
}

impl Answer {
    /// Computes as many bytes once more, those first that cost least; whether there are so many.
    fn cover(&mut self, mut missing: f64, pieces: impl FnOnce() -> Vec<Piece>) -> bool {
        if missing <= 0.0 {
            return true;
        }
        let mut pieces = pieces();
        pieces.sort_unstable_by(|a, b| a.price.total_cmp(&b.price));
        for piece in pieces {
            let bytes = piece.bytes.min(missing);
            self.added[piece.stage][piece.slot] += piece.seconds * bytes / piece.bytes;
            self.weighted += piece.price * bytes;
            missing -= bytes;
            if missing <= 0.0 {
                return true;
            }
        }
        // Sums of bytes as numbers with fractions may be off by less than one.
        missing < 0.5
    }
}
