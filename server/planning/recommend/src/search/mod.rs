//! Which plans are best by criteria.
//!
//! | file | question |
//! |---|---|
//! | `inquiry` | what is a search asked, and which runs of the devices may its stages take? |
//! | `effort` | how much may it try? |
//! | `any_subset` | which of the devices? |
//! | `relaxed` | what does any plan on so many devices need at least? |
//! | `rank` | which plans are best on given devices? |
//! | `ranking` | what are plans worth, in which order are they, and what did a search come to? |
//! | `refinement` | what does more effort come to? |
//! | `solve` | which search answers which question? |
//! | `annealing` | what does AMP's annealing come by? |
//! | `candidate` | what is a plan weighed by, and what do its edges take? |
//! | `device_mapping` | which devices are best for its stages, where links between devices are unlike? |

mod annealing;
mod any_subset;
mod candidate;
mod device_mapping;
mod effort;
mod inquiry;
mod rank;
mod ranking;
mod refinement;
mod relaxed;
mod solve;

pub(super) use any_subset::{first_fit, on_any_subset};
pub use candidate::{Candidate, CandidateStage};
pub(super) use device_mapping::KnownOrders;
pub(super) use effort::{Effort, efforts};
pub(super) use inquiry::Inquiry;
pub use inquiry::Job;
pub(super) use rank::{rank, rank_by_formula};
pub(super) use ranking::{
    MOST_NAMED, Ranking, Solution, best_value, counted, order, settle, simulate_best, value,
};
pub(super) use relaxed::{BestNodes, least, least_device_count};
pub(super) use solve::PricedVariant;
