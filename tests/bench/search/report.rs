//! Rows of the tables, and searches that are timed or stopped.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use loadmaster_search::Stop;

use crate::report::{Claim, Figure};
use crate::table::{or_dash, seconds};

/// Seconds that a reference took.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Took {
    /// In this process, just now.
    Here(f64),
    /// As its authors, or others on comparable hardware, say.
    Published(f64),
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
    /// Others on the same problem, each with its value in the same unit; none where it did not finish.
    references: Vec<(String, Option<f64>, Took)>,
    /// Seconds that are the goal.
    goal: Option<f64>,
}

/// Differences below this are rounding of decimals that references print.
const SAME: f64 = 2e-6;

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
    pub(crate) fn beside(mut self, what: impl Into<String>, value: Option<f64>, took: Took) -> Self {
        self.references.push((what.into(), value, took));
        self
    }

    /// The same, with so many seconds as its goal.
    pub(crate) fn goal(self, goal: impl Into<Option<f64>>) -> Self {
        Self { goal: goal.into(), ..self }
    }

    /// The row and its references. No reference may have a better value.
    pub(crate) fn figures(self) -> Vec<Figure> {
        let value = self.value.map_or_else(|| "no plan".to_owned(), number);
        let proof = match self.bound {
            None => "proven".to_owned(),
            Some(bound) => format!("gap {:.2} %", 100.0 * (self.value.unwrap_or(bound) - bound) / bound),
        };
        let found = format!("{value:>14}  {proof}, {} states", self.states);
        let mut others = self.references.iter().filter_map(|(_, value, _)| *value).peekable();
        let is_compared = others.peek().is_some();
        let is_best =
            others.all(|other| self.value.is_some_and(|own| own <= other + SAME * other.abs().max(1.0)));
        let (wanted, claim) = match is_compared {
            true => ("no reference is better", Claim::Goal(is_best)),
            false => ("", Claim::Shown(true)),
        };
        let references = self.references.iter().map(|reference| self.reference(reference));
        let own = Figure::new(&self.problem, found, wanted, claim).took(self.seconds).within(self.goal);
        std::iter::once(own).chain(references).collect()
    }

    fn reference(&self, (what, value, took): &(String, Option<f64>, Took)) -> Figure {
        let beside = |took: f64, mark: &str| {
            let ratio = took / self.seconds;
            let digits = usize::from(ratio < 10.0);
            format!("{}{mark}, {ratio:.digits$}× our time", seconds(took))
        };
        let beside = match *took {
            Took::Here(took) => beside(took, ""),
            Took::Published(took) => beside(took, " *"),
            Took::Unknown => String::new(),
        };
        let worse = match (self.value, value) {
            (Some(ours), Some(theirs)) if ours != 0.0 => format!("{:+.2} %", 100.0 * (theirs / ours - 1.0)),
            _ => String::new(),
        };
        let found = format!("{:>14}  {worse}", or_dash(*value, number));
        Figure::new(format!("  {what}"), found, beside, Claim::Shown(true))
    }
}

fn number(value: f64) -> String {
    if value.abs() >= 1e7 { format!("{value:.0}") } else { format!("{value:.6}") }
}

/// Runs a search and asks it to stop after `limit`; how many seconds it ran.
pub(crate) fn within<R>(limit: Duration, search: impl FnOnce(&Stop) -> R) -> (R, f64) {
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
        let seconds = started.elapsed().as_secs_f64();
        drop(finished);
        (result, seconds)
    })
}
