//! The server's log file.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::error::{EmbeddedError, io_error};

/// A larger file is put aside at the start, in place of the one put aside before.
const MAX_BYTES: u64 = 8 << 20;
/// How much of the end to show in an error.
const TAIL_BYTES: u64 = 2_000;

pub(super) fn path(data_dir: &Path) -> PathBuf {
    data_dir.join("postgres.log")
}

pub(super) fn open(data_dir: &Path) -> Result<File, EmbeddedError> {
    let path = path(data_dir);
    if path.metadata().is_ok_and(|about| about.len() > MAX_BYTES) {
        std::fs::rename(&path, data_dir.join("postgres.log.1")).map_err(io_error("rename", &path))?;
    }
    OpenOptions::new().append(true).create(true).mode(0o600).open(&path).map_err(io_error("open", &path))
}

/// The last lines, as far as they can be read.
pub(super) fn tail(data_dir: &Path) -> String {
    let read = || {
        let mut file = File::open(path(data_dir))?;
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
        let large = File::create(path(folder.path())).unwrap();
        large.set_len(MAX_BYTES + 1).unwrap();
        assert_eq!(open(folder.path()).unwrap().metadata().unwrap().len(), 0);
        assert!(folder.path().join("postgres.log.1").exists());
    }
}
