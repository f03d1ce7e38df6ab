//! Nodes that a cluster describes, for tests of plans that are bound to them.

use std::sync::Arc;

use loadmaster_proto::cluster::import::{ClusterFormat, ImportOptions, import};
use loadmaster_proto::plan::Plan;

use crate::tests::fixture::Fixture;
use crate::{Placement, PlacementError, PlacementProblem};
use loadmaster_search::Stop;
use loadmaster_search::fleet::{PlannedFleet, Selection, fleet};

/// A node: its devices, and how fast its network (KB/s) and its way to the host (MB/s) are; 0 where nobody knows the latter.
pub(crate) type Node = (u32, u32, u32);

/// Nodes whose devices allow so many bytes.
pub(crate) fn nodes(nodes: &[Node], bytes: u64) -> PlannedFleet {
    let node = |(index, &(devices, network, host)): (usize, &Node)| {
        let host = match host {
            0 => String::new(),
            rate => format!(", host: {{link: {{bandwidth: {rate}MB/s}}}}"),
        };
        format!(
            "  - {{name: n{index}, kind: cpu, devices: {devices}, link: {{bandwidth: 5GB/s}}, network: {{bandwidth: \
             {network}KB/s}}{host}}}\n"
        )
    };
    let nodes: String = nodes.iter().enumerate().map(node).collect();
    let text = format!(
        "format: loadmaster.cluster/1\nkinds: [{{name: cpu, memory: {bytes}B, usable_memory: {bytes}B}}]\nnodes:\n{nodes}"
    );
    let cluster = import(ClusterFormat::Loadmaster, &text, &ImportOptions::default()).unwrap();
    fleet(&cluster, &Selection::default()).unwrap().with_cluster(cluster)
}

pub(crate) fn bind(plan: &Plan, fixture: &Fixture, fleet: PlannedFleet) -> Result<Placement, PlacementError> {
    let question = PlacementProblem { plan: plan.clone(), chains: vec![Arc::clone(&fixture.chain)], fleet };
    question.answer(&Stop::default())
}

pub(crate) fn permutations<T: Clone>(of: &[T]) -> Vec<Vec<T>> {
    if of.is_empty() {
        return vec![Vec::new()];
    }
    let of_first = |index: usize| {
        let mut rest = of.to_vec();
        let first = rest.remove(index);
        permutations(&rest).into_iter().map(move |rest| [vec![first.clone()], rest].concat())
    };
    (0..of.len()).flat_map(of_first).collect()
}

pub(crate) fn is_same(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-12 * one.abs().max(other.abs())
}
