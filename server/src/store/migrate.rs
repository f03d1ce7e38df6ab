//! Bringing the tables up to date, and refusing to work on others.

use std::collections::BTreeMap;

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::{Connection, PgConnection};

use super::Store;
use super::error::{Result, StoreError};

static MIGRATIONS: Migrator = sqlx::migrate!("../migrations");

/// What [`Store::migrate`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrationReport {
    /// Migrations applied by this call, human-readable: `1 schema`.
    pub applied: Vec<String>,
    /// The tables' version now.
    pub version: i64,
}

impl Store {
    /// Applies the migrations that are missing. Safe to call from several planners at once: one
    /// works, the others wait.
    ///
    /// # Errors
    /// [`StoreError::Schema`] when the database is newer than this program or a migration fails.
    pub async fn migrate(&self) -> Result<MigrationReport> {
        let options = self.bare.clone();
        // A connection of its own, which dies with its lock: the migrator holds a session lock that
        // a cancelled call would give back to the pool. Its statements have no time limit.
        uncancelled(async move {
            let mut connection = PgConnection::connect_with(&options).await?;
            let before = applied(&mut connection).await?;
            MIGRATIONS.run_direct(None, &mut connection, false).await.map_err(|error| failed(&error))?;
            connection.close().await?;
            let applied = MIGRATIONS
                .iter()
                .filter(|migration| !before.contains_key(&migration.version))
                .map(|migration| format!("{} {}", migration.version, migration.description))
                .collect();
            Ok(MigrationReport { applied, version: newest() })
        })
        .await
    }

    /// Whether the tables are those that this program was built for.
    ///
    /// # Errors
    /// [`StoreError::Schema`] says what to do.
    pub async fn check_schema(&self) -> Result<()> {
        let mut connection = self.pool.acquire().await?;
        let applied = applied(&mut connection).await?;
        if let Some(unknown) = applied.keys().find(|&&version| !MIGRATIONS.version_exists(version)) {
            return Err(newer(*unknown));
        }
        for migration in MIGRATIONS.iter() {
            match applied.get(&migration.version) {
                None => {
                    return Err(StoreError::Schema(format!(
                        "migration {} ({}) is not applied to the database. Run `loadmaster migrate`.",
                        migration.version, migration.description
                    )));
                }
                Some(checksum) if checksum != migration.checksum.as_ref() => {
                    return Err(failed(&MigrateError::VersionMismatch(migration.version)));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

/// Runs `work` to its end, also when the caller stops waiting: a handler's future is dropped when its
/// client goes away, and not everything survives that half done.
async fn uncancelled<T: Send + 'static>(work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    match tokio::spawn(work).await {
        Ok(result) => result,
        Err(error) => Err(StoreError::Internal(error.to_string())),
    }
}

/// Versions and checksums of the applied migrations.
async fn applied(connection: &mut PgConnection) -> Result<BTreeMap<i64, Vec<u8>>> {
    let exists: bool = sqlx::query_scalar("SELECT to_regclass('_sqlx_migrations') IS NOT NULL")
        .fetch_one(&mut *connection)
        .await?;
    if !exists {
        return Ok(BTreeMap::new());
    }
    let rows: Vec<(i64, Vec<u8>)> =
        sqlx::query_as("SELECT version, checksum FROM _sqlx_migrations WHERE success")
            .fetch_all(connection)
            .await?;
    Ok(rows.into_iter().collect())
}

fn newest() -> i64 {
    MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or_default()
}

fn newer(version: i64) -> StoreError {
    StoreError::Schema(format!(
        "the database has migration {version}, but this Loadmaster has migrations up to {}. Install the newer Loadmaster.",
        newest()
    ))
}

fn failed(error: &MigrateError) -> StoreError {
    match error {
        MigrateError::VersionMissing(version) => newer(*version),
        MigrateError::VersionMismatch(version) => StoreError::Schema(format!(
            "migration {version} of the database differs from migration {version} of this Loadmaster. Use the \
             Loadmaster that migrated the database, or a new database."
        )),
        error => StoreError::Schema(format!("cannot migrate the database: {error}")),
    }
}
