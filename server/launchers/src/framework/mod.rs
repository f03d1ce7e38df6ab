//! Every launcher of every version that exports are made for, a file each.

mod accelerate;
mod bridge;
mod colossal_ai;
mod deepspeed;
mod galvatron;
mod megatron;
mod other;
mod torch_pipelining;
mod torchgpipe;
mod torchtitan;
mod trainer;

use std::collections::BTreeMap;

pub(crate) use deepspeed::hosts::{FILE as HOSTFILE, WARNING as HOSTFILE_WARNING};
use loadmaster_proto::plan::objective::{Launcher, PlanShape};

use crate::exported::{ExportedFile, Proof, RankPlace, Verified};
use crate::memory::Held;
use crate::question::{ExportQuestion, Refused};
use crate::target::{Target, Variant, Version};

/// What makes exports for a launcher.
#[derive(Debug, Clone, Copy)]
pub struct Exporter {
    /// For whom: this version and those up to the next that is known.
    pub target: Target,
    /// The most general shape that it runs.
    pub shape: PlanShape,
    /// What it writes, in a few words.
    pub writes: &'static str,
    /// What was proved of its exports.
    pub verified: Verified,
    /// Whose code proved it; none where nothing is.
    pub proof: Option<Proof>,
    pub(crate) write: fn(&ExportQuestion<'_>) -> Result<Written, Refused>,
}

/// What an exporter makes.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Written {
    pub(crate) files: Vec<ExportedFile>,
    pub(crate) command: Vec<String>,
    /// That is run once, not on each node.
    pub(crate) runs_once: bool,
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) ranks: Vec<RankPlace>,
    pub(crate) warnings: Vec<String>,
    /// What the launcher holds besides what our ranks hold; none where nobody knows.
    pub(crate) held: Option<Held>,
    /// Whether the model is described in Megatron's words, with the settings that change values alone.
    pub(crate) sets_numerics: bool,
}

/// All that there are.
pub fn exporters() -> &'static [Exporter] {
    EXPORTERS
}

const EXPORTERS: &[Exporter] = &[
    megatron::EXPORTER,
    torchtitan::TOML,
    torchtitan::PYTHON,
    torch_pipelining::EXPORTER,
    torch_pipelining::RELEASING,
    deepspeed::EXPORTER,
    colossal_ai::EXPORTER,
    torchgpipe::EXPORTER,
    galvatron::EXPORTER,
    accelerate::EXPORTER,
    bridge::EXPORTER,
    trainer::EXPORTER,
    other::EXPORTER,
];

/// Ways of a launcher to say a plan besides the usual one.
pub fn variants(launcher: Launcher) -> &'static [Variant] {
    match launcher {
        Launcher::Megatron => &[Variant::Hybrid],
        _ => &[],
    }
}

/// Whether a launcher can say, in each of its ways, that devices have several stages in turn.
pub fn takes_turns(launcher: Launcher) -> bool {
    matches!(launcher, Launcher::Megatron | Launcher::MegatronBridge | Launcher::Other)
}

const fn target(launcher: Launcher, major: u32, minor: u32) -> Target {
    Target { launcher, version: Version { major, minor } }
}
