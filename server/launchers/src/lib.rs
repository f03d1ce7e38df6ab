//! Frameworks: the plans that they can run, the files that they are given, and the bytes that they hold in memory.
//!
//! Each framework is one file or folder of [`framework`]. Its [`Rules`] restrict a search for plans. Its export follows from a plan and
//! the plan's model, and nothing is rounded: a plan that a framework cannot express is refused with a reason for each stage
//! ([`Refusal`]). Frameworks build one grid of ranks, so the degrees of all stages are the same for most of them ([`Grid`]), and cut
//! transformers between blocks ([`Cut`]). Its bytes come from one description ([`memory`]), of which verdicts and notes are made. Each
//! envelope that starts processes is one file of [`envelope`]. The crate does no I/O: its caller writes the files.

mod allocation;
mod cut;
mod envelope;
mod export_parts;
mod framework;
mod grid;
mod local_order;
mod memory;
mod program_settings;
mod question;
mod recompute;
mod refusal;
mod rules;
mod target;
mod transformer;

#[cfg(test)]
mod tests;

pub use allocation::{Allocation, AskedDevices, Locality, NodeGroup, StageLocality};
pub use cut::{Cut, StagePart};
pub use envelope::{Envelope, EnvelopeSettings, Wrapping, envelopes, wrap};
pub use export_parts::{Export, ExportedFile, Proof, RankPlace, Verified};
pub use framework::{Exporter, exporters, framework_named, launchers_with, rules, variants};
pub use grid::{AxisOrder, Grid};
pub use memory::{Added, AddedCause, PredictedStage, StageMemory, parameter_notes};
pub use question::{ExportQuestion, export};
pub use recompute::{Choices, Counted, Recomputing, Runs};
pub use refusal::{Refusal, StageRefusal};
pub use rules::{CutUnit, Engine, InChunks, Rules};
pub use target::{Target, Variant, Version};
pub use transformer::Transformer;
