//! Every framework: what it can run, what it writes, and what it holds in memory, a file or folder each.

mod accelerate;
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
use loadmaster_proto::plan::objective::Launcher;
use loadmaster_proto::training::Precision;
pub(crate) use megatron::model::MegatronScaling;

use crate::export_parts::{ExportedFile, Proof, RankPlace, Verified};
use crate::memory::Held;
use crate::question::{ExportQuestion, Refused};
use crate::rules::Rules;
use crate::target::{Target, Variant, Version};

/// What makes exports for a launcher.
#[derive(Debug, Clone, Copy)]
pub struct Exporter {
    /// For whom: this version and those up to the next that is known.
    pub target: Target,
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
    megatron::write::EXPORTER,
    torchtitan::TOML,
    torchtitan::PYTHON,
    torch_pipelining::EXPORTER,
    torch_pipelining::RELEASING,
    deepspeed::EXPORTER,
    colossal_ai::EXPORTER,
    torchgpipe::EXPORTER,
    galvatron::EXPORTER,
    accelerate::EXPORTER,
    megatron::bridge::EXPORTER,
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

/// Returns the rules of a framework.
pub fn rules(launcher: Launcher) -> Rules {
    match launcher {
        Launcher::Megatron => megatron::MEGATRON,
        Launcher::MegatronBridge => megatron::BRIDGE,
        Launcher::Torchtitan => torchtitan::RULES,
        Launcher::TorchPipelining => torch_pipelining::RULES,
        Launcher::Deepspeed => deepspeed::RULES,
        Launcher::ColossalAi => colossal_ai::RULES,
        Launcher::Accelerate => accelerate::RULES,
        Launcher::Galvatron => galvatron::RULES,
        Launcher::Torchgpipe => torchgpipe::RULES,
        Launcher::Trainer => trainer::RULES,
        Launcher::Other => other::RULES,
    }
}

/// Returns the names of the frameworks with such rules in alphabetical order, without the user's own program.
pub fn launchers_with(is_such: impl Fn(&Rules) -> bool) -> String {
    let named = Launcher::ALL.into_iter().filter(|&launcher| launcher != Launcher::Other);
    let mut names: Vec<&str> =
        named.filter(|&launcher| is_such(&rules(launcher))).map(Launcher::as_str).collect();
    names.sort_unstable();
    names.join(", ")
}

/// Returns the framework that a profile names as the one that it was made with; none where it is not known. The first in this order
/// counts: Megatron-DeepSpeed trains with DeepSpeed's engine.
pub fn framework_named(name: &str) -> Option<Launcher> {
    const ORDER: [Launcher; 10] = [
        Launcher::Deepspeed,
        Launcher::Galvatron,
        Launcher::MegatronBridge,
        Launcher::Accelerate,
        Launcher::Megatron,
        Launcher::Torchtitan,
        Launcher::TorchPipelining,
        Launcher::ColossalAi,
        Launcher::Torchgpipe,
        Launcher::Trainer,
    ];
    let named = name.to_lowercase();
    let is_named =
        |launcher: &Launcher| rules(*launcher).engine.is_some_and(|engine| named.contains(engine.framework));
    ORDER.into_iter().find(is_named)
}

const fn target(launcher: Launcher, major: u32, minor: u32) -> Target {
    Target { launcher, version: Version { major, minor } }
}

/// Returns the format that layers compute in: `fp32` or `bf16`.
fn number_format(precision: Precision) -> &'static str {
    match precision {
        Precision::Fp32 => "fp32",
        Precision::Bf16 | Precision::Bf16Fp32Gradients => "bf16",
    }
}
