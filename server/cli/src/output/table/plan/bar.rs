//! The bar that shows predicted and measured bytes against a capacity.

use crate::text::terminal_abilities::Look;

/// Cells of a bar, its capacity mark not counted.
const CELLS: usize = 24;

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
                "{measured} measured   {predicted_above} predicted, not needed   \
                 {measured_above} needed, not predicted   {free} free   {capacity} capacity"
            )
        } else {
            format!("{predicted_above} predicted   {free} free   {capacity} capacity")
        }
    }
}

/// Draws bytes against `capacity`. Bytes past the capacity are drawn behind its mark, as far as there
/// is room for them.
pub(super) fn draw(predicted: Option<i64>, measured: Option<i64>, capacity: i64, glyphs: Glyphs) -> String {
    let most = predicted.max(measured).unwrap_or(0).max(capacity).max(1);
    let cells = |bytes: i64| {
        let exact = bytes.max(0) as f64 / most as f64 * CELLS as f64;
        // What is not nothing is seen, and so is what is left.
        let rounded = if exact > 0.0 { exact.round().max(1.0) } else { 0.0 };
        (rounded as usize).min(CELLS)
    };
    let predicted = predicted.map_or(0, cells);
    let measured = measured.map_or(0, cells);
    let capacity = cells(capacity);
    let mut bar = String::with_capacity((CELLS + 1) * 3);
    for cell in 0..=CELLS {
        if cell == capacity {
            bar.push(glyphs.capacity);
        }
        if cell == CELLS {
            break;
        }
        bar.push(match (cell < measured, cell < predicted) {
            (true, false) if predicted > 0 => glyphs.measured_above,
            (true, _) => glyphs.measured,
            (false, true) => glyphs.predicted_above,
            // Behind the capacity nothing is free.
            (false, false) if cell >= capacity => ' ',
            (false, false) => glyphs.free,
        });
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ascii(predicted: Option<i64>, measured: Option<i64>, capacity: i64) -> String {
        draw(predicted, measured, capacity, Glyphs::new(Look::PLAIN))
    }

    #[test]
    fn prediction_and_measurement_share_a_scale() {
        assert_eq!(ascii(Some(12), Some(10), 24), "##########==............|");
        assert_eq!(ascii(Some(10), Some(12), 24), "##########!!............|");
        assert_eq!(ascii(Some(12), None, 24), "============............|");
    }

    #[test]
    fn more_than_the_capacity_passes_its_mark() {
        assert_eq!(ascii(Some(24), None, 12), "============|============");
        assert_eq!(ascii(Some(24), Some(24), 24), "########################|");
    }

    #[test]
    fn strange_numbers_are_drawn_somehow() {
        assert_eq!(ascii(None, None, 0).chars().count(), CELLS + 1);
        assert_eq!(ascii(Some(i64::MAX), Some(i64::MIN), -1).chars().count(), CELLS + 1);
    }
}
