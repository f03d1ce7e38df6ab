//! Lists as statements: their rows, their order, and the row to begin with.
//!
//! A filter and an order are conditions on the columns of a table of fields (`fields`). Every value of a caller is bound, and
//! never part of a statement. Pages use keyset paging in any order. Plans are found by narrow rows that triggers maintain
//! (`plan_facts` in `migrations/0001_schema.sql`), which contain labels, trials and reports. `cargo run --release -p
//! loadmaster --example history` prints the seconds of lists with 100,000 plans. Filtered and ordered lists have connections of
//! their own (`connect`).

use loadmaster_filter::{
    Comparison, Condition, Kind, MAX_ORDERED_CHARACTERS, Query, Relation, SortKey, Test, Value,
};
use serde_json::json;
use sqlx::postgres::PgRow;
use sqlx::{FromRow, Postgres, QueryBuilder, Row};

use super::Store;
use super::columns::Time;
use super::error::{Result, too_slow};
use super::page::{Cursor, Page, PageRequest, Positioned};

/// The statement of a list, in parts. Rows have an id and a `create_time`.
#[derive(Debug)]
pub(super) struct ListSql {
    /// `SELECT …` up to the columns of a row: what they are ordered by follows.
    pub(super) select: &'static str,
    /// `FROM …`, without conditions.
    pub(super) from: &'static str,
    /// The column of ids in `from`, and in the whole.
    pub(super) id: &'static str,
    /// What is told besides of the rows of the page, where they are selected within a statement; else empty.
    pub(super) around: &'static str,
}

impl ListSql {
    /// The page that is asked for. `also` adds conditions of the list's own, each behind an `AND`. A list with a filter or an
    /// order has few connections, and little time on them: both are its caller's, and may cost anything.
    ///
    /// # Errors
    /// [`StoreError::ListTooSlow`](super::StoreError::ListTooSlow), and where the database fails.
    pub(super) async fn page<Record>(
        &self,
        store: &Store,
        query: &Query,
        request: &PageRequest,
        also: impl FnOnce(&mut QueryBuilder<Postgres>),
    ) -> Result<Page<Record>>
    where
        Record: for<'r> FromRow<'r, PgRow> + Positioned,
    {
        let mut statement = self.statement(query, request, also);
        // Plans of statements that any values fit are bad ones for most, and each filter has a statement of its own.
        let is_known = query.condition.is_none() && query.order.is_empty();
        let rows = if is_known {
            statement.build().fetch_all(&store.pool).await?
        } else {
            statement.build().persistent(false).fetch_all(&store.lists).await.map_err(too_slow)?
        };
        let placed = rows.iter().map(|row| Ok((Record::from_row(row)?, places(row, &query.order)?)));
        Ok(request.page(placed.collect::<Result<Vec<_>>>()?))
    }

    fn statement(
        &self,
        query: &Query,
        request: &PageRequest,
        also: impl FnOnce(&mut QueryBuilder<Postgres>),
    ) -> QueryBuilder<Postgres> {
        let mut sql = QueryBuilder::new(self.select);
        for (position, key) in query.order.iter().enumerate() {
            sql.push(format_args!(", {} AS key_{position}", expression(key)));
        }
        sql.push(" ").push(self.from).push(" WHERE ");
        self.push_after(&mut sql, &query.order, request);
        also(&mut sql);
        if let Some(condition) = &query.condition {
            sql.push(" AND ");
            push_condition(&mut sql, condition);
        }
        self.push_order(&mut sql, &query.order);
        sql.push(" LIMIT ").push_bind(request.limit());
        if !self.around.is_empty() {
            sql.push(self.around);
            self.push_order(&mut sql, &query.order);
        }
        sql
    }

    fn push_order(&self, sql: &mut QueryBuilder<Postgres>, order: &[SortKey]) {
        sql.push(" ORDER BY ");
        for (position, key) in order.iter().enumerate() {
            let last = if key.field.is_always_set { "" } else { " NULLS LAST" };
            sql.push(format_args!("key_{position}{}{last}, ", way(key.is_descending)));
        }
        let way = way(is_newest_first(order));
        sql.push(format_args!("create_time{way}, {}{way}", self.id));
    }

    /// What comes behind the row that the page before ended with.
    fn push_after(&self, sql: &mut QueryBuilder<Postgres>, order: &[SortKey], request: &PageRequest) {
        match &request.after {
            None if order.is_empty() => self.push_created(sql, true, &Cursor::end_of_time()),
            None => {
                sql.push("true");
            }
            Some(after) => self.push_behind(sql, order, after),
        }
    }

    /// Rows are compared as wholes where all keys go the same way and are never missing: an index knows where to begin then.
    fn push_behind(&self, sql: &mut QueryBuilder<Postgres>, order: &[SortKey], after: &Cursor) {
        let is_newest_first = is_newest_first(order);
        let is_simple =
            order.iter().all(|key| key.field.is_always_set && key.is_descending == is_newest_first);
        if is_simple && after.keys.iter().all(Option::is_some) {
            sql.push("(");
            for key in order {
                sql.push(format_args!("{}, ", expression(key)));
            }
            sql.push(format_args!("create_time, {}) {} (", self.id, sign(is_newest_first)));
            for value in after.keys.iter().flatten() {
                push_value(sql, value);
                sql.push(", ");
            }
            sql.push_bind(Time(after.time)).push(", ").push_bind(after.id.clone()).push(")");
            return;
        }
        sql.push("(");
        for (key, value) in order.iter().zip(&after.keys) {
            let column = expression(key);
            match value {
                Some(value) => {
                    sql.push(format_args!("{column} {} ", sign(key.is_descending)));
                    push_value(sql, value);
                    if !key.field.is_always_set {
                        sql.push(format_args!(" OR {column} IS NULL"));
                    }
                    sql.push(format_args!(" OR {column} = "));
                    push_value(sql, value);
                }
                None => {
                    sql.push(format_args!("{column} IS NULL"));
                }
            }
            sql.push(" AND (");
        }
        self.push_created(sql, is_newest_first, after);
        sql.push(")".repeat(order.len() + 1));
    }

    /// Rows that were created behind a position.
    fn push_created(&self, sql: &mut QueryBuilder<Postgres>, is_newest_first: bool, after: &Cursor) {
        sql.push(format_args!("(create_time, {}) {} (", self.id, sign(is_newest_first)));
        sql.push_bind(Time(after.time)).push(", ").push_bind(after.id.clone()).push(")");
    }
}

/// Rows that are equal in all that was asked for are in the order of their creation, the way that the last field goes.
fn is_newest_first(order: &[SortKey]) -> bool {
    order.last().is_none_or(|key| key.is_descending)
}

fn way(is_descending: bool) -> &'static str {
    if is_descending { " DESC" } else { "" }
}

fn sign(is_descending: bool) -> &'static str {
    if is_descending { "<" } else { ">" }
}

/// What rows are ordered by, in every database the same way.
fn expression(SortKey { field, .. }: &SortKey) -> String {
    match field.kind {
        Kind::Text | Kind::Texts | Kind::Labels => {
            format!(r#"left({}, {MAX_ORDERED_CHARACTERS}) COLLATE "C""#, field.column)
        }
        Kind::Id(_) | Kind::Word(_) => format!(r#"({}) COLLATE "C""#, field.column),
        Kind::Count | Kind::Bytes | Kind::Number | Kind::Seconds | Kind::Time | Kind::Truth => {
            field.column.to_owned()
        }
    }
}

/// Where a row is in an order.
fn places(row: &PgRow, order: &[SortKey]) -> Result<Vec<Option<Value>>> {
    let place = |(position, key): (usize, &SortKey)| {
        let column = format!("key_{position}");
        let column = column.as_str();
        Ok(match key.field.kind {
            Kind::Text | Kind::Texts | Kind::Id(_) | Kind::Word(_) | Kind::Labels => {
                row.try_get::<Option<String>, _>(column)?.map(Value::Text)
            }
            Kind::Count | Kind::Bytes => row.try_get::<Option<i64>, _>(column)?.map(Value::Integer),
            Kind::Number | Kind::Seconds => row.try_get::<Option<f64>, _>(column)?.map(Value::Real),
            Kind::Time => row.try_get::<Option<Time>, _>(column)?.map(|Time(time)| Value::Time(time)),
            Kind::Truth => row.try_get::<Option<bool>, _>(column)?.map(Value::Truth),
        })
    };
    order.iter().enumerate().map(place).collect()
}

/// True or not, never unknown to what stands around it: a comparison with what is missing is no reason for its contrary.
pub(super) fn push_condition(sql: &mut QueryBuilder<Postgres>, condition: &Condition) {
    match condition {
        Condition::All(parts) => push_all(sql, parts, " AND "),
        Condition::Any(parts) => push_all(sql, parts, " OR "),
        Condition::Not(part) => {
            sql.push("(");
            push_condition(sql, part);
            sql.push(" IS NOT TRUE)");
        }
        Condition::Test(test) => {
            sql.push("(");
            push_test(sql, test);
            sql.push(")");
        }
    }
}

fn push_all(sql: &mut QueryBuilder<Postgres>, parts: &[Condition], sign: &str) {
    sql.push("(");
    for (position, part) in parts.iter().enumerate() {
        sql.push(if position == 0 { "" } else { sign });
        push_condition(sql, part);
    }
    sql.push(")");
}

fn push_test(sql: &mut QueryBuilder<Postgres>, Test { field, key, relation }: &Test) {
    let column = field.column;
    let value = |sql: &mut QueryBuilder<Postgres>| {
        match key {
            None => sql.push(column),
            Some(key) => sql.push(format_args!("({column} ->> ")).push_bind(key.clone()).push(")"),
        };
    };
    match (relation, key) {
        // An index of labels knows what these ask.
        (Relation::Set, Some(key)) => {
            sql.push(column).push(" ? ").push_bind(key.clone());
        }
        (Relation::Is(Comparison::Equal, Value::Text(text)), Some(key)) => {
            sql.push(column).push(" @> ").push_bind(json!({ key.as_str(): text }));
        }
        (Relation::Set, None) => {
            sql.push(column).push(" IS NOT NULL");
        }
        (Relation::Is(comparison, of), _) => {
            value(sql);
            sql.push(match comparison {
                Comparison::NotEqual => " IS DISTINCT FROM ",
                other => other.sign(),
            });
            push_value(sql, of);
        }
        (Relation::StartsWith(start), _) => {
            sql.push("starts_with(");
            value(sql);
            sql.push(", ").push_bind(start.clone()).push(")");
        }
        (Relation::Contains(part), _) => {
            sql.push("strpos(");
            value(sql);
            sql.push(", ").push_bind(part.clone()).push(") > 0");
        }
        (Relation::HasEntry(entry), _) => {
            sql.push("strpos(',' || ");
            value(sql);
            sql.push(" || ',', ").push_bind(entry.clone()).push(") > 0");
        }
    }
}

fn push_value(sql: &mut QueryBuilder<Postgres>, value: &Value) {
    match value {
        Value::Text(text) => sql.push_bind(text.clone()),
        Value::Integer(number) => sql.push_bind(*number),
        Value::Real(number) => sql.push_bind(*number),
        Value::Time(time) => sql.push_bind(Time(*time)),
        Value::Truth(truth) => sql.push_bind(*truth),
    };
}
