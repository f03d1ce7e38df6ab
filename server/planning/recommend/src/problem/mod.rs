//! What is asked, with all defaults filled in.
//!
//! | file | question |
//! |---|---|
//! | `chain` | of which profile? |
//! | `batches`, `reach` | which micro-batches, schedules and degrees may be chosen? |
//! | `transfers` | do devices compute while they exchange with the stages next to them? |
//! | `criteria` | what is asked for? |
//! | `variant` | which questions is that to a search: batch, schedule, degrees? |

mod batches;
mod chain;
mod criteria;
mod reach;
mod transfers;
mod variant;

pub use batches::{batches, least_share, left_out, recompute, schedules};
pub use chain::ProfiledChain;
pub(super) use criteria::restrict;
pub use criteria::{Criteria, MAX_BATCHES};
pub(super) use reach::Reach;
pub use transfers::{Transfers, transfers};
pub(super) use variant::variants_of_any_size;
pub use variant::{Variant, divisors, variants};
