//! Plans.

use std::collections::BTreeMap;

use loadmaster_filter::Query;
use loadmaster_proto::name::{ModelName, PlanName, ProfileName, RunName};
use loadmaster_proto::plan::Plan;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{FromRow, Postgres, QueryBuilder};

use super::Store;
use super::columns::{Time, name, unsigned};
use super::error::{Result, StoreError};
use super::find::ListSql;
use super::records::{
    FigureRow, NewestReport, NewestTrial, Page, PageRequest, PlanRecord, PlanRow, PlanSummary, TrainedSummary,
};
use super::trials::figures_of_run;

/// All that a page shows, in one query: what the database keeps of each plan for lists, and what became of its trials,
/// of all of its stages.
/// `contended` and `oversubscribed` are false where nothing was measured.
const LIST: ListSql = ListSql {
    select: "SELECT page.*, plans.profile_id, plans.model_id, plans.summary, naming.*, trials.*, observed.*, runs.id AS run_id, figures.*
     FROM (SELECT id, labels, create_time, reported_seconds, reported_kind",
    from: "FROM plan_facts",
    id: "id",
    around: concat!(
        ") AS page JOIN plans ON plans.id = page.id
     CROSS JOIN LATERAL (
         SELECT count(*) FILTER (WHERE end_time IS NOT NULL) AS ended,
                count(*) FILTER (WHERE state = 'succeeded') AS succeeded
         FROM runs AS of_plan WHERE of_plan.plan_id = page.id AND NOT of_plan.work ? 'solo') AS trials
     CROSS JOIN LATERAL (
         SELECT count(*) AS reports FROM reports AS of_plan WHERE of_plan.plan_id = page.id) AS observed
     CROSS JOIN LATERAL (
         SELECT (SELECT of_plan.id FROM plans AS of_plan WHERE of_plan.names @> ARRAY[page.id]
                 ORDER BY of_plan.create_time DESC, of_plan.id DESC LIMIT 1) AS alternative_of) AS naming
     CROSS JOIN LATERAL (
         SELECT (SELECT of_plan.id FROM runs AS of_plan WHERE of_plan.plan_id = page.id AND state = 'succeeded'
                   AND NOT of_plan.work ? 'solo'
                 ORDER BY of_plan.create_time DESC, of_plan.id DESC LIMIT 1) AS id) AS runs ",
        figures_of_run!()
    ),
};

#[derive(FromRow)]
struct PlanContentRow {
    id: String,
    content: Json<Plan>,
    create_time: Time,
}

#[derive(FromRow)]
struct SummaryRow {
    id: String,
    profile_id: String,
    model_id: String,
    summary: Json<PlanSummary>,
    labels: Json<BTreeMap<String, String>>,
    create_time: Time,
    ended: i64,
    succeeded: i64,
    reports: i64,
    alternative_of: Option<String>,
    reported_seconds: Option<f64>,
    reported_kind: Option<String>,
    run_id: Option<String>,
    #[sqlx(flatten)]
    figures: FigureRow,
}

impl TryFrom<SummaryRow> for PlanRow {
    type Error = StoreError;

    fn try_from(row: SummaryRow) -> Result<Self> {
        let (contended, oversubscribed) = (row.figures.contended, row.figures.oversubscribed);
        let reported = row.reported_seconds.zip(row.reported_kind);
        let newest = match (row.run_id, row.figures.measured()?) {
            (Some(run), Some(measured)) => {
                Some(NewestTrial { run: name(RunName::from_id(run))?, measured, contended, oversubscribed })
            }
            _ => None,
        };
        Ok(Self {
            name: name(PlanName::from_id(row.id))?,
            profile: name(ProfileName::from_id(row.profile_id))?,
            model: name(ModelName::from_id(row.model_id))?,
            summary: row.summary.0,
            labels: row.labels.0,
            trained: TrainedSummary {
                trials: unsigned(row.ended)?,
                succeeded: unsigned(row.succeeded)?,
                reports: unsigned(row.reports)?,
                newest,
                reported: reported.map(|(seconds, device_kind)| NewestReport { seconds, device_kind }),
            },
            alternative_of: row.alternative_of.map(|id| name(PlanName::from_id(id))).transpose()?,
            create_time: row.create_time.0,
        })
    }
}

impl FromRow<'_, PgRow> for PlanRow {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        Ok(SummaryRow::from_row(row)?.try_into()?)
    }
}

impl TryFrom<PlanContentRow> for PlanRecord {
    type Error = StoreError;

    fn try_from(row: PlanContentRow) -> Result<Self> {
        let PlanContentRow { id, content, create_time } = row;
        Ok(Self { name: name(PlanName::from_id(id))?, content: content.0, create_time: create_time.0 })
    }
}

impl Store {
    /// Stores a plan, or finds it: the name is derived from the content. The first time stays.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when its profile or model is not stored, [`StoreError::Corrupt`] when
    /// another plan has the same name.
    pub async fn put_plan(&self, name: &PlanName, content: &Plan) -> Result<PlanRecord> {
        self.put_plans(&[(name.clone(), content.clone())]).await?;
        self.get_plan(name).await
    }

    /// One plan.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn get_plan(&self, name: &PlanName) -> Result<PlanRecord> {
        let row: Option<PlanContentRow> =
            sqlx::query_as("SELECT id, content, create_time FROM plans WHERE id = $1")
                .bind(name.id())
                .fetch_optional(&self.pool)
                .await?;
        row.ok_or_else(|| StoreError::not_found(name))?.try_into()
    }

    /// One plan in short.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn plan_row(&self, name: &PlanName) -> Result<PlanRow> {
        let named = |sql: &mut QueryBuilder<Postgres>| {
            sql.push(" AND id = ").push_bind(name.id().to_owned());
        };
        let page = LIST.page(self, &Query::default(), &PageRequest { size: 1, after: None }, named).await?;
        page.rows.into_iter().next().ok_or_else(|| StoreError::not_found(name))
    }

    /// Plans in short: those that are asked for, of [`fields::PLANS`](super::fields::PLANS).
    ///
    /// # Errors
    /// When the database fails.
    pub async fn list_plans(&self, query: &Query, request: &PageRequest) -> Result<Page<PlanRow>> {
        LIST.page(self, query, request, |_| {}).await
    }
}
