//! The lowest possible highest cost of a stage.
//!
//! It is the cost of some stage. Of those that are still possible the middle one is tried: either the end
//! can be reached by stages that cost no more, or not, and half of them are gone. Finding the middle takes
//! linear time, so all of it does, but for the tries, of which there are as many as halvings.

use super::bits::Bits;
use super::classes::ClassGraph;
use super::costs::{Costs, NONE};
use super::effort::{MemoryEffort, Stopped};
use super::reach::{Hop, Reachable};

/// What is known of the bottleneck.
#[derive(Debug)]
pub(super) struct Narrowed {
    /// The lowest highest cost that was reached, and a path with it. None where there is no path.
    pub(super) best: Option<(u64, Vec<Hop>)>,
    /// No path has a lower one; none where that is not known.
    pub(super) at_least: Option<u64>,
    /// Whether the search was stopped before the two met.
    pub(super) is_stopped: bool,
}

/// Finds the lowest limit within which the end can be reached.
pub(super) fn narrow(graph: &ClassGraph, costs: &Costs, effort: &mut MemoryEffort<'_>) -> Narrowed {
    let mut narrowed = Narrowed { best: None, at_least: None, is_stopped: false };
    narrowed.is_stopped = halve(graph, costs, effort, &mut narrowed).is_err();
    if !narrowed.is_stopped {
        narrowed.at_least = narrowed.best.as_ref().map(|&(limit, _)| limit);
    }
    narrowed
}

fn halve(
    graph: &ClassGraph,
    costs: &Costs,
    effort: &mut MemoryEffort<'_>,
    narrowed: &mut Narrowed,
) -> Result<(), Stopped> {
    // States on paths within the lowest limit that was reached.
    let mut known: Option<Bits> = None;
    let mut attempt = |limit: u64| {
        let reach = Reachable::of(graph, costs, limit, known.as_ref(), effort)?;
        if !reach.is_open(graph) {
            return Ok(None);
        }
        known = Some(reach.met(graph, effort)?);
        Ok(Some(reach.walk(graph, costs)))
    };
    let highest = |hops: &[Hop]| hops.iter().map(|hop| hop.cost).max().unwrap_or(0);
    let Some(hops) = attempt(NONE - 1)? else { return Ok(()) };
    let mut lowest = highest(&hops);
    narrowed.best = Some((lowest, hops));

    let mut possible: Vec<u64> = costs.values.iter().copied().filter(|&value| value < lowest).collect();
    narrowed.at_least = possible.iter().copied().min().or(Some(lowest));
    while !possible.is_empty() {
        let middle = possible.len() / 2;
        let (_, &mut limit, _) = possible.select_nth_unstable(middle);
        match attempt(limit)? {
            Some(hops) => {
                lowest = highest(&hops);
                narrowed.best = Some((lowest, hops));
                possible.retain(|&value| value < lowest);
            }
            None => {
                possible.retain(|&value| value > limit);
                narrowed.at_least = Some(possible.iter().copied().min().unwrap_or(lowest));
            }
        }
    }
    Ok(())
}
