//! One search for a wish: which devices, which batch, and the best plans on them.

use loadmaster_proto::plan::objective::Objective;

use super::any_subset::on_any_subset;
use super::fewest::fewest;
use super::found::Solution;
use super::inquiry::Inquiry;
use super::largest_batch::largest_batch;
use super::value::best_value;
use loadmaster_search::cost::Market;

/// Searches for what is asked.
pub(crate) fn attempt<M: Market>(inquiry: Inquiry<'_, M>) -> Solution {
    let wish = inquiry.wish;
    match wish.objective {
        Objective::MinDevices | Objective::MinCost => fewest(inquiry),
        Objective::MaxBatch => largest_batch(inquiry),
        // Of several models the caller asks for one after another.
        Objective::MinPeakMemory | Objective::MaxModel | Objective::MinIterationTime | Objective::Pareto => {
            let ranking = on_any_subset(inquiry);
            let value = best_value(wish, &ranking.candidates);
            let bound = ranking.bound.filter(|bound| bound.is_finite());
            Solution::of(ranking, value, bound)
        }
    }
}
