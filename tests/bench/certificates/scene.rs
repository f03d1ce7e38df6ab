//! What is planned for: a chain of layers with its tables, and the devices; and both as messages.

use loadmaster_oracle::{Link, Recompute, Schedule};
use loadmaster_proto::wire::v1;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A chain of layers, its training, and devices.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Scene {
    pub(crate) id: String,
    pub(crate) training: Training,
    pub(crate) ledger: Accounting,
    pub(crate) overhead_bytes: u64,
    /// Kinds of devices, each with a table of its own; all of the same chain.
    pub(crate) kinds: Vec<Kind>,
    pub(crate) fleet: Fleet,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Accounting {
    Allocated,
    Reserved,
}

/// How the profile was trained: what a request gets unless it names something else.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Training {
    pub(crate) is_bf16: bool,
    /// fp32 scalars of optimizer state per parameter: 0, 1 (momentum) or 2 (Adam).
    pub(crate) state_scalars: u64,
    pub(crate) schedule: Schedule,
    pub(crate) recompute: Recompute,
    pub(crate) micro_batch_size: u32,
    pub(crate) micro_batches: u32,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Kind {
    pub(crate) name: String,
    pub(crate) layers: Vec<Layer>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Layer {
    pub(crate) parameter_count: u64,
    pub(crate) rows: Vec<Row>,
}

/// A layer at one micro-batch size and tensor degree.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) size: u32,
    pub(crate) tensor: u32,
    pub(crate) forward: f64,
    pub(crate) backward: f64,
    pub(crate) update: f64,
    pub(crate) parameter_bytes: u64,
    pub(crate) activation_bytes: u64,
    pub(crate) transient_bytes: u64,
    pub(crate) input_bytes: u64,
    pub(crate) output_bytes: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Fleet {
    /// Named in the request: one node, in this order.
    Groups(Vec<Group>),
    Cluster(Cluster),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Group {
    pub(crate) count: u32,
    pub(crate) capacity: u64,
    pub(crate) kind: usize,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Cluster {
    /// Bytes that training may use on a device of each kind, and what one costs.
    pub(crate) capacities: Vec<u64>,
    pub(crate) prices: Vec<Option<f64>>,
    pub(crate) nodes: Vec<Node>,
    /// Between nodes of one rack, and of different ones; none where the nodes' own networks say it all.
    pub(crate) tiers: Option<[Link; 2]>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) kind: usize,
    pub(crate) devices: u32,
    /// Between devices that have no link of their own.
    pub(crate) inside: Link,
    pub(crate) network: Link,
    pub(crate) rack: usize,
    /// Links of devices of their own; those that are not there count for nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) pairs: Vec<Pair>,
}

/// Two devices of a node with a link of their own.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Pair {
    pub(crate) a: u32,
    /// Larger than the first.
    pub(crate) b: u32,
    pub(crate) link: Link,
}

impl Scene {
    pub(crate) fn layers(&self) -> usize {
        self.kinds[0].layers.len()
    }

    /// The profile of one kind as a document.
    pub(crate) fn document(&self, kind: &Kind) -> String {
        let names: Vec<Value> = (kind.layers.iter().enumerate())
            .map(|(index, layer)| json!({"name": format!("l{index}"), "parameter_count": layer.parameter_count}))
            .collect();
        let rows: Vec<Value> = (kind.layers.iter().enumerate())
            .map(|(index, layer)| {
                let times = layer.rows.iter().map(|row| {
                    json!({
                        "micro_batch_size": row.size, "tensor_degree": row.tensor, "forward_seconds": row.forward,
                        "backward_seconds": row.backward, "update_seconds": row.update,
                    })
                });
                let bytes = layer.rows.iter().map(|row| {
                    json!({
                        "micro_batch_size": row.size, "tensor_degree": row.tensor,
                        "parameter_bytes": row.parameter_bytes, "activation_bytes": row.activation_bytes,
                        "transient_bytes": row.transient_bytes, "input_bytes": row.input_bytes,
                        "output_bytes": row.output_bytes,
                    })
                });
                json!({
                    "first_layer": index, "last_layer": index,
                    "times": times.collect::<Vec<_>>(), "bytes": bytes.collect::<Vec<_>>(),
                })
            })
            .collect();
        let optimizer = match self.training.state_scalars {
            2 => json!({
                "kind": "adam", "learning_rate": 0.001, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8,
                "weight_decay": 0.0,
            }),
            scalars => json!({
                "kind": "sgd", "learning_rate": 0.01, "momentum": if scalars == 1 { 0.9 } else { 0.0 },
                "weight_decay": 0.0,
            }),
        };
        let document = json!({
            "format": "loadmaster.profile/1",
            "provenance": {
                "source": "drawn by lot", "tool": "bench certificates", "device_kind": kind.name,
                "ledger": match self.ledger { Accounting::Allocated => "allocated", Accounting::Reserved => "reserved" },
            },
            "model": {"opaque": {"name": format!("chain {}", self.id), "layers": names}},
            "training": {
                "precision": if self.training.is_bf16 { "bf16" } else { "fp32" },
                "optimizer": optimizer,
                "schedule": match self.training.schedule {
                    Schedule::Gpipe => "gpipe",
                    Schedule::OneFOneB => "one_f_one_b",
                    Schedule::Pipedream => "pipedream",
                },
                "micro_batch_size": self.training.micro_batch_size,
                "micro_batches": self.training.micro_batches,
                "recompute": match self.training.recompute {
                    Recompute::None => "none",
                    Recompute::Stage => "stage",
                    Recompute::Layer => "layer",
                },
                "seed": 0,
            },
            // Seconds of shards contain their collectives, and say so.
            "layer_table": {
                "overhead_bytes": self.overhead_bytes, "times_without_collectives": false, "layers": rows,
            },
        });
        document.to_string()
    }

    /// The devices as the request's groups; empty where they are a cluster.
    pub(crate) fn groups(&self) -> Vec<v1::DeviceGroup> {
        let Fleet::Groups(groups) = &self.fleet else { return Vec::new() };
        let group = |group: &Group| v1::DeviceGroup {
            count: group.count as i32,
            capacity_bytes: group.capacity as i64,
            kind: self.kinds[group.kind].name.clone(),
        };
        groups.iter().map(group).collect()
    }

    /// The devices as a cluster; none where they are groups.
    pub(crate) fn cluster(&self) -> Option<v1::Cluster> {
        let Fleet::Cluster(cluster) = &self.fleet else { return None };
        let speed = |link: Link| v1::LinkSpeed {
            bytes_per_second: link.bytes_per_second,
            latency_seconds: link.latency_seconds,
            ..Default::default()
        };
        let used = |kind: usize| cluster.nodes.iter().any(|node| node.kind == kind);
        let kinds = (0..self.kinds.len()).filter(|&kind| used(kind)).map(|kind| v1::DeviceKind {
            name: self.kinds[kind].name.clone(),
            memory_bytes: cluster.capacities[kind] as i64,
            hourly_price: cluster.prices[kind],
            ..Default::default()
        });
        let nodes = cluster.nodes.iter().map(|node| v1::ClusterNode {
            name: node.name.clone(),
            devices: (0..node.devices)
                .map(|index| v1::ClusterDevice {
                    index: index as i32,
                    kind: self.kinds[node.kind].name.clone(),
                    ..Default::default()
                })
                .collect(),
            link: Some(speed(node.inside)),
            device_links: (node.pairs.iter().filter(|pair| pair.b < node.devices))
                .map(|pair| v1::DeviceLink {
                    a: pair.a as i32,
                    b: pair.b as i32,
                    speed: Some(speed(pair.link)),
                    ..Default::default()
                })
                .collect(),
            network: Some(speed(node.network)),
            ..Default::default()
        });
        let (mut tiers, mut domains) = (Vec::new(), Vec::new());
        if let Some([rack, spine]) = cluster.tiers {
            tiers.push(v1::ClusterTier { level: "rack".to_owned(), speed: Some(speed(rack)) });
            tiers.push(v1::ClusterTier { level: "spine".to_owned(), speed: Some(speed(spine)) });
            for rack in 0..cluster.nodes.len() {
                let inside = cluster.nodes.iter().filter(|node| node.rack == rack);
                let nodes: Vec<String> = inside.map(|node| node.name.clone()).collect();
                if !nodes.is_empty() {
                    domains.push(v1::ClusterDomain {
                        level: "rack".to_owned(),
                        name: format!("rack{rack}"),
                        parent: "spine0".to_owned(),
                        nodes,
                    });
                }
            }
            domains.push(v1::ClusterDomain {
                level: "spine".to_owned(),
                name: "spine0".to_owned(),
                ..Default::default()
            });
        }
        Some(v1::Cluster {
            kinds: kinds.collect(),
            nodes: nodes.collect(),
            tiers,
            domains,
            ..Default::default()
        })
    }
}
