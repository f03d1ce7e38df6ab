//! Slurm's `topology.conf`: lines of `SwitchName=… Nodes=…|Switches=…`, or of `BlockName=… Nodes=…` with
//! `BlockSizes=…`. `LinkSpeed` has no unit there and says nothing.

use super::super::{ClusterParts, ClusterSource, MAX_NODES, MAX_TIERS};
use super::blocks::{self, Block};
use super::tree::{self, Switch};
use super::{ImportOptions, fill, hostlist};
use crate::error::Invalid;
use crate::wire::reading::{self, Wanted};

/// Most switches or blocks.
const MAX_LINES: usize = super::super::MAX_DOMAINS;
/// Most names of nodes and switches that all lists of a file unfold to: a short list may name thousands, and a node
/// is in one domain of each level.
pub(super) const MAX_NAMES: usize = MAX_NODES * MAX_TIERS;

/// # Errors
/// Names the line.
pub(super) fn parts(
    text: &str,
    options: &ImportOptions,
    wanted: Wanted<'_>,
) -> Result<ClusterParts, Invalid> {
    let (mut switches, mut blocks, mut sizes) = (Vec::new(), Vec::new(), Vec::new());
    let mut names = 0_usize;
    for (number, line) in lines(text)? {
        reading::check(wanted)?;
        let field = format!("line {number}");
        let refused = |why: String| Invalid::field(&field, why);
        let (mut key, mut nodes, mut children, mut other) = (None, Vec::new(), Vec::new(), String::new());
        for word in line.split_whitespace() {
            let (name, value) =
                word.split_once('=').ok_or_else(|| refused(format!("{word:?} is not KEY=VALUE")))?;
            match name.to_ascii_lowercase().as_str() {
                "switchname" => key = Some((true, value.to_owned())),
                "blockname" => key = Some((false, value.to_owned())),
                "nodes" => {
                    nodes = hostlist::expand(value).map_err(&refused)?;
                    names += nodes.len();
                }
                "switches" => {
                    children = hostlist::expand(value).map_err(&refused)?;
                    names += children.len();
                }
                "blocksizes" => sizes = blocks::sizes(value).map_err(&refused)?,
                "linkspeed" => {}
                _ => name.clone_into(&mut other),
            }
            if names > MAX_NAMES {
                return Err(refused(format!(
                    "the file names nodes and switches more than {MAX_NAMES} times"
                )));
            }
        }
        if !other.is_empty() {
            return Err(refused(format!("{other:?} is not a key of topology.conf that is known")));
        }
        match key {
            None if nodes.is_empty() && children.is_empty() => {}
            None => return Err(refused("has neither SwitchName=… nor BlockName=…".to_owned())),
            Some((true, name)) => switches.push(Switch { name, children, nodes, field }),
            Some((false, name)) => blocks.push(Block { name, nodes, field }),
        }
        if switches.len() + blocks.len() > MAX_LINES {
            return Err(Invalid::field("", too_many_lines()));
        }
    }
    match (switches.is_empty(), blocks.is_empty()) {
        (true, true) => Err(Invalid::field("", "has neither a line SwitchName=… nor a line BlockName=…")),
        (false, false) => Err(Invalid::field("", "mixes switches and blocks: import one of them")),
        (false, true) => cluster(tree::domains(switches)?, options),
        (true, false) => cluster(blocks::domains(blocks, &sizes)?, options),
    }
}

fn too_many_lines() -> String {
    format!("has more than {MAX_LINES} switches or blocks")
}

/// The nodes of these domains, filled from the options.
pub(super) fn cluster(
    (tiers, domains): (Vec<super::super::Tier>, Vec<super::super::Domain>),
    options: &ImportOptions,
) -> Result<ClusterParts, Invalid> {
    let kind = fill::kind(options)?;
    let devices = fill::devices_per_node(options)?;
    let mut names: Vec<&String> = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for name in domains.iter().flat_map(|domain| &domain.nodes) {
        if seen.insert(name) {
            names.push(name);
        }
    }
    let nodes =
        names.into_iter().map(|name| fill::node(name.clone(), devices, &kind.name, options)).collect();
    Ok(ClusterParts {
        kinds: vec![kind],
        nodes,
        tiers,
        domains,
        source: ClusterSource::Slurm,
        warnings: Vec::new(),
    })
}

/// The lines that say something, with their numbers: without comments, and joined where one ends in a backslash.
///
/// # Errors
/// There are more of them than a file of switches has.
fn lines(text: &str) -> Result<Vec<(usize, String)>, Invalid> {
    let mut all: Vec<(usize, String)> = Vec::new();
    let mut continues = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        let (line, ends_open) = line.strip_suffix('\\').map_or((line, false), |line| (line, true));
        match all.last_mut() {
            Some((_, last)) if continues => {
                last.push(' ');
                last.push_str(line);
            }
            _ if line.trim().is_empty() && !ends_open => {}
            _ => all.push((index + 1, line.to_owned())),
        }
        if all.len() > 2 * MAX_LINES {
            return Err(Invalid::field(format!("line {}", index + 1), too_many_lines()));
        }
        continues = ends_open;
    }
    all.retain(|(_, line)| !line.trim().is_empty());
    Ok(all)
}
