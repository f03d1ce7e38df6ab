//! Labels of plans and profiles, and the etags that follow from them.

use std::collections::BTreeMap;
use std::fmt;

use loadmaster_proto::label::{LabelChange, MAX_LABELS};
use loadmaster_proto::model::layer::fingerprint;
use loadmaster_proto::name::{PlanName, ProfileName};
use serde_json::json;
use sqlx::types::Json;

use super::Store;
use super::error::{Result, StoreError, check_etag};

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

/// A row with labels.
#[derive(Debug, Clone, Copy)]
pub(super) enum Labelled<'a> {
    Plan(&'a PlanName),
    Profile(&'a ProfileName),
}

impl Labelled<'_> {
    pub(super) fn id(&self) -> &str {
        match self {
            Self::Plan(name) => name.id(),
            Self::Profile(name) => name.id(),
        }
    }

    fn change(self) -> &'static str {
        match self {
            Self::Plan(_) => change!("plan_facts"),
            Self::Profile(_) => change!("profiles"),
        }
    }

    fn read(self) -> &'static str {
        match self {
            Self::Plan(_) => "SELECT labels FROM plan_facts WHERE id = $1",
            Self::Profile(_) => "SELECT labels FROM profiles WHERE id = $1",
        }
    }
}

impl fmt::Display for Labelled<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plan(name) => name.fmt(f),
            Self::Profile(name) => name.fmt(f),
        }
    }
}

/// Labels that a row must have to be changed, or any.
pub(super) type Expected = Option<BTreeMap<String, String>>;

/// The etag of labels, in quotes.
pub fn labels_etag(labels: &BTreeMap<String, String>) -> String {
    format!("\"{}\"", fingerprint(labels))
}

impl Store {
    /// Changes the labels of a plan.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::TooManyLabels`], [`StoreError::EtagMismatch`] for an etag that is not empty.
    pub async fn label_plan(&self, name: &PlanName, change: &LabelChange, etag: &str) -> Result<()> {
        self.label(Labelled::Plan(name), change, etag).await
    }

    /// Changes the labels of a profile.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::TooManyLabels`], [`StoreError::EtagMismatch`] for an etag that is not empty.
    pub async fn label_profile(&self, name: &ProfileName, change: &LabelChange, etag: &str) -> Result<()> {
        self.label(Labelled::Profile(name), change, etag).await
    }

    /// The labels of a plan.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn plan_labels(&self, name: &PlanName) -> Result<BTreeMap<String, String>> {
        self.labels(Labelled::Plan(name)).await
    }

    async fn labels(&self, of: Labelled<'_>) -> Result<BTreeMap<String, String>> {
        let labels: Option<Json<BTreeMap<String, String>>> =
            sqlx::query_scalar(of.read()).bind(of.id()).fetch_optional(&self.pool).await?;
        Ok(labels.ok_or_else(|| StoreError::not_found(of))?.0)
    }

    /// The labels of a row with this etag; none for an empty etag, which any labels have.
    pub(super) async fn expected_labels(&self, of: Labelled<'_>, etag: &str) -> Result<Expected> {
        if etag.is_empty() {
            return Ok(None);
        }
        let labels = self.labels(of).await?;
        check_etag(of, &labels_etag(&labels), etag)?;
        Ok(Some(labels))
    }

    /// Checks a row that a statement left as it was: whether it is there, with the labels that it had.
    pub(super) async fn check_labels(&self, of: Labelled<'_>, expected: &Expected, etag: &str) -> Result<()> {
        let labels = self.labels(of).await?;
        match expected {
            Some(expected) if *expected != labels => check_etag(of, &labels_etag(&labels), etag),
            _ => Ok(()),
        }
    }

    async fn label(&self, of: Labelled<'_>, change: &LabelChange, etag: &str) -> Result<()> {
        let expected = self.expected_labels(of, etag).await?;
        let LabelChange { replaces_all, removed, set } = change;
        let removed: Vec<&str> = removed.iter().map(String::as_str).collect();
        let (exists, changed): (bool, bool) = sqlx::query_as(of.change())
            .bind(of.id())
            .bind(replaces_all)
            .bind(removed)
            .bind(json!(set))
            .bind(i64::try_from(MAX_LABELS).unwrap_or(i64::MAX))
            .bind(expected.as_ref().map(Json))
            .fetch_one(&self.pool)
            .await?;
        match (exists, changed) {
            (_, true) => Ok(()),
            (true, false) => Err(StoreError::TooManyLabels { what: of.to_string() }),
            (false, false) if expected.is_none() => Err(StoreError::not_found(of)),
            (false, false) => {
                self.check_labels(of, &expected, etag).await?;
                // It has these labels again.
                Err(StoreError::Conflict)
            }
        }
    }
}
