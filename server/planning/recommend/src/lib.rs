//! From a request to a plan, with what proves it, what came next, and what restricted it.
//!
//! | module | question |
//! |---|---|
//! | `question` | what is asked, of which profiles, on which devices? |
//! | `ask` | what is that with all defaults filled in, and as questions to a search? |
//! | `find` | which plans are best? |
//! | `answer` | what proves the best one, or why is there none? |
//! | `plan` | what is told and kept of a candidate? |
//! | `bind` | who is where on the nodes that a scheduler gave, and how fast is that? |
//! | `named_stages` | what does a plan need that the caller names? |
//! | `acted` | what does a plan need whose stages do memory actions? |
//! | `chunked` | which plan is best whose parameters and state are in chunks? |
//! | `interleaved` | which plan is best whose devices take turns with several stages each? |
//! | `over_time` | what does a stored plan copy and hold, moment by moment? |
//! | `largest_model` | which is the largest of several models that fits? |
//! | `grown` | which is the largest model of a family that is trained in chunks? |
//! | `incomparable` | which plans must not be compared, in what? |
//!
//! A formula finds good plans among millions at once. What certificates say rests on simulation: plans are ranked by
//! simulated seconds, and no plan is faster, as simulated, than the bound.

mod acted;
mod answer;
mod ask;
mod bind;
mod chunked;
mod find;
mod grown;
mod incomparable;
mod interleaved;
mod largest_model;
mod named_stages;
mod over_time;
mod plan;
mod question;

pub use answer::{
    LackingStep, QuestionError, RecommendError, Recommendation, Remedy, Short, WhyNot, recommend,
};
pub use ask::{
    MAX_BATCHES, ProfiledChain, Transfers, Variant, Wish, batches, divisors, least_share, left_out,
    recompute, schedules, transfers, variants,
};
pub use bind::{BindError, BindQuestion, Bound, StageLack, usual_kinds};
pub use find::{Candidate, CandidateStage, Job};
pub use grown::{Family, Grown};
pub use incomparable::incomparable;
pub use interleaved::{HeldTogether, NoTurns};
pub use largest_model::largest_model;
pub use over_time::{
    ChunksOverTime, CopyShown, CurvePoint, Interleaved, OverTime, StageCurve, Untold, WayShown,
};
pub use plan::NamedPlan;
pub use question::PlanQuestion;

#[cfg(test)]
mod brute;
#[cfg(test)]
mod on_nodes;
#[cfg(test)]
mod scene;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod unlike;
