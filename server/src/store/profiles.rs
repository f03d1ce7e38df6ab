//! Profiles and their measurements.

use loadmaster_proto::measurement::Measurement;
use loadmaster_proto::name::{ModelName, OperationName, ProfileName, RunName};
use loadmaster_proto::training::TrainingSpec;
use sqlx::FromRow;
use sqlx::types::Json;

use super::Store;
use super::error::{Result, StoreError};
use super::operations::{CountRow, run_counts};
use super::records::{
    Campaign, Cursor, MeasurementRecord, Page, PageRequest, ProfileRecord, ProfileSettings, ProfileState,
};
use super::runs::{name, unsigned};
use super::states::Word;
use super::time::Time;

/// `$profiles` is the part that chooses the rows, so that only their runs are counted.
macro_rules! select_profiles {
    ($profiles:literal) => {
        concat!(
            "SELECT profiles.*, operations.id AS operation_id, counts.*
             FROM (SELECT id, model_id, training, campaign, devices, micro_batch_sizes, device_kind, state,
                          missing, create_time, end_time FROM profiles ",
            $profiles,
            ") AS profiles
             JOIN operations ON operations.profile_id = profiles.id
             CROSS JOIN LATERAL (",
            run_counts!(),
            ") AS counts
             ORDER BY profiles.create_time DESC, profiles.id DESC"
        )
    };
}

#[derive(FromRow)]
struct ProfileRow {
    id: String,
    model_id: String,
    training: Json<TrainingSpec>,
    campaign: String,
    devices: i32,
    micro_batch_sizes: Vec<i32>,
    device_kind: String,
    state: String,
    missing: Vec<String>,
    create_time: Time,
    end_time: Option<Time>,
    operation_id: String,
    #[sqlx(flatten)]
    counts: CountRow,
}

impl TryFrom<ProfileRow> for ProfileRecord {
    type Error = StoreError;

    fn try_from(row: ProfileRow) -> Result<Self> {
        let ProfileRow {
            id,
            model_id,
            training,
            campaign,
            devices,
            micro_batch_sizes,
            device_kind,
            state,
            missing,
            create_time,
            end_time,
            operation_id,
            counts,
        } = row;
        Ok(Self {
            settings: ProfileSettings {
                name: name(ProfileName::from_id(id))?,
                model: name(ModelName::from_id(model_id))?,
                training: training.0,
                campaign: Campaign::from_sql(&campaign)?,
                devices: unsigned(devices)?,
                micro_batch_sizes: micro_batch_sizes.into_iter().map(unsigned).collect::<Result<_>>()?,
                device_kind,
            },
            state: ProfileState::from_sql(&state)?,
            missing,
            device_seconds: counts.device_seconds,
            runs: counts.by_state()?,
            operation: name(OperationName::from_id(operation_id))?,
            create_time: create_time.0,
            end_time: end_time.map(|time| time.0),
        })
    }
}

#[derive(FromRow)]
struct MeasurementRow {
    run_id: String,
    profile_id: Option<String>,
    measurement: Json<Measurement>,
    losses: Vec<f64>,
    create_time: Time,
}

impl TryFrom<MeasurementRow> for MeasurementRecord {
    type Error = StoreError;

    fn try_from(row: MeasurementRow) -> Result<Self> {
        let MeasurementRow { run_id, profile_id, measurement, losses, create_time } = row;
        Ok(Self {
            run: name(RunName::from_id(run_id))?,
            profile: profile_id.map(|id| name(ProfileName::from_id(id))).transpose()?,
            measurement: Measurement { losses, ..measurement.0 },
            time: create_time.0,
        })
    }
}

impl Store {
    /// One profile.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn get_profile(&self, name: &ProfileName) -> Result<ProfileRecord> {
        let row: Option<ProfileRow> = sqlx::query_as(select_profiles!("WHERE id = $1"))
            .bind(name.id())
            .fetch_optional(&self.pool)
            .await?;
        row.ok_or_else(|| StoreError::not_found(name))?.try_into()
    }

    /// Profiles, newest first.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn list_profiles(&self, request: &PageRequest) -> Result<Page<ProfileRecord>> {
        const SQL: &str = select_profiles!(
            "WHERE (create_time, id) < ($1, $2) ORDER BY create_time DESC, id DESC LIMIT $3"
        );
        let cursor = |record: &ProfileRecord| Cursor {
            time: record.create_time,
            id: record.settings.name.id().to_owned(),
        };
        request.fetch::<ProfileRow, _>(&self.pool, SQL, cursor).await
    }

    /// Measurements of a profile, in order of stage and micro-batch size.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when there is no such profile, or the cursor is not of this list.
    pub async fn list_measurements(
        &self,
        profile: &ProfileName,
        request: &PageRequest,
    ) -> Result<Page<MeasurementRecord>> {
        // Measurements are never deleted, so the last row of the page before says where to go on.
        let (run, stage_index) = match &request.after {
            None => (None, None),
            Some(cursor) => {
                let position = cursor
                    .id
                    .rsplit_once('/')
                    .and_then(|(run, stage_index)| Some((run.to_owned(), stage_index.parse::<i32>().ok()?)));
                let (run, stage_index) =
                    position.ok_or_else(|| StoreError::not_found(format!("measurement {:?}", cursor.id)))?;
                (Some(run), Some(stage_index))
            }
        };
        let rows: Vec<MeasurementRow> = sqlx::query_as(
            "SELECT run_id, profile_id, measurement, losses, create_time FROM measurements
             WHERE profile_id = $1
               AND ($2::text IS NULL OR (first_layer, last_layer, micro_batch_size, run_id, stage_index) > (
                       SELECT first_layer, last_layer, micro_batch_size, run_id, stage_index
                       FROM measurements WHERE run_id = $2 AND stage_index = $3))
             ORDER BY first_layer, last_layer, micro_batch_size, run_id, stage_index LIMIT $4",
        )
        .bind(profile.id())
        .bind(run)
        .bind(stage_index)
        .bind(request.limit())
        .fetch_all(&self.pool)
        .await?;
        if rows.is_empty() {
            self.get_profile(profile).await?;
        }
        let records = rows.into_iter().map(TryInto::try_into).collect::<Result<Vec<MeasurementRecord>>>()?;
        Ok(request.page(records, |record| Cursor {
            time: record.time,
            id: format!("{}/{}", record.run.id(), record.measurement.stage_index),
        }))
    }

    /// All measurements of a profile, in order of stage and micro-batch size.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn profile_measurements(&self, profile: &ProfileName) -> Result<Vec<Measurement>> {
        let rows: Vec<MeasurementRow> = sqlx::query_as(
            "SELECT run_id, profile_id, measurement, losses, create_time FROM measurements
             WHERE profile_id = $1
             ORDER BY first_layer, last_layer, micro_batch_size, run_id, stage_index",
        )
        .bind(profile.id())
        .fetch_all(&self.pool)
        .await?;
        rows.into_iter()
            .map(|row| MeasurementRecord::try_from(row).map(|record| record.measurement))
            .collect()
    }

    /// What a run yielded, one per stage.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn run_measurements(&self, run: &RunName) -> Result<Vec<MeasurementRecord>> {
        let rows: Vec<MeasurementRow> = sqlx::query_as(
            "SELECT run_id, profile_id, measurement, losses, create_time FROM measurements
             WHERE run_id = $1 ORDER BY stage_index",
        )
        .bind(run.id())
        .fetch_all(&self.pool)
        .await?;
        rows.into_iter().map(TryInto::try_into).collect()
    }
}
