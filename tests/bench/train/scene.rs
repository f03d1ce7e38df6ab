//! The options, the machine and the models.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Parser, ValueEnum};
use loadmaster_tests::{Caller, Refused, WorkerOptions};
use serde_json::Value;

use crate::output::Output;
use crate::train::rule::Rule;

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

/// CPU slots of the worker.
pub(crate) const SLOTS: usize = 4;

/// Exit code of a request that makes no sense.
const USAGE: i32 = 2;

/// How large everything is.
#[derive(Debug, Clone)]
pub(crate) struct Setting {
    /// Options of `profile run` that name the model, but for its blocks.
    model: &'static str,
    pub(crate) micro_batch_size: u32,
    pub(crate) micro_batches: u32,
    /// Of a slot.
    pub(crate) capacity_bytes: u64,
    /// That blocks may take, three times as much as all slots have: that of a DGX-1 beside its eight GPUs.
    pub(crate) host_bytes: u64,
    /// Of copies, as the worker paces them and requests give them.
    pub(crate) rates: &'static str,
    /// Of a search.
    deadline: &'static str,
    /// Most blocks of a model that is tried.
    pub(crate) most_blocks: u32,
    /// Rules whose largest models all are trained with: all that may do more train them, too.
    pub(crate) sized_by: &'static [Rule],
    /// Of the model whose copies are to be hidden, and how fast these are.
    pub(crate) hidden_blocks: u32,
    pub(crate) hidden_rate: u64,
}

impl Setting {
    /// Layers that take tens of milliseconds, and slots that hold a few of them.
    pub(crate) fn whole() -> Self {
        let capacity_bytes = 72 << 20;
        Self {
            model: "--hidden-size 256 --heads 4 --sequence-length 128 --vocabulary-size 512",
            micro_batch_size: 4,
            micro_batches: 8,
            capacity_bytes,
            host_bytes: 3 * SLOTS as u64 * capacity_bytes,
            rates: "host=1GB/s,peer=4GB/s",
            deadline: "20s",
            most_blocks: 128,
            sized_by: &[Rule::PeerOnly, Rule::RecomputeOnly],
            hidden_blocks: 4,
            hidden_rate: 1_500_000_000,
        }
    }

    /// The same, so small that all of it takes a minute.
    pub(crate) fn quick() -> Self {
        let capacity_bytes = 3 << 20;
        Self {
            model: "--hidden-size 64 --heads 4 --sequence-length 32 --vocabulary-size 128",
            micro_batches: 4,
            capacity_bytes,
            host_bytes: 3 * SLOTS as u64 * capacity_bytes,
            deadline: "5s",
            most_blocks: 10,
            sized_by: &[Rule::RecomputeOnly],
            hidden_blocks: 2,
            ..Self::whole()
        }
    }

    /// So many slots.
    pub(crate) fn slots(&self, count: usize) -> Slots {
        Slots { count, capacity_bytes: self.capacity_bytes }
    }

    pub(crate) fn worker(&self) -> WorkerOptions {
        // More than requests may take: what a plan takes is measured, not what a worker refuses.
        let host = format!("{}B", 2 * self.host_bytes);
        let arguments = ["--host-memory", &host, "--cpu-links", self.rates].map(str::to_owned).to_vec();
        let slots = self.slots(SLOTS).to_string();
        WorkerOptions { name: "train".to_owned(), slots, arguments, ..WorkerOptions::default() }
    }
}

/// Equal devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slots {
    pub(crate) count: usize,
    pub(crate) capacity_bytes: u64,
}

impl fmt::Display for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}B", self.count, self.capacity_bytes)
    }
}

/// A planner that profiles the models that are asked for.
pub(crate) struct Scene<'a> {
    pub(crate) caller: Caller<'a>,
    pub(crate) setting: &'a Setting,
    /// What the ids of its profiles begin with: each is measured on the slots that it is for.
    prefix: &'static str,
    /// Parameters by blocks, of the models that have a profile.
    profiled: RefCell<BTreeMap<u32, u64>>,
}

/// A plan, or why there is none.
pub(crate) type Answer = Result<Value, Refused>;

impl<'a> Scene<'a> {
    pub(crate) fn new(caller: Caller<'a>, setting: &'a Setting, prefix: &'static str) -> Self {
        Self { caller, setting, prefix, profiled: RefCell::default() }
    }

    /// Profiles the model of so many blocks, unless that is done. Its layers are those of the others, and measured once.
    pub(crate) fn profile(&self, blocks: u32) -> Result<String> {
        let id = format!("{}-{blocks}", self.prefix);
        if self.profiled.borrow().contains_key(&blocks) {
            return Ok(id);
        }
        let Setting { model, micro_batch_size, micro_batches, .. } = self.setting;
        let [count, size, times] =
            [blocks, *micro_batch_size, *micro_batches].map(|number| number.to_string());
        // PipeDream knows no weight that two stages share, and all rules are to train the same models.
        let mut arguments =
            vec!["profile", "run", "--id", &id, "--model", "gpt2", "--untied-head", "--blocks", &count];
        arguments.extend(model.split_whitespace());
        arguments.extend(["--micro-batch-size", &size, "--micro-batches", &times]);
        arguments.extend(["--optimizer", "adam", "--schedule", "1f1b"]);
        let profile = self.caller.get(&arguments)?;
        let model = self.caller.get(&[
            "model",
            "show",
            profile["model"].as_str().context("a profile has a model")?,
        ])?;
        let parameters = model["parameterCount"].as_str().and_then(|text| text.parse().ok());
        self.profiled.borrow_mut().insert(blocks, parameters.context("a model has parameters")?);
        Ok(id)
    }

    /// Parameters of a model that has a profile.
    pub(crate) fn parameters(&self, blocks: u32) -> u64 {
        self.profiled.borrow().get(&blocks).copied().unwrap_or(0)
    }

    /// Asks for a plan on so many slots.
    pub(crate) fn recommend(&self, blocks: u32, slots: Slots, more: &[&str]) -> Result<Answer> {
        let (profile, devices) = (self.profile(blocks)?, slots.to_string());
        let [size, times] =
            [self.setting.micro_batch_size, self.setting.micro_batches].map(|of| of.to_string());
        let mut arguments = vec!["plan", "recommend", "--profile", &profile, "--devices", &devices];
        // Recorded sizes are predicted to the byte: there is nothing to keep free.
        arguments.extend(["--margin", "0", "--deadline", self.setting.deadline, "--timeout", "5m"]);
        arguments.extend(["--micro-batch-size", &size, "--micro-batches", &times]);
        arguments.extend(more);
        self.caller.ask(&arguments)
    }

    /// The same, of what the planner knows how to do: there is a plan, or there is none.
    ///
    /// # Errors
    /// Also when the planner refuses to be asked this.
    pub(crate) fn plan(&self, blocks: u32, slots: Slots, more: &[&str]) -> Result<Answer> {
        let answer = self.recommend(blocks, slots, more)?;
        if let Err(refused) = &answer
            && refused.code == USAGE
        {
            bail!("plan recommend {}: {}", more.join(" "), refused.message);
        }
        Ok(answer)
    }
}
