//! Pages of lists: keyset paging by time and id, newest first.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgRow;
use sqlx::{FromRow, PgPool};

use super::Result;
use super::time::Time;

/// Later than any row: 9999-12-30.
const END_OF_TIME: Timestamp = Timestamp::MAX;

/// One page of a list, newest first.
#[derive(Debug, Clone, PartialEq)]
pub struct Page<T> {
    pub rows: Vec<T>,
    /// Where the next page starts; none on the last one.
    pub next: Option<Cursor>,
}

/// A position in a list ordered by time and id, both descending.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// Time of the last row of the page before.
    pub time: Timestamp,
    pub id: String,
}

impl Cursor {
    /// Longest id of a row: the name of a measurement.
    const MAX_ID: usize = 512;

    /// Whether a row may be there: rows are written between 1970 and the year 9000, and have ids that can be stored.
    pub fn is_of_a_row(&self) -> bool {
        const YEAR_9000: i64 = 221_845_392_000;
        (0..YEAR_9000).contains(&self.time.as_second())
            && (1..=Self::MAX_ID).contains(&self.id.len())
            && !self.id.contains(char::is_control)
    }
}

/// Which page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageRequest {
    /// Most rows, at least 1.
    pub size: u32,
    /// Where to start; none for the first page.
    pub after: Option<Cursor>,
}

impl PageRequest {
    /// A page of records. `sql` selects rows below the time `$1` and the id `$2`, newest first, at most
    /// `$3` of them. One query, whatever the page's size.
    pub(super) async fn fetch<Record>(&self, pool: &PgPool, sql: &'static str) -> Result<Page<Record>>
    where
        Record: for<'r> FromRow<'r, PgRow> + Positioned + Send + Unpin,
    {
        let rows = sqlx::query_as(sql)
            .bind(self.before_time())
            .bind(self.before_id())
            .bind(self.limit())
            .fetch_all(pool)
            .await?;
        Ok(self.page(rows))
    }

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
    pub(super) fn page<T: Positioned>(&self, mut rows: Vec<T>) -> Page<T> {
        let size = self.size.max(1) as usize;
        let more = rows.len() > size;
        rows.truncate(size);
        let next = if more { rows.last().map(Positioned::cursor) } else { None };
        Page { rows, next }
    }
}

/// A row that knows its place in its list, so that a page may end at any row.
pub trait Positioned {
    /// Its place: a page that starts after it leaves nothing out.
    fn cursor(&self) -> Cursor;
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Positioned for u32 {
        fn cursor(&self) -> Cursor {
            Cursor { time: jiff::Timestamp::UNIX_EPOCH, id: self.to_string() }
        }
    }

    #[test]
    fn the_last_page_has_no_next() {
        let request = PageRequest { size: 2, after: None };
        assert_eq!(request.page(vec![3, 2]).next, None);
        let page = request.page(vec![3, 2, 1]);
        assert_eq!(page.rows, [3, 2]);
        assert_eq!(page.next.unwrap().id, "2");
    }
}
