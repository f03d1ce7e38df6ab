//! Labels of plans and profiles, and the etags that follow from them.

use std::collections::BTreeMap;

use loadmaster_proto::label::{LabelChange, MAX_LABELS};
use loadmaster_proto::model::layer::fingerprint;
use loadmaster_proto::name::{PlanName, ProfileName};
use serde_json::json;
use sqlx::types::Json;

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
            " WHERE id = $1 AND ($6::jsonb IS NULL OR labels = $6) FOR UPDATE
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

/// Labels that a row must have to be changed, or any.
pub(super) type Expected = Option<BTreeMap<String, String>>;

/// The etag of labels, in quotes.
pub fn labels_etag(labels: &BTreeMap<String, String>) -> String {
    format!("\"{}\"", fingerprint(labels))
}

fn of_etag(what: String, labels: BTreeMap<String, String>, etag: &str) -> Result<Expected> {
    if labels_etag(&labels).trim_matches('"') == etag.trim_matches('"') {
        Ok(Some(labels))
    } else {
        Err(mismatch(what, &labels, etag))
    }
}

/// The error of a row that has these labels, and not those of `etag`.
pub(super) fn mismatch(what: String, labels: &BTreeMap<String, String>, etag: &str) -> StoreError {
    StoreError::EtagMismatch { what, stored: labels_etag(labels), expected: etag.to_owned() }
}

impl Store {
    /// Changes the labels of a plan.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::TooManyLabels`], [`StoreError::EtagMismatch`] for an etag that is not empty.
    pub async fn label_plan(&self, name: &PlanName, change: &LabelChange, etag: &str) -> Result<()> {
        let expected = self.expected_plan_labels(name, etag).await?;
        let changed = self.label(change!("plan_facts"), name.id(), name.to_string(), change, &expected).await;
        match changed {
            // The labels have changed since they were read.
            Err(StoreError::NotFound { .. }) if expected.is_some() => {
                Err(mismatch(name.to_string(), &self.plan_labels(name).await?, etag))
            }
            changed => changed,
        }
    }

    /// Changes the labels of a profile.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::TooManyLabels`], [`StoreError::EtagMismatch`] for an etag that is not empty.
    pub async fn label_profile(&self, name: &ProfileName, change: &LabelChange, etag: &str) -> Result<()> {
        let expected = self.expected_profile_labels(name, etag).await?;
        let changed = self.label(change!("profiles"), name.id(), name.to_string(), change, &expected).await;
        match changed {
            Err(StoreError::NotFound { .. }) if expected.is_some() => {
                Err(mismatch(name.to_string(), &self.profile_labels(name).await?, etag))
            }
            changed => changed,
        }
    }

    /// The labels of a plan.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn plan_labels(&self, name: &PlanName) -> Result<BTreeMap<String, String>> {
        let labels: Option<Json<BTreeMap<String, String>>> =
            sqlx::query_scalar("SELECT labels FROM plan_facts WHERE id = $1")
                .bind(name.id())
                .fetch_optional(&self.pool)
                .await?;
        Ok(labels.ok_or_else(|| StoreError::not_found(name))?.0)
    }

    async fn profile_labels(&self, name: &ProfileName) -> Result<BTreeMap<String, String>> {
        let labels: Option<Json<BTreeMap<String, String>>> =
            sqlx::query_scalar("SELECT labels FROM profiles WHERE id = $1")
                .bind(name.id())
                .fetch_optional(&self.pool)
                .await?;
        Ok(labels.ok_or_else(|| StoreError::not_found(name))?.0)
    }

    /// The labels of a plan with this etag; none for an empty etag, which any labels have.
    pub(super) async fn expected_plan_labels(&self, name: &PlanName, etag: &str) -> Result<Expected> {
        match etag {
            "" => Ok(None),
            etag => of_etag(name.to_string(), self.plan_labels(name).await?, etag),
        }
    }

    /// The labels of a profile with this etag; none for an empty etag, which any labels have.
    pub(super) async fn expected_profile_labels(&self, name: &ProfileName, etag: &str) -> Result<Expected> {
        match etag {
            "" => Ok(None),
            etag => of_etag(name.to_string(), self.profile_labels(name).await?, etag),
        }
    }

    async fn label(
        &self,
        sql: &'static str,
        id: &str,
        what: String,
        change: &LabelChange,
        expected: &Expected,
    ) -> Result<()> {
        let LabelChange { replaces_all, removed, set } = change;
        let removed: Vec<&str> = removed.iter().map(String::as_str).collect();
        let (exists, changed): (bool, bool) = sqlx::query_as(sql)
            .bind(id)
            .bind(replaces_all)
            .bind(removed)
            .bind(json!(set))
            .bind(i64::try_from(MAX_LABELS).unwrap_or(i64::MAX))
            .bind(expected.as_ref().map(Json))
            .fetch_one(&self.pool)
            .await?;
        match (exists, changed) {
            (_, true) => Ok(()),
            (true, false) => Err(StoreError::TooManyLabels { what }),
            (false, false) => Err(StoreError::not_found(what)),
        }
    }
}
