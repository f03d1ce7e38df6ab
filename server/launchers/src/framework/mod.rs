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
use loadmaster_proto::plan::objective::Framework;
use loadmaster_proto::training::Precision;
use loadmaster_proto::warning::Warning;
pub(crate) use megatron::model::MegatronScaling;

use crate::export_parts::{ExportedFile, Proof, RankPlace, Verified};
use crate::memory::Held;
use crate::question::{ExportQuestion, Refused};
use crate::rules::Rules;
use crate::target::{Target, Variant, Version};

/// What makes exports for a framework.
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
    pub(crate) warnings: Vec<Warning>,
    /// What the framework holds besides what our ranks hold; none where it is not known.
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

/// Ways of a framework to say a plan besides the usual one.
pub fn variants(framework: Framework) -> &'static [Variant] {
    match framework {
        Framework::Megatron => &[Variant::Hybrid],
        _ => &[],
    }
}

/// Returns the rules of a framework.
pub fn rules(framework: Framework) -> Rules {
    match framework {
        Framework::Megatron => megatron::MEGATRON,
        Framework::MegatronBridge => megatron::BRIDGE,
        Framework::Torchtitan => torchtitan::RULES,
        Framework::TorchPipelining => torch_pipelining::RULES,
        Framework::Deepspeed => deepspeed::RULES,
        Framework::ColossalAi => colossal_ai::RULES,
        Framework::Accelerate => accelerate::RULES,
        Framework::Galvatron => galvatron::RULES,
        Framework::Torchgpipe => torchgpipe::RULES,
        Framework::Trainer => trainer::RULES,
        Framework::Other => other::RULES,
    }
}

/// Returns the names of the frameworks with such rules in alphabetical order, without the user's own program.
pub fn frameworks_with(is_such: impl Fn(&Rules) -> bool) -> String {
    let named = Framework::ALL.into_iter().filter(|&framework| framework != Framework::Other);
    let mut names: Vec<&str> =
        named.filter(|&framework| is_such(&rules(framework))).map(Framework::as_str).collect();
    names.sort_unstable();
    names.join(", ")
}

/// Returns the framework that a profile names as the one that it was made with; none where it is not known. The first in this order
/// counts: Megatron-DeepSpeed trains with DeepSpeed's engine.
pub fn framework_named(name: &str) -> Option<Framework> {
    const ORDER: [Framework; 10] = [
        Framework::Deepspeed,
        Framework::Galvatron,
        Framework::MegatronBridge,
        Framework::Accelerate,
        Framework::Megatron,
        Framework::Torchtitan,
        Framework::TorchPipelining,
        Framework::ColossalAi,
        Framework::Torchgpipe,
        Framework::Trainer,
    ];
    let named = name.to_lowercase();
    let is_named = |framework: &Framework| {
        rules(*framework).engine.is_some_and(|engine| named.contains(engine.framework))
    };
    ORDER.into_iter().find(is_named)
}

const fn target(framework: Framework, major: u32, minor: u32) -> Target {
    Target { framework, version: Version { major, minor } }
}

/// Returns the format that layers compute in: `fp32` or `bf16`.
fn number_format(precision: Precision) -> &'static str {
    match precision {
        Precision::Fp32 => "fp32",
        Precision::Bf16 | Precision::Bf16Fp32Gradients => "bf16",
    }
}
