//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;

use crate::accuracy::measure::{Settings, rank_program};
use crate::accuracy::suite::Scope;
use crate::output::Output;

/// Measures how right predictions are on stages that no profile contained.
///
/// Profiles and measures with real ranks, compares, prints tables and writes CSV and SVG. What was measured
/// is kept: a second run with the same build measures only what is new.
#[derive(Debug, Parser)]
pub(crate) struct Options {
    /// Measure everything instead of a sample.
    #[arg(long)]
    pub(crate) full: bool,
    /// Only the study of this name, or else those whose names contain this.
    #[arg(long, value_name = "PATTERN")]
    pub(crate) only: Option<String>,
    /// Show the studies and end.
    #[arg(long)]
    pub(crate) list: bool,
    /// Measure again what is known from earlier.
    #[arg(long)]
    fresh: bool,
    /// Ranks at a time, each with one thread.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=256))]
    ranks: u32,
    /// Longest run of a stage, seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    limit: u64,
    #[command(flatten)]
    output: Output,
}

impl Options {
    pub(crate) fn scope(&self) -> Scope {
        if self.full { Scope::Full } else { Scope::Sample }
    }

    /// Which of the studies with these names are wanted.
    pub(crate) fn selected<'a>(&self, names: &[&'a str]) -> Vec<&'a str> {
        let Some(pattern) = self.only.as_deref() else { return names.to_vec() };
        match names.iter().find(|name| **name == pattern) {
            Some(exact) => vec![exact],
            None => names.iter().copied().filter(|name| name.contains(pattern)).collect(),
        }
    }

    /// Where results go.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn folder(&self) -> Result<PathBuf> {
        self.output.folder("accuracy")
    }

    /// How stages are measured.
    ///
    /// # Errors
    /// There is no rank program.
    pub(crate) fn measuring(&self) -> Result<Settings> {
        Ok(Settings {
            rank: rank_program()?,
            cache: self.folder()?.join("cache"),
            fresh: self.fresh,
            ranks: self.ranks,
            limit: Duration::from_secs(self.limit),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A study whose name begins another one's can be asked for alone.
    #[test]
    fn an_exact_name_is_preferred_to_a_part_of_one() {
        let selected = |arguments: &[&str]| {
            let options = Options::parse_from([&["accuracy"], arguments].concat());
            options.selected(&["vgg11", "vgg11-parallel", "gpt2-parallel"])
        };
        assert_eq!(selected(&[]).len(), 3);
        assert_eq!(selected(&["--only", "vgg11"]), ["vgg11"]);
        assert_eq!(selected(&["--only", "parallel"]), ["vgg11-parallel", "gpt2-parallel"]);
        assert!(selected(&["--only", "bert"]).is_empty());
    }
}
