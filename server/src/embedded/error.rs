//! Why a private Postgres cannot be had.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Why the embedded Postgres did not start. Every message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    /// No server programs are installed.
    #[error(
        "no PostgreSQL server found (looked in {looked}). Install the package postgresql (Debian, Ubuntu: apt install \
         postgresql; Fedora: dnf install postgresql-server), set LOADMASTER_POSTGRES_BIN to its folder, or set DATABASE_URL \
         to use an existing server."
    )]
    NoBinaries {
        /// Where.
        looked: String,
    },
    /// A server program does not run.
    #[error("{program} does not run: {why}")]
    BadBinary {
        /// Which.
        program: PathBuf,
        why: String,
    },
    /// The cluster was made by another major version.
    #[error(
        "the data in {cluster} needs PostgreSQL {data}, but PostgreSQL {installed} is installed. Also install \
         PostgreSQL {data}, convert the data with pg_upgrade, or name another data directory."
    )]
    WrongVersion {
        /// Where.
        cluster: PathBuf,
        data: String,
        /// The programs'.
        installed: String,
    },
    /// Another planner works on the data directory.
    #[error("data directory {data_dir} is in use by another planner{}. Stop that planner, or name another data directory.", holder(*pid))]
    InUse {
        /// Where.
        data_dir: PathBuf,
        /// By whom, if known.
        pid: Option<i32>,
    },
    /// The account that runs Postgres cannot reach the data directory.
    #[error(
        "Loadmaster was started as root, so Postgres runs as user {user:?}, which has no access to {folder}. Allow it with \
         chmod o+x {folder}, name another data directory with --data-dir, or start Loadmaster as an ordinary user."
    )]
    NotTraversable {
        /// Who.
        user: String,
        /// Where.
        folder: PathBuf,
    },
    /// Started as root on a system without an unprivileged account.
    #[error(
        "Loadmaster runs as root, but this system has no user \"postgres\" or \"nobody\" to run Postgres. Start \
         Loadmaster as an ordinary user."
    )]
    NoAccount,
    /// No user name for the account of this process.
    #[error(
        "Postgres needs a user name, but user id {uid} has none on this system. Add the user to /etc/passwd, or set \
         DATABASE_URL to use an existing server."
    )]
    NoUserName {
        /// The id.
        uid: u32,
    },
    /// The cluster belongs to another account.
    #[error(
        "{path} belongs to user id {owner}, but Postgres would run as {wanted}. Start Loadmaster as the owner, or change the \
         owner."
    )]
    WrongOwner {
        /// What.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Whose it must be.
        wanted: u32,
    },
    /// No folder for the socket is short enough and ours alone.
    #[error("cannot create a folder for the socket of Postgres: {0}")]
    NoSocketFolder(String),
    /// initdb failed.
    #[error("cannot create the database cluster: {0}")]
    Initdb(String),
    /// The server ended while starting.
    #[error("Postgres ended during its start ({status}). The end of {log}:\n{tail}")]
    Ended {
        /// How.
        status: String,
        log: PathBuf,
        /// The last lines.
        tail: String,
    },
    /// The server took too long.
    #[error("Postgres did not answer within {} seconds after its start. The end of {log}:\n{tail}", limit.as_secs_f64())]
    TooSlow {
        /// How long it had.
        limit: Duration,
        log: PathBuf,
        /// The last lines.
        tail: String,
    },
    /// The server ended by itself repeatedly.
    #[error(
        "the embedded Postgres ended unexpectedly and was restarted {starts} times within {} minutes, which is the limit. See \
         its log {log}. Last status: {last}",
        within.as_secs() / 60
    )]
    KeepsEnding {
        /// How often it was restarted.
        starts: usize,
        /// In which time.
        within: Duration,
        log: PathBuf,
        /// How it ended, or why it could not be started, the last time.
        last: String,
    },
    /// A server that a dead planner left behind does not stop.
    #[error("the Postgres server of an earlier planner does not stop. End it with `kill {pid}`.")]
    Leftover {
        /// Its process id.
        pid: i32,
    },
    /// The new server refused what it must do.
    #[error("the new Postgres rejected its setup: {0}")]
    Refused(#[source] sqlx::Error),
    /// A file operation failed.
    #[error("cannot {what} {path}: {source}")]
    Io {
        /// Doing what.
        what: &'static str,
        /// To which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A defect of this program.
    #[error("internal error: {0}")]
    Internal(String),
}

fn holder(pid: Option<i32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (process {pid})"))
}

/// Adds what was done to which file.
pub(super) fn io_error<'a>(
    what: &'static str,
    path: &'a Path,
) -> impl FnOnce(io::Error) -> EmbeddedError + 'a {
    move |source| EmbeddedError::Io { what, path: path.to_owned(), source }
}
