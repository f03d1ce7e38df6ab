//! Pages of lists: keyset paging by time and id, newest first.

use super::records::{Cursor, Page, PageRequest};
use super::time::Time;

impl PageRequest {
    /// Rows to ask for: one more than wanted shows whether there is a next page.
    pub(super) fn limit(&self) -> i64 {
        i64::from(self.size.max(1)) + 1
    }

    /// Time to start below. The end of time starts at the first row.
    pub(super) fn before_time(&self) -> Time {
        Time(self.after.as_ref().map_or(END_OF_TIME, |cursor| cursor.time))
    }

    /// Id to start below.
    pub(super) fn before_id(&self) -> &str {
        self.after.as_ref().map_or("", |cursor| &cursor.id)
    }

    /// Cuts the extra row off and notes where the next page starts.
    pub(super) fn page<T>(&self, mut rows: Vec<T>, cursor: impl Fn(&T) -> Cursor) -> Page<T> {
        let size = self.size.max(1) as usize;
        let more = rows.len() > size;
        rows.truncate(size);
        let next = if more { rows.last().map(cursor) } else { None };
        Page { rows, next }
    }
}

/// Later than any row: 9999-12-30.
const END_OF_TIME: jiff::Timestamp = jiff::Timestamp::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    fn cursor(id: &u32) -> Cursor {
        Cursor { time: jiff::Timestamp::UNIX_EPOCH, id: id.to_string() }
    }

    #[test]
    fn the_last_page_has_no_next() {
        let request = PageRequest { size: 2, after: None };
        assert_eq!(request.page(vec![3, 2], cursor).next, None);
        let page = request.page(vec![3, 2, 1], cursor);
        assert_eq!(page.rows, [3, 2]);
        assert_eq!(page.next.unwrap().id, "2");
    }
}
