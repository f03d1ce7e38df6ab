//! The connection pool and the limits that every connection has.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection as _, PgPool};

use super::Store;
use super::error::{Result, StoreError};

/// No statement of ours takes longer; one that does is stuck.
const STATEMENT_TIMEOUT: &str = "30s";
/// A filtered or ordered list takes less; one that does not is for a narrower filter.
pub(super) const LIST_SECONDS: u32 = 5;
/// An open transaction that waits for its client holds back vacuum for everybody.
const IDLE_IN_TRANSACTION_TIMEOUT: &str = "10s";
/// Connections are replaced after this time, so that a fail-over is found and memory is given back.
const MAX_LIFETIME: Duration = Duration::from_secs(30 * 60);
const IDLE_TIMEOUT: Duration = Duration::from_secs(5 * 60);
/// A connection that was used a moment ago is not asked whether it lives before it is reused: that would double
/// the round trips of a busy planner.
const TRUSTED: Duration = Duration::from_secs(1);

/// Where Postgres is and how much of it to use.
#[derive(Clone)]
pub struct ConnectOptions {
    /// `postgres://user:password@host:port/database`.
    pub url: String,
    /// Most connections at once. A quarter of them is for filtered and ordered lists, which may take none of the others.
    pub max_connections: u32,
    /// Longest wait for a free connection, and for a first one.
    pub acquire_timeout: Duration,
}

impl ConnectOptions {
    /// The defaults for a planner.
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), max_connections: 16, acquire_timeout: Duration::from_secs(5) }
    }

    /// A pool of at most so many connections.
    fn pool(&self, most: u32) -> PgPoolOptions {
        PgPoolOptions::new()
            .max_connections(most)
            .acquire_timeout(self.acquire_timeout)
            .max_lifetime(MAX_LIFETIME)
            .idle_timeout(IDLE_TIMEOUT)
            .test_before_acquire(false)
            .before_acquire(|connection, meta| {
                Box::pin(async move {
                    // An error closes the connection, and the next one is taken.
                    if meta.idle_for > TRUSTED { connection.ping().await.map(|()| true) } else { Ok(true) }
                })
            })
            // sqlx 0.9's `begin` is not cancel-safe: a future dropped at the wrong moment returns its
            // connection inside an open transaction, and what the next borrower writes is lost. So
            // every connection leaves any transaction on its way back. A lone ROLLBACK would make
            // the server log a warning each time that there is, as nearly always, nothing to leave.
            .after_release(|connection, _| {
                Box::pin(async move {
                    sqlx::raw_sql("BEGIN; ROLLBACK").execute(connection).await?;
                    Ok(true)
                })
            })
    }
}

/// Without the URL: it may hold a password.
impl fmt::Debug for ConnectOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectOptions")
            .field("url", &"…")
            .field("max_connections", &self.max_connections)
            .field("acquire_timeout", &self.acquire_timeout)
            .finish()
    }
}

impl Store {
    /// Connects.
    ///
    /// # Errors
    /// [`StoreError::Connect`] when the URL is wrong or the server does not let us in. The message
    /// names user, host and database, never the password.
    pub async fn connect(options: &ConnectOptions) -> Result<Self> {
        let bare = PgConnectOptions::from_str(&options.url).map_err(|error| {
            // The parser's errors name the part that is wrong, not the URL.
            StoreError::Connect(format!(
                "the database URL is not valid ({error}). Use postgres://USER:PASSWORD@HOST:PORT/DATABASE."
            ))
        })?;
        if !options.url.starts_with("postgres://") && !options.url.starts_with("postgresql://") {
            return Err(StoreError::Connect(
                "the database URL does not start with postgres://. Use a PostgreSQL database.".to_owned(),
            ));
        }
        let bare = bare.application_name("loadmaster");
        let limited = |statement_timeout: &str| {
            bare.clone().options([
                ("statement_timeout", statement_timeout),
                ("idle_in_transaction_session_timeout", IDLE_IN_TRANSACTION_TIMEOUT),
            ])
        };
        let of_lists = (options.max_connections / 4).max(1);
        let pool = options
            .pool(options.max_connections.saturating_sub(of_lists).max(1))
            .connect_with(limited(STATEMENT_TIMEOUT))
            .await
            .map_err(|error| cannot_connect(&bare, options.acquire_timeout, &error))?;
        let lists = options.pool(of_lists).connect_lazy_with(limited(&format!("{LIST_SECONDS}s")));
        Ok(Self { pool, lists, bare })
    }

    /// The pool, for metrics and tests.
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Whether Postgres answers.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when it does not.
    pub async fn ping(&self) -> Result<()> {
        sqlx::query("SELECT 1").execute(&self.pool).await?;
        Ok(())
    }

    /// Whether Postgres can store what it is given: a full disk answers reads, and takes rows as long as they fit
    /// into files that are there. So this asks for more of the disk, in a table that is gone with its statement.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when it refuses.
    pub async fn probe_writes(&self) -> Result<()> {
        let probe = "CREATE TEMPORARY TABLE loadmaster_probe ON COMMIT DROP AS \
                     SELECT number FROM generate_series(1, 4096) AS number";
        match sqlx::query(probe).persistent(false).execute(&self.pool).await.map_err(StoreError::from) {
            Err(error @ StoreError::Unavailable(_)) => Err(error),
            // A role that may not make temporary tables cannot ask.
            Err(error) => {
                tracing::debug!(%error, "could not check whether the database accepts writes");
                Ok(())
            }
            Ok(_) => Ok(()),
        }
    }

    /// Closes the connections once they are given back.
    pub async fn close(&self) {
        self.lists.close().await;
        self.pool.close().await;
    }
}

fn cannot_connect(options: &PgConnectOptions, waited: Duration, error: &sqlx::Error) -> StoreError {
    let host = options.get_socket().map_or_else(
        || format!("{}:{}", options.get_host(), options.get_port()),
        |socket| socket.display().to_string(),
    );
    let database = options.get_database().unwrap_or_else(|| options.get_username());
    let why = match error {
        sqlx::Error::PoolTimedOut => format!("no answer within {} seconds", waited.as_secs_f64()),
        sqlx::Error::Database(error) => error.message().to_owned(),
        error => error.to_string(),
    };
    StoreError::Connect(format!(
        "cannot connect to database {database:?} at {host} as user {:?}: {why}",
        options.get_username()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn refusal(url: &str) -> String {
        let options =
            ConnectOptions { acquire_timeout: Duration::from_millis(300), ..ConnectOptions::new(url) };
        Store::connect(&options).await.err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[tokio::test]
    async fn an_unreachable_server_is_named_without_the_password() {
        let message = refusal("postgres://lm:geheim@127.0.0.1:1/plans").await;
        assert!(message.contains("127.0.0.1:1") && message.contains("\"plans\""), "{message}");
        assert!(!message.contains("geheim"), "{message}");
    }

    #[tokio::test]
    async fn a_url_that_is_none_is_not_repeated() {
        for url in ["lm:geheim@db/plans", "mysql://lm:geheim@db/plans", "postgres://lm:geheim@db:port/plans"]
        {
            let message = refusal(url).await;
            assert!(message.contains("database URL"), "{message}");
            assert!(!message.contains("geheim"), "{message}");
        }
    }

    #[test]
    fn debug_output_hides_the_url() {
        assert!(!format!("{:?}", ConnectOptions::new("postgres://lm:geheim@db/plans")).contains("geheim"));
    }
}
