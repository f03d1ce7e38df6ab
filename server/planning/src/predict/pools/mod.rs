//! What the stages of a pipeline set aside for memory actions, and whether there is room for it.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::training::actions::{Hosted, StageActions};

use super::{Acted, Margin};

/// A stage of a pipeline with what it does.
#[derive(Debug, Clone, Copy)]
pub struct ActedStage<'a> {
    /// How many devices it is on.
    pub devices: u32,
    /// What it does, with its pools.
    pub actions: &'a StageActions,
    /// What comes of that.
    pub acted: &'a Acted,
}

/// Where a pipeline is.
#[derive(Debug, Clone, Copy)]
pub struct Room<'a> {
    /// The capacity of each device, stage after stage.
    pub capacities: &'a [Bytes],
    /// The node of each device.
    pub nodes: &'a [usize],
    /// Host memory of each node that may be set aside.
    pub hosts: &'a [Bytes],
}

/// What there is no room for. Stages, devices of a stage and nodes count from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Shortage {
    /// A pool of the host is smaller than what is there at once.
    #[error(
        "stage {stage} puts {needed} of the host's memory at once, its pool has {set_aside}: set as much aside"
    )]
    Pool {
        /// Whose blocks they are.
        stage: u32,
        /// What is there at once.
        needed: Bytes,
        /// The pool.
        set_aside: Bytes,
    },
    /// A pool on a peer is smaller than what is there at once.
    #[error(
        "stage {stage} puts {needed} on a device of stage {peer} at once, whose pool for it has {set_aside}: set as much aside"
    )]
    Hosted {
        /// Whose blocks they are.
        stage: u32,
        /// Who hosts them.
        peer: u32,
        /// What is there at once.
        needed: Bytes,
        /// The pool.
        set_aside: Bytes,
    },
    /// A peer's memory is out of reach.
    #[error(
        "device {device} of stage {stage} is not on the same node as its peer of stage {peer}: choose a peer on its node"
    )]
    Far {
        /// Whose blocks they would be.
        stage: u32,
        /// Which of its devices.
        device: u32,
        /// Who would host them.
        peer: u32,
    },
    /// A device is too small.
    #[error(
        "device {device} of stage {stage} needs {needed}, {hosted} of them for other stages, and has {capacity}"
    )]
    Device {
        /// The stage.
        stage: u32,
        /// Which of its devices.
        device: u32,
        /// With the margin.
        needed: Bytes,
        /// For other stages.
        hosted: Bytes,
        /// What it has.
        capacity: Bytes,
    },
    /// A node has too little host memory.
    #[error("node {node} needs {needed} of host memory for its devices' pools and may set {available} aside")]
    Host {
        /// The node.
        node: usize,
        /// All of its devices' pools.
        needed: Bytes,
        /// What it has.
        available: Bytes,
    },
}

/// Sets aside what all stages of a pipeline need, in order: each what its own actions put at the host, and what the others
/// put on its devices.
pub fn set_aside(actions: &mut [StageActions], acted: &[Acted]) {
    for ((stage, actions), own) in (0..).zip(actions).zip(acted) {
        actions.host_pool = Bytes(own.host_peak());
        let hosted = (0..).zip(acted).filter(|&(other, _)| other != stage);
        let hosted = hosted.map(|(other, acted)| Hosted { stage: other, bytes: Bytes(acted.peak_on(stage)) });
        actions.hosted = hosted.filter(|hosted| hosted.bytes.0 > 0).collect();
    }
}

/// What a device of a stage sets aside for others. `devices` are those of each stage of the pipeline.
pub fn hosted_bytes(hosted: &[Hosted], devices: &[u32], stage: u32, device: u32) -> u64 {
    let of = |stage: u32| devices.get(stage as usize).copied().unwrap_or(1).max(1);
    let own = of(stage);
    let pools = |other: u32| u64::from(of(other).saturating_sub(device).div_ceil(own));
    hosted
        .iter()
        .fold(0, |sum: u64, hosted| sum.saturating_add(hosted.bytes.0.saturating_mul(pools(hosted.stage))))
}

/// What there is no room for in a pipeline; nothing where it can be trained.
pub fn shortages(pipeline: &[ActedStage<'_>], room: Room<'_>, margin: Margin) -> Vec<Shortage> {
    let devices: Vec<u32> = pipeline.iter().map(|stage| stage.devices).collect();
    let first = |stage: u32| devices.iter().take(stage as usize).map(|&of| of as usize).sum::<usize>();
    let node = |stage: u32, device: u32| room.nodes.get(first(stage) + device as usize).copied();
    let mut found = Vec::new();
    let mut at_hosts = vec![0_u64; room.hosts.len()];
    for (stage, &ActedStage { devices: count, actions, acted }) in (0..).zip(pipeline) {
        let needed = Bytes(acted.host_peak());
        if needed > actions.host_pool {
            found.push(Shortage::Pool { stage, needed, set_aside: actions.host_pool });
        }
        for (peer, pool) in acted.pools.iter().filter_map(|pool| Some((pool.peer?, pool))) {
            let hosts = pipeline.get(peer as usize).map_or(&[][..], |peer| peer.actions.hosted.as_slice());
            let set_aside = hosts.iter().find(|hosted| hosted.stage == stage).map_or(Bytes(0), |of| of.bytes);
            if pool.peak > set_aside.0 {
                found.push(Shortage::Hosted { stage, peer, needed: Bytes(pool.peak), set_aside });
            }
            let own = devices.get(peer as usize).copied().unwrap_or(1).max(1);
            let far = (0..count).find(|&device| node(stage, device) != node(peer, device % own));
            found.extend(far.map(|device| Shortage::Far { stage, device, peer }));
        }
        let needed_by = |device: u32| {
            let hosted = hosted_bytes(&actions.hosted, &devices, stage, device);
            (margin.needed(&acted.prediction(hosted)), Bytes(hosted))
        };
        let too_small = (0..count).find_map(|device| {
            let (needed, hosted) = needed_by(device);
            let capacity = *room.capacities.get(first(stage) + device as usize)?;
            (needed > capacity).then_some(Shortage::Device { stage, device, needed, hosted, capacity })
        });
        found.extend(too_small);
        for device in 0..count {
            if let Some(sum) = node(stage, device).and_then(|node| at_hosts.get_mut(node)) {
                *sum = sum.saturating_add(actions.host_pool.0);
            }
        }
    }
    for ((node, needed), &available) in at_hosts.into_iter().map(Bytes).enumerate().zip(room.hosts) {
        if needed > available {
            found.push(Shortage::Host { node, needed, available });
        }
    }
    found
}

#[cfg(test)]
mod tests;
