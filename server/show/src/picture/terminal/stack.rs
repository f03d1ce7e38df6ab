//! Stacked bytes as text: columns of letters below the line of a capacity.

use super::line::Line;
use crate::picture::tint::Tint;
use crate::text::bytes;
use crate::text::label::{cells, column};
use crate::text::terminal_abilities::Look;

/// Lines of a chart.
const HEIGHT: usize = 8;

/// How bytes become lines.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stack {
    /// Cells beside the chart.
    pub(super) names: usize,
    /// Bytes at the upper end, above 0.
    pub(super) scale_bytes: i64,
    /// Within the scale.
    pub(super) capacity_bytes: Option<i64>,
    pub(super) look: Look,
}

/// What is in a cell.
pub(super) type Glyph = (char, Option<Tint>);

impl Stack {
    /// The lines of columns, each with its parts from the bottom up, and bytes at which it has a mark.
    pub(super) fn lines<P>(
        &self,
        columns: usize,
        parts: impl Fn(usize) -> P,
        mark: impl Fn(usize) -> Option<i64>,
    ) -> Vec<Line>
    where
        P: Iterator<Item = (i64, char, Tint)> + Clone,
    {
        let line = |row: usize| {
            let limit = self.capacity_bytes.filter(|&capacity| self.row_of(capacity) == row);
            let name = match limit {
                Some(capacity) => bytes(capacity),
                None if row == 0 => bytes(self.scale_bytes),
                None if row + 1 == HEIGHT => "0 B".to_owned(),
                None => String::new(),
            };
            let blank = match limit {
                Some(_) => (if self.look.unicode { '─' } else { '-' }, Some(Tint::Capacity)),
                None => (' ', None),
            };
            let cell = |column: usize| match mark(column) {
                Some(mark) if self.row_of(mark) == row => (self.mark(), Some(Tint::Measured)),
                _ => self.letter(parts(column), HEIGHT - 1 - row).unwrap_or(blank),
            };
            self.framed(&name, (0..columns).map(cell).collect())
        };
        (0..HEIGHT).map(line).collect()
    }

    /// The sign of what was measured.
    pub(super) fn mark(&self) -> char {
        if self.look.unicode { '◆' } else { '^' }
    }

    /// A line of cells with a name before it.
    pub(super) fn framed(&self, name: &str, row: Vec<Glyph>) -> Line {
        let bar = if self.look.unicode { "│" } else { "|" };
        let padding = " ".repeat(self.names.saturating_sub(cells(name)));
        let name = column(name, cells(name).min(self.names), self.look);
        let mut line = Line::plain(format!("{padding}{name} "));
        line.tinted(bar, Tint::Faint);
        for run in row.chunk_by(|a, b| a.1 == b.1) {
            line.tinted(run.iter().map(|&(c, _)| c).collect::<String>(), run[0].1);
        }
        line.tinted(bar, Tint::Faint);
        line
    }

    /// The line that so many bytes reach to, counted from the top.
    fn row_of(&self, amount: i64) -> usize {
        let rows = amount as f64 / self.scale_bytes as f64 * HEIGHT as f64;
        HEIGHT.saturating_sub(1 + rows as usize)
    }

    /// What is held at the middle of a row, counted from the bottom; a column that holds anything has a cell.
    fn letter(&self, parts: impl Iterator<Item = (i64, char, Tint)> + Clone, row: usize) -> Option<Glyph> {
        let total = parts.clone().fold(0_i64, |sum, (bytes, ..)| sum.saturating_add(bytes)) as f64;
        let height = self.scale_bytes as f64 / HEIGHT as f64;
        let middle = if row == 0 { (0.5 * height).min(total * 0.5) } else { (row as f64 + 0.5) * height };
        if total <= 0.0 || middle > total {
            return None;
        }
        let mut sum = 0_i64;
        parts.into_iter().find_map(|(bytes, letter, tint)| {
            sum = sum.saturating_add(bytes);
            (sum as f64 >= middle).then_some((letter, Some(tint)))
        })
    }
}
