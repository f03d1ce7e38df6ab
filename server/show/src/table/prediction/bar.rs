//! The bar that shows what predicted bytes are made of, against a capacity.

use loadmaster_proto::wire::v1::StagePrediction;

use crate::table::parts::parts;
use crate::text::bar::Bar;

/// Cells of a bar, its capacity mark not counted.
const CELLS: usize = 24;

/// What the bar's letters mean.
pub(super) const LEGEND: &str = "W weights  G gradients  O optimizer  A activations  P P2P  C communication  \
                                 T transient  V overhead  ~ margin  . free  | capacity";

/// What it means where a predictor has no parts.
pub(super) const PLAIN_LEGEND: &str = "= predicted  ~ margin  . free  | capacity";

/// Draws a stage's parts, then its margin, then what is free. `scale` is the most bytes that any bar of the
/// table shows, so that bars can be compared.
pub(super) fn draw(stage: &StagePrediction, scale: i64) -> String {
    let peak = stage.peak.as_ref().map_or(0, |peak| peak.bytes);
    let mut bar = Bar::new(CELLS, scale, ' ');
    let margin = stage.interval.as_ref().map_or(0, |interval| interval.high_bytes.saturating_sub(peak));
    match &stage.breakdown {
        Some(breakdown) => {
            let parts = parts(breakdown).map(|(letter, _, bytes)| (letter, bytes));
            bar.parts(parts.into_iter().chain([('~', margin)]));
        }
        None => bar.parts([('=', peak), ('~', margin)]),
    }
    let Some(capacity) = stage.capacity_bytes else { return bar.into_cells().into_iter().collect() };
    let end = bar.cells(capacity);
    bar.fill_to(end, '.');
    bar.marked_at(end, '|').into_iter().collect()
}

/// The most bytes that a stage's bar shows.
pub(super) fn extent(stage: &StagePrediction) -> i64 {
    let peak = stage.peak.as_ref().map_or(0, |peak| peak.bytes);
    let high = stage.interval.as_ref().map_or(0, |interval| interval.high_bytes);
    peak.max(high).max(stage.capacity_bytes.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::wire::v1::{MemoryBreakdown, MemoryFigure, MemoryInterval};

    use super::*;

    fn stage(
        breakdown: Option<MemoryBreakdown>,
        peak: i64,
        high: i64,
        capacity: Option<i64>,
    ) -> StagePrediction {
        StagePrediction {
            peak: Some(MemoryFigure { bytes: peak, ..MemoryFigure::default() }),
            interval: Some(MemoryInterval { low_bytes: 0, high_bytes: high, margin_ratio: 0.0 }),
            breakdown,
            capacity_bytes: capacity,
            ..StagePrediction::default()
        }
    }

    /// Parts stand in their order, each as wide as its share, then the margin, then what is free.
    #[test]
    fn parts_margin_and_free_bytes_share_a_scale() {
        let breakdown = MemoryBreakdown {
            weights_bytes: 6,
            activations_bytes: 3,
            transient_bytes: 3,
            ..MemoryBreakdown::default()
        };
        let bar = draw(&stage(Some(breakdown), 12, 15, Some(24)), 24);
        assert_eq!(bar, "WWWWWWAAATTT~~~.........|");
        let over = draw(&stage(None, 24, 24, Some(12)), 24);
        assert_eq!(over, "============|============");
        let without = draw(&stage(None, 6, 12, None), 24);
        assert_eq!(without, "======~~~~~~            ");
    }

    #[test]
    fn strange_numbers_are_drawn_somehow() {
        let wild = MemoryBreakdown {
            weights_bytes: i64::MAX,
            gradients_bytes: i64::MAX,
            optimizer_bytes: i64::MIN,
            ..MemoryBreakdown::default()
        };
        for (capacity, scale) in [(None, 0), (Some(i64::MAX), i64::MAX), (Some(-1), -1), (Some(0), 1)] {
            let bar = draw(&stage(Some(wild), i64::MAX, i64::MIN, capacity), scale);
            assert!(bar.chars().count() <= CELLS + 1, "{bar}");
        }
        assert_eq!(draw(&stage(None, 1, 1, None), 1 << 40).trim_end(), "=");
    }
}
