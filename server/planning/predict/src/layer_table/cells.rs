//! Reading one quantity of a layer between and beyond the settings and tensor-parallel sizes that a table lists.
//!
//! Over the micro-batch size: a line through the two listed sizes around the one asked for, or through
//! the two nearest beyond the ends; one size alone is taken to be proportional to the samples. Seconds are
//! never read below those of the smallest listed size, because a part of them does not depend on the samples. Over the
//! tensor-parallel size n: A + B/n through the two nearest listed degrees, because a shard holds a part that is
//! split and a part that every shard has.

use std::collections::BTreeSet;

use loadmaster_proto::profile::document::{LayerRows, LayerTable};

use crate::Origin;

/// One value of a table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct TableCell {
    pub(super) micro_batch_size: u32,
    pub(super) tensor_degree: u32,
    pub(super) value: f64,
}

/// How a quantity follows the micro-batch size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scales {
    /// Grows with it.
    WithSamples,
    /// Grows with it from the smallest listed size on; below that it is what it is there.
    WithSamplesFromSmallest,
    /// Is the same at every size.
    Never,
}

/// Reads `cells` at a setting; none where they do not reach.
pub(super) fn read(
    cells: &[TableCell],
    scales: Scales,
    micro_batch_size: u32,
    tensor_degree: u32,
) -> Option<(f64, Origin)> {
    let mut degrees: Vec<u32> = cells.iter().map(|cell| cell.tensor_degree).collect();
    degrees.sort_unstable();
    degrees.dedup();
    let at = |degree: u32| {
        let sizes = cells.iter().filter(|cell| cell.tensor_degree == degree);
        let mut points: Vec<(f64, f64)> =
            sizes.map(|cell| (f64::from(cell.micro_batch_size), cell.value)).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        match scales {
            Scales::Never => Some((points.first()?.1, Origin::Profiled)),
            Scales::WithSamples => over_samples(&points, f64::from(micro_batch_size)),
            Scales::WithSamplesFromSmallest => from_smallest(&points, f64::from(micro_batch_size)),
        }
    };
    if degrees.contains(&tensor_degree) {
        return at(tensor_degree);
    }
    let ((low, high), origin) = around(&degrees, |degree| degree.cmp(&tensor_degree))?;
    let ((low_value, low_origin), (high_value, high_origin)) = (at(low)?, at(high)?);
    let inverse = |degree: u32| 1.0 / f64::from(degree);
    let value = line((inverse(low), low_value), (inverse(high), high_value), inverse(tensor_degree));
    Some((value, origin.max(low_origin).max(high_origin)))
}

fn over_samples(points: &[(f64, f64)], target: f64) -> Option<(f64, Origin)> {
    if let Some(exact) = points.iter().find(|point| point.0 == target) {
        return Some((exact.1, Origin::Profiled));
    }
    if let [only] = points {
        return Some((only.1 * target / only.0, Origin::Extrapolated));
    }
    let ((low, high), origin) = around(points, |point| point.0.total_cmp(&target))?;
    Some((line(low, high, target), origin))
}

/// As [`over_samples`], but what the smallest size has below it, and beyond the largest no less than any of them has.
fn from_smallest(points: &[(f64, f64)], target: f64) -> Option<(f64, Origin)> {
    let (&(smallest, at_smallest), &(largest, _)) = (points.first()?, points.last()?);
    if target < smallest {
        return Some((at_smallest, Origin::Extrapolated));
    }
    let (value, origin) = over_samples(points, target)?;
    let least = points.iter().map(|&(_, value)| value).filter(|_| target > largest).fold(0.0, f64::max);
    Some((value.max(least), origin))
}

/// The two neighbours of a target among ascending values that do not hold it.
fn around<T: Copy>(values: &[T], order: impl Fn(&T) -> std::cmp::Ordering) -> Option<((T, T), Origin)> {
    let above = values.partition_point(|value| order(value).is_lt());
    let origin =
        if above == 0 || above == values.len() { Origin::Extrapolated } else { Origin::Interpolated };
    let high = above.clamp(1, values.len().saturating_sub(1).max(1));
    Some(((*values.get(high - 1)?, *values.get(high)?), origin))
}

/// The line through two points, never below zero.
fn line(a: (f64, f64), b: (f64, f64), x: f64) -> f64 {
    (a.1 + (b.1 - a.1) * (x - a.0) / (b.0 - a.0)).max(0.0)
}

/// The least and the largest tensor-parallel size between which no layer is read beyond its rows; none where there is
/// no such degree.
pub(super) fn reached(table: &LayerTable) -> Option<(u32, u32)> {
    let each = table.layers.iter().flat_map(of_rows);
    let common = each.reduce(|one, other| (one.0.max(other.0), one.1.min(other.1)))?;
    (common.0 <= common.1).then_some(common)
}

/// The tensor-parallel sizes that a group of layers has rows of, ascending.
pub(super) fn listed(rows: &LayerRows) -> Vec<u32> {
    let bytes = rows.bytes.iter().map(|row| row.tensor_degree);
    let times = rows.times.iter().map(|row| row.tensor_degree);
    let degrees: BTreeSet<u32> = bytes.chain(times).collect();
    degrees.into_iter().collect()
}

/// From the least to the largest degree of each kind of rows that a group has: bytes and seconds are read apart.
pub(super) fn of_rows(rows: &LayerRows) -> impl Iterator<Item = (u32, u32)> {
    let ends = |degrees: &mut dyn Iterator<Item = u32>| {
        degrees.fold(None, |ends: Option<(u32, u32)>, degree| {
            let (least, largest) = ends.unwrap_or((degree, degree));
            Some((least.min(degree), largest.max(degree)))
        })
    };
    let bytes = ends(&mut rows.bytes.iter().map(|row| row.tensor_degree));
    let times = ends(&mut rows.times.iter().map(|row| row.tensor_degree));
    bytes.into_iter().chain(times)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cell(micro_batch_size: u32, tensor_degree: u32, value: f64) -> TableCell {
        TableCell { micro_batch_size, tensor_degree, value }
    }

    fn at(cells: &[TableCell], size: u32, degree: u32) -> Option<(f64, Origin)> {
        read(cells, Scales::WithSamples, size, degree)
    }

    proptest! {
        /// What is linear in the samples and A + B/n in the degree is read exactly everywhere.
        #[test]
        fn lines_over_both_axes_are_read_exactly(
            fixed in 0.0..100.0_f64, split in 0.0..100.0_f64, size in 1_u32..64, degree in 1_u32..64,
        ) {
            let truth = |size: u32, degree: u32| f64::from(size) * (fixed + split / f64::from(degree)) + 7.0;
            let listed = [(2, 1), (2, 4), (8, 1), (8, 4), (16, 4)];
            let cells: Vec<TableCell> = listed.iter().map(|&(s, n)| cell(s, n, truth(s, n))).collect();
            let (value, _) = at(&cells, size, degree).unwrap();
            prop_assert!((value - truth(size, degree)).abs() < 1e-6, "{value}");
        }
    }

    proptest! {
        /// Below the smallest listed size seconds stay what they are there, whatever the line says; beyond the
        /// largest they are no less than any listed ones.
        #[test]
        fn seconds_are_never_read_below_the_smallest_size(
            (low, high) in (1e-6..1.0_f64, 1e-6..1.0_f64), size in 2_u32..32, more in 1_u32..32, target in 1_u32..128,
        ) {
            let cells = [cell(size, 1, low), cell(size + more, 1, high)];
            let (value, origin) = read(&cells, Scales::WithSamplesFromSmallest, target, 1).unwrap();
            if target < size {
                prop_assert_eq!((value, origin), (low, Origin::Extrapolated));
            } else if target > size + more {
                prop_assert!(value >= low.max(high) && origin == Origin::Extrapolated);
            } else {
                prop_assert!(value >= low.min(high) * 0.999_999);
            }
            let alone = read(&cells[..1], Scales::WithSamplesFromSmallest, target, 1).unwrap().0;
            prop_assert!(alone >= low && (target > size || alone == low), "{alone}");
        }
    }

    /// Less certain readings say so.
    #[test]
    fn the_origin_is_that_of_the_worst_axis() {
        let cells = [cell(2, 1, 2.0), cell(8, 1, 8.0), cell(2, 4, 1.0), cell(8, 4, 4.0)];
        assert_eq!(at(&cells, 8, 4), Some((4.0, Origin::Profiled)));
        assert_eq!(at(&cells, 4, 4), Some((2.0, Origin::Interpolated)));
        assert_eq!(at(&cells, 2, 2).unwrap().1, Origin::Interpolated);
        assert_eq!(at(&cells, 16, 4), Some((8.0, Origin::Extrapolated)));
        assert_eq!(at(&cells, 2, 8).unwrap().1, Origin::Extrapolated);
    }

    /// One size is proportional; one degree does not tell what is split.
    #[test]
    fn one_size_is_enough_and_one_degree_is_not() {
        assert_eq!(at(&[cell(2, 4, 3.0)], 6, 4), Some((9.0, Origin::Extrapolated)));
        assert_eq!(at(&[cell(2, 4, 3.0)], 2, 8), None);
        assert_eq!(at(&[], 2, 1), None);
        assert_eq!(read(&[cell(2, 4, 3.0)], Scales::Never, 9, 4), Some((3.0, Origin::Profiled)));
    }
}
