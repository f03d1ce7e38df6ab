//! Straight lines through profiled values (CAPTURE, III-B2 and Description 2).
//!
//! * A profiled value is returned as it is.
//! * Between and beyond profiled values: the line through the two nearest ones, in whole bytes, rounded
//!   up, so that rounding never hides a byte.
//! * Beyond the largest profiled value a figure is never below a measured one: with the paper's half
//!   and quarter of the target every figure is an extrapolation, and noise may tilt a flat line down.

use crate::Origin;

/// A value at a profiled micro-batch size or number of micro-batches in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProfiledPoint {
    /// Where.
    pub(super) at: u32,
    /// The value there.
    pub(super) bytes: i128,
}

/// Reads the value at `target`. None when that takes a line and there are not two points, which must
/// ascend.
pub(super) fn read(points: &[ProfiledPoint], target: u32) -> Option<(i128, Origin)> {
    let above = points.partition_point(|point| point.at < target);
    if let Some(point) = points.get(above).filter(|point| point.at == target) {
        return Some((point.bytes, Origin::Profiled));
    }
    let low = above.clamp(1, points.len().checked_sub(1).filter(|&last| last > 0)?) - 1;
    let bytes = through(points[low], points[low + 1], target);
    if above == points.len() {
        let measured = points.iter().map(|point| point.bytes).max()?;
        return Some((bytes.max(measured), Origin::Extrapolated));
    }
    Some((bytes, if above == 0 { Origin::Extrapolated } else { Origin::Interpolated }))
}

fn through(low: ProfiledPoint, high: ProfiledPoint, target: u32) -> i128 {
    let run = i128::from(high.at) - i128::from(low.at);
    let rise = (high.bytes - low.bytes) * (i128::from(target) - i128::from(low.at));
    // Rounded towards more bytes, for either sign.
    low.bytes - (-rise).div_euclid(run)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_at(points: &[(u32, i128)], target: u32) -> Option<(i128, Origin)> {
        let points: Vec<ProfiledPoint> =
            points.iter().map(|&(at, bytes)| ProfiledPoint { at, bytes }).collect();
        read(&points, target)
    }

    #[test]
    fn profiled_values_are_returned_and_others_lie_on_the_line() {
        let points = [(2, 100), (4, 160)];
        assert_eq!(read_at(&points, 4), Some((160, Origin::Profiled)));
        assert_eq!(read_at(&points, 3), Some((130, Origin::Interpolated)));
        assert_eq!(read_at(&points, 8), Some((280, Origin::Extrapolated)));
        assert_eq!(read_at(&points, 1), Some((70, Origin::Extrapolated)));
    }

    /// Noise must not predict that a larger micro-batch needs less than a smaller one did.
    #[test]
    fn extrapolation_upwards_never_falls_below_a_measured_value() {
        assert_eq!(read_at(&[(2, 100), (4, 90)], 8), Some((100, Origin::Extrapolated)));
        assert_eq!(read_at(&[(2, 100), (4, 90)], 3), Some((95, Origin::Interpolated)));
    }

    #[test]
    fn a_line_needs_two_points() {
        assert_eq!(read_at(&[(2, 100)], 2), Some((100, Origin::Profiled)));
        assert_eq!(read_at(&[(2, 100)], 4), None);
        assert_eq!(read_at(&[], 4), None);
    }

    #[test]
    fn rounding_never_hides_a_byte() {
        assert_eq!(read_at(&[(1, 0), (4, 1)], 2), Some((1, Origin::Interpolated)));
        assert_eq!(read_at(&[(1, 1), (4, 0)], 2), Some((1, Origin::Interpolated)));
        assert_eq!(read_at(&[(1, 1), (4, 0)], 3), Some((1, Origin::Interpolated)));
    }

    /// With more than two points the two nearest ones count.
    #[test]
    fn the_nearest_two_of_many_points_make_the_line() {
        let points = [(1, 0), (2, 10), (4, 100)];
        assert_eq!(read_at(&points, 3), Some((55, Origin::Interpolated)));
        assert_eq!(read_at(&points, 6), Some((190, Origin::Extrapolated)));
        assert_eq!(read_at(&[(2, 10), (4, 100), (8, 100)], 1), Some((-35, Origin::Extrapolated)));
    }
}
