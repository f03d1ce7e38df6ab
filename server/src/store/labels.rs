//! What people wrote on plans and profiles.

use loadmaster_proto::label::{LabelChange, MAX_LABELS};
use loadmaster_proto::name::{PlanName, ProfileName};
use serde_json::json;

use super::Store;
use super::error::{Result, StoreError};

/// The row is locked by the change itself, so that of two at the same moment both count.
macro_rules! change {
    ($table:literal) => {
        concat!(
            "WITH locked AS (
                 SELECT id, (CASE WHEN $2 THEN '{}' ELSE labels - $3::text[] END) || $4::jsonb AS labels
                 FROM ",
            $table,
            " WHERE id = $1 FOR UPDATE
             ), changed AS (
                 UPDATE ",
            $table,
            " AS labelled SET labels = locked.labels FROM locked
                 WHERE labelled.id = locked.id AND (SELECT count(*) FROM jsonb_object_keys(locked.labels)) <= $5
                 RETURNING labelled.id
             )
             SELECT EXISTS (SELECT FROM locked), EXISTS (SELECT FROM changed)"
        )
    };
}

impl Store {
    /// Changes the labels of a plan.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::TooManyLabels`].
    pub async fn label_plan(&self, name: &PlanName, change: &LabelChange) -> Result<()> {
        self.label(change!("plan_facts"), name.id(), name.to_string(), change).await
    }

    /// Changes the labels of a profile.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::TooManyLabels`].
    pub async fn label_profile(&self, name: &ProfileName, change: &LabelChange) -> Result<()> {
        self.label(change!("profiles"), name.id(), name.to_string(), change).await
    }

    async fn label(&self, sql: &'static str, id: &str, what: String, change: &LabelChange) -> Result<()> {
        let LabelChange { replaces_all, removed, set } = change;
        let removed: Vec<&str> = removed.iter().map(String::as_str).collect();
        let (exists, changed): (bool, bool) = sqlx::query_as(sql)
            .bind(id)
            .bind(replaces_all)
            .bind(removed)
            .bind(json!(set))
            .bind(i64::try_from(MAX_LABELS).unwrap_or(i64::MAX))
            .fetch_one(&self.pool)
            .await?;
        match (exists, changed) {
            (_, true) => Ok(()),
            (true, false) => Err(StoreError::TooManyLabels { what }),
            (false, false) => Err(StoreError::not_found(what)),
        }
    }
}
