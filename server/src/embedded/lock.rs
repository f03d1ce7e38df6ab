//! One planner per data directory.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use nix::fcntl::{Flock, FlockArg, OFlag};

use super::error::{EmbeddedError, io_error};
use crate::safe_files::Folder;

/// Held as long as it lives; the kernel lets go of it when the process ends, however that happens.
#[derive(Debug)]
pub(super) struct DataDirLock(#[expect(dead_code, reason = "held, not used")] Flock<File>);

impl DataDirLock {
    pub(super) fn acquire(data_dir: &Path) -> Result<Self, EmbeddedError> {
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
