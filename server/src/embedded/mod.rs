//! A private Postgres for planners that are given none.
//!
//! It is the installed server, so there is one SQL dialect and nothing to download:
//!
//! * Its files are in `<data-dir>/postgres`, its log in `<data-dir>/postgres.log`.
//! * It listens on a unix socket in a folder that only its own user can enter, and lets in only the
//!   user that the planner runs as, by the kernel's word ([`socket`]). Nothing over the network.
//! * Started by root, it runs as `postgres` or `nobody`, because Postgres refuses root ([`account`]).
//! * One planner per data directory ([`lock`]).
//! * It ends with the planner. A planner that is killed cannot stop it, so the kernel does; what
//!   survives even that is stopped by the next planner ([`process`], [`leftover`]). Either way nothing
//!   that was committed is lost: `fsync` is on.

mod account;
mod binaries;
mod cluster;
mod error;
mod leftover;
mod lock;
mod log;
mod process;
mod socket;

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection, PgConnection};

use account::Account;
use binaries::Binaries;
use cluster::ROLE;
use error::io_error;
use lock::DataDirLock;
use process::Server;

pub use error::EmbeddedError;

/// The planner's database.
const DATABASE: &str = "loadmaster";
/// Part of the socket's name; there is no TCP port.
const PORT: u16 = 5432;
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// Settings of an embedded Postgres.
#[derive(Debug, Clone)]
pub struct EmbeddedOptions {
    /// How long the server may take to answer: recovery after a crash takes its time.
    pub start_timeout: Duration,
    /// Whether commits survive a power failure. Only tests do without.
    pub durable: bool,
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        Self { start_timeout: Duration::from_secs(60), durable: true }
    }
}

/// A running private Postgres. Stop it with [`EmbeddedPostgres::stop`]; a drop does its best.
#[derive(Debug)]
pub struct EmbeddedPostgres {
    // In this order: the lock is let go when the server is gone.
    server: Server,
    socket_folder: PathBuf,
    _lock: DataDirLock,
}

impl EmbeddedPostgres {
    /// Starts a server on a data directory, which is made if it is not there.
    ///
    /// # Errors
    /// [`EmbeddedError`] says what is wrong and what to do.
    pub async fn start(data_dir: &Path) -> Result<Self, EmbeddedError> {
        Self::start_with(data_dir, &EmbeddedOptions::default()).await
    }

    /// Starts a server with other settings than the default ones.
    ///
    /// # Errors
    /// As [`EmbeddedPostgres::start`].
    pub async fn start_with(data_dir: &Path, options: &EmbeddedOptions) -> Result<Self, EmbeddedError> {
        let account = Account::choose()?;
        let data_dir = make_data_dir(data_dir, &account)?;
        account.check_path(&data_dir)?;
        let lock = DataDirLock::acquire(&data_dir)?;

        let cluster = data_dir.join("postgres");
        leftover::clear(&cluster).await?;
        let binaries = Binaries::find(&cluster)?;
        let durable = options.durable;
        let (data_dir, binaries, account, cluster, socket_folder) = blocking(move || {
            let cluster = cluster::prepare(&data_dir, &binaries, &account, durable)?;
            let socket_folder = socket::prepare(&data_dir, &account)?;
            Ok((data_dir, binaries, account, cluster, socket_folder))
        })
        .await?;

        let command = server_command(&data_dir, &binaries, &account, &cluster, &socket_folder, durable)?;
        let server = Server::start(command).await?;
        let postgres = Self { server, socket_folder, _lock: lock };
        postgres.wait_until_ready(&data_dir, options.start_timeout).await?;
        tracing::info!(version = binaries.major, cluster = %cluster.display(), user = account.user,
            "embedded postgres is running");
        Ok(postgres)
    }

    /// How to connect.
    pub fn url(&self) -> String {
        let mut url = format!("postgres://{ROLE}@localhost:{PORT}/{DATABASE}?host=");
        for byte in self.socket_folder.as_os_str().as_encoded_bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' => {
                    url.push(char::from(*byte))
                }
                // Writing to a string cannot fail.
                _ => drop(write!(url, "%{byte:02X}")),
            }
        }
        url
    }

    /// Stops the server: within a second usually, and certainly in the end.
    pub async fn stop(mut self) {
        self.server.stop().await;
    }

    /// Waits for an answer, and makes the database if it is not there.
    async fn wait_until_ready(&self, data_dir: &Path, limit: Duration) -> Result<(), EmbeddedError> {
        let options = PgConnectOptions::new_without_pgpass()
            .socket(&self.socket_folder)
            .port(PORT)
            .username(ROLE)
            .database("postgres");
        let ready = async {
            let mut pause = FIRST_PAUSE;
            loop {
                if let Some(status) = self.server.ended() {
                    return Err(EmbeddedError::Ended {
                        status,
                        log: log::path(data_dir),
                        tail: log::tail(data_dir),
                    });
                }
                match PgConnection::connect_with(&options).await {
                    Ok(connection) => return make_database(connection).await.map_err(EmbeddedError::Refused),
                    Err(error) if is_starting(&error) => {}
                    Err(error) => return Err(EmbeddedError::Refused(error)),
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        };
        match tokio::time::timeout(limit, ready).await {
            Ok(ready) => ready,
            Err(_) => {
                Err(EmbeddedError::TooSlow { limit, log: log::path(data_dir), tail: log::tail(data_dir) })
            }
        }
    }
}

/// Makes the data directory and resolves links, so that everybody knows it by the same name.
fn make_data_dir(data_dir: &Path, account: &Account) -> Result<PathBuf, EmbeddedError> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(account.data_dir_mode())
        .create(data_dir)
        .map_err(io_error("make", data_dir))?;
    data_dir.canonicalize().map_err(io_error("find", data_dir))
}

fn server_command(
    data_dir: &Path,
    binaries: &Binaries,
    account: &Account,
    cluster: &Path,
    socket_folder: &Path,
    durable: bool,
) -> Result<Command, EmbeddedError> {
    let log = log::open(data_dir)?;
    let on_or_off = if durable { "on" } else { "off" };
    let mut command = Command::new(binaries.postgres());
    command.arg("-D").arg(cluster).arg("-k").arg(socket_folder).arg("-p").arg(PORT.to_string());
    // Here rather than in a file, so that they are the same after every upgrade.
    for setting in [
        "listen_addresses=",
        "unix_socket_permissions=0700",
        "max_connections=100",
        "timezone=UTC",
        "log_timezone=UTC",
        "lc_messages=C",
        "logging_collector=off",
        "log_destination=stderr",
        "log_line_prefix=%m [%p] ",
        "log_checkpoints=off",
        // Short queries gain nothing from compiled ones.
        "jit=off",
    ] {
        command.arg("-c").arg(setting);
    }
    for setting in ["fsync", "synchronous_commit", "full_page_writes"] {
        command.arg("-c").arg(format!("{setting}={on_or_off}"));
    }
    command
        .current_dir(cluster)
        .stdin(Stdio::null())
        .stdout(log.try_clone().map_err(io_error("open", &log::path(data_dir)))?)
        .stderr(log);
    process::forget_settings(&mut command);
    account.apply(&mut command);
    Ok(command)
}

/// Whether the server may answer later: no socket yet, or still starting (`57P03`).
fn is_starting(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) => true,
        sqlx::Error::Database(error) => error.code().as_deref() == Some("57P03"),
        _ => false,
    }
}

async fn make_database(mut connection: PgConnection) -> sqlx::Result<()> {
    let there: bool = sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)")
        .bind(DATABASE)
        .fetch_one(&mut connection)
        .await?;
    if !there {
        sqlx::raw_sql("CREATE DATABASE loadmaster").execute(&mut connection).await?;
    }
    connection.close().await
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, EmbeddedError> + Send + 'static,
) -> Result<T, EmbeddedError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(EmbeddedError::Internal(error.to_string())),
    }
}
