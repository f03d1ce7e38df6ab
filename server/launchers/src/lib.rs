//! Plans as what frameworks run: files, flags, environment, and who is which rank.
//!
//! An export follows from a plan and its model, and nothing is rounded: a plan that a launcher cannot express is refused with
//! what it is of each stage that cannot be ([`Refusal`]). Launchers build one grid of ranks, so the degrees of all stages are
//! the same for most of them ([`Grid`]), and cut transformers between blocks ([`Cut`]). Each launcher is one file of
//! [`framework`]; what starts its processes is one file of [`envelope`]. Nothing here does I/O: what is written is the caller's
//! to place.

mod allocation;
mod chain;
mod cut;
mod envelope;
mod exported;
mod framework;
mod grid;
mod local_order;
mod memory;
mod numerics;
mod optimizer;
mod question;
mod recompute;
mod refusal;
mod rules;
mod target;
mod transformer;
mod word;

#[cfg(test)]
mod tests;

pub use allocation::{Allocation, AskedDevices, Locality, NodeGroup, StageLocality};
pub use cut::{Cut, StagePart};
pub use envelope::{Envelope, EnvelopeSettings, Wrapping, envelopes, wrap};
pub use exported::{Export, ExportedFile, Proof, RankPlace, Verified};
pub use framework::{Exporter, exporters, framework_named, rules, variants};
pub use grid::{AxisOrder, Grid};
pub use memory::{Added, AddedCause, StageMemory};
pub use question::{ExportQuestion, export};
pub use recompute::{Choices, Counted, Recomputing, Runs};
pub use refusal::{Refusal, StageRefusal};
pub use rules::{CutUnit, Engine, InChunks, Rules};
pub use target::{Target, Variant, Version};
pub use transformer::Transformer;
