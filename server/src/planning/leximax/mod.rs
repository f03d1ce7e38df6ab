//! The memory-balanced partitioning, exactly.
//!
//! CAPTURE (III-C, Algorithm 4) and mCAP enumerate every partitioning and take the one with the lowest
//! highest peak; among equals they drop the highest devices and compare the rest, and at last draw
//! lots. Here the order is *leximax*: the sorted peaks, highest first, are compared like words. Of
//! [10, 10, 1] and [10, 9, 9] it prefers the second. Equal vectors are decided by the smallest first
//! stage, then the smallest second one, and so on: the same question has the same answer for ever.
//!
//! Leximax survives concatenation: adding the same stages to two partitionings of the same layers
//! never turns their order around. So the best rest of a pipeline does not depend on its beginning, and
//! a dynamic program over (layers left, stages left) finds the optimum of all C(L−1, G−1)
//! partitionings in O(G·L²) comparisons. Costs may depend on the position of
//! a stage, as they do under 1F1B, and need not grow with the stage.

mod infeasible;
mod search;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::stage::Partitioning;

pub use infeasible::Infeasible;

/// Name and version of the search, for plans.
pub const SOLVER: &str = "leximax/1";

/// The best partitioning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Balanced {
    /// One device per stage.
    pub partitioning: Partitioning,
    /// What each stage costs, bytes.
    pub peaks: Vec<Bytes>,
}

/// Cuts `layers` layers into one stage per device of `capacities` such that each stage fits and the
/// peaks are leximax-smallest.
///
/// `cost(stage_index, first, last)` is the peak in bytes of layers `first..=last` as stage
/// `stage_index`. It is called O(G·L²) times and must always return the same.
///
/// # Errors
/// More stages than layers, no device, or the smallest reason why nothing fits.
pub fn balance(
    layers: usize,
    capacities: &[u64],
    cost: impl Fn(usize, usize, usize) -> u64,
) -> Result<Balanced, Infeasible> {
    balance_within(layers, capacities, &cost, &cost)
}

/// [`balance`] where a device must hold more than the peak that is compared, for example a margin:
/// `needed` is what has to fit. Reasons why nothing fits are told in bytes needed.
///
/// # Errors
/// As [`balance`].
pub fn balance_within(
    layers: usize,
    capacities: &[u64],
    cost: impl Fn(usize, usize, usize) -> u64,
    needed: impl Fn(usize, usize, usize) -> u64,
) -> Result<Balanced, Infeasible> {
    let stages = capacities.len();
    if stages == 0 || stages > layers {
        return Err(Infeasible::MoreStagesThanLayers { stages, layers });
    }
    let within_capacity = |stage: usize, first, last| {
        let fits = needed(stage, first, last) <= capacities[stage];
        fits.then(|| cost(stage, first, last))
    };
    let Some(sizes) = search::search(layers, stages, within_capacity) else {
        return Err(infeasible::explain(layers, capacities, needed));
    };
    let Ok(partitioning) = Partitioning::from_sizes(&sizes) else {
        return Err(Infeasible::MoreStagesThanLayers { stages, layers }); // Impossible: sizes are ≥ 1.
    };
    let peaks = partitioning
        .stages()
        .iter()
        .enumerate()
        .map(|(stage, config)| Bytes(cost(stage, config.first_layer, config.last_layer)))
        .collect();
    Ok(Balanced { partitioning, peaks })
}

#[cfg(test)]
mod tests;
