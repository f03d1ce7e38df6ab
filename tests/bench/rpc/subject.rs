//! Profiles and clusters by formula: GPT-2-like chains on nodes of eight devices.

use anyhow::{Context, Result};
use loadmaster_proto::training::{Precision, Schedule, TrainingSpec};
use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::cluster_service_client::ClusterServiceClient;
use loadmaster_proto::wire::v1::create_cluster_request::Subject as Source;
use loadmaster_proto::wire::v1::plan_service_client::PlanServiceClient;
use loadmaster_proto::wire::v1::profile_service_client::ProfileServiceClient;
use loadmaster_samples::training;
use loadmaster_tests::{ADAM, TableRow, layer_rows, table_document};
use serde_json::Value;
use tonic::transport::Channel;

use crate::rpc::load::Limit;

/// Kind of all devices.
pub(crate) const KIND: &str = "imagined";
/// Devices of a node.
const PER_NODE: u32 = 8;
/// Tokens of a sample, and of the vocabulary.
const SEQUENCE: f64 = 1_024.0;
const VOCABULARY: f64 = 50_304.0;
/// Operations that a device does in a second.
const SPEED: f64 = 120e12;

/// How much there is to plan.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) name: &'static str,
    layers: u32,
    devices: u32,
    hidden: f64,
    capacity: i64,
    /// Samples of a micro-batch of the profile.
    micro_batch: u32,
    /// Most seconds of a search.
    seconds: f64,
}

/// The three problems.
pub(crate) const SIZES: [Size; 3] = [
    Size { hidden: 1_024.0, capacity: 16 << 30, micro_batch: 8, ..size("24 x 8", 24, 8, 0.01) },
    Size { hidden: 2_048.0, capacity: 40 << 30, micro_batch: 32, ..size("48 x 64", 48, 64, 0.1) },
    Size { hidden: 4_096.0, capacity: 80 << 30, micro_batch: 128, ..size("96 x 1,024", 96, 1_024, 1.0) },
];

const fn size(name: &'static str, layers: u32, devices: u32, seconds: f64) -> Size {
    Size { name, layers, devices, hidden: 0.0, capacity: 0, micro_batch: 0, seconds }
}

impl Size {
    /// How long a search for this objective may take.
    pub(crate) fn limit(&self, objective: v1::Objective) -> Limit {
        match objective {
            v1::Objective::Pareto => Limit::MedianOrOpen(2.0),
            _ => Limit::Median(self.seconds),
        }
    }
}

/// A profile and a cluster in the planner's store.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) size: Size,
    pub(crate) profile: String,
    pub(crate) cluster: String,
}

impl Subject {
    pub(crate) async fn store(channel: &Channel, size: Size) -> Result<Self> {
        let profile = store_profile(channel, document(size, KIND)).await?;
        Ok(Self { size, profile, cluster: store_cluster(channel, cluster(size)).await? })
    }
}

/// Stores a profile; its name.
pub(crate) async fn store_profile(channel: &Channel, document: String) -> Result<String> {
    let request = v1::ImportProfileRequest { document, ..Default::default() };
    let stored = ProfileServiceClient::new(channel.clone()).import_profile(request).await;
    Ok(stored.context("the profile is refused")?.into_inner().name)
}

/// Stores a cluster; its name.
pub(crate) async fn store_cluster(channel: &Channel, cluster: v1::Cluster) -> Result<String> {
    let request = v1::CreateClusterRequest { subject: Some(Source::Cluster(cluster)), ..Default::default() };
    let stored = ClusterServiceClient::new(channel.clone()).create_cluster(request).await;
    Ok(stored.context("the cluster is refused")?.into_inner().name)
}

/// Parameters, operations of a sample's forward pass, and kept bytes of a sample, of a layer.
fn layer(size: Size, index: u32) -> (f64, f64, f64) {
    let hidden = size.hidden;
    if index == 0 || index + 1 == size.layers {
        let parameters = VOCABULARY * hidden;
        // Looking up an embedding is nearly free, projecting to the vocabulary is not.
        let operations = if index == 0 { 1e9 } else { 2.0 * parameters * SEQUENCE };
        return (parameters, operations, 2.0 * hidden * SEQUENCE);
    }
    let parameters = 12.0 * hidden * hidden;
    let attention = 4.0 * hidden * SEQUENCE * SEQUENCE;
    let heads = hidden / 64.0;
    let kept = 34.0 * hidden * SEQUENCE + 5.0 * heads * SEQUENCE * SEQUENCE;
    (parameters, 2.0 * parameters * SEQUENCE + attention, kept)
}

/// The profile as it would be measured on devices of this name.
fn document(size: Size, kind: &str) -> String {
    let names = (0..size.layers).map(|index| (format!("layer {index}"), layer(size, index).0 as u64));
    let layers: Vec<Value> = (0..size.layers).map(|index| rows(size, index)).collect();
    let usual = training(Schedule::OneFOneB, size.micro_batch, 16);
    let training = TrainingSpec { precision: Precision::Bf16, optimizer: ADAM, seed: 0, ..usual };
    let provenance = ["a chain by formula", "bench rpc", kind, "allocated"];
    let name = format!("gpt of {} layers", size.layers);
    table_document(provenance, (&name, names), &training, &layers).to_string()
}

/// A layer at two sizes and the degrees within a node: shards take A + B/n, and exchange what they computed.
fn rows(size: Size, index: u32) -> Value {
    let (parameters, operations, kept) = layer(size, index);
    let row = |(degree, samples): (u32, u32)| {
        let (shards, batch) = (f64::from(degree), f64::from(samples));
        let exchange = if degree > 1 { 0.2e-3 * (shards - 1.0) / shards } else { 0.0 };
        let forward = (operations / SPEED * (1.0 / shards + 0.02) + exchange) * batch;
        let edge = (2.0 * size.hidden * SEQUENCE * batch) as u64;
        TableRow {
            at: (samples, degree),
            seconds: [forward, 2.0 * forward],
            update_seconds: Some(parameters / shards * 1e-11),
            parameter_bytes: (2.0 * parameters / shards) as u64,
            activation_bytes: (kept * batch * (0.1 + 0.9 / shards)) as u64,
            edges: [edge; 2],
        }
    };
    let settings = [1, 2, 4, 8].into_iter().flat_map(|degree| [(degree, 1), (degree, 16)]);
    layer_rows(index as usize, &settings.map(row).collect::<Vec<_>>())
}

fn cluster(size: Size) -> v1::Cluster {
    let speed = |bytes_per_second, latency_seconds| {
        Some(v1::LinkSpeed { bytes_per_second, latency_seconds, ..Default::default() })
    };
    let device = |index| v1::ClusterDevice { index, kind: KIND.to_owned(), ..Default::default() };
    let node = |number| v1::ClusterNode {
        name: format!("node{number}"),
        devices: (0..PER_NODE as i32).map(device).collect(),
        link: speed(150e9, 5e-6),
        network: speed(50e9, 20e-6),
        ..Default::default()
    };
    let kind = v1::DeviceKind { name: KIND.to_owned(), memory_bytes: size.capacity, ..Default::default() };
    v1::Cluster {
        kinds: vec![kind],
        nodes: (0..size.devices / PER_NODE).map(node).collect(),
        ..Default::default()
    }
}

/// A plan of all devices of 1,024 nodes: half of them of another kind, 32 at a switch.
pub(crate) async fn on_two_kinds(channel: &Channel) -> Result<v1::CreatePlacementRequest> {
    const NODES: u32 = 1_024;
    const SWITCH: u32 = 32;
    const OTHER: &str = "imagined too";
    let size = SIZES[2];
    let mut profiles = Vec::new();
    for kind in [KIND, OTHER] {
        profiles.push(store_profile(channel, document(size, kind)).await?);
    }
    let mut cluster = cluster(Size { devices: NODES * PER_NODE, ..size });
    cluster.kinds.push(v1::DeviceKind { name: OTHER.to_owned(), ..cluster.kinds[0].clone() });
    for node in cluster.nodes.iter_mut().skip(NODES as usize / 2) {
        node.devices.iter_mut().for_each(|device| device.kind = OTHER.to_owned());
    }
    let speed = |bytes_per_second| {
        Some(v1::LinkSpeed { bytes_per_second, latency_seconds: 2e-5, ..Default::default() })
    };
    let tier = |level: &str, link| v1::ClusterTier { level: level.to_owned(), speed: speed(link) };
    cluster.tiers = vec![tier("leaf", 50e9), tier("spine", 10e9)];
    let top = v1::ClusterDomain { level: "spine".to_owned(), name: "top".to_owned(), ..Default::default() };
    let leaf = |leaf: u32| v1::ClusterDomain {
        level: "leaf".to_owned(),
        name: format!("leaf{leaf}"),
        parent: "top".to_owned(),
        nodes: (leaf * SWITCH..(leaf + 1) * SWITCH).map(|number| format!("node{number}")).collect(),
    };
    cluster.domains = (0..NODES / SWITCH).map(leaf).chain([top]).collect();
    let mut nodes: Vec<v1::AllocatedNode> = cluster
        .nodes
        .iter()
        .map(|node| v1::AllocatedNode { name: node.name.clone(), ..Default::default() })
        .collect();
    // As a scheduler that knows nothing of switches may name them.
    nodes.sort_by_key(|node| node.name.chars().rev().collect::<String>());
    let cluster = store_cluster(channel, cluster).await?;
    // 64 stages of 16 replicas of 8 shards.
    let last = |stage: i32| if stage < 32 { 2 * stage + 1 } else { stage + 32 };
    let stage = |stage: i32| v1::StageConfig {
        first_layer: if stage == 0 { 0 } else { last(stage - 1) + 1 },
        last_layer: last(stage),
        data_parallel_size: 16,
        tensor_parallel_size: PER_NODE as i32,
        ..Default::default()
    };
    let request = v1::RecommendPlanRequest {
        problem: Some(v1::Problem {
            profile: profiles.remove(0),
            other_profiles: profiles,
            cluster,
            ..Default::default()
        }),
        constraints: Some(v1::Constraints {
            pipeline_layout: Some(v1::PipelineLayout { stages: (0..64).map(stage).collect() }),
            ..Default::default()
        }),
        ..Default::default()
    };
    let plan = PlanServiceClient::new(channel.clone()).recommend_plan(request).await;
    let plan =
        plan.context("the plan is refused")?.into_inner().into_plan().context("the plan does not fit")?.name;
    Ok(v1::CreatePlacementRequest { plan, nodes, validate_only: true, ..Default::default() })
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::profile::document::ProfileDocument;

    use super::*;

    /// A planner reads what is made by formula.
    #[test]
    fn documents_and_clusters_are_valid() {
        for size in SIZES {
            let document = ProfileDocument::parse(&document(size, KIND)).unwrap();
            assert_eq!(document.model.layer_names().len(), size.layers as usize);
            let cluster = loadmaster_proto::cluster::Cluster::try_from(cluster(size)).unwrap();
            assert_eq!(cluster.device_count(), size.devices as usize);
        }
    }
}
