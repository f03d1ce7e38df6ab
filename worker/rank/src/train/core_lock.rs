//! Ranks on the same cores take turns at what is timed: beside companions of another one it would take longer.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::error::RankError;
use crate::progress;

/// Between two looks at whose turn it is.
const PAUSE: Duration = Duration::from_millis(5);

/// A turn. It ends with this, or with the process.
#[derive(Debug)]
pub(super) struct CoreLock {
    _locked: File,
}

impl CoreLock {
    /// Waits, as a rank that is alive, until nobody else has the lock of this file, which is made where it is missing.
    ///
    /// # Errors
    /// When it cannot be locked.
    pub(super) fn wait(turns: &Path) -> Result<Self, RankError> {
        let failed =
            |why: std::io::Error| RankError::Other(format!("cannot lock {}: {why}", turns.display()));
        let file = File::options().create(true).append(true).open(turns).map_err(failed)?;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { _locked: file }),
                Err(TryLockError::WouldBlock) => {
                    progress::tick();
                    thread::sleep(PAUSE);
                }
                Err(TryLockError::Error(why)) => return Err(failed(why)),
            }
        }
    }
}
