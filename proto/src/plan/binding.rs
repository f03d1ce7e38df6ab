//! Plans on the very nodes that a scheduler gave.

use serde::{Deserialize, Serialize};

use crate::bytes::Bytes;
use crate::cluster::import::hostlist;
use crate::error::{Invalid, in_range};
use crate::model::layer::fingerprint;
use crate::name::{BindingName, ClusterName, PlanName, checked_kind, checked_name};
use crate::plan::PlacedDevice;
use crate::wire::{field, v1};

/// Most nodes of a request.
pub const MAX_GIVEN_NODES: usize = 4_096;
/// Most devices of a node, as clusters have them.
const MAX_DEVICES: usize = crate::cluster::MAX_NODE_DEVICES;
/// Most switches above a node.
const MAX_SWITCHES: usize = crate::cluster::MAX_TIERS;
/// Longest UUID.
const MAX_UUID: usize = 128;

/// A node that a scheduler gave.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GivenNode {
    /// Name, as the scheduler says it.
    pub name: String,
    /// Indices of its devices; empty for all that its cluster has, or where they are named by UUID.
    pub indices: Vec<u32>,
    /// Their UUIDs, in the same order, or none.
    pub uuids: Vec<String>,
    /// Kind of its devices, where no cluster says it.
    pub kind: Option<String>,
    /// Bytes that training may use on each, where no cluster says it.
    pub memory: Option<Bytes>,
    /// The switches above it, farthest first.
    pub switches: Vec<String>,
}

/// Which device runs which rank of a plan. It never changes: its name follows from all of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Binding {
    /// The plan.
    pub plan: PlanName,
    /// The cluster that describes the nodes; none where none does.
    pub cluster: Option<ClusterName>,
    /// By stage, in the order of its ranks.
    pub stages: Vec<Vec<PlacedDevice>>,
    /// Devices without a rank, `node/index`.
    pub idle: Vec<String>,
    /// Simulated seconds of an iteration; none where nobody can tell.
    pub seconds: Option<f64>,
    /// The same as it was planned.
    pub planned: Option<f64>,
    /// No way to bind is faster.
    pub least: Option<f64>,
    /// Whether this was proved to be the fastest way.
    pub is_proven: bool,
    /// By how much the fastest may be faster, as a share of `seconds`.
    pub gap: Option<f64>,
    /// Where the speeds of the links come from, for people.
    pub links: String,
    /// What to know, for people.
    pub warnings: Vec<String>,
}

impl Binding {
    /// The name that follows from all of it.
    ///
    /// # Errors
    /// Never: a fingerprint is a valid id.
    pub fn name(&self) -> Result<BindingName, Invalid> {
        BindingName::from_id(&fingerprint(self)[..16])
    }

    /// The nodes that have ranks, in the order of these.
    pub fn nodes(&self) -> Vec<String> {
        let mut seen = std::collections::HashSet::new();
        let devices = self.stages.iter().flatten();
        devices.map(|device| &device.node).filter(|&node| seen.insert(node)).cloned().collect()
    }
}

impl From<&Binding> for v1::Binding {
    /// All but its name and when it was stored.
    fn from(binding: &Binding) -> Self {
        Self {
            stages: binding
                .stages
                .iter()
                .map(|devices| v1::BoundStage {
                    device_ranges: v1::DeviceRange::of(devices.iter().map(Into::into)),
                })
                .collect(),
            idle_devices: binding.idle.clone(),
            ..binding.in_short()
        }
    }
}

impl Binding {
    /// Without its stages and idle devices, as lists show it.
    pub fn in_short(&self) -> v1::Binding {
        v1::Binding {
            plan: self.plan.to_string(),
            cluster: self.cluster.as_ref().map(ToString::to_string).unwrap_or_default(),
            nodes: self.nodes(),
            iteration_seconds: self.seconds,
            planned_iteration_seconds: self.planned,
            least_iteration_seconds: self.least,
            proven_fastest: self.is_proven,
            gap: self.gap,
            links: self.links.clone(),
            warnings: self.warnings.clone(),
            ..v1::Binding::default()
        }
    }
}

impl GivenNode {
    /// The nodes of a request, checked one by one: those of `nodes`, or of `node_list`.
    ///
    /// # Errors
    /// Names the field.
    pub fn all(nodes: Vec<v1::GivenNode>, node_list: &str) -> Result<Vec<Self>, Invalid> {
        let nodes = match (nodes.is_empty(), node_list) {
            (true, "") => {
                let why = "or node_list is required: which nodes did the scheduler give?";
                return Err(Invalid::field("nodes", why));
            }
            (false, "") => nodes
                .into_iter()
                .enumerate()
                .map(|(index, node)| {
                    Self::of(node).map_err(|invalid| invalid.under(&format!("nodes[{index}]")))
                })
                .collect::<Result<Vec<Self>, Invalid>>()?,
            (true, list) => {
                let names = hostlist::expand(list).map_err(|why| Invalid::field("node_list", why))?;
                names.into_iter().map(|name| Self { name, ..Self::default() }).collect()
            }
            (false, _) => {
                return Err(Invalid::field("node_list", "and nodes name nodes twice: give one of them"));
            }
        };
        in_range("nodes", nodes.len(), 1..=MAX_GIVEN_NODES)?;
        Ok(nodes)
    }

    fn of(node: v1::GivenNode) -> Result<Self, Invalid> {
        let v1::GivenNode { name, device_indices, device_uuids, device_kind, memory_bytes, switches } = node;
        checked_name("name", &name, crate::name::MAX_NAME_BYTES)?;
        in_range("device_indices", device_indices.len(), 0..=MAX_DEVICES)?;
        in_range("device_uuids", device_uuids.len(), 0..=MAX_DEVICES)?;
        let indices: Vec<u32> = field("device_indices", device_indices)?;
        if !indices.is_empty() && !device_uuids.is_empty() && indices.len() != device_uuids.len() {
            let why = format!(
                "are {}, and device_indices {}: name each device in both",
                device_uuids.len(),
                indices.len()
            );
            return Err(Invalid::field("device_uuids", why));
        }
        for (index, uuid) in device_uuids.iter().enumerate() {
            checked_name(&format!("device_uuids[{index}]"), uuid, MAX_UUID)?;
        }
        if !device_kind.is_empty() {
            checked_kind("device_kind", &device_kind)?;
        }
        let memory: u64 = field("memory_bytes", memory_bytes)?;
        let switches: Vec<String> = match switches.as_str() {
            "" => Vec::new(),
            path => path.split('.').map(str::to_owned).collect(),
        };
        in_range("switches", switches.len(), 0..=MAX_SWITCHES)?;
        switches.iter().try_for_each(|name| checked_name("switches", name, crate::name::MAX_NAME_BYTES))?;
        Ok(Self {
            name,
            indices,
            uuids: device_uuids,
            kind: Some(device_kind).filter(|kind| !kind.is_empty()),
            memory: (memory > 0).then_some(Bytes(memory)),
            switches,
        })
    }
}
