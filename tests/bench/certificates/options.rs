//! The options of `certificates`.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, ValueEnum};

use crate::certificates::draw_question::Topic;
use crate::certificates::prices::Sharing;
use crate::output::Output;

/// Questions a planner about small problems whose every plan is looked at, and holds its answers to what is true.
///
/// A scene is a chain of up to six layers on up to seven devices, drawn by lot from a seed; several questions are asked
/// about each. For every question all plans that the interface allows are enumerated and simulated by code that shares
/// nothing with the planner's, and the answer is held to them: whether the plan is legal and has the numbers that it
/// says, whether what is called proven is best, whether bounds hold, whether "no plan" is true, whether missing bytes
/// are those of the plan that lacks least, and whether remedies work.
///
/// Instances that fail are written to the output folder; `--replay FILE` asks one again.
#[derive(Debug, Clone, Parser)]
#[command(after_help = "\
Examples:
  bench certificates                              20,000 questions about everything
  bench certificates --instances 500 --only pins  only questions with pinned layers
  bench certificates --replay target/certificates/falsely-proven-1-17-3.json
  bench certificates --seed 7 --strict            other questions; exit code 2 if an answer is wrong")]
pub(crate) struct Options {
    /// Questions to ask.
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    pub(crate) instances: u64,

    /// Seed of the lots: the same one draws the same scenes and questions.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Only questions about these topics.
    #[arg(long, value_name = "TOPIC", value_enum, value_delimiter = ',')]
    pub(crate) only: Vec<Topic>,

    /// Questions that are asked at once. Default: the number of cores.
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,

    /// Ask the instance in this file again, and show all about it.
    #[arg(long, value_name = "FILE")]
    pub(crate) replay: Option<PathBuf>,

    /// A planner that runs already, `http://HOST:PORT`. Default: one is started with a database of its own.
    #[arg(long, value_name = "URL")]
    pub(crate) address: Option<String>,

    #[command(flatten)]
    output: Output,

    /// Failing instances to keep of each class.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) keep: usize,

    /// Keep failing instances as they were drawn instead of looking for smaller ones.
    #[arg(long)]
    pub(crate) no_shrink: bool,

    /// Most plans of a question; one that has more is passed over.
    #[arg(long, value_name = "N", default_value_t = 150_000)]
    pub(crate) most_plans: u64,

    /// Which side of an edge is priced: the larger of both, or the one that receives.
    #[arg(long, value_enum, default_value_t = Edges::Larger)]
    edges: Edges,

    /// Whether rings of a stage that cross nodes share the link, or each is priced alone.
    #[arg(long, value_enum, default_value_t = Rings::Shared)]
    rings: Rings,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Edges {
    Larger,
    Receiver,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Rings {
    Shared,
    Alone,
}

impl Options {
    pub(crate) fn jobs(&self) -> usize {
        self.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)).max(1)
    }

    pub(crate) fn sharing(&self) -> Sharing {
        Sharing { larger_side: self.edges == Edges::Larger, rings_share: self.rings == Rings::Shared }
    }

    /// Where failing instances go.
    pub(crate) fn folder(&self) -> Result<PathBuf> {
        self.output.folder("certificates")
    }
}
