//! A private Postgres for planners that are given none.
//!
//! It is the installed server, so there is one SQL dialect and nothing to download:
//!
//! * Its files are in `<data-dir>/postgres`, its log in `<data-dir>/postgres.log`.
//! * It listens on a unix socket in a folder that only its own user can enter, and lets in only the
//!   user that the planner runs as, by the kernel's word ([`socket`]). Nothing over the network.
//! * Started by root, it runs as `postgres` or `nobody`, because Postgres refuses root ([`account`]).
//! * One planner per data directory ([`DataDirLock`]).
//! * It ends with the planner. A planner that is killed cannot stop it, so the kernel does; what
//!   survives even that is stopped by the next planner ([`process`], [`stale_server`]). Either way nothing
//!   that was committed is lost: `fsync` is on.
//! * A server that ends by itself, because someone killed it or the disk was full, is restarted. So is
//!   one that is unresponsive, which is ended first ([`process`]); one that ends repeatedly is given
//!   up ([`Restarts`]).

mod account;
mod binaries;
mod cluster;
mod error;
mod launch;
mod process;
mod socket;
mod stale_server;

use std::collections::VecDeque;
use std::fmt::Write;
use std::fs;
use std::fs::File;
use std::io::{Read, Write as _};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg, OFlag};

use crate::safe_files::Folder;
use account::Account;
use cluster::ROLE;
use error::io_error;
use launch::log_path;
use launch::{Launched, Site};
use process::frozen;

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
    /// How long the server may be unresponsive before it is restarted.
    pub patience: Duration,
    /// Whether commits survive a power failure. Only tests do without.
    pub durable: bool,
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        Self {
            start_timeout: Duration::from_secs(60),
            // Far longer than a loaded machine takes: what is written meanwhile is rewritten from the log.
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

    /// Restarts the server whenever it ends by itself or is unresponsive. Returns once that was too
    /// often; may be dropped at any time.
    pub async fn keep(&mut self) -> EmbeddedError {
        let mut restarts = Restarts::default();
        loop {
            let Launched { server, socket_folder } = &mut self.running;
            let log = log_path(&self.site.data_dir);
            let mut last = tokio::select! {
                status = server.end() => {
                    tracing::error!(status, log = %log.display(), "embedded PostgreSQL ended unexpectedly; restarting it");
                    status
                }
                () = frozen(socket_folder, self.site.options.patience) => {
                    tracing::error!(log = %log.display(), "embedded PostgreSQL is unresponsive; restarting it");
                    let status = server.kill().await;
                    stale_server::kill_orphans(&self.site.data_dir.join("postgres"));
                    format!("unresponsive, then {status}")
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
                        tracing::error!(error = last, "could not restart embedded PostgreSQL");
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

/// Held as long as it lives; the kernel lets go of it when the process ends, however that happens.
#[derive(Debug)]
struct DataDirLock(#[expect(dead_code, reason = "held, not used")] Flock<File>);

impl DataDirLock {
    fn acquire(data_dir: &Path) -> Result<Self, EmbeddedError> {
        let path = data_dir.join("lock");
        let file = Folder::open(data_dir).and_then(|folder| folder.open_or_create("lock", OFlag::O_RDWR));
        let file = file.map_err(io_error("open", &path))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(mut lock) => {
                // For the message that a second planner gives; nothing depends on it.
                lock.set_len(0).map_err(io_error("write", &path))?;
                writeln!(lock, "{}", std::process::id()).map_err(io_error("write", &path))?;
                Ok(Self(lock))
            }
            Err((mut file, nix::Error::EWOULDBLOCK)) => {
                let mut text = String::new();
                let read = file.read_to_string(&mut text);
                let pid = read.ok().and_then(|_| text.trim().parse().ok());
                Err(EmbeddedError::InUse { data_dir: data_dir.to_owned(), pid })
            }
            Err((_, error)) => Err(io_error("lock", &path)(error.into())),
        }
    }
}

/// Most starts within [`WITHIN`]: what ends more often has a cause that another start does not mend.
const MOST: usize = 5;
/// The time in which starts are counted.
const WITHIN: Duration = Duration::from_secs(10 * 60);
/// Pause before the second start; it doubles with every further one. Before the first there is none.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The starts that still count.
#[derive(Debug, Default)]
struct Restarts(VecDeque<Instant>);

impl Restarts {
    /// Pause before the next start; none when there were too many.
    fn next(&mut self, now: Instant) -> Option<Duration> {
        while self.0.front().is_some_and(|&start| now.saturating_duration_since(start) >= WITHIN) {
            self.0.pop_front();
        }
        let before = u32::try_from(self.0.len()).ok()?;
        if self.0.len() >= MOST {
            return None;
        }
        self.0.push_back(now);
        Some(before.checked_sub(1).map_or(Duration::ZERO, |exponent| FIRST_PAUSE * 2_u32.pow(exponent)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_there_were_too_many_starts() {
        let mut restarts = Restarts::default();
        let now = Instant::now();
        let pauses: Vec<_> = (0..=MOST).map(|_| restarts.next(now).map(|pause| pause.as_secs())).collect();
        assert_eq!(pauses, [Some(0), Some(1), Some(2), Some(4), Some(8), None]);
        assert_eq!(restarts.next(now + WITHIN), Some(Duration::ZERO), "old ones are forgotten");
    }
}
