//! Which plans are best by criteria.
//!
//! | file | question |
//! |---|---|
//! | `inquiry` | what is a search asked? |
//! | `effort` | how much may it try? |
//! | here | which search for which objective, and what did it come to (`solution`)? |
//! | `fewest` | how few devices, or how cheap ones, are enough? |
//! | `largest_batch` | how large a micro-batch fits? |
//! | `any_subset` | which of the devices? |
//! | `relaxed` | what does any plan on so many devices need at least? |
//! | `rank`, `ranking` | which plans are best on given devices, in which order? |
//! | `refinement` | what does more effort come to? |
//! | `modes` | what does each search mode answer? |
//! | `solve` | which search answers which question? |
//! | `known_layouts` | which runs of the devices may its stages take? |
//! | `annealing` | what does AMP's annealing come by? |
//! | `candidate` | what is a plan weighed by? |
//! | `edges` | what do its edges take on the devices of its stages? |
//! | `device_mapping` | which of these are best for them, where links between devices are unlike? |
//! | `on_best_devices` | which plans are wanted once they are on these? |
//! | `value` | what is it worth? |
//! | `worth` | what are its devices? |

mod annealing;
mod any_subset;
mod candidate;
mod device_mapping;
mod edges;
mod effort;
mod fewest;
mod inquiry;
mod known_layouts;
mod largest_batch;
mod modes;
mod on_best_devices;
mod rank;
mod ranking;
mod refinement;
mod relaxed;
mod solution;
mod solve;
mod value;
mod worth;

use loadmaster_proto::plan::objective::Objective;

use loadmaster_search::cost::Market;

pub(super) use any_subset::{first_fit, on_any_subset};
pub use candidate::{Candidate, CandidateStage};
pub(super) use device_mapping::KnownOrders;
pub(super) use effort::{Effort, efforts};
pub(super) use inquiry::Inquiry;
pub use inquiry::Job;
pub(super) use modes::{check_mode, solver};
pub(super) use rank::{rank, rank_by_formula};
pub(super) use ranking::{order, simulate_best};
pub(super) use relaxed::fewest_devices;
#[cfg(test)]
pub(super) use relaxed::{BestNodes, least};
pub(super) use solution::Solution;
pub(super) use solve::PricedVariant;
pub(super) use value::{best_value, counted, value};
pub(super) use worth::DeviceWorth;

use fewest::fewest;
use largest_batch::largest_batch;

/// Searches for what is asked.
pub(super) fn attempt<M: Market>(inquiry: Inquiry<'_, M>) -> Solution {
    let criteria = inquiry.criteria;
    match criteria.objective {
        Objective::MinDevices | Objective::MinCost => fewest(inquiry),
        Objective::MaxBatch => largest_batch(inquiry),
        // Of several models the caller asks for one after another.
        Objective::MinPeakMemory | Objective::MaxModel | Objective::MinIterationTime | Objective::Pareto => {
            let ranking = on_any_subset(inquiry);
            let value = best_value(criteria, &ranking.candidates);
            let bound = ranking.bound.filter(|bound| bound.is_finite());
            Solution::of(ranking, value, bound)
        }
    }
}
