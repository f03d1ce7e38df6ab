//! Background work of a planner: expired leases, lost workers, ended operations, wake-ups.

use std::time::Duration;

use tokio::time::MissedTickBehavior;

use super::{Dispatcher, settle};
use crate::store::{DatabaseClock, StoreError};

/// Time between two rounds.
const ROUND: Duration = Duration::from_secs(1);

/// Returns expired leases to the queue, marks silent workers as lost and ends operations, for ever.
pub(super) async fn keep(dispatcher: Dispatcher) {
    let mut ticks = tokio::time::interval(ROUND);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut troubled = false;
    let mut clock = DatabaseClock::default();
    loop {
        tokio::select! {
            () = dispatcher.stopping.cancelled() => return,
            _ = ticks.tick() => {}
        }
        match round(&dispatcher, &mut clock).await {
            Ok(()) if troubled => {
                troubled = false;
                tracing::info!("the database answers again");
            }
            Ok(()) => {}
            // Said once per outage, not once per second.
            Err(error) if !troubled => {
                troubled = true;
                tracing::error!(%error, "the database is in trouble");
            }
            Err(_) => {}
        }
    }
}

async fn round(dispatcher: &Dispatcher, clock: &mut DatabaseClock) -> Result<(), StoreError> {
    dispatcher.store.follow_clock(clock, dispatcher.terms.lease).await?;
    let expired = dispatcher.store.expire_leases().await?;
    for run in &expired {
        tracing::warn!(run.id = run.id(), "lease expired");
    }
    dispatcher.store.mark_lost_workers(dispatcher.terms.lease).await?;
    settle::settle_all(&dispatcher.store).await;
    if !expired.is_empty() {
        dispatcher.wake();
    }
    Ok(())
}

/// Wakes the sessions whenever the database says that the queue changed, for ever.
pub(super) async fn listen(dispatcher: Dispatcher) {
    let mut listener = dispatcher.store.listen();
    loop {
        tokio::select! {
            () = dispatcher.stopping.cancelled() => return,
            () = listener.changed() => dispatcher.wake(),
        }
    }
}
