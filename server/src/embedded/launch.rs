//! One start of the server on its data directory, the settings that it gets, and its log file.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::fcntl::OFlag;
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection, PgConnection};

use super::account::Account;
use super::binaries::Binaries;
use super::cluster::ROLE;
use super::error::{EmbeddedError, io_error};
use super::process::Server;
use super::{DATABASE, EmbeddedOptions, PORT, cluster, process, socket, stale_server};
use crate::safe_files::Folder;

const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// Where a server is started, as whom and how; its owner holds the data directory's lock.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) data_dir: PathBuf,
    pub(super) account: Account,
    pub(super) options: EmbeddedOptions,
}

/// A server that answers.
#[derive(Debug)]
pub(super) struct Launched {
    pub(super) server: Server,
    pub(super) socket_folder: PathBuf,
}

impl Site {
    /// Starts a server once nothing is left of any earlier one, and waits for its first answer.
    pub(super) async fn launch(&self) -> Result<Launched, EmbeddedError> {
        let cluster = self.data_dir.join("postgres");
        stale_server::clear(&cluster).await?;
        let binaries = Binaries::find(&cluster)?;
        let (data_dir, account, durable) =
            (self.data_dir.clone(), self.account.clone(), self.options.durable);
        let (command, socket_folder) = blocking({
            let binaries = binaries.clone();
            move || {
                let cluster = cluster::prepare(&data_dir, &binaries, &account, durable)?;
                let socket_folder = socket::prepare(&data_dir, &account)?;
                let command =
                    server_command(&data_dir, &binaries, &account, &cluster, &socket_folder, durable)?;
                Ok((command, socket_folder))
            }
        })
        .await?;
        let launched = Launched { server: Server::start(command).await?, socket_folder };
        launched.wait_until_ready(&self.data_dir, self.options.start_timeout).await?;
        tracing::info!(version = binaries.major, cluster = %cluster.display(), user = self.account.user,
            "embedded PostgreSQL is running");
        Ok(launched)
    }
}

impl Launched {
    /// Waits for an answer, and makes the database if it is not there.
    async fn wait_until_ready(&self, data_dir: &Path, limit: Duration) -> Result<(), EmbeddedError> {
        let options = options(&self.socket_folder);
        let ready = async {
            let mut pause = FIRST_PAUSE;
            loop {
                if let Some(status) = self.server.ended() {
                    return Err(EmbeddedError::Ended {
                        status,
                        log: log_path(data_dir),
                        tail: log_tail(data_dir),
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
                Err(EmbeddedError::TooSlow { limit, log: log_path(data_dir), tail: log_tail(data_dir) })
            }
        }
    }
}

/// How the planner itself looks at its server.
pub(super) fn options(socket_folder: &Path) -> PgConnectOptions {
    PgConnectOptions::new_without_pgpass()
        .socket(socket_folder)
        .port(PORT)
        .username(ROLE)
        .database("postgres")
}

fn server_command(
    data_dir: &Path,
    binaries: &Binaries,
    account: &Account,
    cluster: &Path,
    socket_folder: &Path,
    durable: bool,
) -> Result<Command, EmbeddedError> {
    let log = open_log(data_dir)?;
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
        .stdout(log.try_clone().map_err(io_error("open", &log_path(data_dir)))?)
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

/// A larger file is put aside at the start, in place of the one put aside before.
const MAX_LOG_BYTES: u64 = 8 << 20;
/// How much of the end to show in an error.
const TAIL_BYTES: u64 = 2_000;

const LOG_NAME: &str = "postgres.log";
const LOG_NAME_ASIDE: &str = "postgres.log.1";

pub(super) fn log_path(data_dir: &Path) -> PathBuf {
    data_dir.join(LOG_NAME)
}

fn open_log(data_dir: &Path) -> Result<File, EmbeddedError> {
    let open = || {
        let folder = Folder::open(data_dir)?;
        let how = OFlag::O_WRONLY | OFlag::O_APPEND;
        let file = folder.open_or_create(LOG_NAME, how)?;
        if file.metadata()?.len() <= MAX_LOG_BYTES {
            return Ok(file);
        }
        folder.rename(LOG_NAME, LOG_NAME_ASIDE)?;
        folder.open_or_create(LOG_NAME, how)
    };
    open().map_err(io_error("open", &log_path(data_dir)))
}

/// The last lines, as far as they can be read.
fn log_tail(data_dir: &Path) -> String {
    let read = || {
        let mut file = File::open(log_path(data_dir))?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        std::io::Result::Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    read().map_or_else(|error| format!("(cannot be read: {error})"), |text| text.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_log_is_put_aside() {
        let folder = tempfile::tempdir().unwrap();
        let large = File::create(log_path(folder.path())).unwrap();
        large.set_len(MAX_LOG_BYTES + 1).unwrap();
        assert_eq!(open_log(folder.path()).unwrap().metadata().unwrap().len(), 0);
        assert!(folder.path().join("postgres.log.1").exists());
    }
}
