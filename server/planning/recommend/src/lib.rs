//! Recommendation: from a request to a plan with its bound, alternatives, restrictions and remedies.
//!
//! | module | question |
//! |---|---|
//! | `question` | what is asked, of which profiles, on which devices? |
//! | `problem` | what is that with all defaults filled in, and as questions to a search? |
//! | `search` | which plans are best? |
//! | `objectives` | how is each objective reached by plans with memory optimizations, or with interleaved stages; which model is the largest? |
//! | `result` | what proves the best one, or why is there none? |
//! | `context` | what do all plans of one question have in common? |
//! | `plan` | what is reported and kept of a candidate, and which plans must not be compared? |
//! | `placement` | who is where on the nodes that a scheduler gave, and how fast is that? |
//! | `fixed_partition` | what does a plan need that the caller names? |
//! | `memory_optimizations` | what does a plan need whose stages do memory optimizations? |
//! | `chunked` | which plan is best whose parameters and state are in chunks? |
//! | `interleaved` | which plan is best whose devices take turns with several stages each? |
//! | `timeline` | what does a stored plan copy and hold, moment by moment? |
//!
//! A request, its profiles and its devices form a [`PlanQuestion`]; nothing in this crate depends on the server. One request
//! takes these steps:
//!
//! 1. `problem` fills in defaults and lists variants: batch, schedule, recomputation, degrees. Where seconds are compared, no variant
//!    leaves a device fewer samples than were profiled, unless the request names its micro-batches. A note states what was left
//!    out.
//! 2. `search` searches each variant twice. AMP's formula finds good plans among millions at once, and these are simulated. Then
//!    the simulated search builds plans stage by stage until none that may be better is left, or its effort ends.
//! 3. Fewest devices are found upwards from the smallest number. A relaxation rejects numbers on which no plan is possible
//!    anywhere.
//! 4. `result` adds the certificate, the cost of shape and framework, and the plans of five baseline rules. Where nothing fits it
//!    names the plan with the smallest shortage, its stage, device and bytes, and repeats the search for each remedy.
//! 5. `plan` writes the candidate as a stored plan. Alternatives are stored too, for trials.
//!
//! Certificates bound simulated seconds: no plan is faster, as simulated, than the bound. A deadline, or the end of the call,
//! stops a search within a tenth of a second; the result is then the best plan so far with its gap.

mod chunked;
mod context;
mod fixed_partition;
mod interleaved;
mod memory_optimizations;
mod objectives;
mod placement;
mod plan;
mod problem;
mod question;
mod result;
mod search;
mod timeline;

pub use interleaved::{DeviceResidency, InterleavingError};
pub use objectives::{Family, ScaledModel, largest_model};
pub use placement::{Placement, PlacementError, PlacementProblem, StageLack, usual_kinds};
pub use plan::{NamedPlan, incomparable};
pub use problem::{
    Criteria, MAX_BATCHES, ProfiledChain, Transfers, Variant, batches, divisors, least_share, left_out,
    recompute, schedules, transfers, variants,
};
pub use question::PlanQuestion;
pub use result::{
    LackingStep, QuestionError, RecommendError, Recommendation, Remedy, Short, WhyNot, recommend,
};
pub use search::{Candidate, CandidateStage, Job};
pub use timeline::{
    ChunkedTimeline, CopyLane, CurvePoint, InterleavedTimeline, IterationTimeline, LaneCopy, StageCurve,
    TimelineError,
};

#[cfg(test)]
mod tests;
