//! Measuring stages with real ranks, side by side and each only once.
//!
//! A rank computes with one thread, so as many ranks as there are cores run at a time; the ranks of one
//! stage run together, however many they are. What was measured is kept on disk by the hash of the
//! rank program and of its specification: a second run measures what is new.
//!
//! Ranks are killed when the harness is interrupted or terminated, and by their time limit. Should it
//! be killed outright they end by themselves within seconds, when nobody reads what they say.

use std::collections::HashMap;
use std::fs;
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

use crate::accuracy::ranks::{self, Job, Key, Outcome};

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
                let outcome = ranks::run(&job, &settings.rank, settings.limit).await?;
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
pub(crate) fn rank_program() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    // A test lies one folder deeper than a program.
    let mut folders = own.ancestors().skip(1).take(2);
    let found = folders.find_map(|folder| Some(folder.join("loadmaster-rank")).filter(|path| path.is_file()));
    found.with_context(|| format!("no loadmaster-rank beside {}: run `make binaries` first", own.display()))
}

/// Digits of the name of a folder.
const HASH_DIGITS: usize = 16;

/// A folder with one file per result of one rank program.
#[derive(Debug)]
pub(crate) struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// Opens the folder of this rank program and removes those of others: what another build measured
    /// is of no use.
    pub(crate) fn open(base: &Path, rank: &Path) -> Result<Self> {
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
    pub(crate) fn get(&self, key: &Key) -> Option<Outcome> {
        let text = fs::read(self.path(key)).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Keeps a result. A failure is tried again next time.
    pub(crate) fn put(&self, key: &Key, outcome: &Outcome) -> Result<()> {
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

/// Between two lines where standard error is a file.
const QUIET: Duration = Duration::from_secs(15);
/// Between two updates of a terminal's line.
const LIVELY: Duration = Duration::from_millis(200);

/// Counts runs and guesses what is left.
#[derive(Debug)]
pub(crate) struct Progress {
    all: usize,
    cached: usize,
    done: usize,
    failed: usize,
    started: Instant,
    said: Instant,
    terminal: bool,
}

impl Progress {
    pub(crate) fn new(all: usize, cached: usize) -> Self {
        let now = Instant::now();
        let terminal = std::io::stderr().is_terminal();
        eprintln!("measuring {all} runs; {cached} are known from earlier");
        Self { all, cached, done: 0, failed: 0, started: now, said: now, terminal }
    }

    pub(crate) fn done(&mut self, outcome: &Outcome) {
        self.done += 1;
        if let Outcome::Failed(why) = outcome {
            self.failed += 1;
            self.clear();
            eprintln!("a run failed: {why}");
        }
        let pause = if self.terminal { LIVELY } else { QUIET };
        if self.said.elapsed() >= pause {
            self.said = Instant::now();
            let end = if self.terminal { "\r" } else { "\n" };
            eprint!("{}{end}", self.line());
        }
    }

    pub(crate) fn end(&mut self) {
        self.clear();
        if self.done > 0 {
            let seconds = self.started.elapsed().as_secs();
            eprintln!(
                "measured {} runs in {}:{:02}, {} failed",
                self.done,
                seconds / 60,
                seconds % 60,
                self.failed
            );
        }
    }

    fn line(&self) -> String {
        let left = self.all - self.done;
        let each = self.started.elapsed().as_secs_f64() / self.done.max(1) as f64;
        let seconds = (each * left as f64) as u64;
        let known = self.cached;
        format!(
            "{} of {} runs measured ({known} known before), about {}:{:02} left   ",
            self.done,
            self.all,
            seconds / 60,
            seconds % 60
        )
    }

    fn clear(&self) {
        if self.terminal {
            eprint!("\r\x1b[K");
        }
    }
}
