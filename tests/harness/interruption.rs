//! SIGINT and SIGTERM, for programs that start others and must not leave them behind.

use std::io;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Set by a signal: the next step is not begun, and what runs is stopped.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// Whether this program hears signals, and ends in a way of its own.
static IS_HEARD: AtomicBool = AtomicBool::new(false);
/// Exit code after an interruption, as shells have it.
pub(crate) const EXIT_INTERRUPTED: u8 = 130;

/// Hears signals from the moment on that it was made: before anything is started that would outlive them.
#[derive(Debug)]
pub struct Interruption {
    interrupt: Signal,
    terminate: Signal,
}

impl Interruption {
    /// Begins to listen: whoever does so ends what it started. Needs a runtime.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn listen() -> io::Result<Self> {
        IS_HEARD.store(true, Ordering::Relaxed);
        Self::hear()
    }

    /// The same for those who do so only where nobody else does.
    pub(crate) fn hear() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for either, one that has come already included.
    pub async fn came(mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Whether somebody listens who ends what was started.
pub(crate) fn is_heard_by_others() -> bool {
    IS_HEARD.load(Ordering::Relaxed)
}

/// Lets nothing new be asked of planners.
pub fn interrupt() {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// Whether a signal came while [`until_interrupted`] works, or somebody else heard one.
pub fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Does the work of the program of this name. After a signal nothing new is asked of planners, so that the work ends early,
/// and takes with it what it started.
pub async fn until_interrupted(
    name: &str,
    work: impl FnOnce() -> anyhow::Result<ExitCode> + Send + 'static,
) -> ExitCode {
    // First of all: a signal that comes before would end this program and leave what it started behind.
    let interruption = match Interruption::listen() {
        Ok(interruption) => interruption,
        Err(error) => {
            eprintln!("{name}: signals cannot be heard: {error}");
            return ExitCode::FAILURE;
        }
    };
    tokio::spawn(async move {
        interruption.came().await;
        interrupt();
    });
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(code)) => code,
        Ok(Err(_)) if is_interrupted() => {
            eprintln!("interrupted: planner, worker and ranks are stopped; finished tables are kept");
            ExitCode::from(EXIT_INTERRUPTED)
        }
        Ok(Err(error)) => {
            eprintln!("{name}: {error:#}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::FAILURE
        }
    }
}
