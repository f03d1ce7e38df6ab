//! Frameworks: the plans that they can run, the files that they are given, and the bytes that they hold in memory.
//!
//! Each framework is one file or folder of [`framework`]. Its [`Rules`] restrict a search for plans. Its export follows from a plan and
//! the plan's model, and nothing is rounded: a plan that a framework cannot express is refused with a reason for each stage
//! ([`Refusal`]).
//!
//! Frameworks build one grid of ranks, so the degrees of all stages are the same for most of them ([`Grid`]), and cut
//! transformers between blocks ([`Cut`]). Its bytes come from one description ([`memory`]), of which verdicts and notes are made. Each
//! manifest that starts processes is one file of [`manifest`]. The crate does no I/O: its caller writes the files.

mod allocation;
mod cut;
mod export_parts;
mod framework;
mod grid;
mod local_order;
mod manifest;
mod memory;
mod program_settings;
mod question;
mod recompute;
mod rules;
mod target;
mod transformer;

#[cfg(test)]
mod tests;

use std::fmt;

use loadmaster_proto::plan::objective::PlanShape;

pub use allocation::{Allocation, AskedDevices, Locality, NodeGroup, StageLocality};
pub use cut::{Cut, StagePart};
pub use export_parts::{Export, ExportedFile, Proof, RankPlace, Verified};
pub use framework::{Exporter, exporters, framework_named, frameworks_with, rules, variants};
pub use grid::{AxisOrder, Grid};
pub use manifest::{Manifest, ManifestSettings, Wrapping, manifests, wrap};
pub use memory::{Added, AddedCause, PredictedStage, StageMemory, parameter_notes};
pub use question::{ExportQuestion, export};
pub use recompute::{Choices, Counted, Recomputing, Runs};
pub use rules::{CutUnit, Engine, InChunks, Rules};
pub use target::{Target, Variant, Version};
pub use transformer::Transformer;

/// A plan is something that a framework cannot express, or a manifest not start.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    /// Which framework.
    pub target: Target,
    /// What was to start it.
    pub manifest: Manifest,
    /// The most general shape that it runs.
    pub required_shape: PlanShape,
    /// Whether the plan was recommended for this framework, so that asking for such a one is no way out.
    pub is_for_it: bool,
    /// What it is that cannot be expressed, stage by stage; of the plan as a whole where there is no stage. Never empty.
    pub stages: Vec<StageRefusal>,
}

/// What a framework cannot express of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageRefusal {
    /// Of which stage; none of the plan as a whole.
    pub stage: Option<usize>,
    /// What it is, and what to do.
    pub why: String,
}

impl StageRefusal {
    pub(crate) fn of_plan(why: impl Into<String>) -> Self {
        Self { stage: None, why: why.into() }
    }

    pub(crate) fn of_stage(stage: usize, why: impl Into<String>) -> Self {
        Self { stage: Some(stage), why: why.into() }
    }
}

impl fmt::Display for StageRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.stage {
            Some(stage) => write!(f, "stage {stage} {}", self.why),
            None => write!(f, "the plan {}", self.why),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.manifest {
            Manifest::Torchrun => write!(f, "{} cannot run this plan", self.target)?,
            manifest => write!(f, "{manifest} cannot start {} with this plan", self.target)?,
        }
        for (index, stage) in self.stages.iter().enumerate() {
            write!(f, "{} {stage}", if index == 0 { ":" } else { ";" })?;
        }
        match self.manifest {
            Manifest::Torchrun if self.is_for_it => f.write_str(". Export to another framework"),
            Manifest::Torchrun => f.write_str(
                ". Request a plan for this framework (`problem.framework`), or export to another framework",
            ),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for Refusal {}
