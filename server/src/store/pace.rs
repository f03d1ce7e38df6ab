//! How long runs take, as far as earlier ones tell.

use loadmaster_proto::name::ModelName;

use super::Store;
use super::error::Result;
use super::records::Pace;
use super::runs::unsigned;

/// Of the newest runs on a kind of device those of a model, and all of them. Failed attempts count: they hold
/// devices too.
const PACE: &str = "
SELECT count(*) FILTER (WHERE model_id = $2), coalesce(avg(seconds) FILTER (WHERE model_id = $2), 0),
       count(*), coalesce(avg(seconds), 0)
FROM (
    SELECT model_id, device_seconds / device_count AS seconds FROM runs
    WHERE state = 'succeeded' AND device_kind = $1 AND model_id IS NOT NULL
    ORDER BY end_time DESC LIMIT 1000) AS newest";

impl Store {
    /// How long runs took on this kind of device: those of the model where there are any, else all of them.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn pace(&self, device_kind: &str, model: &ModelName) -> Result<Option<Pace>> {
        let (own, own_seconds, all, all_seconds): (i64, f64, i64, f64) =
            sqlx::query_as(PACE).bind(device_kind).bind(model.id()).fetch_one(&self.pool).await?;
        let pace = |runs: i64, seconds, same_model| {
            let runs = unsigned(i32::try_from(runs).unwrap_or(i32::MAX))?;
            Ok(Pace { runs, seconds, same_model })
        };
        match (own, all) {
            (0, 0) => Ok(None),
            (0, all) => pace(all, all_seconds, false).map(Some),
            (own, _) => pace(own, own_seconds, true).map(Some),
        }
    }
}
