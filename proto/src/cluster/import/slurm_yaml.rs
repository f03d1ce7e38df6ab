//! Slurm's `topology.yaml`: a list of topologies, each a tree of switches, blocks, or flat.

use serde::Deserialize;

use super::super::ClusterParts;
use super::blocks::{self, Block};
use super::slurm_conf::MAX_NAMES;
use super::tree::{self, Switch};
use super::{ImportOptions, hostlist, slurm_conf};
use crate::error::Invalid;
use crate::wire::reading::{self, Wanted, meter::Limits};

// Other keys are Slurm's business: its plugins add some with every release.
#[derive(Debug, Deserialize)]
struct Topology {
    topology: String,
    #[serde(default)]
    cluster_default: bool,
    #[serde(default)]
    tree: Option<TreeTopology>,
    #[serde(default)]
    block: Option<Blocks>,
}

#[derive(Debug, Deserialize)]
struct TreeTopology {
    switches: Vec<SwitchEntry>,
}

#[derive(Debug, Deserialize)]
struct SwitchEntry {
    switch: String,
    #[serde(default)]
    children: Option<String>,
    #[serde(default)]
    nodes: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Blocks {
    #[serde(default)]
    block_sizes: Vec<u32>,
    blocks: Vec<BlockEntry>,
}

#[derive(Debug, Deserialize)]
struct BlockEntry {
    block: String,
    nodes: String,
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
            Invalid::field("options.topology", format!("is {name:?}, the file has {:?}", names()))
        })?,
        None if topologies.len() == 1 => 0,
        None => topologies.iter().position(|of| of.cluster_default).ok_or_else(|| {
            let why = format!("is required: the file has {:?} and none is the default", names());
            Invalid::field("options.topology", why)
        })?,
    };
    let path = format!("[{chosen}]");
    let Some(Topology { tree, block, .. }) = topologies.into_iter().nth(chosen) else {
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
            let why = format!("the file names nodes and switches more than {MAX_NAMES} times");
            return Err(Invalid::field(field, why));
        }
        Ok(names)
    };
    match (tree, block) {
        (Some(tree), None) => {
            let switches = tree.switches.into_iter().enumerate().map(|(index, of)| {
                let field = format!("{path}.tree.switches[{index}]");
                Ok(Switch {
                    name: of.switch,
                    children: list(&format!("{field}.children"), of.children.as_deref())?,
                    nodes: list(&format!("{field}.nodes"), of.nodes.as_deref())?,
                    field,
                })
            });
            slurm_conf::cluster(tree::domains(switches.collect::<Result<_, Invalid>>()?)?, options)
        }
        (None, Some(block)) => {
            let all = block.blocks.into_iter().enumerate().map(|(index, of)| {
                let field = format!("{path}.block.blocks[{index}]");
                let nodes = list(&format!("{field}.nodes"), Some(&of.nodes))?;
                Ok(Block { name: of.block, nodes, field })
            });
            let domains = blocks::domains(all.collect::<Result<_, Invalid>>()?, &block.block_sizes)
                .map_err(|invalid| invalid.under(&format!("{path}.block")))?;
            slurm_conf::cluster(domains, options)
        }
        (None, None) => Err(Invalid::field(path, "is flat: it names no nodes, so write the cluster by hand")),
        (Some(_), Some(_)) => Err(Invalid::field(path, "has both a tree and blocks")),
    }
}
