//! A Gaussian process over points of a unit cube.
//!
//! Written on a linear algebra crate, because the crates for Gaussian processes bring a second array library
//! and a hundred more crates with them.

use nalgebra::{Cholesky, DMatrix, DVector, Dyn};

/// Length scales that are tried.
const LENGTHS: [f64; 12] = [0.05, 0.08, 0.12, 0.2, 0.3, 0.5, 0.8, 1.2, 2.0, 3.0, 5.0, 10.0];

/// Variance of the noise, as a part of the process's: what keeps the matrix invertible.
const NOISE: f64 = 1e-6;

/// What a process says of a point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Belief {
    pub(super) mean: f64,
    /// Standard deviation.
    pub(super) deviation: f64,
}

/// A process that was fitted to values at points.
#[derive(Debug)]
pub(super) struct Process {
    points: Vec<Vec<f64>>,
    length: f64,
    /// Mean and scale that values are standardised by.
    centre: f64,
    scale: f64,
    /// Variance of the process, in standardised values.
    amplitude: f64,
    factor: Cholesky<f64, Dyn>,
    /// The covariance matrix's inverse times the values.
    weights: DVector<f64>,
}

/// The Matérn kernel with ν = 5/2, for a distance in length scales.
fn matern(distance: f64) -> f64 {
    let scaled = 5_f64.sqrt() * distance;
    (1.0 + scaled + scaled * scaled / 3.0) * (-scaled).exp()
}

fn distance(one: &[f64], other: &[f64]) -> f64 {
    one.iter().zip(other).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt()
}

impl Process {
    /// Fits the process: of the length scales the one with the largest marginal likelihood, with the variance
    /// that is most likely for it. None without points.
    pub(super) fn fit(points: &[Vec<f64>], values: &[f64]) -> Option<Self> {
        if points.is_empty() {
            return None;
        }
        let count = values.len() as f64;
        let centre = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|value| (value - centre).powi(2)).sum::<f64>() / count;
        let scale = if variance > 0.0 { variance.sqrt() } else { 1.0 };
        let standard =
            DVector::from_iterator(values.len(), values.iter().map(|value| (value - centre) / scale));
        let fits = LENGTHS.iter().filter_map(|&length| {
            let covariance = DMatrix::from_fn(points.len(), points.len(), |row, column| {
                let noise = if row == column { NOISE } else { 0.0 };
                matern(distance(&points[row], &points[column]) / length) + noise
            });
            let factor = covariance.cholesky()?;
            let weights = factor.solve(&standard);
            let amplitude = (standard.dot(&weights) / count).max(f64::MIN_POSITIVE);
            let log_determinant =
                2.0 * factor.l_dirty().diagonal().iter().map(|entry| entry.ln()).sum::<f64>();
            let likelihood = -0.5 * (count * amplitude.ln() + log_determinant);
            let points = points.to_vec();
            Some((likelihood, Self { points, length, centre, scale, amplitude, factor, weights }))
        });
        fits.reduce(|best, next| if next.0 > best.0 { next } else { best }).map(|(_, process)| process)
    }

    /// Mean and deviation of the value at a point.
    pub(super) fn at(&self, point: &[f64]) -> Belief {
        let near = self.points.iter().map(|known| matern(distance(known, point) / self.length));
        let near = DVector::from_iterator(self.points.len(), near);
        let explained =
            self.factor.l_dirty().solve_lower_triangular(&near).map_or(0.0, |solved| solved.norm_squared());
        Belief {
            mean: self.centre + self.scale * near.dot(&self.weights),
            deviation: self.scale * (self.amplitude * (1.0 + NOISE - explained).max(0.0)).sqrt(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At known points a process returns the values that it was fitted to. Between them it is uncertain, and far away it
    /// returns the mean alone.
    #[test]
    fn a_process_passes_through_its_points() {
        let points: Vec<Vec<f64>> = (0..12).map(|k| vec![f64::from(k) / 11.0]).collect();
        let values: Vec<f64> = points.iter().map(|point| 3.0 + (6.0 * point[0]).sin()).collect();
        let process = Process::fit(&points, &values).unwrap();
        for (point, value) in points.iter().zip(&values) {
            let belief = process.at(point);
            assert!((belief.mean - value).abs() < 1e-2 && belief.deviation < 0.05, "{belief:?} {value}");
        }
        let between = process.at(&[0.5]);
        assert!((between.mean - (3.0 + 3_f64.sin())).abs() < 0.1, "{between:?}");
        let far = process.at(&[400.0]);
        assert!(far.deviation > 10.0 * between.deviation, "{far:?} {between:?} {}", process.length);
    }

    /// Equal values, and one point, are no reason to fail.
    #[test]
    fn a_process_of_one_value_knows_it() {
        for points in [vec![vec![0.5, 0.5]], vec![vec![0.0, 1.0], vec![1.0, 0.0]]] {
            let process = Process::fit(&points, &vec![7.0; points.len()]).unwrap();
            assert!((process.at(&points[0]).mean - 7.0).abs() < 1e-9);
        }
        assert!(Process::fit(&[], &[]).is_none());
    }
}
