//! Tables, goals and figures as people read them.

use std::fmt;

use loadmaster_tests::Trial;

/// A figure that is to be reached.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Goal {
    pub(crate) what: &'static str,
    /// What the papers reached, or others.
    mark: &'static str,
    wanted: String,
    /// What was measured, for people.
    reached: String,
    /// None where nothing was measured that would tell.
    pub(crate) met: Option<bool>,
}

impl Goal {
    pub(crate) fn new(
        [what, mark]: [&'static str; 2],
        wanted: impl Into<String>,
        reached: impl Into<String>,
        met: Option<bool>,
    ) -> Self {
        Self { what, mark, wanted: wanted.into(), reached: reached.into(), met }
    }

    /// How many of these trials are as predicted, to the byte. One that did not train is not.
    pub(crate) fn exact<'a>(names: [&'static str; 2], trials: impl Iterator<Item = &'a Trial>) -> Self {
        let exact: Vec<bool> = trials.map(Trial::is_exact).collect();
        let right = exact.iter().filter(|&&is| is).count();
        let reached = format!("{right} of {} trials", exact.len());
        Self::new(names, "to the byte", reached, (!exact.is_empty()).then_some(right == exact.len()))
    }
}

/// The goals, each met, missed or not measured.
pub(crate) fn goals(goals: &[Goal]) -> Table {
    let mut table = Table::new(&["goal", "mark to beat", "wanted", "", "reached"]);
    for Goal { what, mark, wanted, reached, met } in goals {
        table.row([*what, *mark, wanted, met.map_or("-", verdict), reached]);
    }
    table
}

/// Whether none of the goals is missed.
pub(crate) fn are_met(goals: &[Goal]) -> bool {
    goals.iter().all(|goal| goal.met != Some(false))
}

/// A goal's outcome in a word.
pub(crate) fn verdict(is_met: bool) -> &'static str {
    if is_met { "met" } else { "MISSED" }
}

/// Prints what was missed; whether that is nothing.
pub(crate) fn print_missed(missed: &[String]) -> bool {
    println!();
    missed.iter().for_each(|what| println!("MISSED {what}"));
    if missed.is_empty() {
        println!("every goal is met");
    }
    missed.is_empty()
}

/// Left-aligned columns, two spaces apart; the last cell of a line may be as long as it likes.
#[derive(Debug)]
pub(crate) struct Table(Vec<Vec<String>>);

impl Table {
    pub(crate) fn new(head: &[&str]) -> Self {
        let mut table = Self(Vec::new());
        table.row(head);
        table
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = impl ToString>) {
        self.0.push(cells.into_iter().map(|cell| cell.to_string()).collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(lines) = self;
        let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let lines = lines.iter().filter(|line| column + 1 < line.len());
            lines.filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for line in lines {
            let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            writeln!(f, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }
}

/// A figure, or a dash where there is none.
pub(crate) fn or_dash<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), show)
}

/// A figure, or that it was not measured.
pub(crate) fn or_unmeasured<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "not measured".to_owned(), show)
}

/// `1.25 %`.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

/// A relative error with its sign: `-3.1 %`.
pub(crate) fn error(share: f64) -> String {
    format!("{:+.1} %", 100.0 * share)
}

pub(crate) fn mib(bytes: u64) -> String {
    format!("{:.2} MiB", bytes as f64 / f64::from(1 << 20))
}

/// Seconds in a unit that reads well.
pub(crate) fn seconds(seconds: f64) -> String {
    match seconds {
        s if !s.is_finite() => "-".to_owned(),
        s if s < 1e-3 => format!("{:.0} µs", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}
