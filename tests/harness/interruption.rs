//! SIGINT and SIGTERM, for programs that start others and must not leave them behind.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Set by a signal: the next step is not begun, and what runs is stopped.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// Whether this program hears signals, and ends in a way of its own.
static IS_HEARD: AtomicBool = AtomicBool::new(false);
/// Exit code after an interruption, as shells have it.
pub const EXIT_INTERRUPTED: u8 = 130;

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

/// Whether a signal came, and nothing new may be asked.
pub fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}
