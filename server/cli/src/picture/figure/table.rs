//! Facts in rows and columns.

/// Cells under a header.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in super::super) struct Table {
    /// Titles of the columns.
    pub(in super::super) head: Vec<String>,
    /// Rows of as many cells.
    pub(in super::super) rows: Vec<Vec<String>>,
    /// What is to be known about it, for people.
    pub(in super::super) notes: Vec<String>,
}
