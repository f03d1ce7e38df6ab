//! Cells beside published ones.

use std::time::Duration;

/// Whether a cell is what it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// It must be.
    Goal(bool),
    /// It is shown, whether it agrees or not.
    Shown(bool),
}

/// One figure.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    pub(crate) what: String,
    pub(crate) ours: String,
    /// Empty where nothing is.
    pub(crate) published: String,
    pub(crate) claim: Claim,
    /// What finding it took; nothing where it is a sum.
    pub(crate) took: Duration,
    /// What it may take at most, where that is a goal, too.
    pub(crate) within: Option<Duration>,
}

impl Cell {
    /// Whether it is not what it must be. That is the same on every machine, unlike how late it is.
    pub(crate) fn is_missed(&self) -> bool {
        self.claim == Claim::Goal(false)
    }

    /// Whether finding it took longer than it may.
    pub(crate) fn is_late(&self) -> bool {
        self.within.is_some_and(|within| self.took > within)
    }

    pub(crate) fn line(&self) -> String {
        let mark = match self.claim {
            Claim::Goal(false) => "MISSED",
            _ if self.is_late() => "LATE",
            Claim::Goal(true) => "ok",
            Claim::Shown(true) => "",
            Claim::Shown(false) => "differs",
        };
        let took = if self.took.is_zero() {
            String::new()
        } else {
            format!("{:.0} ms", self.took.as_secs_f64() * 1e3)
        };
        let Self { what, ours, published, .. } = self;
        let published = if published.is_empty() { String::new() } else { format!("* {published}") };
        format!("  {what:<52} {ours:<66} {published:<44} {took:>8} {mark}").trim_end().to_owned()
    }
}
