//! Waiting for work: notifications as a hint, polling as the truth.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgListener, PgPoolOptions};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::Store;

/// The channel of the triggers on `runs`.
const CHANNEL: &str = "loadmaster_runs";
/// Longest wait without a look at the queue: notifications are lost while their connection is.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Bounds of the wait between two attempts to connect.
const BACK_OFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Says when it is worth looking at the queue.
#[derive(Debug)]
pub struct RunListener {
    changed: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Store {
    /// Starts to listen, on a connection of its own that is remade whenever it breaks.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn listen(&self) -> RunListener {
        let changed = Arc::new(Notify::new());
        let task = tokio::spawn(hear(self.clone(), Arc::clone(&changed)));
        RunListener { changed, task }
    }
}

impl RunListener {
    /// Waits until the queue may have changed: a notification came, also before this call, or the
    /// polling interval passed. May be dropped at any time without losing a notification.
    pub async fn changed(&mut self) {
        // Either way it is time to look.
        let _timed_out = tokio::time::timeout(POLL_INTERVAL, self.changed.notified()).await;
    }
}

impl Drop for RunListener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Passes notifications on, for ever.
async fn hear(store: Store, changed: Arc<Notify>) {
    let (shortest, longest) = BACK_OFF;
    let mut pause = shortest;
    loop {
        let error = match connect(&store).await {
            Ok(mut listener) => {
                pause = shortest;
                // What happened while no one listened.
                changed.notify_one();
                loop {
                    match listener.try_recv().await {
                        Ok(Some(_)) => changed.notify_one(),
                        Ok(None) => break None,
                        Err(error) => break Some(error),
                    }
                }
            }
            Err(error) => Some(error),
        };
        let why = error.map_or_else(|| "connection lost".to_owned(), |error| error.to_string());
        tracing::warn!(error = why, retry_ms = pause.as_millis(), "lost notifications of new runs; polling");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(longest);
    }
}

async fn connect(store: &Store) -> sqlx::Result<PgListener> {
    // Not from the store's pool: the connection is never given back, and must not be replaced by age.
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .max_lifetime(None)
        .idle_timeout(None)
        .connect_with(store.bare.clone())
        .await?;
    let mut listener = PgListener::connect_with(&pool).await?;
    // Reconnecting is ours, with its back-off.
    listener.eager_reconnect(false);
    listener.listen(CHANNEL).await?;
    Ok(listener)
}
