//! Pages of lists: keyset paging by what rows are ordered by, then by time and id; newest first unless asked otherwise.

use jiff::Timestamp;
use loadmaster_filter::{SortKey, Value};
use loadmaster_proto::error::Invalid;
use serde::{Deserialize, Serialize};

/// Later than any row: 9999-12-30.
const END_OF_TIME: Timestamp = Timestamp::MAX;

/// One page of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Page<T> {
    pub rows: Vec<T>,
    /// What each row is ordered by, as [`Cursor::keys`]; empty for rows of a list that has only its own order.
    pub keys: Vec<Vec<Option<Value>>>,
    /// Where the next page starts; none on the last one.
    pub next: Option<Cursor>,
}

/// A position in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cursor {
    /// What the last row of the page before is ordered by, first of all; none where it is not set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<Option<Value>>,
    /// Time of the last row of the page before.
    pub time: Timestamp,
    pub id: String,
}

impl Cursor {
    /// Longest id of a row: the name of a measurement.
    const MAX_ID: usize = 512;

    /// Before the first row of a list that begins with the newest.
    pub(super) fn end_of_time() -> Self {
        Self { keys: Vec::new(), time: END_OF_TIME, id: String::new() }
    }

    /// Whether a row may be there in this order: rows are written between 1970 and the year 9000, and have ids that can be
    /// stored.
    pub fn is_of_a_row(&self, order: &[SortKey]) -> bool {
        const YEAR_9000: i64 = 221_845_392_000;
        (0..YEAR_9000).contains(&self.time.as_second())
            && (1..=Self::MAX_ID).contains(&self.id.len())
            && !self.id.contains(char::is_control)
            && self.keys.len() == order.len()
            && order.iter().zip(&self.keys).all(|(key, value)| match value {
                Some(value) => key.field.kind.admits(value),
                None => !key.field.is_always_set,
            })
    }
}

/// Which page of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct PageRequest {
    /// Most rows, at least 1.
    pub size: u32,
    /// Where to start; none for the first page.
    pub after: Option<Cursor>,
}

impl PageRequest {
    /// Rows to ask for: one more than wanted shows whether there is a next page.
    pub(super) fn limit(&self) -> i64 {
        i64::from(self.size.max(1)) + 1
    }

    /// Cuts the extra row off and notes where the next page starts.
    pub(super) fn page<T: Positioned>(&self, mut rows: Vec<(T, Vec<Option<Value>>)>) -> Page<T> {
        let size = self.size.max(1) as usize;
        let more = rows.len() > size;
        rows.truncate(size);
        let (rows, keys): (Vec<T>, Vec<_>) = rows.into_iter().unzip();
        let mut page = Page { rows, keys, next: None };
        if more {
            page.next = page.cursor(page.rows.len() - 1);
        }
        page
    }

    /// The page of all rows of a list in order.
    ///
    /// # Errors
    /// The last row of the page before is not among them.
    pub fn page_of_all<T: Positioned>(
        &self,
        mut rows: Vec<(T, Vec<Option<Value>>)>,
    ) -> Result<Page<T>, Invalid> {
        if let Some(after) = &self.after {
            let last = rows.iter().position(|(row, _)| row.cursor().id == after.id);
            let why = "belongs to a row that was deleted. Start from the first page.";
            rows.drain(..=last.ok_or_else(|| Invalid::field("page_token", why))?);
        }
        Ok(self.page(rows))
    }

    /// The same of a list that has only its own order.
    pub(super) fn page_in_order<T: Positioned>(&self, rows: Vec<T>) -> Page<T> {
        self.page(rows.into_iter().map(|row| (row, Vec::new())).collect())
    }
}

impl<T: Positioned> Page<T> {
    /// The place of a row of this page: a page that starts after it leaves nothing out.
    pub fn cursor(&self, row: usize) -> Option<Cursor> {
        let keys = self.keys.get(row).cloned().unwrap_or_default();
        self.rows.get(row).map(|row| Cursor { keys, ..row.cursor() })
    }
}

/// A row that knows when it was created, so that a page may end at any row.
pub trait Positioned {
    /// Its place among rows that are equal in what was asked for.
    fn cursor(&self) -> Cursor;
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Positioned for u32 {
        fn cursor(&self) -> Cursor {
            Cursor { keys: Vec::new(), time: jiff::Timestamp::UNIX_EPOCH, id: self.to_string() }
        }
    }

    #[test]
    fn the_last_page_has_no_next() {
        let request = PageRequest { size: 2, after: None };
        assert_eq!(request.page_in_order(vec![3, 2]).next, None);
        let page = request.page_in_order(vec![3, 2, 1]);
        assert_eq!(page.rows, [3, 2]);
        assert_eq!(page.next.unwrap().id, "2");
    }
}
