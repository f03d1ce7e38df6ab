//! The options of `quality`.

use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;

use crate::output::Output;

/// Trains the plans of every search and every well-known rule, and compares them.
#[derive(Debug, Parser)]
pub(crate) struct Options {
    /// Only these: vgg11, amoebanet, gpt2, largest.
    #[arg(value_name = "WHAT")]
    pub(crate) only: Vec<String>,

    /// Tiny models, for trying it out: the numbers mean nothing.
    #[arg(long)]
    pub(crate) quick: bool,

    /// Devices: equal CPU slots of this worker.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=16))]
    pub(crate) devices: u32,

    /// Capacity of each of them, GiB.
    #[arg(long, value_name = "GIB", default_value_t = 4)]
    pub(crate) capacity_gib: u32,

    /// Measured iterations of each trial, after one warm-up iteration.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) iterations: u32,

    #[command(flatten)]
    output: Output,
}

impl Options {
    pub(crate) fn wants(&self, id: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == id)
    }

    /// The worker's slots.
    pub(crate) fn slots(&self) -> String {
        format!("{}x{}GiB", self.devices, self.capacity_gib)
    }

    /// Where the data goes.
    pub(crate) fn folder(&self) -> Result<PathBuf> {
        self.output.folder("quality")
    }
}
