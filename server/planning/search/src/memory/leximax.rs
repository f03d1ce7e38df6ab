//! Among the paths with the lowest highest peak, the leximax-lowest one.
//!
//! Leximax survives concatenation: adding the same stages to two rests of a pipeline never turns their order
//! around. So every rest of a best path is a best rest of the layers and devices that are left, and that holds
//! as well for the order of the first k distinct peaks.
//!
//! Each round decides one more: per state, the highest
//! peak that is not decided yet, and how many devices have it. Only stages with which a state reaches its own
//! best are kept. The graph shrinks from round to round, often to a single path, and no list of peaks is ever
//! built.

use super::classes::ClassGraph;
use super::costs::Costs;
use super::effort::{MemoryEffort, Stopped, Unfinished};
use super::peaks::Run;
use super::reach::Hop;
use super::widest_paths::{Counted, Leg, Legs};

/// What was found out.
#[derive(Debug, Default)]
pub(super) struct Untied {
    /// The best path, if the search came so far.
    pub(super) hops: Option<Vec<Hop>>,
    /// The highest peaks of every best path; all of them where nothing is unfinished.
    pub(super) known: Vec<Run>,
    /// Why the path is not known to be the best.
    pub(super) unfinished: Option<Unfinished>,
}

/// The best path of those that stay within `limit`, the lowest highest cost.
///
/// Of equal ones: the smallest first stage, and of those the first step; then the second stage, and so on.
pub(super) fn untie(graph: &ClassGraph, costs: &Costs, limit: u64, effort: &mut MemoryEffort<'_>) -> Untied {
    let mut untied = Untied::default();
    untied.unfinished = rounds(graph, costs, limit, effort, &mut untied).err();
    untied
}

fn rounds(
    graph: &ClassGraph,
    costs: &Costs,
    limit: u64,
    effort: &mut MemoryEffort<'_>,
    untied: &mut Untied,
) -> Result<(), Unfinished> {
    let counted = Counted::of(graph, costs, limit, effort)?;
    untied.known.push(Run { peak: limit, devices: counted.at_limit });
    untied.hops = Some(counted.walk());
    let legs = counted.write_down(effort)?;
    let mut rest = Rest { best: vec![Highest::WORST; legs.layers.len()], decided: limit, legs };
    while let Some(run) = rest.round(effort)? {
        untied.known.push(run);
        untied.hops = Some(rest.first_path(graph));
    }
    untied.hops = Some(rest.first_path(graph));
    Ok(())
}

/// The highest undecided peak of a rest, and how many devices have it; none have it where all is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Highest {
    peak: u64,
    devices: u32,
}

impl Highest {
    const WORST: Self = Self { peak: u64::MAX, devices: u32::MAX };
    const NOTHING: Self = Self { peak: 0, devices: 0 };

    /// With an undecided stage before it.
    fn after(self, leg: &Leg) -> Self {
        match leg.cost.cmp(&self.peak) {
            std::cmp::Ordering::Less => self,
            std::cmp::Ordering::Equal => Self { devices: self.devices.saturating_add(leg.devices), ..self },
            std::cmp::Ordering::Greater => Self { peak: leg.cost, devices: leg.devices },
        }
    }
}

/// The stages that are left after some rounds.
struct Rest {
    legs: Legs,
    /// By state; what is left of the last round where no stage begins any more.
    best: Vec<Highest>,
    /// Peaks from this one up are decided.
    decided: u64,
}

impl Rest {
    /// Keeps the stages with the lowest next peak on the fewest devices, and returns those; none where no peak
    /// is left.
    fn round(&mut self, effort: &mut MemoryEffort<'_>) -> Result<Option<Run>, Stopped> {
        let Self { legs, best, decided } = self;
        let decided = *decided;
        effort.weigh(legs.layers.len().min(legs.list.len()))?;
        let with = |leg: &Leg, rest: Highest| if leg.cost < decided { rest.after(leg) } else { rest };
        let Some(end) = best.last_mut() else { return Ok(None) };
        *end = Highest::NOTHING;
        legs.list.iter().for_each(|leg| best[leg.from as usize] = Highest::WORST);
        for leg in legs.list.iter().rev() {
            let highest = with(leg, best[leg.to as usize]);
            let known = &mut best[leg.from as usize];
            *known = highest.min(*known);
        }
        let lowest = legs.starts.iter().map(|&start| best[start as usize]).min();
        let Some(lowest) = lowest.filter(|lowest| lowest.devices > 0) else { return Ok(None) };
        legs.starts.retain(|&start| best[start as usize] == lowest);
        let mut is_kept = vec![false; best.len()];
        legs.starts.iter().for_each(|&start| is_kept[start as usize] = true);
        legs.list.retain(|leg| {
            let keep =
                is_kept[leg.from as usize] && with(leg, best[leg.to as usize]) == best[leg.from as usize];
            is_kept[leg.to as usize] |= keep;
            keep
        });
        self.decided = lowest.peak;
        Ok(Some(Run { peak: lowest.peak, devices: lowest.devices }))
    }

    /// Of all paths that are left, the first by the tie rule. Different states of one place stand for
    /// different numbers of stages after it, so there may be several at once.
    fn first_path(&self, graph: &ClassGraph) -> Vec<Hop> {
        let mut hops = Vec::new();
        let mut at = self.legs.starts.clone();
        loop {
            let legs = at.iter().flat_map(|&state| {
                let begin = self.legs.list.partition_point(|leg| leg.from < state);
                self.legs.list[begin..].iter().take_while(move |leg| leg.from == state)
            });
            let key = |leg: &Leg| (self.legs.layers[leg.to as usize], graph.arcs[leg.arc as usize].step);
            let Some(first) = legs.clone().min_by_key(|leg| key(leg)) else { return hops };
            let (end, step) = key(first);
            let layers = self.legs.layers[first.from as usize] as usize..end as usize;
            hops.push(Hop {
                from: self.legs.places[first.from as usize],
                step: step as usize,
                layers,
                cost: first.cost,
            });
            let mut next: Vec<u32> = legs.filter(|leg| key(leg) == (end, step)).map(|leg| leg.to).collect();
            next.sort_unstable();
            next.dedup();
            at = next;
        }
    }
}
