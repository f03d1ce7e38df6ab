//! Plans.

use loadmaster_proto::name::PlanName;
use sqlx::FromRow;
use sqlx::types::Json;

use super::Store;
use super::error::{Result, StoreError};
use super::records::{Cursor, Page, PageRequest, PlanContent, PlanRecord};
use super::runs::name;
use super::time::Time;

#[derive(FromRow)]
struct PlanRow {
    id: String,
    content: Json<PlanContent>,
    create_time: Time,
}

impl TryFrom<PlanRow> for PlanRecord {
    type Error = StoreError;

    fn try_from(row: PlanRow) -> Result<Self> {
        let PlanRow { id, content, create_time } = row;
        Ok(Self { name: name(PlanName::from_id(id))?, content: content.0, create_time: create_time.0 })
    }
}

impl Store {
    /// Stores a plan, or finds it: the name is derived from the content. The first time stays.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when its profile or model is not stored, [`StoreError::Corrupt`] when
    /// another plan has the same name.
    pub async fn put_plan(&self, name: &PlanName, content: &PlanContent) -> Result<PlanRecord> {
        self.put_plans(&[(name.clone(), content.clone())]).await?;
        self.get_plan(name).await
    }

    /// One plan.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn get_plan(&self, name: &PlanName) -> Result<PlanRecord> {
        let row: Option<PlanRow> = sqlx::query_as("SELECT id, content, create_time FROM plans WHERE id = $1")
            .bind(name.id())
            .fetch_optional(&self.pool)
            .await?;
        row.ok_or_else(|| StoreError::not_found(name))?.try_into()
    }

    /// Plans, newest first.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn list_plans(&self, request: &PageRequest) -> Result<Page<PlanRecord>> {
        const SQL: &str = "SELECT id, content, create_time FROM plans
             WHERE (create_time, id) < ($1, $2)
             ORDER BY create_time DESC, id DESC LIMIT $3";
        let cursor =
            |record: &PlanRecord| Cursor { time: record.create_time, id: record.name.id().to_owned() };
        request.fetch::<PlanRow, _>(&self.pool, SQL, cursor).await
    }
}
