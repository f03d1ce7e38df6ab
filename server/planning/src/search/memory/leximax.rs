//! Among the paths with the lowest highest peak, the leximax-lowest one.
//!
//! Leximax survives concatenation: adding the same stages to two rests of a pipeline never turns their order
//! around. So every rest of a best path is a best rest of the layers and devices that are left, and that holds
//! as well for the order of the first k distinct peaks. Each round decides one more: per state, the highest
//! peak that is not decided yet, and how many devices have it. Only arcs with which a state reaches its own
//! best are kept. The graph shrinks from round to round, often to a single path, and no list of peaks is ever
//! built.

use super::super::Ended;
use super::classes::Graph;
use super::costs::Cells;
use super::effort::{Effort, Stopped};
use super::peaks::Run;
use super::reach::Hop;
use super::widest::{Arc, Arcs, Counted};

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

/// Why a search did not come to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unfinished {
    /// The search was told to stop.
    Stopped,
    /// It would take more memory than its limits allow.
    TooMany,
}

impl Unfinished {
    /// How a search ends that is left so.
    pub(super) fn ended(self) -> Ended {
        match self {
            Self::Stopped => Ended::Stopped,
            Self::TooMany => Ended::Bounded,
        }
    }
}

impl From<Stopped> for Unfinished {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}

/// The best path of those that stay within `limit`, the lowest highest cost.
///
/// Of equal ones: the smallest first stage, and of those the first step; then the second stage, and so on.
pub(super) fn untie(graph: &Graph, cells: &Cells, limit: u64, effort: &mut Effort<'_>) -> Untied {
    let mut untied = Untied::default();
    untied.unfinished = rounds(graph, cells, limit, effort, &mut untied).err();
    untied
}

fn rounds(
    graph: &Graph,
    cells: &Cells,
    limit: u64,
    effort: &mut Effort<'_>,
    untied: &mut Untied,
) -> Result<(), Unfinished> {
    let counted = Counted::of(graph, cells, limit, effort)?;
    untied.known.push(Run { peak: limit, devices: counted.at_limit });
    untied.hops = Some(counted.walk());
    let arcs = counted.write_down(effort)?;
    let mut rest = Rest { best: vec![Highest::WORST; arcs.layers.len()], decided: limit, arcs };
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
    fn after(self, arc: &Arc) -> Self {
        match arc.cost.cmp(&self.peak) {
            std::cmp::Ordering::Less => self,
            std::cmp::Ordering::Equal => Self { devices: self.devices.saturating_add(arc.devices), ..self },
            std::cmp::Ordering::Greater => Self { peak: arc.cost, devices: arc.devices },
        }
    }
}

/// The arcs that are left after some rounds.
struct Rest {
    arcs: Arcs,
    /// By state; what is left of the last round where no arc begins any more.
    best: Vec<Highest>,
    /// Peaks from this one up are decided.
    decided: u64,
}

impl Rest {
    /// Keeps the arcs with the lowest next peak on the fewest devices, and returns those; none where no peak
    /// is left.
    fn round(&mut self, effort: &mut Effort<'_>) -> Result<Option<Run>, Stopped> {
        let Self { arcs, best, decided } = self;
        let decided = *decided;
        effort.weigh(arcs.layers.len().min(arcs.list.len()))?;
        let with = |arc: &Arc, rest: Highest| if arc.cost < decided { rest.after(arc) } else { rest };
        let Some(end) = best.last_mut() else { return Ok(None) };
        *end = Highest::NOTHING;
        arcs.list.iter().for_each(|arc| best[arc.from as usize] = Highest::WORST);
        for arc in arcs.list.iter().rev() {
            let highest = with(arc, best[arc.to as usize]);
            let known = &mut best[arc.from as usize];
            *known = highest.min(*known);
        }
        let lowest = arcs.starts.iter().map(|&start| best[start as usize]).min();
        let Some(lowest) = lowest.filter(|lowest| lowest.devices > 0) else { return Ok(None) };
        arcs.starts.retain(|&start| best[start as usize] == lowest);
        let mut is_kept = vec![false; best.len()];
        arcs.starts.iter().for_each(|&start| is_kept[start as usize] = true);
        arcs.list.retain(|arc| {
            let keep =
                is_kept[arc.from as usize] && with(arc, best[arc.to as usize]) == best[arc.from as usize];
            is_kept[arc.to as usize] |= keep;
            keep
        });
        self.decided = lowest.peak;
        Ok(Some(Run { peak: lowest.peak, devices: lowest.devices }))
    }

    /// Of all paths that are left, the first by the tie rule. Different states of one place stand for
    /// different numbers of stages after it, so there may be several at once.
    fn first_path(&self, graph: &Graph) -> Vec<Hop> {
        let mut hops = Vec::new();
        let mut at = self.arcs.starts.clone();
        loop {
            let arcs = at.iter().flat_map(|&state| {
                let begin = self.arcs.list.partition_point(|arc| arc.from < state);
                self.arcs.list[begin..].iter().take_while(move |arc| arc.from == state)
            });
            let key = |arc: &Arc| (self.arcs.layers[arc.to as usize], graph.moves[arc.step as usize].step);
            let Some(first) = arcs.clone().min_by_key(|arc| key(arc)) else { return hops };
            let (end, step) = key(first);
            let layers = self.arcs.layers[first.from as usize] as usize..end as usize;
            hops.push(Hop { from: self.arcs.places[first.from as usize], step, layers, cost: first.cost });
            let mut next: Vec<u32> = arcs.filter(|arc| key(arc) == (end, step)).map(|arc| arc.to).collect();
            next.sort_unstable();
            next.dedup();
            at = next;
        }
    }
}
