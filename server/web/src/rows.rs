//! Grids of `loadmaster_show` as tables of a page.

use loadmaster_show::table::grid::{Grid, Side};

use crate::link;

/// A table of a page.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rows {
    pub(crate) columns: Vec<Column>,
    pub(crate) body: Vec<Vec<Cell>>,
}

#[derive(Debug, Clone)]
pub(crate) struct Column {
    pub(crate) title: String,
    pub(crate) style: ColumnStyle,
}

/// How the cells of a column are shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ColumnStyle {
    is_right: bool,
    /// Shown only in windows wider than 1,800 pixels.
    is_extra: bool,
}

impl ColumnStyle {
    /// The attribute of a cell's element.
    pub(crate) fn attribute(self) -> &'static str {
        match (self.is_right, self.is_extra) {
            (false, false) => "",
            (true, false) => " class=\"right\"",
            (false, true) => " class=\"extra\"",
            (true, true) => " class=\"right extra\"",
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Cell {
    pub(crate) text: String,
    pub(crate) href: Option<String>,
    pub(crate) style: ColumnStyle,
}

/// Width of a table in a window of 1,280 pixels.
const TABLE_WIDTH: f64 = 1248.0;
/// Upper estimate of the width of a character.
const CHARACTER_WIDTH: f64 = 7.6;
/// Horizontal padding of a cell.
const CELL_PADDING: f64 = 16.0;

impl Rows {
    /// The rows of a grid; `names` are the names of what they are of, in their order. The first cell leads there, others lead to
    /// what they name.
    pub(crate) fn of(grid: &Grid, names: &[String]) -> Self {
        let mut used = 0.0;
        let columns: Vec<Column> = grid
            .columns()
            .enumerate()
            .map(|(column, (title, side))| {
                let cells = grid.body().iter().filter_map(|cells| cells.get(column).map(String::as_str));
                let longest = cells.chain([title]).map(|text| text.trim().chars().count()).max().unwrap_or(0);
                used += longest as f64 * CHARACTER_WIDTH + CELL_PADDING;
                let style = ColumnStyle { is_right: side == Side::Right, is_extra: used > TABLE_WIDTH };
                Column { title: title.to_owned(), style }
            })
            .collect();
        let cell = |row: usize, (column, text): (usize, &String)| {
            let own = names.get(row).filter(|_| column == 0);
            Cell {
                text: text.trim_end().to_owned(),
                href: link::of(own.unwrap_or(text)),
                style: columns.get(column).map(|of| of.style).unwrap_or_default(),
            }
        };
        let body = grid.body().iter().enumerate();
        let body =
            body.map(|(row, cells)| cells.iter().enumerate().map(|of| cell(row, of)).collect()).collect();
        Self { columns, body }
    }

    /// The same with a column that leads elsewhere: to what these names are of, in the order of the rows. A column that there is
    /// not leads nowhere.
    pub(crate) fn leading(mut self, title: &str, names: &[String]) -> Self {
        if let Some(column) = self.columns.iter().position(|of| of.title == title) {
            for (cells, name) in self.body.iter_mut().zip(names) {
                if let Some(cell) = cells.get_mut(column) {
                    cell.href = link::of(name);
                }
            }
        }
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.body.is_empty()
    }

    /// Titles of the columns that only wide windows show, in words.
    pub(crate) fn extra(&self) -> String {
        let extra = self.columns.iter().filter(|column| column.style.is_extra);
        extra.map(|column| column.title.as_str()).collect::<Vec<_>>().join(", ")
    }
}
