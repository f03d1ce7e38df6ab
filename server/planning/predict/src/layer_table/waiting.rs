//! Passes that a profiler saw waiting.
//!
//! A pass over fewer samples does no more work than one over more, so it takes no longer. A table lists it as
//! longer where layers were timed one by one and the device waited for the host between short kernels, or
//! where the first run of a layer was counted. Such noise only ever adds, so the shorter figure is the better
//! one: seconds are read as the least of all rows of the same degree with as many samples or more.

use super::cells::TableCell;

/// Shortens what takes longer than the same over more samples; whether there was any.
pub(super) fn without_waiting(cells: &mut [TableCell]) -> bool {
    cells.sort_by_key(|cell| (cell.tensor_degree, std::cmp::Reverse(cell.micro_batch_size)));
    let mut is_shortened = false;
    let mut larger: Option<TableCell> = None;
    for cell in cells {
        if let Some(larger) = larger.filter(|larger| larger.tensor_degree == cell.tensor_degree)
            && larger.value < cell.value
        {
            cell.value = larger.value;
            is_shortened = true;
        }
        larger = Some(*cell);
    }
    is_shortened
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_cells() -> impl Strategy<Value = Vec<TableCell>> {
        let rows = proptest::collection::btree_map((1_u32..9, 1_u32..4), 0.0..10.0_f64, 1..12);
        rows.prop_map(|rows| {
            rows.into_iter()
                .map(|((micro_batch_size, tensor_degree), value)| TableCell {
                    micro_batch_size,
                    tensor_degree,
                    value,
                })
                .collect()
        })
    }

    proptest! {
        /// By its definition, cell by cell: the least of the same degree with as many samples or more.
        #[test]
        fn fewer_samples_never_take_longer(cells in any_cells()) {
            let mut read = cells.clone();
            let is_shortened = without_waiting(&mut read);
            for cell in &read {
                let like = cells.iter().filter(|of| of.tensor_degree == cell.tensor_degree);
                let from = like.filter(|of| of.micro_batch_size >= cell.micro_batch_size);
                prop_assert_eq!(cell.value, from.map(|of| of.value).fold(f64::INFINITY, f64::min));
            }
            prop_assert_eq!(is_shortened, read.iter().any(|cell| !cells.contains(cell)));
        }
    }
}
