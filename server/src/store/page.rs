//! Pages of lists: keyset paging by time and id, newest first.

use sqlx::postgres::PgRow;
use sqlx::{FromRow, PgPool};

use super::records::{Page, PageRequest, Positioned};
use super::time::Time;
use super::{Result, StoreError};

impl PageRequest {
    /// A page of records. `sql` selects rows below the time `$1` and the id `$2`, newest first, at most
    /// `$3` of them. One query, whatever the page's size.
    pub(super) async fn fetch<Row, Record>(&self, pool: &PgPool, sql: &'static str) -> Result<Page<Record>>
    where
        Row: for<'r> FromRow<'r, PgRow> + Send + Unpin,
        Record: TryFrom<Row, Error = StoreError> + Positioned,
    {
        let rows: Vec<Row> = sqlx::query_as(sql)
            .bind(self.before_time())
            .bind(self.before_id())
            .bind(self.limit())
            .fetch_all(pool)
            .await?;
        Ok(self.page(rows.into_iter().map(TryInto::try_into).collect::<Result<_>>()?))
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

/// Later than any row: 9999-12-30.
const END_OF_TIME: jiff::Timestamp = jiff::Timestamp::MAX;

#[cfg(test)]
mod tests {
    use super::super::records::Cursor;
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
