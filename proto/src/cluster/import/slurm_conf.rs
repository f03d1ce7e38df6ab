//! Slurm's `topology.conf`, and what `scontrol show topology` prints.
//!
//! | line | keys of `topology.conf` | further keys that `scontrol` prints |
//! |---|---|---|
//! | `SwitchName=…` | `Nodes`, `Switches`, `LinkSpeed` | `Level`; `Nodes` has all nodes below the switch |
//! | `BlockName=…` | `Nodes` | `BlockIndex`, `BlockSize` |
//! | `AggregatedBlock=…` | – | `BlockIndex`, `Nodes`, `BlockSize` |
//! | `BlockSizes=…` | | – |
//! | `RingName=…` | `Nodes` | `RingSize` |
//! | `TorusName=…` | – | `Dims`, `Nodes`; on lines of their own `PlacementDims`, `Anchors` |
//!
//! `LinkSpeed` has no unit, and Slurm does not use it.

use std::collections::BTreeSet;

use super::super::{ClusterParts, ClusterSource, Domain, MAX_NODES, MAX_TIERS, Tier, doubts};
use super::blocks::{self, SlurmBlock};
use super::tree::{self, Switch};
use super::{ImportOptions, fill, hostlist};
use crate::error::Invalid;
use crate::warning::{Warning, WarningCode};
use crate::wire::reading::{self, Wanted};

/// Most switches or blocks.
const MAX_LINES: usize = super::super::MAX_DOMAINS;
/// Most names of nodes and switches that all lists of a file unfold to: a short list may name thousands, and a node
/// is in one domain of each level.
pub(super) const MAX_NAMES: usize = MAX_NODES * MAX_TIERS;

/// A ring or a torus: Slurm starts no job over several of them.
#[derive(Debug)]
pub(super) struct Island {
    pub(super) name: String,
    pub(super) nodes: Vec<String>,
    /// Numbers of nodes that a job can have; any where it is empty.
    pub(super) placements: Vec<u32>,
}

/// What a line describes.
enum Kind {
    Switch,
    Block,
    /// A group of blocks as `scontrol` prints it, which follows from their indices.
    Group,
    Ring,
    Torus,
}

/// A line of the file.
#[derive(Default)]
struct Line {
    named: Option<(Kind, String)>,
    nodes: Vec<String>,
    children: Vec<String>,
    level: Option<u32>,
    block_index: Option<u32>,
    block_size: Option<u32>,
    block_sizes: Option<Vec<u32>>,
    placement: Option<u32>,
    /// Names that all lists of the line unfold to.
    unfolded: usize,
}

impl Line {
    /// # Errors
    /// Says which word is wrong.
    fn parse(line: &str) -> Result<Self, String> {
        let mut parsed = Self::default();
        for (key, value) in words(line)? {
            let name = |kind| {
                let why = format!("{key} is empty. Set its value");
                if value.is_empty() { Err(why) } else { Ok(Some((kind, value.to_owned()))) }
            };
            let number = || {
                let digits = value.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
                digits.parse::<u32>().map(Some).map_err(|_| format!("{key}: {value:?} is not a number"))
            };
            match key.to_ascii_lowercase().as_str() {
                "switchname" => parsed.named = name(Kind::Switch)?,
                "blockname" => parsed.named = name(Kind::Block)?,
                "aggregatedblock" => parsed.named = name(Kind::Group)?,
                "ringname" => parsed.named = name(Kind::Ring)?,
                "torusname" => parsed.named = name(Kind::Torus)?,
                "nodes" => {
                    parsed.nodes = list(value)?;
                    parsed.unfolded += parsed.nodes.len();
                }
                "switches" => {
                    parsed.children = list(value)?;
                    parsed.unfolded += parsed.children.len();
                }
                "blocksizes" => parsed.block_sizes = Some(blocks::sizes(value)?),
                "level" => parsed.level = number()?,
                "blockindex" => parsed.block_index = number()?,
                "blocksize" => parsed.block_size = number()?,
                // `2x2x1(4)`: behind the shape stands its number of nodes.
                "placementdims" => {
                    let count =
                        value.split_once('(').and_then(|(_, count)| count.strip_suffix(')')?.parse().ok());
                    parsed.placement = Some(count.ok_or_else(|| {
                        format!("{key}: {value:?} is not a shape of a torus. Use for example 2x2x1(4)")
                    })?);
                }
                "linkspeed" | "ringsize" | "dims" | "anchors" => {}
                _ => {
                    return Err(format!("{key:?} is not a keyword of topology.conf. Remove it"));
                }
            }
            if parsed.unfolded > MAX_NAMES {
                return Err(too_many_names());
            }
        }
        Ok(parsed)
    }
}

/// The keywords of a line with their values: `Key=value`, also with spaces about the sign or with a quoted value.
fn words(line: &str) -> Result<Vec<(&str, &str)>, String> {
    let mut words = Vec::new();
    let mut rest = line.trim();
    while !rest.is_empty() {
        let end = rest.find(|c: char| c == '=' || c.is_whitespace()).unwrap_or(rest.len());
        let (key, after) = rest.split_at(end);
        let value = after.trim_start().strip_prefix('=').map(str::trim_start);
        let value = value.ok_or_else(|| format!("{key:?} is not of the form KEY=VALUE"))?;
        let (value, after) = match value.strip_prefix('"') {
            Some(quoted) => {
                quoted.split_once('"').ok_or_else(|| format!("{key}: a quotation mark is not closed"))?
            }
            None => value.split_at(value.find(char::is_whitespace).unwrap_or(value.len())),
        };
        words.push((key, value));
        rest = after.trim_start();
    }
    Ok(words)
}

/// A list of names, which may be empty.
fn list(text: &str) -> Result<Vec<String>, String> {
    if matches!(text, "" | "(null)") { Ok(Vec::new()) } else { hostlist::expand(text) }
}

/// # Errors
/// Names the line.
pub(super) fn parts(
    text: &str,
    options: &ImportOptions,
    wanted: Wanted<'_>,
) -> Result<ClusterParts, Invalid> {
    let (mut switches, mut blocks, mut rings, mut toruses) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut sizes: Vec<u32> = Vec::new();
    let mut printed_sizes = BTreeSet::new();
    let mut names = 0_usize;
    let mut count = 0_usize;
    for (number, line) in lines(text)? {
        reading::check(wanted)?;
        let field = format!("line {number}");
        let refused = |why: String| Invalid::field(&field, why);
        let line = Line::parse(&line).map_err(&refused)?;
        names += line.unfolded;
        if names > MAX_NAMES {
            return Err(refused(too_many_names()));
        }
        let Line { named, nodes, children, level, block_index, block_size, block_sizes, placement, .. } =
            line;
        count += usize::from(named.is_some());
        if count > MAX_LINES {
            return Err(Invalid::field("", too_many_lines()));
        }
        sizes = block_sizes.unwrap_or(sizes);
        printed_sizes.extend(block_size);
        match named {
            None if nodes.is_empty() && children.is_empty() => {}
            None => {
                let why =
                    "has none of SwitchName=…, BlockName=… and RingName=…. Name the switch, block or ring.";
                return Err(refused(why.to_owned()));
            }
            Some((Kind::Switch, name)) => switches.push(Switch { name, children, nodes, level, field }),
            Some((Kind::Block, name)) => {
                let place = block_index.map_or(blocks.len(), |index| index as usize);
                blocks.push(SlurmBlock { name, nodes, place });
            }
            Some((Kind::Group, _)) => {}
            Some((Kind::Ring, name)) => rings.push(Island { name, nodes, placements: Vec::new() }),
            Some((Kind::Torus, name)) => {
                match (placement, toruses.iter_mut().find(|of: &&mut Island| of.name == name)) {
                    (Some(size), Some(torus)) => torus.placements.push(size),
                    (Some(size), None) => toruses.push(Island { name, nodes, placements: vec![size] }),
                    (None, _) => toruses.push(Island { name, nodes, placements: Vec::new() }),
                }
            }
        }
    }
    if sizes.is_empty() {
        sizes = printed_sizes.into_iter().collect();
    }
    match (switches.as_slice(), blocks.as_slice(), rings.as_slice(), toruses.as_slice()) {
        ([], [], [], []) => Err(Invalid::field(
            "",
            "has no line with SwitchName=…, BlockName=… or RingName=…. Use topology.conf or the output of scontrol show \
             topology",
        )),
        (_, [], [], []) => cluster(tree::domains(switches)?, options),
        ([], _, [], []) => cluster(blocks::domains(blocks, &sizes)?, options),
        ([], [], _, []) => separate("ring", rings, options),
        ([], [], [], _) => separate("torus", toruses, options),
        _ => Err(Invalid::field(
            "",
            "describes more than one kind of topology (switches, blocks, rings, toruses). Keep one kind",
        )),
    }
}

/// A cluster of rings or toruses.
pub(super) fn separate(
    level: &str,
    islands: Vec<Island>,
    options: &ImportOptions,
) -> Result<ClusterParts, Invalid> {
    let warnings = islands.iter().filter(|island| !island.placements.is_empty()).map(|island| {
        let sizes: Vec<String> = island.placements.iter().map(u32::to_string).collect();
        WarningCode::NodeCountsRestricted.says(format!(
            "Slurm gives a job one placement of {}, which is a group of nodes with fixed dimensions. The placements \
             have {} nodes, but plans ignore these sizes. Check that the nodes of the plan fit into one placement",
            island.name,
            sizes.join(", ")
        ))
    });
    let warnings: Vec<Warning> = warnings.collect();
    let domains = islands
        .into_iter()
        .filter(|island| !island.nodes.is_empty())
        .map(|Island { name, nodes, .. }| Domain { level: level.to_owned(), name, parent: None, nodes });
    let tiers = vec![Tier { level: level.to_owned(), link: None }];
    let mut parts = cluster((tiers, domains.collect()), options)?;
    parts.warnings.extend(warnings);
    Ok(parts)
}

fn too_many_names() -> String {
    format!("the file has more than {MAX_NAMES} node and switch names. Split it")
}

fn too_many_lines() -> String {
    format!("has more than {MAX_LINES} switches or blocks. Split the file")
}

/// The nodes of these domains, filled from the options.
pub(super) fn cluster(
    (tiers, domains): (Vec<Tier>, Vec<Domain>),
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
    let mut parts = ClusterParts {
        kinds: vec![kind],
        nodes,
        tiers,
        domains,
        source: ClusterSource::Slurm,
        warnings: Vec::new(),
    };
    parts.warnings.extend(doubts::warning(&parts));
    Ok(parts)
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
