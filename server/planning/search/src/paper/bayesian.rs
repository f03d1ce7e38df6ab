//! mCAP's Bayesian optimisation (mCAP-BO).
//!
//! The paper's settings: scikit-optimize's `gp_hedge` with sampled candidates, a Matérn kernel, 75 iterations,
//! xi and kappa of 1,000 in favour of exploration, one dimension per device that says how many layers it takes.
//! It does not say how the dimensions are made to add up to the model. Here they are shares: the layers are
//! split in proportion to them, every device gets one at least, and what is left over goes to the largest
//! remainders.

use std::f64::consts::{PI, SQRT_2};

use super::super::memory::{self, Peaks};
use super::super::{Assignment, Ended, PlaceId, PlacedStage, Question, Searched, StageCosts, Stop, Unit};
use super::Random;
use super::gaussian::{Belief, Process};

/// Settings of the optimisation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bayesian {
    /// Partitionings that are looked at.
    pub iterations: usize,
    /// How many of them are drawn before the process is asked.
    pub drawn_first: usize,
    /// Points among which the process chooses the next one.
    pub candidates: usize,
    /// Improvement that is hoped for, in the unit of the peaks (xi).
    pub hope: f64,
    /// Standard deviations that count in favour of a point (kappa).
    pub boldness: f64,
    /// Seed of everything that is drawn.
    pub seed: u64,
}

impl Default for Bayesian {
    /// mCAP's settings; those that it leaves open as scikit-optimize has them, but for fewer candidates.
    fn default() -> Self {
        Self { iterations: 75, drawn_first: 10, candidates: 2_000, hope: 1_000.0, boldness: 1_000.0, seed: 0 }
    }
}

/// The rules by which a next point is proposed; `gp_hedge` bets on all of them.
const RULES: usize = 3;

/// Looks for the partitioning with the lowest highest peak over devices that take a stage each.
///
/// What it finds is seldom the best: it ends [`Ended::Bounded`] without a bound. Cuts and pins are not part of the
/// method; partitionings that break them count as not fitting.
pub fn bayesian<C: StageCosts>(
    question: &Question<'_, C>,
    unit: Unit,
    settings: &Bayesian,
    stop: &Stop,
) -> Searched<Peaks> {
    let none = Searched { best: None, bound: None, states: 0, ended: Ended::Bounded };
    let pipeline = pipeline(question).filter(|pipeline| {
        let stages = pipeline.len();
        (1..=question.costs.layers()).contains(&stages) && question.stages.contains(&stages)
    });
    let Some(pipeline) = pipeline else { return Searched { ended: Ended::Proven, ..none } };
    let mut search = BayesianSearch {
        question,
        pipeline,
        unit,
        settings,
        random: Random::new(settings.seed),
        points: Vec::new(),
        values: Vec::new(),
        best: None,
        gains: [0.0; RULES],
    };
    let mut proposed: Option<[Vec<usize>; RULES]> = None;
    let mut states = 0;
    for iteration in 0..settings.iterations {
        let is_modelled = iteration >= settings.drawn_first;
        if stop.is_requested() || is_modelled && !stop.take(search.work()) {
            return Searched { best: search.best, bound: None, states, ended: stop.ended() };
        }
        let process = is_modelled.then(|| Process::fit(&search.points, &search.values));
        let point = match process.flatten() {
            None => search.draw(),
            Some(process) => {
                if let Some(proposed) = proposed.take() {
                    search.settle(&process, &proposed);
                }
                let next = search.propose(&process);
                let point = next[search.bet()].clone();
                proposed = Some(next);
                point
            }
        };
        search.look_at(&point);
        states += 1;
    }
    Searched { best: search.best, states, ..none }
}

/// A place and the step from it that takes one device.
type Lone = (PlaceId, usize);

/// The steps with which every stage takes one device; none where there are none. Of several the first.
fn pipeline<C>(question: &Question<'_, C>) -> Option<Vec<Lone>> {
    let mut steps = Vec::new();
    let mut from = 0;
    while from != question.places.last() {
        let all = question.places.steps(from);
        let step = all.iter().position(|step| step.devices == 1)?;
        steps.push((from, step));
        from = all[step].to;
    }
    Some(steps)
}

struct BayesianSearch<'a, C> {
    question: &'a Question<'a, C>,
    pipeline: Vec<Lone>,
    unit: Unit,
    settings: &'a Bayesian,
    random: Random,
    points: Vec<Vec<f64>>,
    values: Vec<f64>,
    best: Option<Assignment<Peaks>>,
    /// What each rule has won so far.
    gains: [f64; RULES],
}

impl<C: StageCosts> BayesianSearch<'_, C> {
    /// Most layers of a device.
    fn most(&self) -> usize {
        self.question.costs.layers() + 1 - self.pipeline.len()
    }

    /// Work of the next proposal: each candidate takes a kernel of every known point, and solves a triangular system of them.
    fn work(&self) -> u64 {
        // A kernel is some 30 operations, and a unit of work 10.
        let points = self.points.len() as u64;
        (self.settings.candidates as u64).saturating_mul(points * (points + 30)) / 10
    }

    fn draw(&mut self) -> Vec<usize> {
        let most = self.most();
        (0..self.pipeline.len()).map(|_| 1 + self.random.below(most)).collect()
    }

    /// The point in the unit cube.
    fn scaled(&self, point: &[usize]) -> Vec<f64> {
        let most = (self.most() - 1).max(1) as f64;
        point.iter().map(|&layers| (layers - 1) as f64 / most).collect()
    }

    fn look_at(&mut self, point: &[usize]) {
        let sizes = split(self.question.costs.layers(), point);
        let assignment = place(self.question, &self.pipeline, &sizes, self.unit);
        let highest = assignment.as_ref().and_then(|assignment| assignment.value.highest());
        // Something that does not fit is bad, but not so bad that the process sees nothing else.
        let worst = self.values.iter().copied().fold(0.0, f64::max);
        self.values.push(highest.map_or(2.0 * worst, |highest| highest as f64));
        self.points.push(self.scaled(point));
        if let Some(found) = assignment
            && self.best.as_ref().is_none_or(|best| found.value < best.value)
        {
            self.best = Some(found);
        }
    }

    /// The candidate that each rule likes best.
    fn propose(&mut self, process: &Process) -> [Vec<usize>; RULES] {
        let lowest = self.values.iter().copied().fold(f64::INFINITY, f64::min);
        let mut best: [(f64, Vec<usize>); RULES] = std::array::from_fn(|_| (f64::NEG_INFINITY, Vec::new()));
        for _ in 0..self.settings.candidates.max(1) {
            let point = self.draw();
            let belief = process.at(&self.scaled(&point));
            for (best, worth) in best.iter_mut().zip(worth(belief, lowest, self.settings)) {
                if worth > best.0 || best.1.is_empty() {
                    *best = (worth, point.clone());
                }
            }
        }
        best.map(|(_, point)| point)
    }

    /// Which rule is followed: the more it has won, the likelier.
    fn bet(&mut self) -> usize {
        let most = self.gains.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights = self.gains.map(|gain| (gain - most).exp());
        let mut left = self.random.fraction() * weights.iter().sum::<f64>();
        let chosen = weights.iter().position(|weight| {
            left -= weight;
            left < 0.0
        });
        chosen.unwrap_or(RULES - 1)
    }

    /// Rules win what the newer process expects of the points that they proposed.
    fn settle(&mut self, process: &Process, proposed: &[Vec<usize>; RULES]) {
        for (rule, point) in proposed.iter().enumerate() {
            self.gains[rule] -= process.at(&self.scaled(point)).mean;
        }
    }
}

/// What a point is worth by each rule: lower confidence bound, expected improvement and probability of
/// improvement; more is better.
fn worth(belief: Belief, lowest: f64, settings: &Bayesian) -> [f64; RULES] {
    let Belief { mean, deviation } = belief;
    let bound = settings.boldness * deviation - mean;
    let improvement = lowest - settings.hope - mean;
    if deviation <= 0.0 {
        return [bound, 0.0, 0.0];
    }
    let scaled = improvement / deviation;
    let density = (-0.5 * scaled * scaled).exp() / (2.0 * PI).sqrt();
    let probability = 0.5 * (1.0 + error_function(scaled / SQRT_2));
    [bound, improvement * probability + deviation * density, probability]
}

/// Abramowitz and Stegun 7.1.26: right to 1.5e-7.
fn error_function(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.327_591_1 * x.abs());
    let coefficients = [1.061_405_429, -1.453_152_027, 1.421_413_741, -0.284_496_736, 0.254_829_592];
    let polynomial = coefficients.iter().fold(0.0, |sum, coefficient| (sum + coefficient) * t);
    (1.0 - polynomial * (-x * x).exp()).copysign(x)
}

/// Layers in proportion to shares, one at least for each.
fn split(layers: usize, shares: &[usize]) -> Vec<usize> {
    let free = layers - shares.len();
    let sum: usize = shares.iter().sum();
    let mut sizes: Vec<usize> = shares.iter().map(|share| 1 + free * share / sum).collect();
    let mut order: Vec<usize> = (0..shares.len()).collect();
    order.sort_by_key(|&index| std::cmp::Reverse(free * shares[index] % sum));
    let left = layers - sizes.iter().sum::<usize>();
    order.into_iter().take(left).for_each(|index| sizes[index] += 1);
    sizes
}

/// Stages of these sizes along the pipeline; none where one is not allowed or does not fit.
fn place<C: StageCosts>(
    question: &Question<'_, C>,
    pipeline: &[Lone],
    sizes: &[usize],
    unit: Unit,
) -> Option<Assignment<Peaks>> {
    let mut first = 0;
    let mut stages = Vec::with_capacity(sizes.len());
    for (index, (size, &(from, step))) in sizes.iter().zip(pipeline).enumerate() {
        let taken = question.places.steps(from).get(step)?;
        let last = first + size - 1;
        let bytes = |&choice: &usize| {
            let is_single = question.costs.choices().get(choice)?.devices() == 1;
            let at = question.stage_at(taken, first, last, choice);
            let peak = question.costs.peak(&at, question.in_flight(sizes.len() - 1 - index));
            peak.filter(|_| is_single).map(|peak| (peak.bytes, choice))
        };
        // The first of equal choices.
        let (_, choice) = question.choices.iter().filter_map(bytes).min_by_key(|&(bytes, _)| bytes)?;
        stages.push(PlacedStage { first, last, choice, from, step });
        first = last + 1;
    }
    let is_allowed = stages.iter().all(|stage| super::is_allowed(question, stage));
    let value = memory::peaks_of(question, unit, &stages).filter(|_| is_allowed)?;
    Some(Assignment { stages, value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_split_into_all_layers() {
        assert_eq!(split(10, &[1, 1, 1]), [4, 3, 3]);
        assert_eq!(split(10, &[8, 1, 1]), [6, 2, 2]);
        assert_eq!(split(3, &[1, 9, 1]), [1, 1, 1]);
    }

    /// Values from a table of the error function.
    #[test]
    fn the_error_function_is_right_to_six_digits() {
        for (x, expected) in [(0.0, 0.0), (0.5, 0.520_499_9), (-1.0, -0.842_700_8), (2.0, 0.995_322_3)] {
            assert!((error_function(x) - expected).abs() < 1e-6, "{x}");
        }
    }

    /// A point that is surely better is worth more by every rule than one that is surely worse.
    #[test]
    fn lower_means_are_worth_more() {
        let settings = Bayesian { hope: 0.0, boldness: 1.0, ..Bayesian::default() };
        let good = worth(Belief { mean: 1.0, deviation: 0.5 }, 2.0, &settings);
        let bad = worth(Belief { mean: 3.0, deviation: 0.5 }, 2.0, &settings);
        assert!(good.iter().zip(bad).all(|(good, bad)| *good > bad));
    }
}
