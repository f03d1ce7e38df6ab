//! SIGINT and SIGTERM, for programs that start others and must not leave them behind.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Hears signals from the moment on that it was made: before anything is started that would outlive them.
#[derive(Debug)]
pub struct Interruption {
    interrupt: Signal,
    terminate: Signal,
}

impl Interruption {
    /// Begins to listen. Needs a runtime.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn listen() -> io::Result<Self> {
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
