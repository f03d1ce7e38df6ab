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
    pub(crate) is_right: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Cell {
    pub(crate) text: String,
    pub(crate) href: Option<String>,
    pub(crate) is_right: bool,
}

impl Rows {
    /// The rows of a grid; `names` are the names of what they are of, in their order. The first cell leads there, others lead to
    /// what they name.
    pub(crate) fn of(grid: &Grid, names: &[String]) -> Self {
        let columns: Vec<Column> = grid
            .columns()
            .map(|(title, side)| Column { title: title.to_owned(), is_right: side == Side::Right })
            .collect();
        let cell = |row: usize, (column, text): (usize, &String)| {
            let own = names.get(row).filter(|_| column == 0);
            Cell {
                text: text.trim_end().to_owned(),
                href: link::of(own.unwrap_or(text)),
                is_right: columns.get(column).is_some_and(|of| of.is_right),
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
}
