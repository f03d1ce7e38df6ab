//! How far the measuring is, on standard error.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use crate::accuracy::measure::Outcome;

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
