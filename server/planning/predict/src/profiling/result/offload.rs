//! Whether what memory optimizations moved is what their run asked for.

use std::collections::BTreeSet;

use loadmaster_proto::error::Invalid;
use loadmaster_proto::measure::offload::Offload;
use loadmaster_proto::training::StaticBytes;
use loadmaster_proto::training::actions::{Block, Destination, Optimization, StageActions};

/// Holds what a rank says that its actions moved against the actions; commands have none. `hosts` says whether another stage
/// has blocks on the rank's device: where that one has fewer devices, some have nothing of it.
pub(super) fn check(
    actions: &StageActions,
    hosts: bool,
    measured: Option<&Offload>,
    most_seconds: f64,
) -> Result<(), Invalid> {
    let Some(measured) = measured else {
        return if moves(actions) || hosts {
            Err(Invalid::field("offload", "is missing, but the stage has memory optimizations"))
        } else {
            Ok(())
        };
    };
    if actions.is_empty() {
        return Err(Invalid::field("offload", "is set, but the stage has no memory optimizations"));
    }
    let refuse = |field: String, why: String| Err(Invalid::field(field, why).under("offload"));
    if measured.host_peak > actions.host_pool {
        let why = format!("{} exceeds the pool's {} bytes", measured.host_peak.0, actions.host_pool.0);
        return refuse("host_peak_bytes".to_owned(), why);
    }
    let destinations: BTreeSet<Option<u32>> = destinations(actions);
    let mut before: Option<Option<u32>> = None;
    for (index, copies) in measured.copies.iter().enumerate() {
        let at = |field: &str| format!("copies[{index}].{field}");
        if !destinations.contains(&copies.peer) || before.is_some_and(|before| before >= copies.peer) {
            let why = format!(
                "{:?} is not valid. Use each destination of the stage's memory optimizations once, in order",
                copies.peer
            );
            return refuse(at("peer"), why);
        }
        before = Some(copies.peer);
        if !(0.0..=most_seconds).contains(&copies.waited_seconds) {
            let why = format!(
                "{} is out of range. Use 0 to the run's {most_seconds} seconds",
                copies.waited_seconds
            );
            return refuse(at("waited_seconds"), why);
        }
    }
    Ok(())
}

/// What of these bytes a stage has on its device all the time, whatever its actions do. A block that leaves in one layer
/// counts for none: how much of it is there at once follows from the order of the steps, which is not played here.
pub(super) fn staying(actions: &StageActions, of: StaticBytes) -> StaticBytes {
    let leaves = |block: Block| {
        let swaps = actions.actions.iter().filter_map(|action| match &action.optimization {
            Optimization::Swap(swap) => Some(swap.block),
            Optimization::Recompute => None,
        });
        swaps.into_iter().any(|left| left == block)
    };
    let unless = |block: Block, bytes: u64| if leaves(block) { 0 } else { bytes };
    StaticBytes {
        parameters: unless(Block::Weights, of.parameters),
        gradients: unless(Block::Gradients, of.gradients),
        optimizer: unless(Block::Optimizer, of.optimizer),
        ..of
    }
}

/// Whether anything moves from the stage; layers that are recomputed do not.
fn moves(actions: &StageActions) -> bool {
    let swaps = actions.actions.iter().any(|action| action.optimization != Optimization::Recompute);
    swaps || actions.host_pool.0 > 0
}

/// Where blocks go: stages, or none for the host.
fn destinations(actions: &StageActions) -> BTreeSet<Option<u32>> {
    let swaps = actions.actions.iter().filter_map(|action| match &action.optimization {
        Optimization::Swap(swap) => Some(&swap.to),
        Optimization::Recompute => None,
    });
    swaps
        .flat_map(|to| match to {
            Destination::Host => vec![None],
            Destination::Peers(stripes) => stripes.iter().map(|stripe| Some(stripe.stage)).collect(),
        })
        .collect()
}
