//! Retention: of the rows that are old enough, those that only rows reference that are deleted with them.
//!
//! The largest such set is deleted. It is the complement of the rows that stay: rows that something young references, and rows that
//! these reference. A page deletes rows of one collection, the youngest first, in the statement that examined them. Collections have
//! an order in which no row references a row of an earlier collection, so all rows are free whose references were deleted before.
//!
//! The same statement notes the progress in the operation's row, and `rounds` is its fence: a page counts once, whichever planner
//! deletes it, and none is deleted after a cancellation.
//!
//! A reference that is stored at the same moment breaks its foreign key, and the page is retried. A plan's name within
//! another plan is no such key: storing that other plan moves the `asked_time` of an old plan first, which is examined again
//! under the lock. The profiles of a plan's other kinds of devices are no such keys either, as for deletions.

mod collection;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use loadmaster_filter::Condition;
use loadmaster_proto::name::OperationName;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sqlx::types::Json;
use sqlx::{FromRow, Postgres, QueryBuilder};

use super::Store;
use super::columns::{Time, document, name, unsigned};
use super::error::{Result, StoreError, retry, still_referenced};
use super::find::push_condition;
use super::idempotency::{OPERATION_KEY, once, refused};
use super::records::{Fenced, RequestKey};
use super::submit::new_id;

pub use collection::Collection;

/// Most rows that are examined in one page.
pub const MAX_PAGE: u32 = 1_000;
/// Names of each kind in a result: deleted rows, and rows that stay.
const MAX_SAMPLE: usize = 100;
/// Most purges that run at once.
pub const MAX_PURGES: i64 = 8;

/// Rows of one collection that may be deleted.
#[derive(Debug, Clone, PartialEq)]
pub struct Purgeable {
    pub collection: Collection,
    /// On its fields; none for all rows.
    pub condition: Option<Condition>,
}

/// What a purge deletes, as it was requested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurgeSettings {
    pub older_than: Duration,
    pub filter: String,
    /// Words of collections; empty for those that have the filter's fields.
    pub collections: Vec<String>,
    /// Without it nothing is deleted.
    pub force: bool,
}

/// A purge and its progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurgeRecord {
    pub settings: PurgeSettings,
    /// Rows that are old enough and match; none before they are counted.
    #[serde(default)]
    pub candidate_count: Option<u64>,
    /// Rows deleted so far.
    #[serde(default)]
    pub purge_count: u64,
    /// Rows examined so far that stay.
    #[serde(default)]
    pub referenced_count: u64,
    /// Where the next page begins; none before the first one.
    #[serde(default)]
    pub at: Option<PurgePlace>,
}

/// Where a page of a purge begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurgePlace {
    /// Word of the collection; empty behind the last one.
    pub collection: String,
    /// The row before it; none at the beginning of the collection.
    #[serde(default)]
    pub after: Option<PurgedRow>,
}

/// The last row of a page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurgedRow {
    pub create_time: Timestamp,
    pub id: String,
}

/// A row that stays, old as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReferencedRow {
    /// With its collection.
    pub name: String,
    /// Names of remaining rows that reference it, the first three.
    pub referenced_by: Vec<String>,
    /// Number of all of them.
    pub reference_count: u64,
}

/// Rows of one collection that are old enough and match the condition.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Purged {
    pub purge_count: u64,
    /// Names of the youngest of these.
    pub purge_sample: Vec<String>,
    pub referenced_count: u64,
    /// The youngest of these.
    pub referenced_sample: Vec<ReferencedRow>,
}

/// A running purge whose next page is due.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct DuePurge {
    #[sqlx(rename = "id", try_from = "super::columns::Stored<String>")]
    pub operation: OperationName,
    #[sqlx(json)]
    pub purge: PurgeRecord,
    /// Pages so far, the fence of the next one.
    #[sqlx(try_from = "i32")]
    pub rounds: u32,
}

#[derive(FromRow)]
struct OutcomeRow {
    collection: String,
    purge_count: i64,
    referenced_count: i64,
    purged: Json<Vec<String>>,
    referenced: Json<Vec<ReferencedRow>>,
}

impl PurgeRecord {
    /// Share of the candidates that were examined, 0 to 1; 0 before they are counted.
    pub fn progress(&self) -> f64 {
        let examined = self.purge_count.saturating_add(self.referenced_count);
        match self.candidate_count {
            None => 0.0,
            Some(0) => 1.0,
            Some(all) => (examined as f64 / all as f64).min(1.0),
        }
    }
}

impl OutcomeRow {
    fn purged(self) -> Result<Purged> {
        Ok(Purged {
            purge_count: unsigned(self.purge_count)?,
            purge_sample: self.purged.0,
            referenced_count: unsigned(self.referenced_count)?,
            referenced_sample: self.referenced.0,
        })
    }
}

impl Store {
    /// Stores a purge, which planners then work off. The same request key returns the first call's operation.
    ///
    /// # Errors
    /// [`StoreError::TooManyPurges`], [`StoreError::RequestIdReused`].
    pub async fn create_purge(
        &self,
        settings: PurgeSettings,
        request: Option<&RequestKey>,
    ) -> Result<OperationName> {
        let purge =
            PurgeRecord { settings, candidate_count: None, purge_count: 0, referenced_count: 0, at: None };
        let purge = document(&purge)?;
        let create = async {
            let id: Option<String> = sqlx::query_scalar(
                "INSERT INTO operations (id, purge, request_id, request_fingerprint)
                 SELECT $1, $2, $3, $4
                 WHERE (SELECT count(*) FROM operations WHERE state = 'running' AND purge IS NOT NULL) < $5
                 RETURNING id",
            )
            .bind(new_id())
            .bind(&purge)
            .bind(request.map(|request| request.id))
            .bind(request.map(|request| &request.fingerprint))
            .bind(MAX_PURGES)
            .fetch_optional(&self.pool)
            .await
            .map_err(|error| refused(error, OPERATION_KEY))?;
            name(OperationName::from_id(id.ok_or(StoreError::TooManyPurges)?))
        };
        once(|| self.find_request(request), create).await
    }

    /// The oldest running purge.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn due_purge(&self) -> Result<Option<DuePurge>> {
        let due = sqlx::query_as(
            "SELECT id, purge, rounds FROM operations
             WHERE state = 'running' AND purge IS NOT NULL AND NOT cancel_requested ORDER BY create_time, id LIMIT 1",
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(due)
    }

    /// Notes how many rows a purge is about.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn count_candidates(
        &self,
        operation: &OperationName,
        age: Duration,
        of: &[Purgeable],
    ) -> Result<()> {
        let mut sql = QueryBuilder::new("");
        push_candidates(&mut sql, age, of, None);
        sql.push(
            ") UPDATE operations SET purge = purge || jsonb_build_object('candidate_count', \
             (SELECT count(*) FROM candidate)) WHERE state = 'running' AND id = ",
        );
        sql.push_bind(operation.id().to_owned());
        sql.build().persistent(false).execute(&self.pool).await?;
        Ok(())
    }

    /// Returns which rows older than `age` a purge would delete, collection by collection. Changes nothing.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn purgeable(&self, age: Duration, of: &[Purgeable]) -> Result<BTreeMap<Collection, Purged>> {
        let mut sql = QueryBuilder::new("");
        push_references(&mut sql, age, of, None);
        push_outcome(&mut sql, "held.name IS NULL", None);
        sql.push(" SELECT * FROM outcome");
        let rows: Vec<OutcomeRow> = sql.build_query_as().persistent(false).fetch_all(&self.pool).await?;
        let mut all: BTreeMap<Collection, Purged> =
            of.iter().map(|of| (of.collection, Purged::default())).collect();
        for row in rows {
            if let Some(collection) = Collection::of_word(&row.collection) {
                all.insert(collection, row.purged()?);
            }
        }
        Ok(all)
    }

    /// Stores the result of a dry run, once.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn note_purgeable(&self, due: &DuePurge, of: &BTreeMap<Collection, Purged>) -> Result<Fenced> {
        let result: BTreeMap<&str, &Purged> = of.iter().map(|(of, purged)| (of.word(), purged)).collect();
        let sum = |count: fn(&Purged) -> u64| of.values().map(count).fold(0, u64::saturating_add);
        let progress = json!({
            "purge_count": sum(|of| of.purge_count),
            "referenced_count": sum(|of| of.referenced_count),
            "at": PurgePlace { collection: String::new(), after: None },
        });
        let noted = sqlx::query(
            "UPDATE operations SET purge = purge || $3, purge_result = $4, rounds = rounds + 1
             WHERE id = $1 AND rounds = $2 AND state = 'running'",
        )
        .bind(due.operation.id())
        .bind(i32::try_from(due.rounds).unwrap_or(i32::MAX))
        .bind(progress)
        .bind(document(&result)?)
        .execute(&self.pool)
        .await?;
        Ok(if noted.rows_affected() == 0 { Fenced::Stale } else { Fenced::Applied })
    }

    /// Deletes one page of a collection, of at most `size` rows that are examined, and notes the progress in the operation. `next`
    /// is the collection behind it. None where another planner was faster, or the operation has ended.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn purge_page(
        &self,
        due: &DuePurge,
        of: &Purgeable,
        next: Option<Collection>,
        size: u32,
    ) -> Result<Option<Purged>> {
        let age = due.purge.settings.older_than;
        let next = PurgePlace { collection: next.map_or("", Collection::word).to_owned(), after: None };
        let next = document(&next)?;
        let after = due.purge.at.as_ref().and_then(|at| at.after.as_ref());
        let row: Option<OutcomeRow> = retry(|| async {
            let mut sql = QueryBuilder::new("");
            let page = DuePage { due, after, size: size.clamp(1, MAX_PAGE) };
            push_references(&mut sql, age, std::slice::from_ref(of), Some(&page));
            sql.push(
                ", taken AS (
                    SELECT id FROM candidate WHERE NOT EXISTS (SELECT FROM held WHERE held.name = candidate.name))",
            );
            sql.push(of.collection.deletion());
            push_outcome(&mut sql, "candidate.id IN (SELECT id FROM deleted)", Some(of.collection));
            push_progress(&mut sql, of.collection, next.clone(), page.size);
            sql.push(" SELECT outcome.* FROM outcome, progressed");
            let row: Result<Option<OutcomeRow>, sqlx::Error> =
                sql.build_query_as().persistent(false).fetch_optional(&self.pool).await;
            row.map_err(still_referenced)
        })
        .await?;
        row.map(OutcomeRow::purged).transpose()
    }

    /// The result of a purge so far, by collection.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn purge_result(&self, operation: &OperationName) -> Result<BTreeMap<String, Purged>> {
        let result: Option<Json<BTreeMap<String, Purged>>> =
            sqlx::query_scalar("SELECT purge_result FROM operations WHERE id = $1")
                .bind(operation.id())
                .fetch_optional(&self.pool)
                .await?;
        Ok(result.ok_or_else(|| StoreError::not_found(operation))?.0)
    }

    /// Whether it is this planner's turn to begin work that is done once in a `period`: of several planners that ask, one gets it.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn take_turn(&self, schedule: &str, period: Duration) -> Result<bool> {
        let turn: Option<bool> = sqlx::query_scalar(
            "INSERT INTO schedules AS of (name, begin_time) VALUES ($1, now())
             ON CONFLICT (name) DO UPDATE SET begin_time = now()
             WHERE of.begin_time <= now() - make_interval(secs => $2) RETURNING true",
        )
        .bind(schedule)
        .bind(period.as_secs_f64())
        .fetch_optional(&self.pool)
        .await?;
        Ok(turn.unwrap_or(false))
    }
}

/// A page of a purge.
struct DuePage<'a> {
    due: &'a DuePurge,
    after: Option<&'a PurgedRow>,
    size: u32,
}

/// `candidate`: the rows that are old enough and match, up to its last bracket. With a page only its rows, locked, and `fence`: the
/// operation, if the page is still due.
fn push_candidates(
    sql: &mut QueryBuilder<Postgres>,
    age: Duration,
    of: &[Purgeable],
    page: Option<&DuePage<'_>>,
) {
    sql.push("WITH RECURSIVE ");
    if let Some(DuePage { due, .. }) = page {
        sql.push("fence AS MATERIALIZED (SELECT id, purge, purge_result FROM operations WHERE id = ");
        sql.push_bind(due.operation.id().to_owned());
        sql.push(" AND rounds = ").push_bind(i32::try_from(due.rounds).unwrap_or(i32::MAX));
        sql.push(" AND state = 'running' AND NOT cancel_requested FOR UPDATE SKIP LOCKED), ");
    }
    sql.push("cut AS MATERIALIZED (SELECT now() - make_interval(secs => ");
    sql.push_bind(age.as_secs_f64()).push(") AS time), candidate AS MATERIALIZED (");
    for (position, Purgeable { collection, condition }) in of.iter().enumerate() {
        let (word, table, time) = (collection.word(), collection.table(), collection.time());
        sql.push(if position == 0 { "" } else { " UNION ALL " });
        sql.push(format_args!(
            "SELECT '{word}' AS collection, '{word}/' || id AS name, id, create_time
             FROM (SELECT id, create_time FROM {table} WHERE create_time < (SELECT cut.time FROM cut)
                     AND ({time}) < (SELECT cut.time FROM cut)"
        ));
        sql.push(collection.of_its_own());
        if let Some(condition) = condition {
            sql.push(" AND ");
            push_condition(sql, condition);
        }
        if let Some(DuePage { after, size, .. }) = page {
            sql.push(" AND EXISTS (SELECT FROM fence)");
            if let Some(PurgedRow { create_time, id }) = after {
                sql.push(" AND (create_time, id) < (").push_bind(Time(*create_time));
                sql.push(", ").push_bind(id.clone()).push(")");
            }
            sql.push(" ORDER BY create_time DESC, id DESC LIMIT ").push_bind(i64::from(*size));
            sql.push(" FOR UPDATE");
        }
        sql.push(") AS found");
    }
}

/// The candidates; `reference`: which names reference which of them; `held`: those that stay.
fn push_references(
    sql: &mut QueryBuilder<Postgres>,
    age: Duration,
    of: &[Purgeable],
    page: Option<&DuePage<'_>>,
) {
    push_candidates(sql, age, of, page);
    sql.push("), reference AS MATERIALIZED (");
    for (position, Purgeable { collection, .. }) in of.iter().enumerate() {
        sql.push(if position == 0 { "" } else { " UNION ALL " });
        let word = collection.word();
        sql.push(format_args!(
            "SELECT '{word}/' || id AS name, by FROM ({}) AS of_{word}(id, by)",
            collection.references()
        ));
    }
    sql.push(
        "), held AS (
            SELECT reference.name FROM reference LEFT JOIN candidate ON candidate.name = reference.by
            WHERE candidate.name IS NULL
            UNION
            SELECT reference.name FROM held JOIN reference ON reference.by = held.name)",
    );
}

/// `outcome`: a row for each collection that has candidates, or exactly one for `only`. Names come the youngest first.
fn push_outcome(sql: &mut QueryBuilder<Postgres>, is_purged: &'static str, only: Option<Collection>) {
    let most = if only.is_some() { MAX_PAGE as usize } else { MAX_SAMPLE };
    let collection = only.map_or_else(|| "collection".to_owned(), |of| format!("'{}'", of.word()));
    let grouped = if only.is_some() { "" } else { " GROUP BY collection" };
    sql.push(format_args!(
        ", reason AS (
            SELECT reference.name, count(*) AS by_count, (array_agg(reference.by ORDER BY reference.by))[1:3] AS by
            FROM reference LEFT JOIN candidate ON candidate.name = reference.by
            LEFT JOIN held ON held.name = reference.by
            WHERE candidate.name IS NULL OR held.name IS NOT NULL GROUP BY reference.name
         ), examined AS (
            SELECT candidate.*, {is_purged} AS is_purged, coalesce(by, '{{}}') AS by, coalesce(by_count, 0) AS by_count
            FROM candidate LEFT JOIN held USING (name) LEFT JOIN reason USING (name)
         ), ranked AS (
            SELECT *, row_number() OVER (PARTITION BY collection, is_purged ORDER BY create_time DESC, id DESC) AS rank
            FROM examined
         ), outcome AS (
            SELECT {collection} AS collection, count(*) AS examined_count,
                   count(*) FILTER (WHERE is_purged) AS purge_count,
                   count(*) FILTER (WHERE NOT is_purged) AS referenced_count,
                   coalesce(jsonb_agg(name ORDER BY rank) FILTER (WHERE is_purged AND rank <= {most}), '[]') AS purged,
                   coalesce(jsonb_agg(jsonb_build_object('name', name, 'referenced_by', by, 'reference_count', by_count)
                                      ORDER BY rank)
                            FILTER (WHERE NOT is_purged AND rank <= {MAX_SAMPLE}), '[]') AS referenced,
                   (array_agg(jsonb_build_object('create_time', create_time, 'id', id) ORDER BY create_time, id))[1] AS last
            FROM ranked{grouped})"
    ));
}

/// `progressed`: the operation with what the page added.
fn push_progress(
    sql: &mut QueryBuilder<Postgres>,
    collection: Collection,
    next: serde_json::Value,
    size: u32,
) {
    let word = collection.word();
    let last = MAX_SAMPLE.saturating_sub(1);
    let sum = |field: &str| {
        format!("coalesce((purge_result #>> '{{{word},{field}}}')::bigint, 0) + outcome.{field}")
    };
    let sample = |field: &str, of: &str| {
        format!(
            "jsonb_path_query_array(coalesce(purge_result #> '{{{word},{field}}}', '[]') || outcome.{of}, '$[0 to {last}]')"
        )
    };
    sql.push(format_args!(
        ", grown AS (
            SELECT fence.id,
                   jsonb_build_object(
                       'purge_count', coalesce((purge ->> 'purge_count')::bigint, 0) + outcome.purge_count,
                       'referenced_count', coalesce((purge ->> 'referenced_count')::bigint, 0) + outcome.referenced_count,
                       'at', CASE WHEN outcome.examined_count < {size} THEN "
    ));
    sql.push_bind(next);
    sql.push(format_args!(
        "::jsonb ELSE jsonb_build_object('collection', '{word}', 'after', outcome.last) END) AS progress,
                   jsonb_build_object('{word}', jsonb_build_object(
                       'purge_count', {}, 'purge_sample', {},
                       'referenced_count', {}, 'referenced_sample', {})) AS result
            FROM fence, outcome
         ), progressed AS (
            UPDATE operations AS operation
            SET rounds = rounds + 1, purge = purge || grown.progress, purge_result = purge_result || grown.result
            FROM grown WHERE operation.id = grown.id RETURNING operation.id)",
        sum("purge_count"),
        sample("purge_sample", "purged"),
        sum("referenced_count"),
        sample("referenced_sample", "referenced"),
    ));
}
