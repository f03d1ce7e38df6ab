//! What is asked, with all defaults filled in.
//!
//! | file | question |
//! |---|---|
//! | `chain` | of which profile? |
//! | `batches`, `reach` | which micro-batches, schedules and degrees may be chosen? |
//! | `launcher` | what can each launcher run? |
//! | `recomputing` | which layers can each compute again? |
//! | `transfers` | do devices compute while they exchange with the stages next to them? |
//! | `wish` | what is asked for? |
//! | `variant` | which questions is that to a search: batch, schedule, degrees? |

mod batches;
mod chain;
mod launcher;
mod reach;
mod recomputing;
mod transfers;
mod variant;
mod wish;

pub use batches::{batches, least_share, left_out, recompute, schedules};
pub use chain::ProfiledChain;
pub use launcher::{CutUnit, InChunks, Rules};
pub(super) use reach::Reach;
pub(super) use recomputing::{Choices, Runs};
pub use recomputing::{Counted, Recomputing};
pub(super) use transfers::launcher_of;
pub use transfers::{Transfers, transfers};
pub(super) use variant::variants_of_any_size;
pub use variant::{Variant, divisors, variants};
pub use wish::{MAX_BATCHES, Wish};
