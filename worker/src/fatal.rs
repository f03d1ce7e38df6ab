//! Why the daemon ends without being asked to, and its exit codes.

use crate::config::ConfigError;
use crate::inventory::InventoryError;
use crate::probe::ProbeError;

/// The exit codes, as `--help` explains them. Keep them in step with [`Fatal::exit_code`].
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  stopped on request. No process or folder is left.
  1  another failure. The message names it.
  2  the command line or the configuration file is wrong. The message names the option or key.
  3  the planner rejects this worker permanently. Its protocol version, permission or name is wrong.
  4  the rank program cannot run. The program is missing, or does not find the required libtorch version.
  5  no device can be offered.";

/// An end of the worker that an operator has to look at.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fatal {
    /// The settings make no worker.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The planner will never accept this worker as it is.
    #[error("the planner rejected this worker: {0}")]
    Refused(String),
    /// The rank program is of no use.
    #[error(transparent)]
    Rank(#[from] ProbeError),
    /// Nothing to offer.
    #[error(transparent)]
    Devices(#[from] InventoryError),
    #[error("{0:#}")]
    Other(#[from] anyhow::Error),
}

impl Fatal {
    /// See [`EXIT_CODES`].
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Other(_) => 1,
            Self::Config(_) => 2,
            Self::Refused(_) => 3,
            Self::Rank(_) => 4,
            Self::Devices(_) => 5,
        }
    }

    /// Says it: through the log, or plainly where the log hides errors.
    pub(crate) fn tell(&self) {
        if tracing::enabled!(tracing::Level::ERROR) {
            tracing::error!(exit_code = self.exit_code(), "{self}");
        } else {
            eprintln!("loadmaster-worker: {self}");
        }
    }
}
