//! What a measurement prints and keeps: figures beside others, tables, and goals that are met or missed.

use std::fmt::Display;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result};
use loadmaster_tests::Trial;
use serde::Serialize;

use crate::output::{Output, write_json};
use crate::stats::Distribution;
use crate::table::{Table, seconds};

/// A figure that is to be reached.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Goal {
    pub(crate) what: String,
    /// The figure of a paper or of another program.
    mark: &'static str,
    wanted: String,
    reached: String,
    /// None where nothing was measured that would decide it.
    pub(crate) met: Option<bool>,
}

impl Goal {
    pub(crate) fn new(
        what: impl Into<String>,
        wanted: impl Into<String>,
        reached: impl Into<String>,
        met: Option<bool>,
    ) -> Self {
        Self { what: what.into(), mark: "-", wanted: wanted.into(), reached: reached.into(), met }
    }

    /// The same, beside a figure that others reach.
    pub(crate) fn beside(self, mark: &'static str) -> Self {
        Self { mark, ..self }
    }

    /// The same, decided by something else than the figure.
    pub(crate) fn decided(self, met: Option<bool>) -> Self {
        Self { met, ..self }
    }

    /// The same, with the distribution that the figure is of.
    pub(crate) fn among(mut self, found: Option<Distribution>) -> Self {
        self.reached.push_str(&found.map_or_else(String::new, |found| format!(" ({found})")));
        self
    }

    /// A figure that is limited, as these words show both.
    pub(crate) fn at_most(
        what: impl Into<String>,
        limit: f64,
        reached: Option<f64>,
        show: impl Fn(f64) -> String,
    ) -> Self {
        let met = reached.map(|reached| reached <= limit);
        Self::new(what, format!("≤ {}", show(limit)), or_unmeasured(reached, show), met)
    }

    pub(crate) fn at_least(
        what: impl Into<String>,
        limit: f64,
        reached: Option<f64>,
        show: impl Fn(f64) -> String,
    ) -> Self {
        let wanted = format!("≥ {}", show(limit));
        let met = reached.map(|reached| reached >= limit);
        Self { wanted, met, ..Self::at_most(what, limit, reached, show) }
    }

    /// How many of these trials are as predicted, to the byte. One that did not train is not.
    pub(crate) fn exact<'a>(what: &str, trials: impl Iterator<Item = &'a Trial>) -> Self {
        let exact: Vec<bool> = trials.map(Trial::is_exact).collect();
        let right = exact.iter().filter(|&&is| is).count();
        let reached = format!("{right} of {} trials", exact.len());
        Self::new(what, "to the byte", reached, (!exact.is_empty()).then_some(right == exact.len()))
    }

    /// The limit and whether it is kept, for a cell of a table that has the figure.
    pub(crate) fn verdict(&self) -> String {
        format!("goal {}: {}", self.wanted, word(self.met))
    }
}

/// A goal's outcome in a word.
fn word(met: Option<bool>) -> &'static str {
    met.map_or("-", |is_met| if is_met { "met" } else { "MISSED" })
}

/// A figure, or that it was not measured.
pub(crate) fn or_unmeasured<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "not measured".to_owned(), show)
}

/// Whether a figure is as it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// It must be.
    Goal(bool),
    /// It is shown, whether it agrees or not.
    Shown(bool),
}

/// One figure, beside those of others.
#[derive(Debug, Clone)]
pub(crate) struct Figure {
    pub(crate) what: String,
    found: String,
    /// The figure of others; empty where there is none.
    beside: String,
    pub(crate) claim: Claim,
    /// Seconds that it took to find; 0 where it is a sum.
    took: f64,
    /// Most seconds, where that is a goal, too.
    within: Option<f64>,
}

impl Figure {
    pub(crate) fn new(
        what: impl Into<String>,
        found: impl Into<String>,
        beside: impl Into<String>,
        claim: Claim,
    ) -> Self {
        let (what, found, beside) = (what.into(), found.into(), beside.into());
        Self { what, found, beside, claim, took: 0.0, within: None }
    }

    /// The same, found in so many seconds.
    pub(crate) fn took(self, took: f64) -> Self {
        Self { took, ..self }
    }

    /// The same, with a goal for these seconds.
    pub(crate) fn within(self, seconds: impl Into<Option<f64>>) -> Self {
        Self { within: seconds.into(), ..self }
    }

    /// Whether it is not as it must be. That is the same on every machine, unlike how late it is.
    #[cfg(test)]
    pub(crate) fn is_missed(&self) -> bool {
        self.claim == Claim::Goal(false)
    }

    /// The figure as a goal, and its seconds.
    fn goals(&self) -> [Option<Goal>; 2] {
        let met = match self.claim {
            Claim::Goal(is_met) => Some(is_met),
            Claim::Shown(_) => None,
        };
        let own = met.map(|_| Goal::new(&self.what, &self.beside, &self.found, met));
        let limit = self.within.map(|limit| {
            Goal::at_most(format!("{}: seconds", self.what.trim()), limit, Some(self.took), seconds)
        });
        [own, limit]
    }

    fn cells(&self) -> [String; 5] {
        let [_, limit] = self.goals();
        let verdict = match (self.claim, limit) {
            (Claim::Goal(false), _) => "MISSED".to_owned(),
            (_, Some(limit)) => limit.verdict(),
            (Claim::Goal(true), None) => "met".to_owned(),
            (Claim::Shown(is_same), None) => if is_same { "" } else { "differs" }.to_owned(),
        };
        let took = if self.took == 0.0 { String::new() } else { seconds(self.took) };
        [format!("  {}", self.what), self.found.clone(), self.beside.clone(), took, verdict]
    }
}

/// All that one measurement prints, which is kept in a file, too.
#[derive(Debug)]
pub(crate) struct Report {
    name: &'static str,
    folder: PathBuf,
    /// Seconds of small problems, perhaps of a debug build, are compared with nothing.
    is_timed: bool,
    began: Instant,
    text: String,
    /// Each with whether it is printed already, in a row.
    goals: Vec<(Goal, bool)>,
}

impl Report {
    pub(crate) fn new(name: &'static str, output: &Output, is_quick: bool) -> Result<Self> {
        let (folder, began) = (output.folder(name)?, Instant::now());
        Ok(Self { name, folder, is_timed: !is_quick, began, text: String::new(), goals: Vec::new() })
    }

    /// The folder of results.
    pub(crate) fn folder(&self) -> &PathBuf {
        &self.folder
    }

    pub(crate) fn print(&mut self, text: impl Display) {
        println!("{text}");
        self.text.push_str(&format!("{text}\n"));
    }

    /// Prints a table, and writes the data that it is made of.
    pub(crate) fn keep(&mut self, name: &str, data: &impl Serialize, table: impl Display) -> Result<()> {
        self.print(table);
        write_json(&self.folder.join(format!("{name}.json")), data)
    }

    /// Prints a section of figures.
    pub(crate) fn section(&mut self, name: &str, mut figures: Vec<Figure>) {
        let mut table = Table::new(&[name, "found", "beside it", "took", "goal"]);
        for figure in &mut figures {
            figure.within = figure.within.filter(|_| self.is_timed);
            table.row(figure.cells());
            self.goals.extend(figure.goals().into_iter().flatten().map(|goal| (goal, true)));
        }
        self.print(table);
    }

    /// A goal of time that a row of a table shows: only if it is missed it is printed at the end, too.
    pub(crate) fn note(&mut self, goal: Goal) {
        self.goals.extend(Some((goal, true)).filter(|_| self.is_timed));
    }

    /// Goals that are printed at the end.
    pub(crate) fn judge(&mut self, goals: impl IntoIterator<Item = Goal>) {
        self.goals.extend(goals.into_iter().map(|goal| (goal, false)));
    }

    /// Prints the goals and writes all that was printed; whether none is missed.
    pub(crate) fn finish(mut self) -> Result<bool> {
        let mut table = Table::new(&["goal", "mark to beat", "wanted", "", "reached"]);
        let mut lines = String::new();
        let mut missed = 0;
        for (goal, is_printed) in &self.goals {
            lines.push_str(&format!("{}\n", serde_json::to_string(goal)?));
            missed += usize::from(goal.met == Some(false));
            if !is_printed || goal.met == Some(false) {
                table.row([&goal.what, goal.mark, &goal.wanted, word(goal.met), &goal.reached]);
            }
        }
        if !table.is_empty() {
            self.print(table);
        }
        if missed > 0 {
            self.print(format!("{missed} goals are MISSED"));
        } else if self.goals.iter().any(|(goal, _)| goal.met.is_some()) {
            self.print("every goal is met");
        }
        for (kind, text) in [("txt", &self.text), ("jsonl", &lines)] {
            let path = self.folder.join(self.name).with_extension(kind);
            std::fs::write(&path, text).with_context(|| format!("{} cannot be written", path.display()))?;
        }
        println!("{}; data in {}", minutes(self.began.elapsed().as_secs()), self.folder.display());
        Ok(missed == 0)
    }
}

/// `3:07 minutes`.
pub(crate) fn minutes(seconds: u64) -> String {
    format!("{}:{:02} minutes", seconds / 60, seconds % 60)
}

/// Least seconds between two lines of progress.
const PAUSE: f64 = 5.0;

/// Prints on standard error how many of all steps are begun, and about how long the others take.
#[derive(Debug)]
pub(crate) struct Progress {
    all: usize,
    begun: usize,
    began: Instant,
    printed: Option<Instant>,
}

impl Progress {
    pub(crate) fn new(all: usize) -> Self {
        Self { all, begun: 0, began: Instant::now(), printed: None }
    }

    pub(crate) fn step(&mut self, what: impl Display) {
        let (done, passed) = (self.begun, self.began.elapsed().as_secs_f64());
        self.begun += 1;
        if self.printed.is_some_and(|printed| printed.elapsed().as_secs_f64() < PAUSE) {
            return;
        }
        self.printed = Some(Instant::now());
        let left = passed / done.max(1) as f64 * self.all.saturating_sub(done) as f64;
        let left = if done == 0 { String::new() } else { format!(", about {} left", minutes(left as u64)) };
        eprintln!("{} of {}: {what}{left}", self.begun, self.all);
    }
}
