//! Columns of text, without lines.

use comfy_table::{Attribute, Cell, CellAlignment, Table, presets};

use super::super::look::Look;
use super::super::text::plain;

/// Which side a column's text is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Side {
    Left,
    Right,
}

/// Rows under a header.
#[derive(Debug)]
pub(in super::super) struct Grid {
    sides: Vec<Side>,
    table: Table,
}

impl Grid {
    /// A grid with these column headers.
    pub(in super::super) fn new(columns: &[(&str, Side)], look: Look) -> Self {
        let mut grid = Self { sides: columns.iter().map(|&(_, side)| side).collect(), table: Table::new() };
        grid.table.load_style(presets::NOTHING);
        if look.color {
            grid.table.enforce_styling();
        } else {
            grid.table.force_no_tty();
        }
        let header = columns.iter().map(|&(title, _)| {
            let cell = Cell::new(plain(title));
            if look.color { cell.add_attribute(Attribute::Bold) } else { cell }
        });
        grid.table.set_header(header.collect::<Vec<_>>());
        grid
    }

    /// Adds a row.
    pub(super) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows(cells.into());
    }

    /// Adds a row of as many cells as there are columns.
    pub(in super::super) fn rows(&mut self, cells: Vec<String>) {
        self.table.add_row(cells.iter().map(|cell| Cell::new(keep_bars(cell))).collect::<Vec<_>>());
    }

    /// The text, each line ended.
    pub(in super::super) fn render(mut self) -> String {
        for (column, side) in self.table.column_iter_mut().zip(&self.sides) {
            column.set_padding((0, 2)).set_cell_alignment(match side {
                Side::Left => CellAlignment::Left,
                Side::Right => CellAlignment::Right,
            });
        }
        self.table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
    }
}

/// Safe to print, with spaces at the ends kept: they align what is inside a cell.
fn keep_bars(cell: &str) -> String {
    cell.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Names and values, one pair per line.
#[derive(Debug, Default)]
pub(super) struct Facts(Vec<(&'static str, String)>);

impl Facts {
    /// Adds a fact.
    pub(super) fn add(&mut self, name: &'static str, value: impl AsRef<str>) {
        self.0.push((name, plain(value.as_ref())));
    }

    /// The text, each line ended.
    pub(super) fn render(&self) -> String {
        let width = self.0.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        self.0
            .iter()
            .map(|(name, value)| format!("{}\n", format!("{name:width$}  {value}").trim_end()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut grid = Grid::new(&[("name", Side::Left), ("bytes", Side::Right)], Look::PLAIN);
        grid.row(["a".to_owned(), "1.00 KiB".to_owned()]);
        grid.row(["longer".to_owned(), "7 B".to_owned()]);
        assert_eq!(
            grid.render(),
            "name       bytes\n\
             a       1.00 KiB\n\
             longer       7 B\n"
        );
    }

    #[test]
    fn facts_are_aligned() {
        let mut facts = Facts::default();
        facts.add("name", "x");
        facts.add("created", "");
        assert_eq!(facts.render(), "name     x\ncreated\n");
    }
}
