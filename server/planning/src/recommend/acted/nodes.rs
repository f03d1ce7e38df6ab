//! Whether blocks go to devices of the same node.

use loadmaster_proto::error::Invalid;
use loadmaster_proto::plan::{PlacedDevice, Plan};
use loadmaster_proto::training::actions::{Deed, Destination, StageActions, Stripe};

/// Where a stage's blocks go besides the host.
fn stripes(actions: &StageActions) -> impl Iterator<Item = (usize, &Stripe, usize)> {
    actions.actions.iter().enumerate().flat_map(|(index, action)| {
        let stripes: &[Stripe] = match &action.deed {
            Deed::Swap(swap) => match &swap.to {
                Destination::Peers(stripes) => stripes,
                Destination::Host => &[],
            },
            Deed::Recompute => &[],
        };
        stripes.iter().enumerate().map(move |(position, stripe)| (index, stripe, position))
    })
}

/// Checks that each device of a stage is on the node of the peer that it sends to.
///
/// # Errors
/// Names the stripe.
pub(super) fn check(plan: &Plan, stage: usize, actions: &StageActions) -> Result<(), Invalid> {
    let Some(own) = plan.stages.get(stage).map(|of| &of.devices) else { return Ok(()) };
    for (action, stripe, position) in stripes(actions) {
        let Some(peers) = plan.stages.get(stripe.stage as usize).map(|of| &of.devices) else { continue };
        let pairs = own
            .iter()
            .enumerate()
            .filter_map(|(index, device)| Some((device, peers.get(index.checked_rem(peers.len())?)?)));
        for (PlacedDevice { node, .. }, PlacedDevice { node: there, .. }) in pairs {
            if node != there {
                let field = format!("actions[{action}].swap.peers[{position}].stage");
                let why = format!(
                    "is {}, on node {there:?}, and stage {stage} is on {node:?}: blocks go to devices of the same node",
                    stripe.stage
                );
                return Err(Invalid::field(field, why));
            }
        }
    }
    Ok(())
}
