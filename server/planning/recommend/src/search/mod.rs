//! Which plans are best by criteria.
//!
//! | file | question |
//! |---|---|
//! | `inquiry` | what is a search asked, and which runs of the devices may its stages take? |
//! | `effort` | how much may it try? |
//! | here | which search for which objective? |
//! | `fewest` | how few devices, or how cheap ones, are enough, and what are devices worth? |
//! | `largest_batch` | how large a micro-batch fits? |
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
mod fewest;
mod inquiry;
mod largest_batch;
mod rank;
mod ranking;
mod refinement;
mod relaxed;
mod solve;

use loadmaster_proto::plan::objective::Objective;

use loadmaster_search::cost::Market;

pub(super) use any_subset::{first_fit, on_any_subset};
pub use candidate::{Candidate, CandidateStage};
pub(super) use device_mapping::KnownOrders;
pub(super) use effort::{Effort, efforts};
pub(super) use fewest::DeviceWorth;
pub(super) use inquiry::Inquiry;
pub use inquiry::Job;
pub(super) use rank::{rank, rank_by_formula};
pub(super) use ranking::{Solution, best_value, counted, order, simulate_best, value};
pub(super) use relaxed::fewest_devices;
#[cfg(test)]
pub(super) use relaxed::{BestNodes, least};
pub(super) use solve::PricedVariant;

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
            Solution::new(ranking, value, bound)
        }
    }
}
