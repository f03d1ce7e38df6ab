//! Which version of a profile or a cluster is stored, without reading it.

use std::collections::HashMap;

use super::Store;
use super::error::Result;

/// A row that was written anew, or deleted and stored again, has another `xmin`. A profile that is complete has all its
/// runs behind it: what it is made of changes with its row, or never.
const REVISIONS: &str = "
SELECT 'profiles/' || id, xmin::text || '@' || extract(epoch FROM create_time)::text
FROM profiles WHERE id = ANY($1) AND state = 'complete'
UNION ALL
SELECT 'clusters/' || id, xmin::text || '@' || extract(epoch FROM create_time)::text
FROM clusters WHERE id = $2";

impl Store {
    /// By name, the revisions of those of these profiles that are complete, and of the cluster if it is stored: equal
    /// revisions are equal content. Takes the ids.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn revisions(
        &self,
        profiles: &[&str],
        cluster: Option<&str>,
    ) -> Result<HashMap<String, String>> {
        let rows: Vec<(String, String)> =
            sqlx::query_as(REVISIONS).bind(profiles).bind(cluster).fetch_all(&self.pool).await?;
        Ok(rows.into_iter().collect())
    }
}
