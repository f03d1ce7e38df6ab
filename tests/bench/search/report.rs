//! Rows of the tables, and searches that are timed or stopped.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use loadmaster_search::Stop;

use crate::table::{or_dash, seconds, verdict};

/// A value with where it is from.
#[derive(Debug, Clone)]
pub(crate) struct Reference {
    /// What computed it.
    pub(crate) what: String,
    /// Its value in the row's unit; none where it did not finish.
    pub(crate) value: Option<f64>,
    /// How long it took, in this process or as published.
    pub(crate) took: Took,
}

/// How long a reference took.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Took {
    /// In this process, just now.
    Here(Duration),
    /// In this process, and it was stopped then.
    MoreThan(Duration),
    /// As its authors, or others on comparable hardware, say.
    Published(f64),
    /// Nobody said.
    Unknown,
}

/// One problem.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    /// What was asked.
    pub(crate) problem: String,
    /// Median seconds of our search, prices of stages included where the problem has them.
    pub(crate) seconds: f64,
    /// States weighed.
    pub(crate) states: u64,
    /// What was found, in the unit of the problem; none where there is no plan.
    pub(crate) value: Option<f64>,
    /// A bound that no plan beats, where the value is not proven best.
    pub(crate) bound: Option<f64>,
    /// Others on the same problem.
    pub(crate) references: Vec<Reference>,
    /// Seconds that are the goal.
    pub(crate) goal: Option<f64>,
}

/// Differences below this are rounding of decimals that references print.
const SAME: f64 = 2e-6;

impl Reference {
    pub(crate) fn new(what: impl Into<String>, value: Option<f64>, took: Took) -> Self {
        Self { what: what.into(), value, took }
    }
}

impl Row {
    /// A problem without references and a goal.
    pub(crate) fn new(
        problem: String,
        seconds: f64,
        states: u64,
        value: Option<f64>,
        bound: Option<f64>,
    ) -> Self {
        Self { problem, seconds, states, value, bound, references: Vec::new(), goal: None }
    }

    /// The same, beside another's.
    pub(crate) fn beside(mut self, reference: Reference) -> Self {
        self.references.push(reference);
        self
    }

    /// The same, with so many seconds as its goal.
    pub(crate) fn goal(self, goal: Option<f64>) -> Self {
        Self { goal, ..self }
    }

    /// Whether the value is no worse than that of every reference.
    pub(crate) fn is_best(&self) -> bool {
        self.references
            .iter()
            .filter_map(|reference| reference.value)
            .all(|other| self.value.is_some_and(|value| value <= other + SAME * other.abs().max(1.0)))
    }

    /// Whether the goal of time is reached; none where there is none.
    pub(crate) fn in_time(&self) -> Option<bool> {
        self.goal.map(|goal| self.seconds <= goal)
    }

    /// The row and its references as lines.
    pub(crate) fn lines(&self) -> Vec<String> {
        let value = self.value.map_or_else(|| "no plan".to_owned(), number);
        let proof = match self.bound {
            None => "proven".to_owned(),
            Some(bound) => format!("gap {:.2} %", 100.0 * (self.value.unwrap_or(bound) - bound) / bound),
        };
        let goal = match (self.goal, self.in_time()) {
            (Some(goal), Some(is_met)) => format!("goal {}: {}", seconds(goal), verdict(is_met)),
            _ => String::new(),
        };
        let mut lines = vec![format!(
            "{:<58} {:>9}  {:>14}  {:<11} {:>11} states  {goal}",
            self.problem,
            seconds(self.seconds),
            value,
            proof,
            self.states
        )];
        lines.extend(self.references.iter().map(|reference| self.line(reference)));
        lines
    }

    fn line(&self, reference: &Reference) -> String {
        let (took, ratio) = match reference.took {
            Took::Here(took) => (seconds(took.as_secs_f64()), Some(took.as_secs_f64() / self.seconds)),
            Took::MoreThan(took) => {
                (format!(">{}", seconds(took.as_secs_f64())), Some(took.as_secs_f64() / self.seconds))
            }
            Took::Published(took) => (format!("{} *", seconds(took)), Some(took / self.seconds)),
            Took::Unknown => (String::new(), None),
        };
        let ratio = ratio.map_or_else(String::new, |ratio| {
            if ratio < 10.0 { format!("{ratio:.1}× our time") } else { format!("{ratio:.0}× our time") }
        });
        let value = or_dash(reference.value, number);
        let worse = match (self.value, reference.value) {
            (Some(ours), Some(theirs)) if ours != 0.0 => format!("{:+.2} %", 100.0 * (theirs / ours - 1.0)),
            _ => String::new(),
        };
        format!("    {:<54} {took:>9}  {value:>14}  {worse:<11} {ratio}", reference.what)
    }
}

fn number(value: f64) -> String {
    if value.abs() >= 1e7 { format!("{value:.0}") } else { format!("{value:.6}") }
}

/// How long something ran.
pub(crate) struct Ran(Duration);

impl Ran {
    pub(crate) fn seconds(&self) -> f64 {
        self.0.as_secs_f64()
    }

    /// As the time of a reference, which did not finish if it was stopped.
    pub(crate) fn unless(self, stopped: bool) -> Took {
        if stopped { Took::MoreThan(self.0) } else { Took::Here(self.0) }
    }
}

/// Runs a search and asks it to stop after `limit`.
pub(crate) fn within<R>(limit: Duration, search: impl FnOnce(&Stop) -> R) -> (R, Ran) {
    let stop = Stop::default();
    let (finished, end) = channel::<()>();
    std::thread::scope(|scope| {
        let timer = stop.clone();
        scope.spawn(move || {
            if end.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                timer.request();
            }
        });
        let started = Instant::now();
        let result = search(&stop);
        let ran = Ran(started.elapsed());
        drop(finished);
        (result, ran)
    })
}
