//! Pages of lists.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// One page of a list, newest first.
#[derive(Debug, Clone, PartialEq)]
pub struct Page<T> {
    /// The rows.
    pub rows: Vec<T>,
    /// Where the next page starts; none on the last one.
    pub next: Option<Cursor>,
}

/// A position in a list ordered by time and id, both descending.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// Time of the last row of the page before.
    pub time: Timestamp,
    /// Its id.
    pub id: String,
}

/// Which page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageRequest {
    /// Most rows, at least 1.
    pub size: u32,
    /// Where to start; none for the first page.
    pub after: Option<Cursor>,
}
