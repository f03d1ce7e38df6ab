//! From a request to a plan, with what proves it, what came next, and what restricted it.
//!
//! | file | question |
//! |---|---|
//! | `question`, `chain` | what is asked, of which profile, on which devices? |
//! | `batches`, `reach` | which micro-batches, schedules and degrees may be chosen? |
//! | `launcher`, `holds` | what can each launcher run, and what does it hold of every parameter? |
//! | `transfers` | do devices compute while they exchange with the stages next to them? |
//! | `wish` | what is asked for, with all defaults filled in? |
//! | `inquiry` | what is a search asked, and how much may it try (`effort`)? |
//! | `attempt` | which search for which objective, and what did it come to (`found`)? |
//! | `fewest`, `largest_batch` | how few devices, or how cheap ones, are enough, and for how large a micro-batch? |
//! | `any_subset` | which of the devices? |
//! | `relaxed` | what does any plan on so many devices need at least? |
//! | `ranking` | which plans are best on given devices? |
//! | `variant` | which questions have to be asked for that: batch, schedule, degrees? |
//! | `solve`, `annealed` | which search answers which question? |
//! | `candidate`, `value` | what is a plan weighed by, and what is it worth? |
//! | `recommendation` | what is answered? |
//! | `certificate`, `runners_up` | how good is the answer, what was rejected, what came next? |
//! | `restriction` | what do shape and launcher cost? |
//! | `baselines` | what do well-known rules need? |
//! | `no_plan`, `why_not`, `remedies` | why does nothing fit, and what would help? |
//! | `named_stages` | what does a plan need that the caller names? |
//! | `largest_model` | which is the largest of several models that fits? |
//! | `plan` | what is told and kept of a candidate? |
//! | `incomparable` | which plans must not be compared, in what? |
//!
//! A formula finds good plans among millions at once. What certificates say rests on simulation: plans are ranked by
//! simulated seconds, and no plan is faster, as simulated, than the bound.

mod annealed;
mod any_subset;
mod attempt;
mod baselines;
mod batches;
mod candidate;
mod certificate;
mod chain;
mod effort;
mod error;
mod fewest;
mod found;
pub mod holds;
mod incomparable;
mod inquiry;
mod largest_batch;
mod largest_model;
mod launcher;
mod named_stages;
mod no_plan;
mod plan;
mod question;
mod ranking;
mod reach;
mod recommendation;
mod relaxed;
mod remedies;
mod restriction;
mod runners_up;
mod solve;
mod transfers;
mod value;
mod variant;
mod why_not;
mod wish;

pub use batches::{batches, least_share, left_out, recompute, schedules};
pub use candidate::{Candidate, CandidateStage};
pub use chain::ProfiledChain;
pub use error::{QuestionError, RecommendError};
pub use incomparable::incomparable;
pub use inquiry::Job;
pub use largest_model::largest_model;
pub use launcher::{CutUnit, Rules};
pub use plan::NamedPlan;
pub use question::Question;
pub use recommendation::{Recommendation, recommend};
pub use remedies::Remedy;
pub use transfers::{Transfers, transfers};
pub use variant::{Variant, divisors, recompute_name, schedule_name, variants};
pub use why_not::{Short, WhyNot};
pub use wish::{MAX_BATCHES, Wish};

#[cfg(test)]
mod brute;
#[cfg(test)]
mod tests;
