//! Stores plans, several at once.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use loadmaster_proto::name::PlanName;
use loadmaster_proto::plan::Plan;
use sqlx::FromRow;
use sqlx::types::Json;

use super::Store;
use super::columns::{Time, document};
use super::error::{Result, StoreError, broken_constraint, retry};

/// All or none. Rows come in the order of their ids, so that two statements with the same plans wait for each other
/// instead of locking each other out; times say what comes last in a list. The last part sees what was there before. Plans that
/// no one asked for lately are young again; one that retention took at this moment is missing in the answer.
const PUT: &str = "
WITH new AS (
    SELECT id, profile_id, model_id, content::jsonb AS content, cardinality($1::text[]) - position AS before
    FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) WITH ORDINALITY
         AS new(id, profile_id, model_id, content, position)
), known AS (
    SELECT plans.id, plans.create_time, plans.content = new.content AS is_same,
           coalesce(facts.asked_time < now() - interval '1 hour', false) AS is_stale
    FROM plans JOIN new USING (id) LEFT JOIN plan_facts AS facts USING (id)
), asked_again AS (
    UPDATE plan_facts SET asked_time = now() FROM known WHERE plan_facts.id = known.id AND is_stale
    RETURNING plan_facts.id
), inserted AS (
    INSERT INTO plans (id, profile_id, model_id, content, create_time)
    SELECT id, profile_id, model_id, content, now() - before * interval '1 microsecond' FROM new ORDER BY id
    ON CONFLICT (id) DO NOTHING RETURNING id, create_time
)
SELECT id, create_time, true AS is_new, true AS is_same FROM inserted
UNION ALL
SELECT id, create_time, false, is_same FROM known WHERE NOT is_stale OR id IN (SELECT id FROM asked_again)";

/// What is told of a plan in short.
macro_rules! glance {
    () => {
        "SELECT create_time, labels,
       EXISTS (SELECT FROM runs WHERE plan_id = facts.id)
       OR EXISTS (SELECT FROM reports WHERE plan_id = facts.id) AS is_trained
FROM plan_facts AS facts WHERE id = $1"
    };
}

/// Of a plan that is looked at.
const GLANCE: &str = glance!();

/// Of a plan that answers a question again, and is as young as that then. One that retention takes at this moment is not there.
const ASK_AGAIN: &str = concat!(
    "WITH asked_again AS (
    UPDATE plan_facts SET asked_time = now() WHERE id = $1 AND asked_time < now() - interval '1 hour' RETURNING id
) ",
    glance!(),
    " AND (asked_time >= now() - interval '1 hour' OR id IN (SELECT id FROM asked_again))"
);

/// What became of a plan that was to be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PutPlan {
    /// When it was first stored.
    pub create_time: Timestamp,
    /// That was just now.
    pub is_new: bool,
}

/// What can be told of a plan without reading it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanGlance {
    /// When it was first stored.
    pub create_time: Timestamp,
    /// What people wrote on it.
    pub labels: BTreeMap<String, String>,
    /// It has trials or reports.
    pub is_trained: bool,
}

#[derive(FromRow)]
struct PutRow {
    id: String,
    create_time: Time,
    is_new: bool,
    is_same: bool,
}

#[derive(FromRow)]
struct GlanceRow {
    create_time: Time,
    labels: Json<BTreeMap<String, String>>,
    is_trained: bool,
}

impl Store {
    /// Stores plans in one statement, or finds them: names are derived from contents, and the first time stays. The
    /// last one is the newest of them in lists. What became of each, in their order.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when a profile or model is not stored, [`StoreError::Corrupt`] when another plan has
    /// the name of one of them.
    pub async fn put_plans(&self, plans: &[(PlanName, Plan)]) -> Result<Vec<PutPlan>> {
        // Each as a text of its own: in a document of all of them the database would look for each once more.
        let documents = plans.iter().map(|(_, content)| Ok(document(content)?.to_string()));
        let documents: Vec<String> = documents.collect::<Result<_>>()?;
        retry(|| self.put_documents(plans, &documents)).await
    }

    async fn put_documents(&self, plans: &[(PlanName, Plan)], documents: &[String]) -> Result<Vec<PutPlan>> {
        let of = |part: fn(&(PlanName, Plan)) -> &str| plans.iter().map(part).collect::<Vec<_>>();
        let rows: Vec<PutRow> = sqlx::query_as(PUT)
            .bind(of(|(name, _)| name.id()))
            .bind(of(|(_, content)| content.profile.id()))
            .bind(of(|(_, content)| content.model.id()))
            .bind(documents)
            .fetch_all(&self.pool)
            .await
            .map_err(|error| {
                // Plans that are stored together are of one profile.
                match (broken_constraint(&error), plans.first()) {
                    (Some("plans_profile_id_fkey"), Some((_, content))) => {
                        StoreError::not_found(&content.profile)
                    }
                    (Some("plans_model_id_fkey"), Some((_, content))) => {
                        StoreError::not_found(&content.model)
                    }
                    _ => error.into(),
                }
            })?;
        let rows: HashMap<&str, &PutRow> = rows.iter().map(|row| (row.id.as_str(), row)).collect();
        plans
            .iter()
            .map(|(name, _)| match rows.get(name.id()) {
                Some(PutRow { is_same: false, .. }) => {
                    Err(StoreError::corrupt(format!("{name} is already the name of another plan")))
                }
                Some(row) => Ok(PutPlan { create_time: row.create_time.0, is_new: row.is_new }),
                // Another call stored it at the same moment: the next look sees it.
                None => Err(StoreError::Conflict),
            })
            .collect()
    }

    /// What can be told of a plan without reading it, in one small query.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn glance_at_plan(&self, name: &PlanName) -> Result<PlanGlance> {
        self.glance(GLANCE, name).await
    }

    /// The same of a plan that answers a question again: its age begins anew.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn ask_plan_again(&self, name: &PlanName) -> Result<PlanGlance> {
        self.glance(ASK_AGAIN, name).await
    }

    async fn glance(&self, sql: &'static str, name: &PlanName) -> Result<PlanGlance> {
        let row: Option<GlanceRow> = sqlx::query_as(sql).bind(name.id()).fetch_optional(&self.pool).await?;
        let GlanceRow { create_time, labels, is_trained } = row.ok_or_else(|| StoreError::not_found(name))?;
        Ok(PlanGlance { create_time: create_time.0, labels: labels.0, is_trained })
    }
}
