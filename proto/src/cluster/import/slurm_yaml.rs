//! Slurm's `topology.yaml`: a list of topologies, each a tree of switches, blocks, rings, toruses, or flat.

use serde::{Deserialize, Deserializer};

use super::super::ClusterParts;
use super::blocks::{self, SlurmBlock};
use super::slurm_conf::{Island, MAX_NAMES};
use super::tree::{self, Switch};
use super::{ImportOptions, hostlist, slurm_conf};
use crate::error::Invalid;
use crate::wire::reading::{self, Wanted, meter::Limits};

// Other keys are Slurm's business: its plugins add some with every release.
#[derive(Debug, Deserialize)]
struct Topology {
    #[serde(deserialize_with = "text")]
    topology: String,
    #[serde(default)]
    cluster_default: bool,
    #[serde(default)]
    tree: Option<TreeTopology>,
    #[serde(default)]
    block: Option<Blocks>,
    #[serde(default)]
    ring: Option<Rings>,
    #[serde(default)]
    torus3d: Option<Toruses>,
}

#[derive(Debug, Deserialize)]
struct TreeTopology {
    switches: Vec<SwitchEntry>,
}

#[derive(Debug, Deserialize)]
struct SwitchEntry {
    #[serde(deserialize_with = "text")]
    switch: String,
    #[serde(default, deserialize_with = "optional_text")]
    children: Option<String>,
    #[serde(default, deserialize_with = "optional_text")]
    nodes: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Blocks {
    #[serde(default)]
    block_sizes: Option<Vec<u32>>,
    blocks: Vec<BlockEntry>,
}

#[derive(Debug, Deserialize)]
struct BlockEntry {
    #[serde(deserialize_with = "text")]
    block: String,
    #[serde(default, deserialize_with = "optional_text")]
    nodes: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Rings {
    rings: Vec<RingEntry>,
}

#[derive(Debug, Deserialize)]
struct RingEntry {
    #[serde(deserialize_with = "text")]
    ring: String,
    #[serde(default, deserialize_with = "optional_text")]
    nodes: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Toruses {
    toruses: Vec<TorusEntry>,
}

#[derive(Debug, Deserialize)]
struct TorusEntry {
    #[serde(deserialize_with = "text")]
    name: String,
    #[serde(default, deserialize_with = "optional_text")]
    nodes: Option<String>,
    #[serde(default)]
    regions: Vec<RegionEntry>,
    #[serde(default)]
    placements: Vec<PlacementEntry>,
}

#[derive(Debug, Deserialize)]
struct RegionEntry {
    #[serde(default, deserialize_with = "optional_text")]
    nodes: Option<String>,
}

#[derive(Debug, Deserialize)]
struct PlacementEntry {
    dims: Dimensions,
}

#[derive(Debug, Deserialize)]
struct Dimensions {
    x: u32,
    y: u32,
    z: u32,
}

/// A text; Slurm takes a number for one, too.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Text {
    Text(String),
    Number(u64),
}

impl From<Text> for String {
    fn from(text: Text) -> Self {
        match text {
            Text::Text(text) => text,
            Text::Number(number) => number.to_string(),
        }
    }
}

fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Text::deserialize(from).map(String::from)
}

fn optional_text<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<Text>::deserialize(from)?.map(String::from))
}

/// # Errors
/// Names the path in the file.
pub(super) fn parts(
    text: &str,
    options: &ImportOptions,
    wanted: Wanted<'_>,
) -> Result<ClusterParts, Invalid> {
    let value = reading::json_or_yaml(text, &Limits::BUILT, wanted)?;
    let topologies: Vec<Topology> = serde_path_to_error::deserialize(value)
        .map_err(|error| Invalid::field(error.path().to_string(), error.inner().to_string()))?;
    let names = || topologies.iter().map(|of| of.topology.as_str()).collect::<Vec<_>>();
    let chosen = match &options.topology {
        Some(name) => topologies.iter().position(|of| of.topology == *name).ok_or_else(|| {
            invalid!("options.topology", "{name:?} is not a topology of the file. Use {:?}", names())
        })?,
        None if topologies.len() == 1 => 0,
        None => topologies.iter().position(|of| of.cluster_default).ok_or_else(|| {
            let why = format!(
                "is required: none of the topologies {:?} is the default. Use one of these names",
                names()
            );
            Invalid::field("options.topology", why)
        })?,
    };
    let path = format!("[{chosen}]");
    let Some(Topology { tree, block, ring, torus3d, .. }) = topologies.into_iter().nth(chosen) else {
        return Err(Invalid::field("", "has no topology"));
    };
    let mut count = 0_usize;
    let mut list = |field: &str, text: Option<&str>| -> Result<Vec<String>, Invalid> {
        reading::check(wanted)?;
        let text = text.map(str::trim).unwrap_or_default();
        if text.is_empty() {
            return Ok(Vec::new());
        }
        let names = hostlist::expand(text).map_err(|why| Invalid::field(field, why))?;
        count += names.len();
        if count > MAX_NAMES {
            return Err(invalid!(
                field,
                "the file has more than {MAX_NAMES} node and switch names. Split it"
            ));
        }
        Ok(names)
    };
    let path = &path;
    let domains = match (tree, block, ring, torus3d) {
        (Some(tree), None, None, None) => {
            let switches = tree.switches.into_iter().enumerate().map(|(index, of)| {
                let field = format!("{path}.tree.switches[{index}]");
                Ok(Switch {
                    name: of.switch,
                    children: list(&format!("{field}.children"), of.children.as_deref())?,
                    nodes: list(&format!("{field}.nodes"), of.nodes.as_deref())?,
                    level: None,
                    field,
                })
            });
            tree::domains(switches.collect::<Result<_, Invalid>>()?)?
        }
        (None, Some(block), None, None) => {
            let all = block.blocks.into_iter().enumerate().map(|(index, of)| {
                let nodes = list(&format!("{path}.block.blocks[{index}].nodes"), of.nodes.as_deref())?;
                Ok(SlurmBlock { name: of.block, nodes, place: index })
            });
            blocks::domains(all.collect::<Result<_, Invalid>>()?, &block.block_sizes.unwrap_or_default())
                .map_err(|invalid| invalid.under(&format!("{path}.block")))?
        }
        (None, None, Some(ring), None) => {
            let rings = ring.rings.into_iter().enumerate().map(|(index, of)| {
                let nodes = list(&format!("{path}.ring.rings[{index}].nodes"), of.nodes.as_deref())?;
                Ok(Island { name: of.ring, nodes, placements: Vec::new() })
            });
            return slurm_conf::separate("ring", rings.collect::<Result<_, Invalid>>()?, options);
        }
        (None, None, None, Some(torus)) => {
            let toruses = torus.toruses.into_iter().enumerate().map(|(index, of)| {
                let field = format!("{path}.torus3d.toruses[{index}]");
                let mut nodes = list(&format!("{field}.nodes"), of.nodes.as_deref())?;
                for (region, RegionEntry { nodes: some }) in of.regions.iter().enumerate() {
                    nodes.extend(list(&format!("{field}.regions[{region}].nodes"), some.as_deref())?);
                }
                let size = |of: &PlacementEntry| {
                    let Dimensions { x, y, z } = of.dims;
                    x.saturating_mul(y).saturating_mul(z)
                };
                Ok(Island { name: of.name, nodes, placements: of.placements.iter().map(size).collect() })
            });
            return slurm_conf::separate("torus", toruses.collect::<Result<_, Invalid>>()?, options);
        }
        (None, None, None, None) => {
            let why = "is flat: it names no nodes. Write the cluster by hand, or import another topology";
            return Err(Invalid::field(path, why));
        }
        _ => {
            return Err(Invalid::field(
                path,
                "contains more than one of tree, block, ring and torus3d. Keep one of them",
            ));
        }
    };
    slurm_conf::cluster(domains, options)
}
