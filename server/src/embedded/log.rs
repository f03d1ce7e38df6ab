//! The server's log file.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;

use super::error::{EmbeddedError, io_error};
use crate::safe_files::Folder;

/// A larger file is put aside at the start, in place of the one put aside before.
const MAX_BYTES: u64 = 8 << 20;
/// How much of the end to show in an error.
const TAIL_BYTES: u64 = 2_000;

const NAME: &str = "postgres.log";
const NAME_ASIDE: &str = "postgres.log.1";

pub(super) fn path(data_dir: &Path) -> PathBuf {
    data_dir.join(NAME)
}

pub(super) fn open(data_dir: &Path) -> Result<File, EmbeddedError> {
    let open = || {
        let folder = Folder::open(data_dir)?;
        let how = OFlag::O_WRONLY | OFlag::O_APPEND;
        let file = folder.open_or_create(NAME, how)?;
        if file.metadata()?.len() <= MAX_BYTES {
            return Ok(file);
        }
        folder.rename(NAME, NAME_ASIDE)?;
        folder.open_or_create(NAME, how)
    };
    open().map_err(io_error("open", &path(data_dir)))
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
