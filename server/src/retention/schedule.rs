//! Purges that the planner requests by itself, from time to time.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Purges;
use crate::store::{PurgeSettings, Store};

/// Time between two looks whether a purge is due: planners that share a database take turns.
const LOOK: Duration = Duration::from_secs(60);
/// The name of the schedule, which planners share.
const SCHEDULE: &str = "retention";

/// A purge that is repeated.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    pub settings: PurgeSettings,
    /// From one purge to the next.
    pub period: Duration,
}

impl Schedule {
    /// Requests purges until `stop` is cancelled. A request that fails is repeated a period later.
    pub async fn run(self, store: Store, purges: Purges, stop: CancellationToken) {
        loop {
            match store.take_turn(SCHEDULE, self.period).await {
                Ok(true) => match store.create_purge(self.settings.clone(), None).await {
                    Ok(operation) => {
                        tracing::info!(operation.id = operation.id(), "a scheduled purge starts");
                        purges.wake();
                    }
                    Err(error) => tracing::warn!(%error, "could not start a scheduled purge"),
                },
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "could not read when the last scheduled purge ran"),
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK.min(self.period)) => {}
            }
        }
    }
}
