//! What is set aside for what is away: on hosts, and on the devices of other stages.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::plan::{PlacedDevice, Plan};
use loadmaster_proto::training::actions::{Deed, Destination, Hosted, StageActions, Stripe};

use crate::predict::Acted;

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
pub(super) fn check_nodes(plan: &Plan, stage: usize, actions: &StageActions) -> Result<(), Invalid> {
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

/// Fills in pools that are left out, and holds those that are given to what is needed. Returns what a device of each
/// stage sets aside for others.
///
/// # Errors
/// Names the pool that is too small.
pub(super) fn complete(
    plan: &Plan,
    actions: &mut [StageActions],
    acted: &[Acted],
) -> Result<Vec<u64>, Invalid> {
    for (index, (of, acted)) in actions.iter_mut().zip(acted).enumerate() {
        let needed = Bytes(acted.host_peak());
        if of.host_pool.0 == 0 {
            of.host_pool = needed;
        } else if of.host_pool < needed {
            let why = format!(
                "is {}, the actions of the stage have {} there at once: make it as large, or leave it out",
                of.host_pool.0, needed.0
            );
            return Err(Invalid::field(format!("stage_actions[{index}].host_pool_bytes"), why));
        }
    }
    let devices: Vec<u32> = plan.stages.iter().map(|stage| stage.config.devices().max(1)).collect();
    let mut hosted = vec![0_u64; actions.len()];
    for (host, of) in actions.iter_mut().enumerate() {
        for (donor, acted) in acted.iter().enumerate() {
            let [host_stage, stage] = [host, donor].map(|index| u32::try_from(index).unwrap_or(u32::MAX));
            let needed = Bytes(acted.peak_on(host_stage));
            if needed.0 > 0 {
                set_aside(of, host, stage, needed)?;
            }
        }
        of.hosted.sort_unstable_by_key(|hosted| hosted.stage);
        for Hosted { stage, bytes } in &of.hosted {
            // One device may host several of a stage that has more of them.
            let donors = devices.get(*stage as usize).copied().unwrap_or(1).div_ceil(devices[host]);
            hosted[host] = hosted[host].saturating_add(bytes.0.saturating_mul(donors.into()));
        }
    }
    Ok(hosted)
}

fn set_aside(of: &mut StageActions, host: usize, stage: u32, needed: Bytes) -> Result<(), Invalid> {
    match of.hosted.iter().position(|hosted| hosted.stage == stage) {
        None => of.hosted.push(Hosted { stage, bytes: needed }),
        Some(at) if of.hosted[at].bytes < needed => {
            let why = format!(
                "is {}, stage {stage} has {} there at once: make it as large, or leave it out",
                of.hosted[at].bytes.0, needed.0
            );
            return Err(Invalid::field(format!("stage_actions[{host}].hosted[{at}].bytes"), why));
        }
        Some(_) => {}
    }
    Ok(())
}
