//! Slurm's blocks: groups of nodes, and groups of following blocks of the larger sizes.

use std::collections::BTreeSet;

use super::super::{Domain, MAX_TIERS, Tier};
use crate::error::Invalid;

/// A block as Slurm describes it.
#[derive(Debug, Clone)]
pub(super) struct SlurmBlock {
    /// Its name.
    pub(super) name: String,
    /// Names of its nodes; empty for one that keeps the groups aligned.
    pub(super) nodes: Vec<String>,
    /// Its place among all blocks, which decides the groups that it is in.
    pub(super) place: usize,
}

/// Level of blocks.
pub(in crate::cluster) const LEVEL: &str = "block";

/// `4,16`: nodes of a block, then of larger groups.
///
/// # Errors
/// Says what is wrong with it.
pub(super) fn sizes(text: &str) -> Result<Vec<u32>, String> {
    let number = |text: &str| {
        let wrong = || format!("BlockSizes: {text:?} is not a number of nodes. Use a whole number");
        text.trim().parse::<u32>().map_err(|_| wrong())
    };
    text.split(',').take(MAX_TIERS + 1).map(number).collect()
}

/// Tiers and domains of the blocks, in their order. Blocks and groups without nodes are left out.
///
/// # Errors
/// When a size is not the one before it doubled, perhaps several times, as Slurm wants it.
pub(super) fn domains(blocks: Vec<SlurmBlock>, sizes: &[u32]) -> Result<(Vec<Tier>, Vec<Domain>), Invalid> {
    let wrong = || {
        let why = format!(
            "{sizes:?} are not valid. Use at most {MAX_TIERS} sizes, each the first size times a power of two"
        );
        Invalid::field("block_sizes", why)
    };
    // Blocks that a group of each size joins.
    let mut joined = Vec::new();
    if let Some((&base, larger)) = sizes.split_first() {
        for &size in larger {
            let blocks = if base > 0 && size.is_multiple_of(base) { size / base } else { 0 };
            let before = joined.last().copied().unwrap_or(1);
            if !blocks.is_power_of_two() || blocks <= before || joined.len() + 2 > MAX_TIERS {
                return Err(wrong());
            }
            joined.push(blocks);
        }
    }
    let key = |index: usize| match joined.get(index) {
        Some(blocks) => format!("block-x{blocks}"),
        None => LEVEL.to_owned(),
    };
    let tier = |level| Tier { level, link: None };
    let levels: Vec<String> = (0..joined.len()).map(key).collect();
    let tiers = std::iter::once(LEVEL.to_owned()).chain(levels.iter().cloned()).map(tier).collect();
    let group = |place: usize, level: usize| {
        let size = joined.get(level)?;
        Some(format!("{}-{}", levels.get(level)?, place / *size as usize))
    };
    let blocks: Vec<SlurmBlock> = blocks.into_iter().filter(|block| !block.nodes.is_empty()).collect();
    let mut domains = Vec::new();
    for (level, &size) in joined.iter().enumerate() {
        let groups: BTreeSet<usize> = blocks.iter().map(|block| block.place / size as usize).collect();
        domains.extend(groups.into_iter().map(|index| index * size as usize).map(|first| Domain {
            level: key(level),
            name: group(first, level).unwrap_or_default(),
            parent: group(first, level + 1),
            nodes: Vec::new(),
        }));
    }
    domains.extend(blocks.into_iter().map(|SlurmBlock { name, nodes, place }| Domain {
        level: LEVEL.to_owned(),
        name,
        parent: group(place, 0),
        nodes,
    }));
    Ok((tiers, domains))
}
