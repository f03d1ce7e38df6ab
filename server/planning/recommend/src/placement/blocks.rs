//! Ranks that stay together, because the plan has them on one node.

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use loadmaster_proto::plan::Plan;

use super::machines::Machine;
use super::needs::RankNeed;

/// Ranks that the plan has on one node.
#[derive(Debug, Clone)]
pub(super) struct Block<'a> {
    /// Kind of their devices; none where it is not the same of all.
    kind: Option<&'a str>,
    /// Bytes that the most demanding of them needs.
    bytes: u64,
    pub(super) ranks: Rc<[usize]>,
}

impl<'a> Block<'a> {
    fn of(needs: &[RankNeed<'a>], ranks: Vec<usize>) -> Self {
        let own = || ranks.iter().filter_map(|&rank| needs.get(rank));
        let kind = own().next().map(|first| first.kind).filter(|kind| own().all(|need| need.kind == *kind));
        Self { kind, bytes: own().map(|need| need.bytes).max().unwrap_or(0), ranks: ranks.into() }
    }

    /// Whether the machine has a device for each of the ranks.
    pub(super) fn fits(&self, needs: &[RankNeed<'_>], machine: &Machine<'_>) -> bool {
        match machine.parts.as_slice() {
            // Of a thousand blocks and nodes each pair is asked for.
            [part] => {
                self.kind == Some(part.kind)
                    && self.ranks.len() <= part.devices
                    && self.bytes <= part.capacity
            }
            _ => machine.holds(needs, &self.ranks),
        }
    }
}

/// The ranks of each node of the plan, in the order of their first ones.
pub(super) fn of_nodes<'a>(plan: &Plan, needs: &[RankNeed<'a>]) -> Vec<Block<'a>> {
    blocks(plan, needs, |_| "")
}

/// The same, those of each kind on their own; none where all are of one, or where shards of the same tensors are of several.
pub(super) fn of_kinds<'a>(plan: &Plan, needs: &[RankNeed<'a>]) -> Option<Vec<Block<'a>>> {
    let of_nodes = of_nodes(plan, needs);
    if of_nodes.iter().all(|block| block.kind.is_some()) {
        return None;
    }
    let is_torn = of_nodes.iter().any(|block| {
        let own = || block.ranks.iter().filter_map(|&rank| needs.get(rank));
        let shards: BTreeSet<usize> = own().map(|need| need.group).collect();
        let parts: BTreeSet<(usize, &str)> = own().map(|need| (need.group, need.kind)).collect();
        parts.len() > shards.len()
    });
    (!is_torn).then(|| blocks(plan, needs, |need| need.kind))
}

fn blocks<'a>(
    plan: &Plan,
    needs: &[RankNeed<'a>],
    apart: impl Fn(&RankNeed<'a>) -> &'a str,
) -> Vec<Block<'a>> {
    let placed = plan.first_stages().iter().flat_map(|stage| {
        (0..stage.config.devices() as usize)
            .map(|rank| stage.devices.get(rank).map_or("", |device| &device.node))
    });
    let mut known: HashMap<(&str, &str), usize> = HashMap::new();
    let mut blocks: Vec<Vec<usize>> = Vec::new();
    for (rank, (node, need)) in placed.zip(needs).enumerate() {
        let at = *known.entry((node, apart(need))).or_insert_with(|| {
            blocks.push(Vec::new());
            blocks.len() - 1
        });
        blocks[at].push(rank);
    }
    blocks.into_iter().map(|ranks| Block::of(needs, ranks)).collect()
}
