//! The options of `bench train`.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, ValueEnum};

use crate::output::Output;
use crate::train::scene::Setting;

/// Trains with memory actions: the largest model of every rule, their seconds side by side, PipeDream, and hidden copies.
///
/// Starts a planner and workers of its own. Timings mean something on a machine that does nothing else.
#[derive(Debug, Parser)]
pub(crate) struct Options {
    /// Only these.
    #[arg(value_name = "PART")]
    pub(crate) only: Vec<Part>,

    /// Tiny models, for trying it out: the numbers mean nothing.
    #[arg(long)]
    pub(crate) quick: bool,

    /// How often plans whose seconds are compared are trained, by turns [default: 4; 1 with --quick].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,

    /// Measured iterations of each of these, after one warm-up iteration [default: 2; 1 with --quick].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    iterations: Option<u32>,

    #[command(flatten)]
    output: Output,
}

/// What is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// The largest model of every rule.
    Largest,
    /// Seconds of all rules at a size that they train; looks for the largest, too.
    Seconds,
    /// PipeDream.
    Pipedream,
    /// Copies that passes hide.
    Hidden,
}

impl Options {
    pub(crate) fn wants(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }

    pub(crate) fn setting(&self) -> Setting {
        if self.quick { Setting::quick() } else { Setting::whole() }
    }

    pub(crate) fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.quick { 1 } else { 4 })
    }

    pub(crate) fn iterations(&self) -> u32 {
        self.iterations.unwrap_or(if self.quick { 1 } else { 2 })
    }

    /// Where the data goes.
    pub(crate) fn folder(&self) -> Result<PathBuf> {
        self.output.folder("train-memory")
    }
}
