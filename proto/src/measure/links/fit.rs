//! A link from the seconds of exchanges of several sizes.

use super::LinkPoint;
use crate::cluster::{Link, LinkOrigin};
use crate::error::Invalid;

/// Longest exchange that is believed, seconds.
pub(super) const MAX_SECONDS: f64 = 3_600.0;

/// The link of seconds = latency + share · payload / bandwidth: the line with the least squares of the
/// *relative* residuals, so that the smallest payloads, which show the latency, count as much as the largest.
///
/// Where noise makes that line fall, or meet a payload of nothing below zero, the link has no latency and
/// the bandwidth that explains the points best.
///
/// # Errors
/// When there are no points, or their seconds are not possible.
pub(super) fn link(points: &[LinkPoint], share: f64) -> Result<Link, Invalid> {
    let mut sums = Sums::default();
    for point in points {
        if !(point.seconds > 0.0 && point.seconds <= MAX_SECONDS) {
            let why = format!("has {} seconds, must be above 0 and at most {MAX_SECONDS}", point.seconds);
            return Err(Invalid::field("points", why));
        }
        sums.add(share * point.payload_bytes as f64, point.seconds);
    }
    let (latency_seconds, seconds_per_byte) = sums.line().unwrap_or_else(|| (0.0, sums.through_origin()));
    let bytes_per_second = (1.0 / seconds_per_byte).min(Link::MAX_BYTES_PER_SECOND);
    let link = Link { bytes_per_second, latency_seconds, origin: LinkOrigin::Measured };
    link.check()?;
    Ok(link)
}

/// Sums of weighted least squares; a point weighs 1 / seconds².
#[derive(Debug, Default)]
struct Sums {
    weights: f64,
    bytes: f64,
    squares: f64,
    seconds: f64,
    products: f64,
}

impl Sums {
    fn add(&mut self, bytes: f64, seconds: f64) {
        let weight = 1.0 / (seconds * seconds);
        self.weights += weight;
        self.bytes += weight * bytes;
        self.squares += weight * bytes * bytes;
        self.seconds += weight * seconds;
        self.products += weight * bytes * seconds;
    }

    /// Latency and seconds per byte, where both are possible.
    fn line(&self) -> Option<(f64, f64)> {
        let determinant = self.weights * self.squares - self.bytes * self.bytes;
        let slope = (self.weights * self.products - self.bytes * self.seconds) / determinant;
        let latency = (self.seconds * self.squares - self.bytes * self.products) / determinant;
        let is_possible = slope.is_finite() && slope > 0.0 && latency.is_finite() && latency >= 0.0;
        is_possible.then_some((latency, slope))
    }

    fn through_origin(&self) -> f64 {
        self.products / self.squares
    }
}
