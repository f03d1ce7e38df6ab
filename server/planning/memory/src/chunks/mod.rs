//! Models whose state is larger than the device: chunks that come and leave while they are trained (PatrickStar).
//!
//! | module | question |
//! |---|---|
//! | `check` | what did a profile's run in chunks teach? |
//! | `question` | what is given, and what may be chosen? |
//! | `step_memory` | what does a device hold of chunks and besides, step by step? |
//! | `forecast` | does a stage in given chunks fit? |
//! | `profiled_passes` | what do steps cost by a profile? |
//! | `pass_costs` | what are the steps, and what do they cost? |
//! | `chunk_usage`, `layout_evaluation` | what is where, before intervals are planned? |
//! | `room` | which choices is there room for, what lacks for the others, and what is the largest model with room? |
//! | `bound` | how long does an iteration take at least, whatever its intervals? |
//! | `best_first` | which choices are bounded lowest? |
//! | `lanes` | how long does it take, and who waits for what? |
//! | `lane_spans` | what do lanes do when? |
//! | `prefetch` | which intervals begin in the iteration before? |
//! | `irregular_chunks` | are chunks of unlike sizes there between their uses? |
//! | `choose` | which choice is fastest? |
//! | `plan` | what comes of it, and what is known of the others? |
//! | `refusal`, `remedies` | why is there no plan, and what would help? |
//! | `baseline` | what do ZeRO-Offload and PatrickStar as published come to? |
//!
//! The words are those of [`loadmaster_proto::chunks`], which also says what is where in which step.

mod baseline;
mod best_first;
mod bound;
mod check;
mod choose;
mod chunk_usage;
mod forecast;
mod irregular_chunks;
mod lane_clocks;
mod lane_spans;
mod lanes;
mod layout_evaluation;
mod pass_costs;
mod plan;
mod prefetch;
mod profiled_passes;
mod question;
mod refusal;
mod remedies;
mod room;
mod step_memory;

#[cfg(test)]
mod tests;

pub use baseline::{Baseline, PatrickStar};
pub use check::ChunkCheck;
pub use choose::{choose, choose_until};
pub use forecast::{ChunkedForecast, in_chunks, larger};
pub use lane_spans::{LaneSpan, LaneWork};
pub use lanes::{LaneScene, LaneSeconds, Lanes};
pub use layout_evaluation::PassesMemo;
pub use plan::{Certificate, ChunkPlan};
pub use profiled_passes::ProfiledPasses;
pub use question::{ChunkChoices, ChunkQuestion, PassChoice, Passes, StepCosts, TriedSizes};
pub use refusal::{ChunkChoice, NoChunks, NoRoom};
pub use remedies::ChunkRemedy;
pub use room::{fits, largest};
pub use step_memory::{StepMemory, interval};
