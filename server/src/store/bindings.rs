//! Bindings of plans to nodes. Written once, never changed.

use loadmaster_filter::Query;
use loadmaster_proto::name::{BindingName, PlanName};
use loadmaster_proto::plan::binding::Binding;
use sqlx::types::Json;
use sqlx::{FromRow, Postgres, QueryBuilder};

use super::Store;
use super::columns::{Time, document, name as stored_name};
use super::error::{Result, StoreError, broken_constraint};
use super::find::ListSql;
use super::records::{BindingRecord, BindingRow, Page, PageRequest};

/// Whoever binds a plan asks for it, also where the same nodes were given before.
const INSERT: &str = "
WITH asked_again AS (
    UPDATE plan_facts SET asked_time = now() WHERE id = $2 AND asked_time < now() - interval '1 hour'
)
INSERT INTO bindings (id, plan_id, content, nodes) VALUES ($1, $2, $3, $4) ON CONFLICT (id) DO NOTHING";

const LIST: ListSql = ListSql {
    // Without its stages and idle devices, which are empty there.
    select: "SELECT id, summary AS content, nodes, create_time",
    from: "FROM bindings",
    id: "id",
    around: "",
};

#[derive(FromRow)]
struct BindingContentRow {
    id: String,
    content: Json<Binding>,
    create_time: Time,
}

#[derive(FromRow)]
struct BindingListRow {
    #[sqlx(flatten)]
    whole: BindingContentRow,
    nodes: Vec<String>,
}

impl TryFrom<BindingContentRow> for BindingRecord {
    type Error = StoreError;

    fn try_from(row: BindingContentRow) -> Result<Self> {
        let BindingContentRow { id, content, create_time } = row;
        Ok(Self {
            name: stored_name(BindingName::from_id(id))?,
            content: content.0,
            create_time: create_time.0,
        })
    }
}

impl FromRow<'_, sqlx::postgres::PgRow> for BindingRow {
    fn from_row(row: &sqlx::postgres::PgRow) -> sqlx::Result<Self> {
        let BindingListRow { whole, nodes } = BindingListRow::from_row(row)?;
        Ok(Self { record: whole.try_into()?, nodes })
    }
}

impl Store {
    /// Stores a binding, or finds it: the name is derived from the content. The first time stays.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when its plan is not stored.
    pub async fn put_binding(&self, name: &BindingName, content: &Binding) -> Result<BindingRecord> {
        let inserted = sqlx::query(INSERT)
            .bind(name.id())
            .bind(content.plan.id())
            .bind(document(content)?)
            .bind(content.nodes())
            .execute(&self.pool)
            .await;
        inserted.map_err(|error| match broken_constraint(&error) {
            Some("bindings_plan_id_fkey") => StoreError::not_found(&content.plan),
            _ => error.into(),
        })?;
        self.get_binding(name).await
    }

    /// One binding.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn get_binding(&self, name: &BindingName) -> Result<BindingRecord> {
        let row: Option<BindingContentRow> =
            sqlx::query_as("SELECT id, content, create_time FROM bindings WHERE id = $1")
                .bind(name.id())
                .fetch_optional(&self.pool)
                .await?;
        row.ok_or_else(|| StoreError::not_found(name))?.try_into()
    }

    /// Bindings of a plan, or of all: those that are asked for, of [`fields::BINDINGS`](super::fields::BINDINGS).
    ///
    /// # Errors
    /// When the database fails.
    pub async fn list_bindings(
        &self,
        plan: Option<&PlanName>,
        query: &Query,
        request: &PageRequest,
    ) -> Result<Page<BindingRow>> {
        let of_plan = |sql: &mut QueryBuilder<Postgres>| {
            if let Some(plan) = plan {
                sql.push(" AND plan_id = ").push_bind(plan.id().to_owned());
            }
        };
        LIST.page(self, query, request, of_plan).await
    }
}
