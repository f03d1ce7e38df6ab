//! What was measured, as lines.

use crate::rpc::load::Measured;

/// What is to be reached.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Goal {
    /// Most seconds of the median.
    Median(f64),
    /// Most seconds of the slowest hundredth.
    Slow(f64),
    /// The same, for a search that may also say what is open.
    MedianOrOpen(f64),
    /// Fewest calls a second.
    PerSecond(f64),
}

/// One call from so many clients.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) clients: usize,
    pub(crate) measured: Measured,
    pub(crate) goal: Option<Goal>,
    /// What was answered, for people.
    pub(crate) note: String,
}

pub(crate) fn head_of_calls() {
    println!(
        "{:<36} {:>7} {:>10} {:>10} {:>10} {:>9}",
        "call", "clients", "p50", "p99", "calls/s", "× empty"
    );
}

pub(crate) fn head_of_searches() {
    println!("{:<36} {:>7} {:>10} {:>10}", "search, layers x devices", "first", "p50", "p99");
}

/// Whether the most calls a second are enough.
pub(crate) fn throughput(most: f64, least: f64) -> String {
    let verdict = if most >= least { "met" } else { "MISSED" };
    format!("goal {least:.0} calls/s: {verdict}, {most:.0}")
}

impl Row {
    pub(crate) fn print_call(&self, empty: Option<&Measured>) {
        let Self { name, clients, measured, note, .. } = self;
        let ratio = empty.map_or_else(String::new, |empty| {
            format!("{:.1}", measured.percentile(50.0) / empty.percentile(50.0))
        });
        println!(
            "{name:<36} {clients:>7} {:>10} {:>10} {:>10.0} {ratio:>9} {} {note}{}",
            seconds(measured.percentile(50.0)),
            seconds(measured.percentile(99.0)),
            measured.per_second(),
            self.verdict(),
            measured.failures()
        );
    }

    pub(crate) fn print_search(&self) {
        let Self { name, measured, note, .. } = self;
        println!(
            "{name:<36} {:>7} {:>10} {:>10} {:<24} {note}{}",
            seconds(measured.first()),
            seconds(measured.percentile(50.0)),
            seconds(measured.percentile(99.0)),
            self.verdict(),
            measured.failures()
        );
    }

    fn is_missed(&self) -> bool {
        let slower = |most: f64| self.measured.percentile(50.0) > most;
        match self.goal {
            Some(Goal::Median(most)) => slower(most),
            Some(Goal::Slow(most)) => self.measured.percentile(99.0) > most,
            Some(Goal::MedianOrOpen(most)) => slower(most) && !self.note.contains("open"),
            Some(Goal::PerSecond(_)) | None => false,
        }
    }

    fn verdict(&self) -> String {
        let verdict = if self.is_missed() { "MISSED" } else { "met" };
        match self.goal {
            Some(Goal::Median(most) | Goal::MedianOrOpen(most)) => {
                format!("goal {}: {verdict}", seconds(most))
            }
            Some(Goal::Slow(most)) => format!("goal p99 {}: {verdict}", seconds(most)),
            Some(Goal::PerSecond(_)) | None => String::new(),
        }
    }

    /// The row in a few words, if its goal is missed.
    pub(crate) fn missed(&self) -> Option<String> {
        let took = seconds(self.measured.percentile(50.0));
        self.is_missed().then(|| format!("{}, {}, took {took}", self.name, self.verdict()))
    }
}

/// Seconds in a unit that reads well.
fn seconds(seconds: f64) -> String {
    match seconds {
        s if !s.is_finite() => "-".to_owned(),
        s if s < 1e-3 => format!("{:.0} µs", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}
