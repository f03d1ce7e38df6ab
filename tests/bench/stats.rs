//! Distributions of errors, medians, and how long something takes.

use std::fmt;
use std::time::Instant;

use crate::table::percent;

/// What is said of a set of relative errors, as shares (0.01 is 1 %).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Distribution {
    pub(crate) count: usize,
    /// Quantiles of |error|.
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
    /// Mean of |error|.
    pub(crate) mean: f64,
    /// Mean of the signed error: below zero where too little is predicted.
    pub(crate) bias: f64,
    /// The most negative signed error; zero where nothing is predicted too low.
    pub(crate) lowest: f64,
}

impl Distribution {
    /// Of signed errors; none of no errors.
    pub(crate) fn of(errors: &[f64]) -> Option<Self> {
        if errors.is_empty() {
            return None;
        }
        let mut sizes: Vec<f64> = errors.iter().map(|error| error.abs()).collect();
        sizes.sort_by(f64::total_cmp);
        let count = sizes.len() as f64;
        Some(Self {
            count: sizes.len(),
            p50: quantile(&sizes, 0.5),
            p90: quantile(&sizes, 0.9),
            p99: quantile(&sizes, 0.99),
            max: quantile(&sizes, 1.0),
            mean: sizes.iter().sum::<f64>() / count,
            bias: errors.iter().sum::<f64>() / count,
            lowest: errors.iter().copied().fold(0.0, f64::min),
        })
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, p50, p90, p99, max, mean, bias, lowest } = self;
        let [p50, p90, p99, max, mean, lowest] =
            [p50, p90, p99, max, mean, lowest].map(|&share| percent(share));
        write!(
            f,
            "mean {mean}, p50 {p50}, p90 {p90}, p99 {p99}, max {max}, bias {:+.2} %, lowest {lowest} of {count}",
            100.0 * bias
        )
    }
}

/// The smallest value that at least the share `q` of the ascending values does not exceed.
///
/// A value that occurred, never one between two: "p90 is 1 %" then says that nine in ten are at most
/// that.
pub(crate) fn quantile(ascending: &[f64], q: f64) -> f64 {
    let rank = (q * ascending.len() as f64).ceil() as usize;
    ascending.get(rank.clamp(1, ascending.len().max(1)) - 1).copied().unwrap_or(f64::NAN)
}

/// The middle one; of two in the middle their mean.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    let lower = *values.get(values.len().checked_sub(1)? / 2)?;
    Some(f64::midpoint(lower, upper))
}

/// Runs something this often, at least once; the last result, and the median of the seconds.
pub(crate) fn timed<T>(runs: usize, mut run: impl FnMut() -> T) -> (T, f64) {
    let mut times = Vec::with_capacity(runs.max(1));
    loop {
        let started = Instant::now();
        let result = run();
        times.push(started.elapsed().as_secs_f64());
        if times.len() >= runs {
            times.sort_by(f64::total_cmp);
            return (result, times[times.len() / 2]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nine in ten are at most p90, and no smaller value has that property; the bias keeps the sign that sizes lose.
    #[test]
    fn quantiles_cover_their_share_and_medians_are_in_the_middle() {
        for count in 1..60 {
            let values: Vec<f64> = (0..count).map(f64::from).collect();
            for q in [0.1, 0.5, 0.9, 0.99, 1.0] {
                let found = quantile(&values, q);
                let at_most = values.iter().filter(|&&value| value <= found).count() as f64;
                let below = values.iter().filter(|&&value| value < found).count() as f64;
                assert!(at_most >= q * f64::from(count) && below < q * f64::from(count), "{count} {q}");
            }
        }
        assert!(quantile(&[], 0.5).is_nan());
        assert_eq!((median(&[]), median(&[4.0, 1.0, 2.0, 3.0])), (None, Some(2.5)));
        let found = Distribution::of(&[-0.2, 0.1, 0.1]).unwrap();
        assert!(found.bias.abs() < 1e-12 && (found.mean - 0.4 / 3.0).abs() < 1e-12);
        assert_eq!((found.lowest, found.max, found.count), (-0.2, 0.2, 3));
        assert_eq!((Distribution::of(&[0.5]).unwrap().lowest, Distribution::of(&[])), (0.0, None));
    }
}
