//! The bar that shows predicted and measured bytes against a capacity.

use crate::text::bar::Bar;
use crate::text::terminal_abilities::Look;

/// Cells of a bar, its capacity mark not counted.
const CELLS: usize = 16;

/// The characters of a bar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Glyphs {
    measured: char,
    predicted_above: char,
    measured_above: char,
    free: char,
    capacity: char,
}

impl Glyphs {
    pub(super) fn new(look: Look) -> Self {
        if look.unicode {
            Self {
                measured: '█', predicted_above: '▒', measured_above: '▓', free: '·', capacity: '│'
            }
        } else {
            Self { measured: '#', predicted_above: '=', measured_above: '!', free: '.', capacity: '|' }
        }
    }

    /// What each character means. Before a measurement there is only the prediction.
    pub(super) fn legend(self, with_measured: bool) -> String {
        let Self { measured, predicted_above, measured_above, free, capacity } = self;
        if with_measured {
            format!(
                "{measured} measured   {predicted_above} predicted, not used   \
                 {measured_above} used, not predicted   {free} free   {capacity} capacity"
            )
        } else {
            format!("{predicted_above} predicted   {free} free   {capacity} capacity")
        }
    }
}

/// Draws bytes against `capacity`. Bytes past the capacity are drawn behind its mark, as far as there
/// is room for them.
pub(super) fn draw(predicted: Option<i64>, measured: Option<i64>, capacity: i64, glyphs: Glyphs) -> String {
    let (predicted, measured) = (predicted.unwrap_or(0), measured.unwrap_or(0));
    let mut bar = Bar::new(CELLS, predicted.max(measured).max(capacity), ' ');
    if predicted > 0 {
        bar.part_to(measured.min(predicted), glyphs.measured);
        bar.part_to(measured, glyphs.measured_above);
        bar.part_to(predicted, glyphs.predicted_above);
    } else {
        bar.part_to(measured, glyphs.measured);
    }
    // Behind the capacity nothing is free.
    let end = bar.cells(capacity).max(usize::from(capacity > 0));
    bar.fill_to(end, glyphs.free);
    bar.marked_at(end, glyphs.capacity).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ascii(predicted: Option<i64>, measured: Option<i64>, capacity: i64) -> String {
        draw(predicted, measured, capacity, Glyphs::new(Look::PLAIN))
    }

    #[test]
    fn prediction_and_measurement_share_a_scale() {
        assert_eq!(ascii(Some(12), Some(9), 24), "######==........|");
        assert_eq!(ascii(Some(9), Some(12), 24), "######!!........|");
        assert_eq!(ascii(Some(12), None, 24), "========........|");
    }

    #[test]
    fn more_than_the_capacity_passes_its_mark() {
        assert_eq!(ascii(Some(24), None, 12), "========|========");
        assert_eq!(ascii(Some(24), Some(24), 24), "################|");
    }

    #[test]
    fn strange_numbers_are_drawn_somehow() {
        assert_eq!(ascii(None, None, 0).chars().count(), CELLS + 1);
        assert_eq!(ascii(Some(i64::MAX), Some(i64::MIN), -1).chars().count(), CELLS + 1);
    }
}
