//! What is answered: the best plan with what proves it, or why there is none.
//!
//! | file | question |
//! |---|---|
//! | `recommendation` | what is answered, and what came next? |
//! | `certificate` | how good is the answer, and what was rejected? |
//! | `restriction` | what do shape and framework cost? |
//! | `baselines` | what do well-known rules need? |
//! | `no_plan`, `why_not` | why does nothing fit, and what comes closest? |
//! | `remedies` | what would help? |
//! | `error` | why is there no answer? |

mod baselines;
mod certificate;
mod error;
mod no_plan;
mod recommendation;
mod remedies;
mod restriction;
mod why_not;

pub(crate) use certificate::certified;
pub use error::{LackingStep, QuestionError, RecommendError};
pub(super) use recommendation::{Fit, fit};
pub use recommendation::{Recommendation, recommend};
pub use remedies::Remedy;
pub(crate) use remedies::{in_1f1b, of_batch, smaller};
#[cfg(test)]
pub(super) use restriction::broken_rules;
pub(super) use restriction::{broken_stages, restriction_cost};
pub use why_not::{Short, WhyNot};
