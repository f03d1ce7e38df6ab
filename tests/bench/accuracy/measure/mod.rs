//! Measuring stages with real ranks, side by side and each only once.
//!
//! A rank computes with one thread, so as many ranks as there are cores run at a time; the ranks of one
//! stage run together, however many they are. What was measured is kept on disk by the hash of the
//! rank program and of its specification: a second run measures what is new.
//!
//! Ranks are killed when the harness is interrupted or terminated, and by their time limit. Should it
//! be killed outright they end by themselves within seconds, when nobody reads what they say.

mod cache;
mod job;
mod rank;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Semaphore;

pub(crate) use job::{ITERATIONS, Job, Key, Outcome};

use crate::accuracy::progress::Progress;
use cache::Cache;

/// How stages are measured.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// The rank program.
    pub(crate) rank: PathBuf,
    /// Where results are kept.
    pub(crate) cache: PathBuf,
    /// Measure everything again.
    pub(crate) fresh: bool,
    /// Ranks at a time.
    pub(crate) ranks: u32,
    /// Longest run.
    pub(crate) limit: Duration,
}

/// What was measured, by job.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    outcomes: HashMap<Key, Outcome>,
    /// Runs made this time.
    pub(crate) ran: usize,
    /// Taken from an earlier run.
    pub(crate) cached: usize,
}

impl Measured {
    /// What became of a job that was among those measured.
    pub(crate) fn of(&self, job: &Job) -> Option<&Outcome> {
        self.outcomes.get(&job.key())
    }
}

/// Measures all jobs; equal ones once.
///
/// # Errors
/// The rank program cannot be read or started, or results cannot be kept. A stage that cannot be
/// trained is an outcome.
pub(crate) async fn measure(jobs: Vec<Job>, settings: &Settings) -> Result<Measured> {
    let mut unique: HashMap<Key, Job> = HashMap::new();
    let mut order = Vec::new();
    for job in jobs {
        let key = job.key();
        if unique.insert(key.clone(), job).is_none() {
            order.push(key);
        }
    }
    let cache = Cache::open(&settings.cache, &settings.rank)?;
    let mut measured = Measured::default();
    let mut left = Vec::new();
    for key in order {
        match cache.get(&key).filter(|_| !settings.fresh) {
            Some(outcome) => {
                measured.cached += 1;
                measured.outcomes.insert(key, outcome);
            }
            None => left.push(key),
        }
    }
    let mut progress = Progress::new(left.len(), measured.cached);
    let places = Arc::new(Semaphore::new(settings.ranks as usize));
    let mut running: FuturesUnordered<_> = left
        .into_iter()
        .filter_map(|key| Some((unique.remove(&key)?, key)))
        .map(|(job, key)| {
            let places = Arc::clone(&places);
            async move {
                // A stage of more ranks than cores takes them all: its ranks wait for each other.
                let wanted = job.ranks().min(settings.ranks);
                let place = places.acquire_many_owned(wanted).await?;
                let outcome = rank::run(&job, &settings.rank, settings.limit).await?;
                drop(place);
                anyhow::Ok((key, outcome))
            }
        })
        .collect();
    while let Some(done) = running.next().await {
        let (key, outcome) = done?;
        progress.done(&outcome);
        cache.put(&key, &outcome)?;
        measured.ran += 1;
        measured.outcomes.insert(key, outcome);
    }
    progress.end();
    Ok(measured)
}

/// The rank program that was built with this one.
///
/// # Errors
/// It was not built.
pub(crate) fn rank_program() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    // A test lies one folder deeper than a program.
    let mut folders = own.ancestors().skip(1).take(2);
    let found = folders.find_map(|folder| Some(folder.join("loadmaster-rank")).filter(|path| path.is_file()));
    found.with_context(|| format!("no loadmaster-rank beside {}: run `make binaries` first", own.display()))
}
