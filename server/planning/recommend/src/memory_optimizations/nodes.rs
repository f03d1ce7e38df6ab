//! The nodes of stages. Whether blocks go to devices of the same node, whether its host has the memory for blocks that go there, and
//! what the cores that its CPU slots share take at least.

use std::collections::BTreeMap;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::plan::objective::PlanShape;
use loadmaster_proto::plan::{PlacedDevice, Plan};
use loadmaster_proto::training::actions::{Destination, Optimization, StageActions, Stripe};

use crate::context::Context;
use crate::problem::Criteria;
use crate::search::Job;
use loadmaster_predict::PipelineActions;
use loadmaster_search::cost::Market;
use loadmaster_search::fleet::PlannedFleet;
use loadmaster_search::{Choice, KindSet, StageAt, StageCosts};

/// Where a stage's blocks go besides the host.
fn stripes(actions: &StageActions) -> impl Iterator<Item = (usize, &Stripe, usize)> {
    actions.actions.iter().enumerate().flat_map(|(index, action)| {
        let stripes: &[Stripe] = match &action.optimization {
            Optimization::Swap(swap) => match &swap.to {
                Destination::Peers(stripes) => stripes,
                Destination::Host => &[],
            },
            Optimization::Recompute => &[],
        };
        stripes.iter().enumerate().map(move |(position, stripe)| (index, stripe, position))
    })
}

/// The devices of a stage with those of another one that they send to, as ranks do it.
fn pairs<'a>(
    own: &'a [PlacedDevice],
    peers: &'a [PlacedDevice],
) -> impl Iterator<Item = (&'a PlacedDevice, &'a PlacedDevice)> {
    own.iter()
        .enumerate()
        .filter_map(|(index, device)| Some((device, peers.get(index.checked_rem(peers.len())?)?)))
}

/// Whether each device of a stage is on the node of the one that it would send to.
pub(crate) fn may_be_peers(own: &[PlacedDevice], peers: &[PlacedDevice]) -> bool {
    !peers.is_empty() && pairs(own, peers).all(|(device, peer)| device.node == peer.node)
}

/// By stage: how many of its devices each of the plan's nodes has.
pub(super) fn devices_by_node(plan: &Plan) -> Vec<Vec<u32>> {
    let mut nodes: Vec<&str> = Vec::new();
    let mut stages = Vec::with_capacity(plan.stages.len());
    for stage in &plan.stages {
        let mut counts: Vec<u32> = Vec::new();
        for device in &stage.devices {
            let at = nodes.iter().position(|node| *node == device.node).unwrap_or_else(|| {
                nodes.push(&device.node);
                nodes.len() - 1
            });
            counts.resize(counts.len().max(at + 1), 0);
            counts[at] += 1;
        }
        stages.push(counts);
    }
    stages
}

/// The devices of each stage of a plan.
pub(super) fn devices_of(plan: &Plan) -> Vec<&[PlacedDevice]> {
    plan.stages.iter().map(|stage| stage.devices.as_slice()).collect()
}

/// Checks that each device of a stage is on the node of the peer that it sends to, stage by stage.
///
/// # Errors
/// Names the stripe, by its path in a request.
pub(super) fn check_peers(
    devices: &[impl AsRef<[PlacedDevice]>],
    actions: &[StageActions],
) -> Result<(), Invalid> {
    let mut stages = actions.iter().enumerate();
    stages.try_for_each(|(stage, of)| {
        check_stage(devices, stage, of)
            .map_err(|invalid| invalid.under(&format!("memory.stage_memory_optimizations[{stage}]")))
    })
}

fn check_stage(
    devices: &[impl AsRef<[PlacedDevice]>],
    stage: usize,
    actions: &StageActions,
) -> Result<(), Invalid> {
    let Some(own) = devices.get(stage) else { return Ok(()) };
    for (action, stripe, position) in stripes(actions) {
        let Some(peers) = devices.get(stripe.stage as usize) else { continue };
        let pairs = pairs(own.as_ref(), peers.as_ref());
        for (PlacedDevice { node, .. }, PlacedDevice { node: there, .. }) in pairs {
            if node != there {
                let field = format!("optimizations[{action}].swap.peer_stripes[{position}].stage");
                let why = format!(
                    "{} is on node {there:?}, but stage {stage} is on {node:?}. Swap blocks to a device of the same node",
                    stripe.stage
                );
                return Err(Invalid::field(field, why));
            }
        }
    }
    Ok(())
}

/// Checks that no host gives more memory than its cluster says it may: `pools` are the bytes that each device of a stage takes
/// of it.
///
/// # Errors
/// Names the first node that lacks memory.
pub(super) fn check_hosts(
    fleet: &PlannedFleet,
    devices: &[impl AsRef<[PlacedDevice]>],
    pools: impl Iterator<Item = u64>,
) -> Result<(), Invalid> {
    for (name, bytes) in taken(devices, pools) {
        let allowed = fleet.described(name).and_then(|node| node.copies.as_ref()?.host_memory);
        if let Some(allowed) = allowed.filter(|allowed| allowed.0 < bytes) {
            let why = format!(
                "need {} of CPU memory on node {name:?}, but the cluster allows {allowed}. Offload less, or use a node \
                 with more CPU memory",
                Bytes(bytes)
            );
            return Err(Invalid::field("memory.stage_memory_optimizations", why));
        }
    }
    Ok(())
}

/// Checks that stages may do what they do on these devices of the fleet: peers are on one node, and hosts have the memory.
///
/// # Errors
/// Names what they may not.
pub(crate) fn check_acts_on(
    context: &Context<'_>,
    devices: &[&[u32]],
    stages: &PipelineActions,
) -> Result<(), Invalid> {
    let placed: Vec<Vec<PlacedDevice>> = devices.iter().map(|own| context.placed(own)).collect();
    check_peers(&placed, &stages.actions)?;
    check_hosts(context.fleet, &placed, stages.actions.iter().map(|own| own.host_pool.0))
}

/// What is taken of each host where each device of a stage takes so much.
fn taken(devices: &[impl AsRef<[PlacedDevice]>], pools: impl Iterator<Item = u64>) -> BTreeMap<&str, u64> {
    let mut taken: BTreeMap<&str, u64> = BTreeMap::new();
    for (stage, pool) in devices.iter().zip(pools) {
        for device in stage.as_ref() {
            let bytes = taken.entry(&device.node).or_default();
            *bytes = bytes.saturating_add(pool);
        }
    }
    taken
}

/// The most that is taken of one host where each device of a stage takes so much.
pub(crate) fn most_taken(devices: &[impl AsRef<[PlacedDevice]>], pools: impl Iterator<Item = u64>) -> u64 {
    taken(devices, pools).into_values().max().unwrap_or(0)
}

/// The most that a plan takes of the memory of one host: pools, of which no more than needed may be full.
pub(crate) fn most_at_a_host(plan: &Plan) -> Bytes {
    let pools = plan.stages.iter().map(|of| of.offload.as_ref().map_or(0, |_| of.actions.host_pool.0));
    Bytes(most_taken(&devices_of(plan), pools))
}

/// Sums in another order are no other bound.
const ROUNDING: f64 = 1e-9;

/// Seconds that no pipeline of one device per stage gets below, because all it computes is spread over the cores that its
/// slots share; none where that is not known, or stages may have several.
pub(crate) fn least_on_cores(context: &Context<'_>, job: &Job<'_>, criteria: &Criteria) -> Option<f64> {
    let is_single = criteria.shape == PlanShape::SinglePipeline;
    let cores = context.slot_cores().filter(|_| is_single && context.kinds.len() == 1)?;
    let nodes = if job.fleet.is_one_node { 1 } else { job.fleet.nodes.len() };
    let mut least: Option<f64> = None;
    for &schedule in &criteria.schedules {
        for &batch in &criteria.batches {
            let costs = context.prices.costs(schedule, batch, &[Choice::SINGLE], &[]);
            let last = costs.layers().checked_sub(1)?;
            let all = costs.seconds(&StageAt::anywhere(0, last, KindSet::one(0)))?;
            let work = f64::from(batch.micro_batches) * all.passes() + all.step;
            least = Some(least.map_or(work, |least: f64| least.min(work)));
        }
    }
    Some(least? / (cores.slots * nodes.max(1) as f64) * (1.0 - ROUNDING))
}
