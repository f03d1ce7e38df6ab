//! Which plans are best by a wish.
//!
//! | file | question |
//! |---|---|
//! | `inquiry` | what is a search asked? |
//! | `effort` | how much may it try? |
//! | `attempt` | which search for which objective, and what did it come to (`found`)? |
//! | `fewest` | how few devices, or how cheap ones, are enough? |
//! | `largest_batch` | how large a micro-batch fits? |
//! | `any_subset` | which of the devices? |
//! | `relaxed` | what does any plan on so many devices need at least? |
//! | `rank`, `ranking` | which plans are best on given devices, in which order? |
//! | `refinement` | what does more effort come to? |
//! | `modes` | what does each search mode answer? |
//! | `solve` | which search answers which question? |
//! | `known_layouts` | which runs of the devices may its stages take? |
//! | `annealed` | what does AMP's annealing come by? |
//! | `candidate` | what is a plan weighed by? |
//! | `edges` | what do its edges take on the devices of its stages? |
//! | `mapped` | which of these are best for them, where links between devices are unlike? |
//! | `on_best_devices` | which plans are wanted once they are on these? |
//! | `value` | what is it worth? |
//! | `worth` | what are its devices? |

mod annealed;
mod any_subset;
mod attempt;
mod candidate;
mod edges;
mod effort;
mod fewest;
mod found;
mod inquiry;
mod known_layouts;
mod largest_batch;
mod mapped;
mod modes;
mod on_best_devices;
mod rank;
mod ranking;
mod refinement;
mod relaxed;
mod solve;
mod value;
mod worth;

pub(super) use any_subset::{first_fit, on_any_subset};
pub(super) use attempt::attempt;
pub use candidate::{Candidate, CandidateStage};
pub(super) use effort::{Effort, efforts};
pub(super) use found::Solution;
pub(super) use inquiry::Inquiry;
pub use inquiry::Job;
pub(super) use mapped::KnownOrders;
pub(super) use modes::{check_mode, solver};
pub(super) use rank::{rank, rank_by_formula};
pub(super) use ranking::{order, simulate_best};
pub(super) use relaxed::fewest_devices;
#[cfg(test)]
pub(super) use relaxed::{BestNodes, least};
pub(super) use solve::PricedVariant;
pub(super) use value::{best_value, counted, value};
pub(super) use worth::DeviceWorth;
