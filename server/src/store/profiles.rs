//! Profiles and their measurements.

use loadmaster_filter::Query;
use loadmaster_proto::name::{ProfileName, RunName};
use sqlx::{Postgres, QueryBuilder};

use super::Store;
use super::error::{Result, StoreError};
use super::find::{ListSql, push_condition};
use super::operations::run_counts;
use super::records::{MeasurementRecord, Page, PageRequest, ProfileRecord};

/// What is selected of profiles, up to their columns.
macro_rules! selected {
    () => {
        "SELECT profiles.*, newest.operation_id, counts.*, reused.*
             FROM (SELECT id, settings, state, labels, missing, create_time, end_time"
    };
}

/// What is told besides of the profiles that were chosen, so that only their runs are counted.
macro_rules! around {
    () => {
        concat!(
            ") AS profiles
             JOIN LATERAL (
                 SELECT operations.id AS operation_id FROM operations WHERE operations.profile_id = profiles.id
                 ORDER BY operations.create_time DESC, operations.id DESC LIMIT 1) AS newest ON true
             CROSS JOIN LATERAL (",
            run_counts!("runs.profile_id = profiles.id"),
            ") AS counts
             CROSS JOIN LATERAL (
                 SELECT count(*) AS reused_runs, coalesce(sum(runs.device_seconds), 0) AS saved_device_seconds
                 FROM profile_runs JOIN runs ON runs.id = profile_runs.run_id
                 WHERE profile_runs.profile_id = profiles.id AND profile_runs.reused) AS reused"
        )
    };
}

const LIST: ListSql = ListSql { select: selected!(), from: "FROM profiles", id: "id", around: around!() };

/// What is selected of measurements with what a profile makes of them; `$measurement` is what is read of each.
macro_rules! selected_measurements {
    ($measurement:literal) => {
        concat!(
            "SELECT measurements.run_id, links.profile_id, links.layer_offset, links.held_out, ",
            $measurement,
            " AS measurement, measurements.losses, measurements.create_time"
        )
    };
}

/// Measurements of profiles, `links.profile_id`.
macro_rules! from_measurements {
    () => {
        "FROM profile_runs AS links JOIN measurements ON measurements.run_id = links.run_id"
    };
}

macro_rules! select_measurements {
    ($measurement:literal) => {
        concat!(selected_measurements!($measurement), " ", from_measurements!(), " WHERE links.profile_id = ")
    };
}

/// Where a measurement is among those of a profile, in the tables of these names.
macro_rules! place {
    ($links:literal, $measurements:literal) => {
        concat!(
            $measurements,
            ".first_layer + ",
            $links,
            ".layer_offset, ",
            $measurements,
            ".last_layer + ",
            $links,
            ".layer_offset, ",
            $measurements,
            ".micro_batch_size, ",
            $measurements,
            ".run_id, ",
            $measurements,
            ".stage_index, ",
            $measurements,
            ".shard"
        )
    };
}

/// Measurements as their runs have them, up to a condition.
macro_rules! of_runs {
    () => {
        "SELECT measurements.run_id, runs.profile_id, 0 AS layer_offset,
                coalesce(links.held_out, false) AS held_out, measurements.measurement, measurements.losses,
                measurements.create_time
         FROM measurements JOIN runs ON runs.id = measurements.run_id
         LEFT JOIN profile_runs AS links ON links.run_id = runs.id AND links.profile_id = runs.profile_id
         WHERE "
    };
}

/// Measurements in an order that was asked for. Its ids are those of their cursors.
const ORDERED: ListSql = ListSql {
    select: selected_measurements!("measurements.measurement - 'tape'"),
    from: from_measurements!(),
    id: "(measurements.run_id || '/' || measurements.stage_index || '/' || measurements.shard)",
    around: "",
};

/// The order of stages and micro-batch sizes.
const BY_STAGE: &str = concat!(" ORDER BY ", place!("links", "measurements"));

impl Store {
    /// One profile.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn get_profile(&self, name: &ProfileName) -> Result<ProfileRecord> {
        let found = sqlx::query_as(concat!(selected!(), " FROM profiles WHERE id = $1", around!()))
            .bind(name.id())
            .fetch_optional(&self.pool)
            .await?;
        found.ok_or_else(|| StoreError::not_found(name))
    }

    /// Profiles: those that are asked for, of [`fields::PROFILES`](super::fields::PROFILES).
    ///
    /// # Errors
    /// When the database fails.
    pub async fn list_profiles(&self, query: &Query, request: &PageRequest) -> Result<Page<ProfileRecord>> {
        LIST.page(self, query, request, |_| {}).await
    }

    /// Measurements of a profile that are asked for, of [`fields::MEASUREMENTS`](super::fields::MEASUREMENTS), in order of stage
    /// and micro-batch size unless asked otherwise; reused ones as if they had been made for it. Without tapes, which are as long
    /// as all the rest together.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when there is no such profile, or the cursor is not of this list.
    pub async fn list_measurements(
        &self,
        profile: &ProfileName,
        query: &Query,
        request: &PageRequest,
    ) -> Result<Page<MeasurementRecord>> {
        if let Some(imported) = self.imported_measurements(profile).await? {
            return imported_page(imported, query, request);
        }
        let page = if query.order.is_empty() {
            self.measurements_by_stage(profile, query, request).await?
        } else {
            let of_profile = |sql: &mut QueryBuilder<Postgres>| {
                sql.push(" AND links.profile_id = ").push_bind(profile.id().to_owned());
            };
            ORDERED.page(self, query, request, of_profile).await?
        };
        if page.rows.is_empty() {
            self.get_profile(profile).await?;
        }
        Ok(page)
    }

    async fn measurements_by_stage(
        &self,
        profile: &ProfileName,
        query: &Query,
        request: &PageRequest,
    ) -> Result<Page<MeasurementRecord>> {
        let mut sql = QueryBuilder::new(select_measurements!("measurements.measurement - 'tape'"));
        sql.push_bind(profile.id().to_owned());
        // Measurements of a profile are not deleted before it, so the last row of the page before says where to go on.
        if let Some(after) = &request.after {
            let (run, stage_index, shard) = position(&after.id)
                .ok_or_else(|| StoreError::not_found(format!("measurement {:?}", after.id)))?;
            sql.push(concat!(
                " AND (",
                place!("links", "measurements"),
                ") > (SELECT ",
                place!("of", "last")
            ));
            sql.push(" FROM profile_runs AS of JOIN measurements AS last ON last.run_id = of.run_id WHERE of.profile_id = ");
            sql.push_bind(profile.id().to_owned()).push(" AND of.run_id = ").push_bind(run);
            sql.push(" AND last.stage_index = ")
                .push_bind(stage_index)
                .push(" AND last.shard = ")
                .push_bind(shard)
                .push(")");
        }
        if let Some(condition) = &query.condition {
            sql.push(" AND ");
            push_condition(&mut sql, condition);
        }
        sql.push(BY_STAGE).push(" LIMIT ").push_bind(request.limit());
        let is_known = query.condition.is_none();
        let records: Vec<MeasurementRecord> =
            sql.build_query_as().persistent(is_known).fetch_all(&self.pool).await?;
        Ok(request.page_in_order(records))
    }

    /// All measurements of a profile, in order of stage and micro-batch size; reused ones as if they had
    /// been made for it.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn profile_measurements(&self, profile: &ProfileName) -> Result<Vec<MeasurementRecord>> {
        if let Some(imported) = self.imported_measurements(profile).await? {
            return Ok(imported);
        }
        let records = sqlx::query_as(concat!(
            select_measurements!("measurements.measurement"),
            "$1 ORDER BY ",
            place!("links", "measurements")
        ))
        .bind(profile.id())
        .fetch_all(&self.pool)
        .await?;
        Ok(records)
    }

    /// What a run yielded, one per stage and device of it.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn run_measurements(&self, run: &RunName) -> Result<Vec<MeasurementRecord>> {
        self.measurements_of(&[run]).await
    }

    /// What these runs yielded, one per stage and device, those of a run in order.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn measurements_of(&self, runs: &[&RunName]) -> Result<Vec<MeasurementRecord>> {
        let ids: Vec<&str> = runs.iter().map(|run| run.id()).collect();
        let records = sqlx::query_as(concat!(
            of_runs!(),
            "measurements.run_id = ANY ($1)
             ORDER BY measurements.run_id, measurements.stage_index, measurements.shard"
        ))
        .bind(ids)
        .fetch_all(&self.pool)
        .await?;
        Ok(records)
    }

    /// One measurement: the stage of this index of a run, on the device of this index within the stage.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], also for a run of an imported profile, which only its document contains.
    pub async fn get_measurement(
        &self,
        run: &RunName,
        stage_index: u32,
        shard: u32,
    ) -> Result<MeasurementRecord> {
        let found = sqlx::query_as(concat!(
            of_runs!(),
            "measurements.run_id = $1 AND measurements.stage_index = $2 AND measurements.shard = $3"
        ))
        .bind(run.id())
        .bind(i32::try_from(stage_index).unwrap_or(i32::MAX))
        .bind(i32::try_from(shard).unwrap_or(i32::MAX))
        .fetch_optional(&self.pool)
        .await?;
        found.ok_or_else(|| StoreError::not_found(format!("{run}/measurements/{stage_index}-{shard}")))
    }
}

/// A page of measurements that are at hand: what a document says is read whole, and its order is that of the document unless
/// another one is asked for. None of them changes, so the last row of the page before says where to go on in any order.
fn imported_page(
    mut rows: Vec<MeasurementRecord>,
    query: &Query,
    request: &PageRequest,
) -> Result<Page<MeasurementRecord>> {
    if let Some(condition) = &query.condition {
        rows.retain(|record| condition.holds(&|field, _| record.value(field.name)));
    }
    let rows = query.sorted(rows, |record, field| record.value(field.name));
    request
        .page_of_all(rows)
        .map_err(|_| StoreError::not_found(format!("measurement after {:?}", request.after)))
}

/// Run, stage and shard of a cursor.
fn position(id: &str) -> Option<(String, i32, i32)> {
    let (rest, shard) = id.rsplit_once('/')?;
    let (run, stage_index) = rest.rsplit_once('/')?;
    Some((run.to_owned(), stage_index.parse().ok()?, shard.parse().ok()?))
}
