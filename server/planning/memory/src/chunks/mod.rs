//! Models whose state is larger than the device: chunks that come and leave while they are trained (PatrickStar).
//!
//! | module | question |
//! |---|---|
//! | `check` | what did a profile's run in chunks teach? |
//! | `question` | what is given, and what may be chosen? |
//! | `held` | what does a device hold of chunks and besides, step by step? |
//! | `kept` | what do micro-batches have on the host? |
//! | `forecast` | does a stage in given chunks fit? |
//! | `profiled`, `remembered` | what do steps cost by a profile? |
//! | `known`, `first` | what was found out, and where does something begin to be true? |
//! | `sizes` | which chunk sizes are tried? |
//! | `course`, `ground` | what are the steps, and what do they cost? |
//! | `placed`, `laid` | what is where, before visits are planned? |
//! | `group` | which choices differ in visits alone? |
//! | `room` | which choices is there room for, and what lacks for the others? |
//! | `bound` | how long does an iteration take at least, whatever its visits? |
//! | `soonest` | which choices are bounded lowest? |
//! | `lanes` | how long does it take, and who waits for what? |
//! | `due` | what is due at which boundary? |
//! | `spans` | what do lanes do when? |
//! | `over_end` | which visits begin in the iteration before? |
//! | `outliers` | are chunks of unlike sizes there between their uses? |
//! | `choose` | which choice is fastest? |
//! | `plan` | what comes of it, and what is known of the others? |
//! | `refusal`, `remedies` | why is there no plan, and what would help? |
//! | `largest` | what is the largest model that there is room for? |
//! | `baseline` | what do ZeRO-Offload and PatrickStar as published come to? |
//!
//! The words are those of [`loadmaster_proto::chunks`], which also says what is where in which step.

mod baseline;
mod bound;
mod check;
mod choose;
mod clocks;
mod course;
mod due;
mod first;
mod forecast;
mod ground;
mod group;
mod held;
mod kept;
mod known;
mod laid;
mod lanes;
mod largest;
mod outliers;
mod over_end;
mod placed;
mod plan;
mod profiled;
mod question;
mod refusal;
mod remedies;
mod remembered;
mod room;
mod sizes;
mod soonest;
mod spans;

#[cfg(test)]
mod tests;

pub use baseline::{Baseline, PatrickStar};
pub use check::ChunkCheck;
pub use choose::{choose, choose_until};
pub use forecast::larger;
pub use forecast::{ChunkedForecast, in_chunks};
pub use held::Held;
pub use held::interval;
pub use lanes::{LaneScene, LaneSeconds, Lanes};
pub use largest::largest;
pub use plan::{Certificate, ChunkPlan};
pub use profiled::ProfiledPasses;
pub use question::{ChunkChoices, ChunkQuestion, PassChoice, Passes, StepCosts, TriedSizes};
pub use refusal::{ChunkChoice, NoChunks, NoRoom};
pub use remedies::ChunkRemedy;
pub use remembered::Remembered;
pub use room::fits;
pub use spans::{LaneSpan, LaneWork};
