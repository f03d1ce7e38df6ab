//! Recommendation: from a request to a plan with its bound, alternatives, restrictions and remedies.
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
//! A request, its profiles and its devices form a [`PlanQuestion`]; nothing in this crate depends on the server. One request
//! takes these steps:
//!
//! 1. `ask` fills in defaults and lists variants: batch, schedule, recomputation, degrees. Where seconds are compared, no variant
//!    leaves a device fewer samples than were profiled, unless the request names its micro-batches. A note states what was left
//!    out.
//! 2. `find` searches each variant twice. AMP's formula finds good plans among millions at once, and these are simulated. Then
//!    the simulated search builds plans stage by stage until none that may be better is left, or its effort ends.
//! 3. Fewest devices are found upwards from the smallest number. A relaxation rejects numbers on which no plan is possible
//!    anywhere.
//! 4. `answer` adds the certificate, the cost of shape and framework, and the plans of five baseline rules. Where nothing fits it
//!    names the plan with the smallest shortage, its stage, device and bytes, and repeats the search for each remedy.
//! 5. `plan` writes the candidate as a stored plan. Alternatives are stored too, for trials.
//!
//! Certificates bound simulated seconds: no plan is faster, as simulated, than the bound. A deadline, or the end of the call,
//! stops a search within a tenth of a second; the result is then the best plan so far with its gap.

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
