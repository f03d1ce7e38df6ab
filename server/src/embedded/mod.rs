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
//!   survives even that is stopped by the next planner ([`process`], [`stale_server`]). Either way nothing
//!   that was committed is lost: `fsync` is on.
//! * A server that ends by itself, because somebody killed it or the disk was full, is started again, and so is
//!   one that answers nobody any more, which is ended first ([`unresponsive`]); one that ends again and again is given
//!   up ([`restarts`]).

mod account;
mod binaries;
mod cluster;
mod error;
mod launch;
mod lock;
mod log;
mod process;
mod restarts;
mod socket;
mod stale_server;
mod unresponsive;

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use account::Account;
use cluster::ROLE;
use error::io_error;
use launch::{Launched, Site};
use lock::DataDirLock;
use restarts::{MOST, Restarts, WITHIN};
use unresponsive::frozen;

pub use error::EmbeddedError;

/// The planner's database.
const DATABASE: &str = "loadmaster";
/// Part of the socket's name; there is no TCP port.
const PORT: u16 = 5432;

/// Settings of an embedded Postgres.
#[derive(Debug, Clone)]
pub struct EmbeddedOptions {
    /// How long the server may take to answer: recovery after a crash takes its time.
    pub start_timeout: Duration,
    /// How long the server may answer nobody before it is started again.
    pub patience: Duration,
    /// Whether commits survive a power failure. Only tests do without.
    pub durable: bool,
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        Self {
            start_timeout: Duration::from_secs(60),
            // Far longer than a loaded machine takes: what is written meanwhile is written again from the log.
            patience: Duration::from_secs(60),
            durable: true,
        }
    }
}

/// A running private Postgres. Stop it with [`EmbeddedPostgres::stop`]; a drop does its best.
#[derive(Debug)]
pub struct EmbeddedPostgres {
    // In this order: the lock is let go when the server is gone.
    running: Launched,
    site: Site,
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
        let site = Site { data_dir, account, options: options.clone() };
        let running = site.launch().await?;
        Ok(Self { running, site, _lock: lock })
    }

    /// How to connect.
    pub fn url(&self) -> String {
        let mut url = format!("postgres://{ROLE}@localhost:{PORT}/{DATABASE}?host=");
        for byte in self.running.socket_folder.as_os_str().as_encoded_bytes() {
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
        self.running.server.stop().await;
    }

    /// Starts the server again whenever it ends by itself or answers nobody any more. Returns once that was too
    /// often; may be dropped at any time.
    pub async fn keep(&mut self) -> EmbeddedError {
        let mut restarts = Restarts::default();
        loop {
            let Launched { server, socket_folder } = &mut self.running;
            let log = log::path(&self.site.data_dir);
            let mut last = tokio::select! {
                status = server.end() => {
                    tracing::error!(status, log = %log.display(), "embedded postgres ended by itself");
                    status
                }
                () = frozen(socket_folder, self.site.options.patience) => {
                    tracing::error!(log = %log.display(), "embedded postgres answers nobody and is started again");
                    let status = server.kill().await;
                    stale_server::kill_orphans(&self.site.data_dir.join("postgres"));
                    format!("answered nobody, then {status}")
                }
            };
            self.running = loop {
                let Some(pause) = restarts.next(Instant::now()) else {
                    return EmbeddedError::KeepsEnding { starts: MOST, within: WITHIN, last, log };
                };
                tokio::time::sleep(pause).await;
                match self.site.launch().await {
                    Ok(running) => break running,
                    Err(error) => {
                        last = error.to_string();
                        tracing::error!(error = last, "embedded postgres cannot be started again");
                    }
                }
            };
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
