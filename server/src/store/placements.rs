//! Placements of plans to nodes. Written once, never changed.

use loadmaster_filter::Query;
use loadmaster_proto::name::{PlacementName, PlanName};
use loadmaster_proto::plan::placement::Placement;
use sqlx::types::Json;
use sqlx::{FromRow, Postgres, QueryBuilder};

use super::Store;
use super::columns::{Time, document, name as stored_name};
use super::error::{Result, StoreError, broken_constraint};
use super::find::ListSql;
use super::records::{Page, PageRequest, PlacementRecord, PlacementRow};

/// Whoever binds a plan asks for it, also where the same nodes were given before.
const INSERT: &str = "
WITH asked_again AS (
    UPDATE plan_facts SET asked_time = now() WHERE id = $2 AND asked_time < now() - interval '1 hour'
)
INSERT INTO placements (id, plan_id, content, nodes) VALUES ($1, $2, $3, $4) ON CONFLICT (id) DO NOTHING";

const LIST: ListSql = ListSql {
    // Without its stages and idle devices, which are empty there.
    select: "SELECT id, summary AS content, nodes, create_time",
    from: "FROM placements",
    id: "id",
    around: "",
};

#[derive(FromRow)]
struct PlacementContentRow {
    id: String,
    content: Json<Placement>,
    create_time: Time,
}

#[derive(FromRow)]
struct PlacementListRow {
    #[sqlx(flatten)]
    whole: PlacementContentRow,
    nodes: Vec<String>,
}

impl TryFrom<PlacementContentRow> for PlacementRecord {
    type Error = StoreError;

    fn try_from(row: PlacementContentRow) -> Result<Self> {
        let PlacementContentRow { id, content, create_time } = row;
        Ok(Self {
            name: stored_name(PlacementName::from_id(id))?,
            content: content.0,
            create_time: create_time.0,
        })
    }
}

impl FromRow<'_, sqlx::postgres::PgRow> for PlacementRow {
    fn from_row(row: &sqlx::postgres::PgRow) -> sqlx::Result<Self> {
        let PlacementListRow { whole, nodes } = PlacementListRow::from_row(row)?;
        Ok(Self { record: whole.try_into()?, nodes })
    }
}

impl Store {
    /// Stores a placement, or finds it: the name is derived from the content. The first time stays.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when its plan is not stored.
    pub async fn put_placement(&self, name: &PlacementName, content: &Placement) -> Result<PlacementRecord> {
        let inserted = sqlx::query(INSERT)
            .bind(name.id())
            .bind(content.plan.id())
            .bind(document(content)?)
            .bind(content.nodes())
            .execute(&self.pool)
            .await;
        inserted.map_err(|error| match broken_constraint(&error) {
            Some("placements_plan_id_fkey") => StoreError::not_found(&content.plan),
            _ => error.into(),
        })?;
        self.get_placement(name).await
    }

    /// One placement.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn get_placement(&self, name: &PlacementName) -> Result<PlacementRecord> {
        let row: Option<PlacementContentRow> =
            sqlx::query_as("SELECT id, content, create_time FROM placements WHERE id = $1")
                .bind(name.id())
                .fetch_optional(&self.pool)
                .await?;
        row.ok_or_else(|| StoreError::not_found(name))?.try_into()
    }

    /// Placements of a plan, or of all: those that are asked for, of [`fields::PLACEMENTS`](super::fields::PLACEMENTS).
    ///
    /// # Errors
    /// When the database fails.
    pub async fn list_placements(
        &self,
        plan: Option<&PlanName>,
        query: &Query,
        request: &PageRequest,
    ) -> Result<Page<PlacementRow>> {
        let of_plan = |sql: &mut QueryBuilder<Postgres>| {
            if let Some(plan) = plan {
                sql.push(" AND plan_id = ").push_bind(plan.id().to_owned());
            }
        };
        LIST.page(self, query, request, of_plan).await
    }
}
