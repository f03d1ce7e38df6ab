//! Deletion of rows that nothing references.
//!
//! A row is locked before its dependents are looked at, and whoever stores a dependent locks it too, by its foreign
//! key. So either the dependent is seen and the row stays, or the dependent finds no row; what slips in between breaks
//! the foreign key, and the deletion is retried. Profiles of a plan's other kinds of devices have no such key. One that is
//! deleted at the moment in which such a plan is stored is missing there, and the plan is bound without seconds.

use loadmaster_proto::name::{ClusterName, ModelName, PlacementName, PlanName, ProfileName};
use sqlx::types::Json;

use super::Store;
use super::error::{Dependent, Result, StoreError, retry, still_referenced};
use super::labels::{Expected, Labelled};

/// Most dependents that an error names: it travels in a header.
const MOST_NAMED: i64 = 10;

/// Deletes the profiles in `taken`; `deleted` are their ids. Results outlive them: they belong to no resource then, serve whoever
/// reuses them, and are found by whoever needs the same.
macro_rules! profiles_deleted {
    () => {
        "freed AS (
    UPDATE runs SET profile_id = NULL FROM taken WHERE runs.profile_id = taken.id
), ended AS (
    UPDATE operations SET profile_id = NULL, deleted = true FROM taken WHERE operations.profile_id = taken.id
), unlinked AS (
    DELETE FROM profile_runs USING taken WHERE profile_runs.profile_id = taken.id
), document AS (
    DELETE FROM documents USING taken WHERE documents.profile_id = taken.id
), deleted AS (
    DELETE FROM profiles USING taken WHERE profiles.id = taken.id RETURNING profiles.id
)"
    };
}
pub(super) use profiles_deleted;

/// Deletes the plans in `taken`; `deleted` are their ids. Their runs belong to no resource then.
macro_rules! plans_deleted {
    () => {
        "freed AS (
    UPDATE runs SET plan_id = NULL FROM taken WHERE runs.plan_id = taken.id
), ended AS (
    UPDATE operations SET plan_id = NULL, deleted = true FROM taken WHERE operations.plan_id = taken.id
), deleted AS (
    DELETE FROM plans USING taken WHERE plans.id = taken.id RETURNING plans.id
)"
    };
}
pub(super) use plans_deleted;

const DELETE_PROFILE: &str = concat!(
    "WITH taken AS (
    SELECT id FROM profiles WHERE id = $1 AND ($2::jsonb IS NULL OR labels = $2)
      AND NOT EXISTS (SELECT FROM plans WHERE profile_id = $1)
      AND NOT EXISTS (SELECT FROM plans WHERE other_profiles @> ARRAY[$1])
      AND NOT EXISTS (SELECT FROM operations WHERE profile_id = $1 AND state = 'running')
    FOR UPDATE
), ",
    profiles_deleted!(),
    " SELECT EXISTS (SELECT FROM deleted)"
);

/// What references a profile.
const OF_PROFILE: &str = "
SELECT kind, name, count(*) OVER () FROM (
    SELECT 'OPERATION' AS kind, 'operations/' || id AS name FROM operations
    WHERE profile_id = $1 AND state = 'running'
    UNION ALL
    SELECT 'PLAN', 'plans/' || id FROM plans WHERE profile_id = $1 OR other_profiles @> ARRAY[$1]) AS dependents
ORDER BY kind, name LIMIT $2";

/// Trials that measured nothing say nothing about the plan.
const DELETE_PLAN: &str = concat!(
    "WITH taken AS (
    SELECT plans.id FROM plans JOIN plan_facts USING (id) WHERE plans.id = $1 AND ($2::jsonb IS NULL OR labels = $2)
      AND NOT EXISTS (SELECT FROM plans AS other WHERE other.names @> ARRAY[$1])
      AND NOT EXISTS (SELECT FROM reports WHERE plan_id = $1)
      AND NOT EXISTS (SELECT FROM operations WHERE plan_id = $1 AND state = 'running')
      AND NOT EXISTS (SELECT FROM runs WHERE plan_id = $1 AND state NOT IN ('failed', 'cancelled'))
    FOR UPDATE
), ",
    plans_deleted!(),
    " SELECT EXISTS (SELECT FROM deleted)"
);

/// The same with what was measured of it: its reports are deleted.
const DELETE_TRIED_PLAN: &str = concat!(
    "WITH taken AS (
    SELECT plans.id FROM plans JOIN plan_facts USING (id) WHERE plans.id = $1 AND ($2::jsonb IS NULL OR labels = $2)
      AND NOT EXISTS (SELECT FROM plans AS other WHERE other.names @> ARRAY[$1])
      AND NOT EXISTS (SELECT FROM operations WHERE plan_id = $1 AND state = 'running')
      AND NOT EXISTS (SELECT FROM runs WHERE plan_id = $1 AND state IN ('queued', 'running'))
    FOR UPDATE
), unsaid AS (
    DELETE FROM reports USING taken WHERE reports.plan_id = taken.id
), ",
    plans_deleted!(),
    " SELECT EXISTS (SELECT FROM deleted)"
);

/// What references a plan, whatever was measured of it: the operations that train it, and the plans that name it.
const OF_TRIED_PLAN: &str = "
SELECT kind, name, count(*) OVER () FROM (
    SELECT 'OPERATION' AS kind, 'operations/' || id AS name FROM operations
    WHERE state = 'running'
      AND (plan_id = $1 OR id IN (SELECT operation_id FROM runs WHERE plan_id = $1 AND state IN ('queued', 'running')))
    UNION ALL
    SELECT 'PLAN', 'plans/' || id FROM plans WHERE names @> ARRAY[$1]
) AS dependents
ORDER BY kind, name LIMIT $2";

/// What references a plan.
const OF_PLAN: &str = "
SELECT kind, name, count(*) OVER () FROM (
    SELECT 'OPERATION' AS kind, 'operations/' || id AS name FROM operations
    WHERE plan_id = $1 AND state = 'running'
    UNION ALL
    SELECT 'PLAN', 'plans/' || id FROM plans WHERE names @> ARRAY[$1]
    UNION ALL
    SELECT 'TRIAL', 'runs/' || id FROM runs WHERE plan_id = $1 AND state NOT IN ('failed', 'cancelled')
    UNION ALL
    SELECT 'REPORT', 'plans/' || plan_id || '/reports/' || id FROM reports WHERE plan_id = $1
) AS dependents
ORDER BY kind, name LIMIT $2";

const DELETE_MODEL: &str = "
WITH taken AS (
    SELECT id FROM models WHERE id = $1
      AND NOT EXISTS (SELECT FROM profiles WHERE model_id = $1)
      AND NOT EXISTS (SELECT FROM plans WHERE model_id = $1)
      AND NOT EXISTS (SELECT FROM runs WHERE model_id = $1)
    FOR UPDATE
), deleted AS (
    DELETE FROM models USING taken WHERE models.id = taken.id RETURNING models.id
) SELECT EXISTS (SELECT FROM deleted)";

/// References to a model.
const OF_MODEL: &str = "
SELECT kind, name, count(*) OVER () FROM (
    SELECT 'PROFILE' AS kind, 'profiles/' || id AS name FROM profiles WHERE model_id = $1
    UNION ALL
    SELECT 'PLAN', 'plans/' || id FROM plans WHERE model_id = $1
    UNION ALL
    SELECT 'RUN', 'runs/' || id FROM runs WHERE model_id = $1) AS dependents
ORDER BY kind, name LIMIT $2";

/// `$2` is the etag that the cluster must have, or NULL; `$3` deletes it whatever references it.
const DELETE_CLUSTER: &str = "
WITH deleted AS (
    DELETE FROM clusters WHERE id = $1 AND ($2::text IS NULL OR digest = $2)
      AND ($3 OR NOT EXISTS (SELECT FROM plan_facts WHERE cluster_id = $1)
             AND NOT EXISTS (SELECT FROM placements WHERE content ->> 'cluster' = 'clusters/' || $1))
    RETURNING id
) SELECT EXISTS (SELECT FROM deleted)";

/// References to a cluster.
const OF_CLUSTER: &str = "
SELECT kind, name, count(*) OVER () FROM (
    SELECT 'PLAN' AS kind, 'plans/' || id AS name FROM plan_facts WHERE cluster_id = $1
    UNION ALL
    SELECT 'PLACEMENT', 'placements/' || id FROM placements WHERE content ->> 'cluster' = 'clusters/' || $1) AS dependents
ORDER BY kind DESC, name LIMIT $2";

impl Store {
    /// Deletes a model.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::InUse`] while profiles, plans or runs reference it.
    pub async fn delete_model(&self, name: &ModelName) -> Result<()> {
        if self.delete(DELETE_MODEL, name.id(), None).await? {
            return Ok(());
        }
        self.get_subject(name).await?;
        Err(self.in_use(name.to_string(), OF_MODEL, name.id()).await?)
    }

    /// Deletes a cluster that has this etag, or any etag if it is empty. With `force` plans and placements that reference it keep
    /// its name.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::EtagMismatch`]; without `force` [`StoreError::InUse`] while plans or placements
    /// reference it.
    pub async fn delete_cluster(&self, name: &ClusterName, etag: &str, force: bool) -> Result<()> {
        let expected = (!etag.is_empty()).then(|| etag.trim_matches('"'));
        let deleted: bool = retry(|| async {
            let deleted = sqlx::query_scalar(DELETE_CLUSTER).bind(name.id()).bind(expected).bind(force);
            Ok(deleted.fetch_one(&self.pool).await?)
        })
        .await?;
        if deleted {
            return Ok(());
        }
        self.check_cluster_etag(name, etag).await?;
        Err(self.in_use(name.to_string(), OF_CLUSTER, name.id()).await?)
    }

    /// Deletes a placement.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn delete_placement(&self, name: &PlacementName) -> Result<()> {
        let deleted =
            sqlx::query("DELETE FROM placements WHERE id = $1").bind(name.id()).execute(&self.pool).await?;
        match deleted.rows_affected() {
            0 => Err(StoreError::not_found(name)),
            _ => Ok(()),
        }
    }

    /// Removes a profile and the operations that ended with it. What its runs measured stays.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::InUse`] while plans reference it or it is being measured;
    /// [`StoreError::EtagMismatch`] for an etag that is not empty.
    pub async fn delete_profile(&self, name: &ProfileName, etag: &str) -> Result<()> {
        self.delete_labelled(Labelled::Profile(name), etag, DELETE_PROFILE, OF_PROFILE).await
    }

    /// Removes a plan and the operations that ended with it.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::InUse`] while another plan names it, something was measured of it, or
    /// it is being trained; [`StoreError::EtagMismatch`] for an etag that is not empty.
    pub async fn delete_plan(&self, name: &PlanName, etag: &str) -> Result<()> {
        self.delete_labelled(Labelled::Plan(name), etag, DELETE_PLAN, OF_PLAN).await
    }

    /// Removes a plan with what was reported of it; its trials belong to no resource then.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::InUse`] while another plan names it, or it is being trained;
    /// [`StoreError::EtagMismatch`] for an etag that is not empty.
    pub async fn delete_plan_with_trials(&self, name: &PlanName, etag: &str) -> Result<()> {
        self.delete_labelled(Labelled::Plan(name), etag, DELETE_TRIED_PLAN, OF_TRIED_PLAN).await
    }

    async fn delete_labelled(
        &self,
        of: Labelled<'_>,
        etag: &str,
        delete: &'static str,
        dependents: &'static str,
    ) -> Result<()> {
        let expected = self.expected_labels(of, etag).await?;
        if self.delete(delete, of.id(), Some(&expected)).await? {
            return Ok(());
        }
        self.check_labels(of, &expected, etag).await?;
        Err(self.in_use(of.to_string(), dependents, of.id()).await?)
    }

    /// Removes a report.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn delete_report(&self, plan: &PlanName, id: &str) -> Result<()> {
        let deleted = sqlx::query("DELETE FROM reports WHERE plan_id = $1 AND id = $2")
            .bind(plan.id())
            .bind(id)
            .execute(&self.pool)
            .await?;
        match deleted.rows_affected() {
            0 => Err(StoreError::not_found(format!("{plan}/reports/{id}"))),
            _ => Ok(()),
        }
    }

    /// Deletes a row that has the expected labels; `expected` is for statements that compare labels.
    async fn delete(&self, sql: &'static str, id: &str, expected: Option<&Expected>) -> Result<bool> {
        retry(|| async {
            let mut query = sqlx::query_scalar(sql).bind(id);
            if let Some(labels) = expected {
                query = query.bind(labels.as_ref().map(Json));
            }
            let deleted: Result<bool, sqlx::Error> = query.fetch_one(&self.pool).await;
            deleted.map_err(still_referenced)
        })
        .await
    }

    /// Says what kept a row from being deleted.
    async fn in_use(&self, what: String, sql: &'static str, id: &str) -> Result<StoreError> {
        let rows: Vec<(String, String, i64)> =
            sqlx::query_as(sql).bind(id).bind(MOST_NAMED).fetch_all(&self.pool).await?;
        let count = rows.first().map_or(0, |&(_, _, count)| count.unsigned_abs());
        let by: Vec<Dependent> = rows.into_iter().map(|(kind, name, _)| Dependent { kind, name }).collect();
        // It has left in the meantime.
        Ok(if by.is_empty() { StoreError::Conflict } else { StoreError::InUse { what, by, count } })
    }
}
