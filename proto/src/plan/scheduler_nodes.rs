//! The nodes that a scheduler gave.

use crate::bytes::Bytes;
use crate::cluster::import::hostlist;
use crate::error::{Invalid, Violation, in_range};
use crate::name::{checked_device_uuid, checked_host, checked_kind, checked_name};
use crate::plan::compatibility::{Setting, Settings};
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

/// The nodes of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenNodes {
    /// In the request's order.
    pub nodes: Vec<GivenNode>,
    /// Whether they are those of `node_list`, which has no entries to name.
    pub is_list: bool,
}

impl GivenNodes {
    /// The nodes of a request, checked one by one: those of `nodes`, or of `node_list`.
    ///
    /// # Errors
    /// Names the field.
    pub fn of(nodes: Vec<v1::AllocatedNode>, node_list: &str) -> Result<Self, Invalid> {
        let is_list = !node_list.is_empty();
        Settings::default()
            .when(is_list, Setting::NodeList)
            .when(!nodes.is_empty(), Setting::Nodes)
            .check()?;
        let nodes = match (nodes.is_empty(), node_list) {
            (true, "") => {
                let why = "is required. List the nodes of the scheduler's allocation here or in node_list";
                return Err(Invalid::field("nodes", why));
            }
            (false, _) => nodes
                .into_iter()
                .enumerate()
                .map(|(index, node)| {
                    GivenNode::of(node).map_err(|invalid| invalid.under(&format!("nodes[{index}]")))
                })
                .collect::<Result<Vec<GivenNode>, Invalid>>()?,
            (true, list) => {
                let names = hostlist::expand(list).map_err(|why| Invalid::field("node_list", why))?;
                names.iter().try_for_each(|name| checked_host("node_list", name))?;
                names.into_iter().map(|name| GivenNode { name, ..GivenNode::default() }).collect()
            }
        };
        let given = Self { nodes, is_list };
        in_range("nodes", given.nodes.len(), 1..=MAX_GIVEN_NODES).map_err(|invalid| given.told(invalid))?;
        Ok(given)
    }

    /// Maps an error to the field that the user set. For a hostlist that is `node_list`, and the description contains the
    /// node's name.
    #[must_use]
    pub fn told(&self, invalid: Invalid) -> Invalid {
        if !self.is_list {
            return invalid;
        }
        invalid.map(|Violation { field, description }| {
            let Some(rest) = field.strip_prefix("nodes") else { return Violation { field, description } };
            let entry = rest.strip_prefix('[').and_then(|rest| rest.split_once(']'));
            let node = entry.and_then(|(index, _)| self.nodes.get(index.parse::<usize>().ok()?));
            let within = entry.map_or("", |(_, within)| within.trim_start_matches('.'));
            let description = match node {
                // What is wrong with a name says it.
                Some(node) if within != "name" => {
                    let is_of = if within.is_empty() { String::new() } else { format!("{within} ") };
                    format!("{}: {is_of}{description}", node.name)
                }
                _ => description,
            };
            Violation { field: "node_list".to_owned(), description }
        })
    }
}

impl GivenNode {
    fn of(node: v1::AllocatedNode) -> Result<Self, Invalid> {
        let v1::AllocatedNode { name, device_indices, device_uuids, device_kind, memory_bytes, switches } =
            node;
        checked_host("name", &name)?;
        in_range("device_indices", device_indices.len(), 0..=MAX_DEVICES)?;
        in_range("device_uuids", device_uuids.len(), 0..=MAX_DEVICES)?;
        let indices: Vec<u32> = field("device_indices", device_indices)?;
        if !indices.is_empty() && !device_uuids.is_empty() && indices.len() != device_uuids.len() {
            let why = format!(
                "has {} entries, but device_indices has {}. Give both lists one entry per device",
                device_uuids.len(),
                indices.len()
            );
            return Err(Invalid::field("device_uuids", why));
        }
        for (index, uuid) in device_uuids.iter().enumerate() {
            let field = format!("device_uuids[{index}]");
            checked_name(&field, uuid, MAX_UUID)?;
            checked_device_uuid(&field, uuid)?;
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
        // In an uneven tree a node has no switch on some levels.
        let mut named = switches.iter().filter(|name| !name.is_empty());
        named.try_for_each(|name| checked_name("switches", name, crate::name::MAX_NAME_BYTES))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn told(invalid: &Invalid) -> Vec<(&str, &str)> {
        invalid.violations().iter().map(|of| (of.field.as_str(), of.description.as_str())).collect()
    }

    /// A hostlist is a text: an error in one of its nodes names the field `node_list` and the node.
    #[test]
    fn nodes_of_a_list_are_told_by_name() {
        let given = GivenNodes::of(Vec::new(), "gpu[001-003]").unwrap();
        let invalid = |field: &str| given.told(Invalid::field(field, "is wrong"));
        assert_eq!(
            told(&invalid("nodes[2].device_indices[1]")),
            [("node_list", "gpu003: device_indices[1] is wrong")]
        );
        assert_eq!(told(&invalid("nodes[2].name")), [("node_list", "is wrong")]);
        assert_eq!(told(&invalid("nodes[0]")), [("node_list", "gpu001: is wrong")]);
        assert_eq!(told(&invalid("nodes")), [("node_list", "is wrong")]);
        assert_eq!(told(&invalid("cluster")), [("cluster", "is wrong")]);
        let named = v1::AllocatedNode { name: "gpu001".to_owned(), ..v1::AllocatedNode::default() };
        let given = GivenNodes::of(vec![named], "").unwrap();
        assert_eq!(
            told(&given.told(Invalid::field("nodes[0].name", "is wrong"))),
            [("nodes[0].name", "is wrong")]
        );
    }

    #[test]
    fn too_many_nodes_are_told_where_they_are_named() {
        let list = GivenNodes::of(Vec::new(), "n[1-4097]").unwrap_err();
        assert_eq!(told(&list), [("node_list", "4097 is out of range. Use 1 to 4096")]);
        let node =
            |index: usize| v1::AllocatedNode { name: format!("n{index}"), ..v1::AllocatedNode::default() };
        let nodes = GivenNodes::of((0..4_097).map(node).collect(), "").unwrap_err();
        assert_eq!(told(&nodes), [("nodes", "4097 is out of range. Use 1 to 4096")]);
    }

    #[test]
    fn nodes_are_named_once() {
        let node = || vec![v1::AllocatedNode { name: "n".to_owned(), ..v1::AllocatedNode::default() }];
        let field = |nodes: Vec<v1::AllocatedNode>, list: &str| {
            GivenNodes::of(nodes, list).unwrap_err().violations()[0].field.clone()
        };
        assert_eq!(field(Vec::new(), ""), "nodes");
        assert_eq!(field(node(), "n"), "node_list");
        assert_eq!(field(Vec::new(), "n["), "node_list");
        assert_eq!(field(vec![v1::AllocatedNode::default()], ""), "nodes[0].name");
    }

    /// Placements are exported: ssh and shells meet the names of their nodes.
    #[test]
    fn nodes_are_hosts_and_devices_have_uuids() {
        for name in crate::name::HOSTILE_HOSTS {
            let node = v1::AllocatedNode { name: name.to_owned(), ..v1::AllocatedNode::default() };
            let invalid = GivenNodes::of(vec![node], "").unwrap_err();
            assert_eq!(told(&invalid)[0].0, "nodes[0].name", "{name:?}");
            if !name.is_empty() && !name.contains(['[', ',']) {
                assert_eq!(
                    told(&GivenNodes::of(Vec::new(), name).unwrap_err())[0].0,
                    "node_list",
                    "{name:?}"
                );
            }
        }
        let node = v1::AllocatedNode {
            name: "n".to_owned(),
            device_uuids: vec!["GPU-1".to_owned(), "$(touch x)".to_owned()],
            ..v1::AllocatedNode::default()
        };
        assert_eq!(told(&GivenNodes::of(vec![node], "").unwrap_err())[0].0, "nodes[0].device_uuids[1]");
    }
}
