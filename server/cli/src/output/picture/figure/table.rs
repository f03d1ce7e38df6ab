//! Facts in rows and columns.

/// Cells under a header.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Table {
    /// Titles of the columns.
    pub(crate) head: Vec<String>,
    /// Rows of as many cells.
    pub(crate) rows: Vec<Vec<String>>,
    /// What is to be known about it, for people.
    pub(crate) notes: Vec<String>,
}
