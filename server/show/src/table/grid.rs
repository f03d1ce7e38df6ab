//! Columns of text, without lines, within the terminal's width.
//!
//! What is too wide is cut where it hurts least: texts before numbers, wide ones before narrow ones, and names,
//! which are typed again, not at all. Where that is not enough bars and then the last columns are left out, and a line
//! says so.

use comfy_table::{Attribute, Cell, CellAlignment, Table, presets};

use crate::text::label::fit;
use crate::text::terminal_abilities::Look;
use crate::text::{plain, visible_character, wrapped};

/// Cells between two columns.
const GAP: usize = 2;
/// Cells that are left of a text that is cut.
const SHORTEST: usize = 8;

/// Which side a column's text is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Left,
    Right,
}

/// Rows under a header.
#[derive(Debug)]
pub struct Grid {
    sides: Vec<Side>,
    /// The header first.
    rows: Vec<Vec<String>>,
    look: Look,
}

impl Grid {
    /// A grid with these column headers.
    pub fn new(columns: &[(&str, Side)], look: Look) -> Self {
        let header = columns.iter().map(|&(title, _)| plain(title)).collect();
        Self { sides: columns.iter().map(|&(_, side)| side).collect(), rows: vec![header], look }
    }

    pub(super) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows(cells.into());
    }

    /// Adds a row of as many cells as there are columns.
    pub fn rows(&mut self, cells: Vec<String>) {
        let mut row: Vec<String> = cells.iter().map(|cell| keep_bars(cell)).collect();
        row.resize(self.sides.len(), String::new());
        self.rows.push(row);
    }

    /// Titles of the columns, and the side that each one's texts are at.
    pub fn columns(&self) -> impl Iterator<Item = (&str, Side)> {
        self.rows.first().into_iter().flatten().map(String::as_str).zip(self.sides.iter().copied())
    }

    /// The rows without the titles, a text for each column.
    pub fn body(&self) -> &[Vec<String>] {
        self.rows.get(1..).unwrap_or_default()
    }

    /// The text, each line ended.
    pub fn render(mut self) -> String {
        let left_out = match self.look.width {
            Some(width) => self.narrow(width),
            None => Vec::new(),
        };
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        if self.look.color {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        let mut rows = self.rows.into_iter();
        let bold = |title: String| {
            let cell = Cell::new(title);
            if self.look.color { cell.add_attribute(Attribute::Bold) } else { cell }
        };
        table.set_header(rows.next().unwrap_or_default().into_iter().map(bold).collect::<Vec<_>>());
        for row in rows {
            table.add_row(row.into_iter().map(Cell::new).collect::<Vec<_>>());
        }
        for (column, side) in table.column_iter_mut().zip(&self.sides) {
            column.set_padding((0, GAP as u16)).set_cell_alignment(match side {
                Side::Left => CellAlignment::Left,
                Side::Right => CellAlignment::Right,
            });
        }
        let mut text: String = table.lines().map(|line| format!("{}\n", line.trim_end())).collect();
        if !left_out.is_empty() {
            text.push_str(&told(&left_out, self.look.width));
        }
        text
    }

    /// Makes every line fit, and returns what the columns that had to go are called.
    fn narrow(&mut self, width: usize) -> Vec<String> {
        let mut columns: Vec<Column> = (0..self.sides.len()).map(|column| self.column(column)).collect();
        let mut left_out = Vec::new();
        while columns.iter().map(|column| column.width + GAP).sum::<usize>() > width + GAP
            && columns.len() > 1
        {
            let widest = |columns: &mut [Column], side| {
                let cut = columns.iter_mut().filter(|of| of.side == side && of.width > of.least);
                cut.max_by_key(|of| of.width).map(|of| of.width -= 1)
            };
            if widest(&mut columns, Side::Left).or_else(|| widest(&mut columns, Side::Right)).is_some() {
                continue;
            }
            // Bars have no title, and say in another way what a number says.
            let title = |of: &Column| self.rows.first().map_or("", |header| header[of.index].as_str());
            let bar = columns.iter().rposition(|of| title(of).is_empty()).filter(|&of| of > 0);
            let gone = columns.remove(bar.unwrap_or(columns.len() - 1));
            left_out
                .insert(0, Some(title(&gone)).filter(|title| !title.is_empty()).unwrap_or("bars").to_owned());
            columns.iter_mut().for_each(|of| of.width = of.wanted);
        }
        for row in &mut self.rows {
            *row = columns.iter().map(|of| fit(&row[of.index], of.width, self.look)).collect();
        }
        self.sides = columns.iter().map(|of| of.side).collect();
        left_out
    }

    fn column(&self, index: usize) -> Column {
        let widest = |rows: &[Vec<String>]| {
            let cells = rows.iter().filter_map(|row| row.get(index));
            cells.map(|cell| unicode_width::UnicodeWidthStr::width(cell.as_str())).max().unwrap_or(0)
        };
        let (side, wanted) = (self.sides[index], widest(&self.rows));
        // A name that is cut is none, and a number that is cut is another one.
        let least = match side {
            _ if index == 0 => wanted,
            Side::Left => SHORTEST.min(wanted),
            Side::Right => widest(&self.rows[1..]).max(SHORTEST.min(wanted)),
        };
        Column { index, side, wanted, least, width: wanted }
    }
}

/// Which columns are not there, and where they are.
fn told(left_out: &[String], width: Option<usize>) -> String {
    let line = format!("(columns not shown: {}; use -o json or a wider terminal)", left_out.join(", "));
    wrapped(&line, width)
}

/// A column that is fitted in.
struct Column {
    index: usize,
    side: Side,
    /// Cells that it takes uncut, that it must have, and that it gets.
    wanted: usize,
    least: usize,
    width: usize,
}

/// Safe to print, with spaces at the ends kept: they align what is inside a cell.
fn keep_bars(cell: &str) -> String {
    cell.chars().filter_map(visible_character).collect()
}

/// Names and values, one pair per line.
#[derive(Debug, Default)]
pub(super) struct Facts(Vec<(&'static str, String)>);

impl Facts {
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

    fn wide(width: usize) -> String {
        let look = Look { width: Some(width), ..Look::PLAIN };
        let mut grid = Grid::new(
            &[("plan", Side::Left), ("layers", Side::Left), ("peak", Side::Right), ("bar", Side::Left)],
            look,
        );
        grid.row([
            "7f3c".to_owned(),
            "0..22 conv1-flatten1".to_owned(),
            "1.54 GiB".to_owned(),
            "#".repeat(24),
        ]);
        grid.render()
    }

    /// Texts give way, the widest first; names and numbers stay whole.
    #[test]
    fn a_table_keeps_to_the_width_of_the_terminal() {
        for width in 1..90 {
            let table = wide(width);
            let rows = table.find("(columns").map_or(table.as_str(), |end| &table[..end]);
            for line in rows.lines() {
                assert!(line.len() <= width.max(4), "{width}:\n{table}");
            }
            assert!(table.contains("7f3c"), "{width}:\n{table}");
        }
        let table = wide(60);
        assert!(table.contains("1.54 GiB") && table.contains("0..22 conv1-flat"), "{table}");
        assert!(wide(40).contains("1.54 GiB") && wide(40).contains("####~"), "{}", wide(40));
        assert!(wide(28).contains("(columns not shown: bar; use\n"), "{}", wide(28));
        assert!(wide(28).contains("1.54 GiB"), "{}", wide(28));
        assert_eq!(wide(200), wide(64), "what fits is not touched");
    }

    /// Whoever reads a table on a narrow terminal learns what is not in it, bars included, and how to see it.
    #[test]
    fn columns_are_never_left_out_in_silence() {
        let look = Look { width: Some(60), ..Look::PLAIN };
        let header =
            [("plan", Side::Left), ("peak", Side::Right), ("", Side::Left), ("created", Side::Right)];
        let mut grid = Grid::new(&header, look);
        let numbers = ["1.54 GiB", "2026-11-22T10:43:29.123456789Z"].map(str::to_owned);
        let [peak, created] = numbers;
        grid.row(["7f3c91d2a8b4".to_owned(), peak, "#".repeat(24), created]);
        let table = grid.render();
        let last = table.lines().last().unwrap();
        assert_eq!(last, "(columns not shown: bars; use -o json or a wider terminal)", "{table}");
        assert!(table.lines().all(|line| line.len() <= 60), "{table}");
    }

    #[test]
    fn facts_are_aligned() {
        let mut facts = Facts::default();
        facts.add("name", "x");
        facts.add("created", "");
        assert_eq!(facts.render(), "name     x\ncreated\n");
    }
}
