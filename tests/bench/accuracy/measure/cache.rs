//! Results of earlier runs, by the hash of the rank program and of what it was told.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use super::job::{Key, Outcome};

/// Digits of the name of a folder.
const HASH_DIGITS: usize = 16;

/// A folder with one file per result of one rank program.
#[derive(Debug)]
pub(super) struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// Opens the folder of this rank program and removes those of others: what another build measured
    /// is of no use.
    pub(super) fn open(base: &Path, rank: &Path) -> Result<Self> {
        let name = hash(rank).with_context(|| format!("{} cannot be read", rank.display()))?;
        let folder = base.join(name);
        fs::create_dir_all(&folder).with_context(|| format!("{} cannot be made", folder.display()))?;
        for other in fs::read_dir(base)?.flatten() {
            let is_ours = other.file_name().to_str().is_some_and(is_hash) && other.path().is_dir();
            if is_ours && other.path() != folder {
                // Another harness may be about to remove it, too.
                let _ = fs::remove_dir_all(other.path());
            }
        }
        Ok(Self { folder })
    }

    /// What became of this job; none where it was not run, failed, or cannot be read.
    pub(super) fn get(&self, key: &Key) -> Option<Outcome> {
        let text = fs::read(self.path(key)).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Keeps a result. A failure is tried again next time.
    pub(super) fn put(&self, key: &Key, outcome: &Outcome) -> Result<()> {
        if let Outcome::Failed(_) = outcome {
            return Ok(());
        }
        let path = self.path(key);
        let unfinished = path.with_extension("new");
        fs::write(&unfinished, serde_json::to_vec(outcome)?)
            .and_then(|()| fs::rename(&unfinished, &path))
            .with_context(|| format!("{} cannot be written", path.display()))
    }

    fn path(&self, key: &Key) -> PathBuf {
        self.folder.join(format!("{key}.json"))
    }
}

/// Whether a folder is called as those of this cache are: nothing else is ever removed.
fn is_hash(name: &str) -> bool {
    name.len() == HASH_DIGITS && name.bytes().all(|digit| digit.is_ascii_hexdigit())
}

fn hash(path: &Path) -> Result<String> {
    let mut file = fs::File::open(path)?;
    let mut hasher = Sha256::new();
    let mut chunk = vec![0; 1 << 20];
    loop {
        match file.read(&mut chunk)? {
            0 => break,
            length => hasher.update(&chunk[..length]),
        }
    }
    Ok(hasher.finalize().iter().take(HASH_DIGITS / 2).map(|byte| format!("{byte:02x}")).collect())
}
