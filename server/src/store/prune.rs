//! Retention: of the rows that are old enough, those that nothing refers to but rows that go with them.
//!
//! Taken is the largest such set, so it is found from what stays: rows that something young refers to, and rows that these refer
//! to. A page deletes one collection's rows in the statement that looked at them, the youngest first, and collections come in an
//! order in which nothing refers to an earlier one's rows; what was referred to only by rows that are taken is free by then.
//!
//! What begins to refer to a row at the same moment breaks its foreign key, and the page is tried again. A plan's name within
//! another plan is no such key: whoever stores that other one moves the `asked_time` of an old plan first, which is looked at again
//! under the lock. The profiles of a plan's other kinds of devices are no such keys either, as for deletions.

use std::time::Duration;

use loadmaster_filter::{Condition, Field};
use sqlx::{FromRow, Postgres, QueryBuilder};

use super::Store;
use super::columns::{Time, unsigned};
use super::delete::{plans_deleted, profiles_deleted};
use super::error::{Result, StoreError, retry};
use super::fields;
use super::find::push_condition;
use super::page::{Cursor, PageRequest};

/// Rows of a collection that an answer names, of those that are taken, and looks at in one page.
pub const MOST_TAKEN: u32 = 1_000;
/// Rows of a collection that an answer names with what keeps them.
const MOST_KEPT: usize = 100;

/// Things that are pruned, in the order in which they refer to each other: what refers comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Collection {
    Plans,
    Profiles,
    Workers,
    Runs,
    Operations,
    Models,
}

impl Collection {
    /// All of them, in their order.
    pub const ALL: [Self; 6] =
        [Self::Plans, Self::Profiles, Self::Workers, Self::Runs, Self::Operations, Self::Models];

    /// As in the names of its rows.
    pub fn word(self) -> &'static str {
        match self {
            Self::Plans => "plans",
            Self::Profiles => "profiles",
            Self::Workers => "workers",
            Self::Runs => "runs",
            Self::Operations => "operations",
            Self::Models => "models",
        }
    }

    /// What its rows are found by.
    pub fn fields(self) -> &'static [Field] {
        match self {
            Self::Plans => fields::PLANS,
            Self::Profiles => fields::PROFILES,
            Self::Workers => fields::WORKERS,
            Self::Runs => fields::RUNS,
            Self::Operations => fields::OPERATIONS,
            Self::Models => fields::MODELS,
        }
    }

    /// The table that the fields are columns of.
    fn table(self) -> &'static str {
        match self {
            Self::Plans => "plan_facts",
            Self::Profiles => "profiles",
            Self::Workers => "workers",
            Self::Runs => "runs",
            Self::Operations => "operations",
            Self::Models => "models",
        }
    }

    /// The time that a row's age counts from, behind its creation; none while it has not ended.
    fn time(self) -> &'static str {
        match self {
            Self::Plans => "asked_time",
            Self::Profiles => "CASE WHEN state <> 'running' THEN coalesce(end_time, create_time) END",
            Self::Workers => "CASE WHEN state IN ('lost', 'gone') THEN heartbeat_time END",
            Self::Runs => "end_time",
            Self::Operations => "CASE WHEN state <> 'running' THEN end_time END",
            Self::Models => "create_time",
        }
    }

    /// Which rows of the table are looked at: trials that measured something stay with their plan, which stays for them.
    fn of_its_own(self) -> &'static str {
        match self {
            Self::Runs => " AND (plan_id IS NULL OR state IN ('failed', 'cancelled'))",
            Self::Plans | Self::Profiles | Self::Workers | Self::Operations | Self::Models => "",
        }
    }

    /// What refers to its rows: the row's id, and the name of what refers to it. `candidate` has the rows, `cut.time` is the end
    /// of what is old.
    fn references(self) -> &'static str {
        match self {
            Self::Plans => {
                "SELECT candidate.id, 'plans/' || plans.id FROM candidate
                   JOIN plans ON plans.names @> ARRAY[candidate.id] WHERE collection = 'plans'
                 UNION ALL
                 SELECT candidate.id, 'plans/' || plan_id || '/observations/' || observations.id FROM candidate
                   JOIN observations ON plan_id = candidate.id WHERE collection = 'plans'
                 UNION ALL
                 SELECT candidate.id, 'runs/' || runs.id FROM candidate
                   JOIN runs ON plan_id = candidate.id AND state NOT IN ('failed', 'cancelled') WHERE collection = 'plans'
                 UNION ALL
                 SELECT candidate.id, 'operations/' || operations.id FROM candidate
                   JOIN operations ON plan_id = candidate.id AND state = 'running' WHERE collection = 'plans'
                 UNION ALL
                 SELECT candidate.id, 'bindings/' || bindings.id FROM candidate
                   JOIN bindings ON plan_id = candidate.id
                   JOIN cut ON bindings.create_time >= cut.time WHERE collection = 'plans'"
            }
            Self::Profiles => {
                "SELECT candidate.id, 'plans/' || plans.id FROM candidate
                   JOIN plans ON profile_id = candidate.id WHERE collection = 'profiles'
                 UNION ALL
                 SELECT candidate.id, 'plans/' || plans.id FROM candidate
                   JOIN plans ON other_profiles @> ARRAY[candidate.id] WHERE collection = 'profiles'
                 UNION ALL
                 SELECT candidate.id, 'operations/' || operations.id FROM candidate
                   JOIN operations ON profile_id = candidate.id AND state = 'running' WHERE collection = 'profiles'"
            }
            // What it was heard of last is younger than what was measured of its links.
            Self::Workers => {
                "SELECT candidate.id, 'runs/' || runs.id FROM candidate
                   JOIN runs ON worker_id = candidate.id AND state = 'running' WHERE collection = 'workers'
                 UNION ALL
                 SELECT candidate.id, 'runs/' || runs.id FROM candidate
                   JOIN runs ON only_worker_id = candidate.id AND state = 'queued' WHERE collection = 'workers'"
            }
            Self::Runs => {
                "SELECT candidate.id, 'profiles/' || profile_runs.profile_id FROM candidate
                   JOIN profile_runs ON run_id = candidate.id WHERE collection = 'runs'
                 UNION
                 SELECT candidate.id, 'profiles/' || profile_id FROM candidate
                   JOIN runs ON runs.id = candidate.id AND profile_id IS NOT NULL WHERE collection = 'runs'
                 UNION ALL
                 SELECT candidate.id, 'plans/' || plan_id FROM candidate
                   JOIN runs ON runs.id = candidate.id AND plan_id IS NOT NULL WHERE collection = 'runs'
                 UNION ALL
                 SELECT candidate.id, 'runs/' || runs.id FROM candidate
                   JOIN runs ON shrunk_from = candidate.id WHERE collection = 'runs'
                 UNION ALL
                 SELECT candidate.id, 'workers/' || worker_id FROM candidate
                   JOIN link_measurements ON run_id = candidate.id WHERE collection = 'runs'"
            }
            Self::Operations => {
                "SELECT candidate.id, 'runs/' || runs.id FROM candidate
                   JOIN runs ON operation_id = candidate.id WHERE collection = 'operations'
                 UNION ALL
                 SELECT candidate.id, coalesce('profiles/' || profile_id, 'plans/' || plan_id) FROM candidate
                   JOIN operations ON operations.id = candidate.id AND num_nonnulls(profile_id, plan_id) > 0
                   WHERE collection = 'operations'"
            }
            Self::Models => {
                "SELECT candidate.id, 'profiles/' || profiles.id FROM candidate
                   JOIN profiles ON model_id = candidate.id WHERE collection = 'models'
                 UNION ALL
                 SELECT candidate.id, 'plans/' || plans.id FROM candidate
                   JOIN plans ON model_id = candidate.id WHERE collection = 'models'
                 UNION ALL
                 SELECT candidate.id, 'runs/' || runs.id FROM candidate
                   JOIN runs ON model_id = candidate.id WHERE collection = 'models'"
            }
        }
    }

    /// Deletes the rows in `taken` with what is theirs alone; `deleted` are their ids.
    fn deletion(self) -> &'static str {
        match self {
            Self::Plans => concat!(", ", plans_deleted!()),
            Self::Profiles => concat!(", ", profiles_deleted!()),
            Self::Workers => {
                ", unlinked AS (
                     DELETE FROM link_measurements USING taken WHERE worker_id = taken.id
                 ), deleted AS (
                     DELETE FROM workers USING taken WHERE workers.id = taken.id RETURNING workers.id
                 )"
            }
            Self::Runs => {
                ", unmeasured AS (
                     DELETE FROM measurements USING taken WHERE measurements.run_id = taken.id
                 ), deleted AS (
                     DELETE FROM runs USING taken WHERE runs.id = taken.id RETURNING runs.id
                 )"
            }
            Self::Operations => {
                ", deleted AS (
                     DELETE FROM operations USING taken WHERE operations.id = taken.id RETURNING operations.id
                 )"
            }
            Self::Models => {
                ", deleted AS (
                     DELETE FROM models USING taken WHERE models.id = taken.id RETURNING models.id
                 )"
            }
        }
    }
}

/// What may be taken of one collection.
#[derive(Debug, Clone, PartialEq)]
pub struct Prunable {
    pub collection: Collection,
    /// Of its fields; none for all rows.
    pub condition: Option<Condition>,
}

/// A row that stays, old as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptRow {
    /// With its collection.
    pub name: String,
    /// Names of what stays and refers to it, the first of them.
    pub by: Vec<String>,
    /// How many they are.
    pub count: u64,
}

/// What became of one collection's rows that are old enough and fit the condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pruned {
    pub collection: Collection,
    pub taken_count: u64,
    pub kept_count: u64,
    /// Names, the youngest [`MOST_TAKEN`].
    pub taken: Vec<String>,
    /// The youngest [`MOST_KEPT`].
    pub kept: Vec<KeptRow>,
}

#[derive(FromRow)]
struct LookedRow {
    id: String,
    create_time: Time,
    is_taken: bool,
    by: Option<Vec<String>>,
    by_count: Option<i64>,
    of_all: i64,
    collection: String,
}

impl Store {
    /// What would be taken and kept of rows older than `age`. Changes nothing.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn prunable(&self, age: Duration, of: &[Prunable]) -> Result<Vec<Pruned>> {
        let mut sql = QueryBuilder::new("");
        push_look(&mut sql, age, of, None);
        push_answer(&mut sql, "held.name IS NULL");
        let rows: Vec<LookedRow> = sql.build_query_as().persistent(false).fetch_all(&self.pool).await?;
        of.iter().map(|of| pruned(of.collection, &rows)).collect()
    }

    /// Takes rows older than `age`, looking at one page of them in order; what became of these, and where the next page starts.
    /// The id of a cursor is a name.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn prune(
        &self,
        age: Duration,
        of: &[Prunable],
        request: &PageRequest,
    ) -> Result<(Vec<Pruned>, Option<Cursor>)> {
        let mut left = request.size.clamp(1, MOST_TAKEN);
        let mut all = Vec::new();
        for of in of {
            let word = of.collection.word();
            let after = match &request.after {
                None => None,
                Some(after) => match after.id.split_once('/') {
                    Some((reached, id)) if reached == word => Some((after, id)),
                    // A collection that earlier pages went through.
                    Some((reached, _)) if is_behind(reached, of.collection) => continue,
                    _ => None,
                },
            };
            let rows = retry(|| self.take(age, of, after, left)).await?;
            let became = pruned(of.collection, &rows)?;
            if became.taken_count > 0 {
                tracing::info!(
                    collection = word,
                    taken = became.taken_count,
                    kept = became.kept_count,
                    "history pruned"
                );
            }
            all.push(became);
            left -= u32::try_from(rows.len()).unwrap_or(left).min(left);
            if left == 0 {
                let last = rows.last().map(|row| Cursor {
                    keys: Vec::new(),
                    time: row.create_time.0,
                    id: format!("{word}/{}", row.id),
                });
                return Ok((all, last));
            }
        }
        Ok((all, None))
    }

    async fn take(
        &self,
        age: Duration,
        of: &Prunable,
        after: Option<(&Cursor, &str)>,
        size: u32,
    ) -> Result<Vec<LookedRow>> {
        let mut sql = QueryBuilder::new("");
        push_look(&mut sql, age, std::slice::from_ref(of), Some((after, size)));
        sql.push(
            ", taken AS (
                SELECT id FROM candidate WHERE NOT EXISTS (SELECT FROM held WHERE held.name = candidate.name))",
        );
        sql.push(of.collection.deletion());
        push_answer(&mut sql, "candidate.id IN (SELECT id FROM deleted)");
        let rows: Result<Vec<LookedRow>, sqlx::Error> =
            sql.build_query_as().persistent(false).fetch_all(&self.pool).await;
        rows.map_err(|error| match &error {
            // Something began to refer to one of them at the same moment: the next look sees it.
            sqlx::Error::Database(database) if database.is_foreign_key_violation() => StoreError::Conflict,
            _ => error.into(),
        })
    }

    /// Whether it is this planner's turn to do what is done once in a `period`: of several that ask, one is told so.
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

/// Whether a walk that has reached a collection is behind this one.
fn is_behind(reached: &str, this: Collection) -> bool {
    Collection::ALL.iter().any(|of| of.word() == reached && *of > this)
}

/// `candidate`: the rows that are old enough and fit; `reference`: what refers to which of them, by names; `held`: those that stay.
/// With a page only its rows, locked.
fn push_look(
    sql: &mut QueryBuilder<Postgres>,
    age: Duration,
    of: &[Prunable],
    page: Option<(Option<(&Cursor, &str)>, u32)>,
) {
    sql.push("WITH RECURSIVE cut AS MATERIALIZED (SELECT now() - make_interval(secs => ");
    sql.push_bind(age.as_secs_f64()).push(") AS time), candidate AS MATERIALIZED (");
    for (position, Prunable { collection, condition }) in of.iter().enumerate() {
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
        if let Some((after, size)) = &page {
            if let Some((Cursor { time, .. }, id)) = after {
                sql.push(" AND (create_time, id) < (").push_bind(Time(*time));
                sql.push(", ").push_bind((*id).to_owned()).push(")");
            }
            sql.push(" ORDER BY create_time DESC, id DESC LIMIT ").push_bind(i64::from(*size));
            sql.push(" FOR UPDATE");
        }
        sql.push(") AS found");
    }
    sql.push("), reference AS MATERIALIZED (");
    for (position, Prunable { collection, .. }) in of.iter().enumerate() {
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

/// Each row with what keeps it, the youngest first, as many of each kind as are told.
fn push_answer(sql: &mut QueryBuilder<Postgres>, is_taken: &'static str) {
    sql.push(format_args!(
        ", reason AS (
            SELECT reference.name, count(*) AS by_count, (array_agg(reference.by ORDER BY reference.by))[1:3] AS by
            FROM reference LEFT JOIN candidate ON candidate.name = reference.by
            LEFT JOIN held ON held.name = reference.by
            WHERE candidate.name IS NULL OR held.name IS NOT NULL GROUP BY reference.name
         ), looked AS (
            SELECT candidate.*, {is_taken} AS is_taken, by, by_count
            FROM candidate LEFT JOIN held USING (name) LEFT JOIN reason USING (name)
         ), ranked AS (
            SELECT *, count(*) OVER kind AS of_all,
                   row_number() OVER (kind ORDER BY create_time DESC, id DESC) AS rank
            FROM looked WINDOW kind AS (PARTITION BY collection, is_taken))
         SELECT collection, id, create_time, is_taken, by, by_count, of_all FROM ranked WHERE rank <= {MOST_TAKEN}
         ORDER BY create_time DESC, id DESC"
    ));
}

fn pruned(collection: Collection, rows: &[LookedRow]) -> Result<Pruned> {
    let word = collection.word();
    let of =
        |is_taken: bool| rows.iter().filter(move |row| row.collection == word && row.is_taken == is_taken);
    let count = |is_taken| of(is_taken).next().map_or(Ok(0), |row| unsigned(row.of_all));
    let kept = of(false).take(MOST_KEPT).map(|row| {
        Ok(KeptRow {
            name: format!("{word}/{}", row.id),
            by: row.by.clone().unwrap_or_default(),
            count: unsigned(row.by_count.unwrap_or(0))?,
        })
    });
    Ok(Pruned {
        collection,
        taken_count: count(true)?,
        kept_count: count(false)?,
        taken: of(true).map(|row| format!("{word}/{}", row.id)).collect(),
        kept: kept.collect::<Result<_>>()?,
    })
}
