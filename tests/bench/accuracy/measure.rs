//! Measuring stages with real ranks, side by side and each only once.
//!
//! A rank computes with one thread, so as many ranks as there are cores run at a time; the ranks of one
//! stage run together, however many they are. What was measured is kept on disk by the hash of the
//! rank program and of its specification: a second run measures what is new.
//!
//! Ranks are killed when the harness is interrupted or terminated, and by their time limit. Should it
//! be killed outright they end by themselves within seconds, when nobody reads what they say.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use loadmaster_tests::binary;
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

use crate::accuracy::job::{Job, Outcome};
use crate::report::Progress;

/// Ranks at a time, each with one thread.
const RANKS: u32 = 2;

/// What was measured, by job.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    outcomes: HashMap<String, Outcome>,
    /// Runs made this time.
    pub(crate) ran: usize,
    /// Taken from an earlier run.
    pub(crate) cached: usize,
}

impl Measured {
    /// What became of a job that was among those measured.
    pub(crate) fn of(&self, job: &Job) -> Option<&Outcome> {
        self.outcomes.get(&job.key)
    }
}

/// Measures all jobs; equal ones once. Results are kept in this folder.
///
/// # Errors
/// The rank program cannot be read or started, or results cannot be kept. A stage that cannot be
/// trained is an outcome.
pub(crate) async fn measure(jobs: Vec<Job>, folder: &Path) -> Result<Measured> {
    let cache = Cache::open(folder, &binary("loadmaster-rank"))?;
    let mut measured = Measured::default();
    let mut left: Vec<Job> = Vec::new();
    let mut seen = HashSet::new();
    for job in jobs.into_iter().filter(|job| seen.insert(job.key.clone())) {
        match cache.get(&job.key) {
            Some(outcome) => {
                measured.cached += 1;
                measured.outcomes.insert(job.key, outcome);
            }
            None => left.push(job),
        }
    }
    eprintln!("measuring {} runs; {} are known from earlier", left.len(), measured.cached);
    let mut progress = Progress::new(left.len());
    let places = Semaphore::new(RANKS as usize);
    let run = async |job: Job| {
        // A stage of more ranks than cores takes them all: its ranks wait for each other.
        let _place = places.acquire_many(job.ranks().min(RANKS)).await?;
        anyhow::Ok((job.run().await?, job))
    };
    let mut running: FuturesUnordered<_> = left.into_iter().map(run).collect();
    let mut failed = 0;
    while let Some(done) = running.next().await {
        let (outcome, job) = done?;
        progress.step(job.describe());
        if let Outcome::Failed(why) = &outcome {
            failed += 1;
            eprintln!("a run failed: {why}");
        }
        cache.put(&job.key, &outcome)?;
        measured.ran += 1;
        measured.outcomes.insert(job.key, outcome);
    }
    eprintln!("measured {} runs, {failed} failed", measured.ran);
    Ok(measured)
}

/// Digits of the name of a folder.
const HASH_DIGITS: usize = 16;

/// A folder with one file per result of one rank program.
#[derive(Debug)]
struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// Opens the folder of this rank program and removes those of others: what another build measured
    /// is of no use.
    fn open(base: &Path, rank: &Path) -> Result<Self> {
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
    fn get(&self, key: &str) -> Option<Outcome> {
        let text = fs::read(self.path(key)).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Keeps a result. A failure is tried again next time.
    fn put(&self, key: &str, outcome: &Outcome) -> Result<()> {
        if let Outcome::Failed(_) = outcome {
            return Ok(());
        }
        let path = self.path(key);
        let unfinished = path.with_extension("new");
        fs::write(&unfinished, serde_json::to_vec(outcome)?)
            .and_then(|()| fs::rename(&unfinished, &path))
            .with_context(|| format!("{} cannot be written", path.display()))
    }

    fn path(&self, key: &str) -> PathBuf {
        self.folder.join(format!("{key}.json"))
    }
}

/// Whether a folder is called as those of this cache are: nothing else is ever removed.
fn is_hash(name: &str) -> bool {
    name.len() == HASH_DIGITS && name.bytes().all(|digit| digit.is_ascii_hexdigit())
}

fn hash(path: &Path) -> Result<String> {
    let digest = Sha256::digest(fs::read(path)?);
    Ok(digest.iter().take(HASH_DIGITS / 2).map(|byte| format!("{byte:02x}")).collect())
}
