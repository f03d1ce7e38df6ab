//! The graph of NVIDIA Topograph: `{"instances": [{"id", "network_layers": [nearest first], "labels"}]}`.
//!
//! Versions of before labels have `attributes.nvlink` in place of `labels["accelerator.topograph.run/domain"]`.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Deserialize;

use super::super::{ClusterParts, ClusterSource, Domain, LinkClass, MAX_LABELS, Tier};
use super::{ImportOptions, fill, nvlink};
use crate::error::Invalid;
use crate::warning::{Warning, WarningCode};
use crate::wire::reading::{self, Wanted, meter::Limits};

/// Labels that name an NVLink domain, the preferred first.
const ACCELERATOR_LABELS: [&str; 2] = ["accelerator.topograph.run/domain", "nvidia.com/gpu.clique"];

#[derive(Debug, Deserialize)]
struct Graph {
    instances: Vec<Instance>,
}

#[derive(Debug, Deserialize)]
struct Instance {
    id: String,
    #[serde(default)]
    network_layers: Option<Vec<String>>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    attributes: Attributes,
}

#[derive(Debug, Default, Deserialize)]
struct Attributes {
    #[serde(default)]
    nvlink: String,
}

impl Instance {
    /// The NVLink domain that spans nodes, if it is in one.
    fn accelerator(&self) -> Option<&str> {
        let labelled = ACCELERATOR_LABELS.into_iter().find_map(|key| self.labels.get(key));
        labelled.or(Some(&self.attributes.nvlink)).map(String::as_str).filter(|name| !name.is_empty())
    }
}

/// # Errors
/// Names the path in the file, or the option that is missing.
pub(super) fn parts(
    text: &str,
    options: &ImportOptions,
    wanted: Wanted<'_>,
) -> Result<ClusterParts, Invalid> {
    let graph: Graph = serde_path_to_error::deserialize(reading::json(text, &Limits::BUILT, wanted)?)
        .map_err(|error| Invalid::field(error.path().to_string(), error.inner().to_string()))?;
    if graph.instances.is_empty() {
        return Err(Invalid::field("instances", "is empty"));
    }
    let kind = fill::kind(options)?;
    let devices = fill::devices_per_node(options)?;
    let mut warnings = Vec::new();
    let (tiers, domains) = layers(&graph, (&kind.name, devices), options, &mut warnings, wanted)?;
    // Where a tier is faster than the network cards, only tiers say how fast nodes are linked.
    let tiers_say = tiers.iter().all(|tier| tier.link.is_some()) && !tiers.is_empty();
    let nodes = graph.instances.into_iter().map(|mut instance| {
        let mut node = fill::node(std::mem::take(&mut instance.id), devices, &kind.name, options);
        node.labels = instance.labels.into_iter().take(MAX_LABELS).collect();
        if tiers_say {
            node.network = None;
        }
        node
    });
    Ok(ClusterParts {
        nodes: nodes.collect(),
        kinds: vec![kind],
        tiers,
        domains,
        source: ClusterSource::Topograph,
        warnings,
    })
}

/// Tiers and domains: the NVLink domains, then the layers of the network, nearest first.
fn layers(
    graph: &Graph,
    (kind, devices): (&str, u32),
    options: &ImportOptions,
    warnings: &mut Vec<Warning>,
    wanted: Wanted<'_>,
) -> Result<(Vec<Tier>, Vec<Domain>), Invalid> {
    let most = graph.instances.iter().map(|of| of.network_layers.as_ref().map_or(0, Vec::len)).max();
    let depth = most.unwrap_or_default();
    let has_accelerators = graph.instances.iter().any(|of| of.accelerator().is_some());
    let (class, inside) = fill::inside(options, kind, devices);
    let is_fast = class == LinkClass::NvLink || options.link_bytes_per_second.is_some();
    let mut tiers = Vec::new();
    if has_accelerators && is_fast {
        tiers.push(Tier { level: nvlink::LEVEL.to_owned(), link: Some(inside) });
    } else if has_accelerators {
        warnings.push(WarningCode::LinksAssumed.says(format!(
            "nodes are in NVLink domains, but the NVLinks of {kind:?} are not known. These NVLinks are assumed to be \
             as fast as the network. If they are faster, set `link_bytes_per_second`"
        )));
    }
    let network = (has_accelerators && is_fast).then(|| fill::network(options));
    tiers.extend((0..depth).map(|layer| Tier { level: format!("layer-{layer}"), link: network }));
    if depth == 0 && network.is_some() {
        // Nodes of different NVLink domains meet somewhere.
        tiers.push(Tier { level: "network".to_owned(), link: network });
    }
    let mut domains: BTreeMap<(usize, String), Domain> = BTreeMap::new();
    let mut nvlink: HashMap<&str, Vec<String>> = HashMap::new();
    for (index, instance) in graph.instances.iter().enumerate() {
        reading::check(wanted)?;
        if let Some(name) = instance.accelerator().filter(|_| is_fast) {
            nvlink.entry(name).or_default().push(instance.id.clone());
        }
        let layers = instance.network_layers.as_deref().unwrap_or_default();
        for (layer, name) in layers.iter().enumerate() {
            let parent = layers.get(layer + 1).map(|above| domain_name(layer + 1, above));
            let domain = domains.entry((layer, name.clone())).or_insert_with(|| Domain {
                level: format!("layer-{layer}"),
                name: domain_name(layer, name),
                parent: parent.clone(),
                nodes: Vec::new(),
            });
            if domain.parent != parent {
                let field = format!("instances[{index}].network_layers[{layer}]");
                let why = format!(
                    "puts {name:?} below {:?}, but another instance puts it below {:?}. Put it below one switch",
                    parent.unwrap_or_default(),
                    domain.parent.as_deref().unwrap_or_default()
                );
                return Err(Invalid::field(field, why));
            }
            if layer == 0 {
                domain.nodes.push(instance.id.clone());
            }
        }
    }
    let mut all: Vec<Domain> = domains.into_values().collect();
    let mut nvlink: Vec<_> = nvlink.into_iter().collect();
    nvlink.sort();
    // An NVLink domain's nodes may be at several leaf switches, so it is not below one of them.
    all.extend(nvlink.into_iter().map(|(name, nodes)| Domain {
        level: nvlink::LEVEL.to_owned(),
        name: format!("{}/{name}", nvlink::LEVEL),
        parent: None,
        nodes,
    }));
    let names: BTreeSet<&str> = all.iter().map(|domain| domain.name.as_str()).collect();
    debug_assert_eq!(names.len(), all.len(), "the level is part of each name");
    Ok((tiers, all))
}

/// The same switch must not be on two levels, but two levels may use the same names.
fn domain_name(layer: usize, name: &str) -> String {
    format!("layer-{layer}/{name}")
}
