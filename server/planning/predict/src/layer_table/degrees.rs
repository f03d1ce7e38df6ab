//! How far the rows of a table reach over tensor degrees.

use std::collections::BTreeSet;

use loadmaster_proto::profile::document::{LayerRows, LayerTable};

/// The least and the largest tensor degree between which no layer is read beyond its rows; none where there is
/// no such degree.
pub(super) fn reached(table: &LayerTable) -> Option<(u32, u32)> {
    let each = table.layers.iter().flat_map(of_rows);
    let common = each.reduce(|one, other| (one.0.max(other.0), one.1.min(other.1)))?;
    (common.0 <= common.1).then_some(common)
}

/// The tensor degrees that a group of layers has rows of, ascending.
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
