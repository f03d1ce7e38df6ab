//! Whether the server is frozen: it is there, and answers nobody. Waiting for it would have no end.

use std::path::Path;
use std::time::Duration;

use sqlx::{Connection, PgConnection};

use super::launch;

/// So many looks in a row find no answer before a server counts as frozen.
const LOOKS: u32 = 6;

/// Returns once the server has answered nobody for this long. Whatever it says is an answer, a refusal too.
pub(super) async fn frozen(socket_folder: &Path, patience: Duration) {
    let step = patience / LOOKS;
    let mut silent = 0;
    while silent < LOOKS {
        // A connection of its own: those of the pool wait for their turn.
        match tokio::time::timeout(step, look(socket_folder)).await {
            Ok(_) => {
                silent = 0;
                tokio::time::sleep(step).await;
            }
            Err(_) => silent += 1,
        }
    }
}

async fn look(socket_folder: &Path) -> sqlx::Result<()> {
    let mut connection = PgConnection::connect_with(&launch::options(socket_folder)).await?;
    connection.ping().await?;
    connection.close().await
}
