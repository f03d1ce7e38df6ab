//! Which of a plan's stages is on which device of a node whose links are unlike.
//!
//! Devices of a node are alike but for these links, so stages change places as long as that makes the iteration shorter; a device
//! that would be idle may take a stage over. What a stage needs does not depend on it, so memory stays as it is.
//!
//! On nodes of up to 8 devices, orders are distinguished by the links between neighbours. Most orders are no faster over any
//! edge than some other one. The few that are left ([`Orders`]) are simulated, those with the lowest bound first. On nodes
//! with more devices, devices are exchanged.
//!
//! | file | question |
//! |---|---|
//! | here | which stages may change devices with each other, and which plans are wanted on the best devices? |
//! | `search` | which devices are best, and what does an iteration take on them? |
//!
//! A search that prices edges over the best link of a node takes plans to be faster than any devices make them: what it leaves
//! out is ruled out wherever stages are. What it hands over is put on devices before anybody looks how fast it is.

mod search;

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use super::candidate::Candidate;
use loadmaster_search::fleet::mapping::{DevicesWanted, Orders};
use loadmaster_search::simulated::{Least, Outcome, PASS, Wanted, Weighed};
use loadmaster_search::{Ended, Pin, PlacedStage, StageCosts, Stop, UnlikeLinks, UnlikeNode, UnlikeNodes};
use search::MappingSearch;

/// Nodes of which orders are listed.
const MOST_LISTED: usize = 128;

/// A plan on the best devices that were found for its stages.
#[derive(Debug, Clone)]
pub(crate) struct MappedCandidate {
    pub(crate) candidate: Candidate,
    /// Whether it is proven that no other devices of its nodes make it faster.
    pub(crate) is_proven: bool,
    /// Passes that were simulated for it.
    pub(crate) passes: u64,
}

/// Orders on nodes that were listed before: plans have as many stages on a node repeatedly.
#[derive(Debug, Default)]
pub(crate) struct KnownOrders(RefCell<Vec<ListedOrders>>);

#[derive(Debug)]
struct ListedOrders {
    links: UnlikeLinks,
    stages: Vec<DevicesWanted>,
    orders: Option<Rc<Orders>>,
}

impl KnownOrders {
    fn orders(&self, links: &UnlikeLinks, stages: &[DevicesWanted]) -> Option<Rc<Orders>> {
        let mut known = self.0.borrow_mut();
        let is_it = |of: &&ListedOrders| of.links.is_shared_with(links) && of.stages == stages;
        if let Some(of) = known.iter().find(is_it) {
            return of.orders.clone();
        }
        if known.len() >= MOST_LISTED {
            return None;
        }
        let orders = Orders::of(links, stages).map(Rc::new);
        known.push(ListedOrders { links: links.clone(), stages: stages.to_vec(), orders: orders.clone() });
        orders
    }
}

impl Candidate {
    /// The same stages on the devices of their nodes on which an iteration is shortest, as far as that is found. Layers stay on
    /// the devices that they are pinned to. All nodes are those of one fleet, and pins name its devices.
    pub(crate) fn map_devices<C: StageCosts>(
        self,
        costs: &C,
        nodes: &UnlikeNodes<'_>,
        pins: &[Pin],
        known: &KnownOrders,
    ) -> MappedCandidate {
        let Rows { rows, are_all } =
            if nodes.is_empty() { Rows::NONE } else { Rows::new(&self, nodes, pins) };
        let search = if rows.is_empty() { None } else { MappingSearch::of(&self, costs, rows, known) };
        let Some(mut search) = search else {
            return MappedCandidate { candidate: self, is_proven: are_all, passes: 0 };
        };
        let is_proven = search.run() && are_all;
        let (best, clock) = search.found();
        let (passes, is_simulated) = (clock.passes, clock.is_simulated);
        let mut candidate = self;
        for (stage, devices) in candidate.stages.iter_mut().zip(best.devices) {
            stage.devices = devices;
        }
        candidate.edges = best.edges;
        candidate.forget_seconds();
        candidate.simulated = is_simulated.then_some(best.seconds);
        MappedCandidate { candidate, is_proven, passes }
    }
}

/// Stages in a row on one node whose links are unlike.
#[derive(Debug)]
struct Row<'a> {
    stages: Range<usize>,
    node: UnlikeNode<'a>,
    /// By stage, what it takes of the node.
    wanted: Vec<DevicesWanted>,
}

impl Row<'_> {
    /// By stage, its devices on the node.
    fn on_node(&self, devices: &[Vec<u32>]) -> Vec<Vec<u32>> {
        let here =
            |own: &Vec<u32>| own.iter().copied().filter(|&own| self.node.place(own).is_some()).collect();
        devices.get(self.stages.clone()).unwrap_or_default().iter().map(here).collect()
    }

    /// Gives stages these devices of the node; those that they have elsewhere stay.
    fn put(&self, devices: &mut [Vec<u32>], placed: &[Vec<u32>]) {
        for (own, placed) in devices.get_mut(self.stages.clone()).into_iter().flatten().zip(placed) {
            let here = own.iter_mut().filter(|own| self.node.place(**own).is_some());
            here.zip(placed).for_each(|(own, placed)| *own = *placed);
        }
    }

    /// Returns whether the seconds of the edge behind this one of its stages depend on the devices.
    fn is_within(&self, stage: usize) -> bool {
        self.wanted.get(stage..stage + 2).is_some_and(DevicesWanted::are_within)
    }
}

/// The rows of a plan of which devices may change.
struct Rows<'a> {
    rows: Vec<Row<'a>>,
    /// There are no other rows.
    are_all: bool,
}

impl<'a> Rows<'a> {
    const NONE: Self = Self { rows: Vec::new(), are_all: true };

    fn new(candidate: &Candidate, nodes: &UnlikeNodes<'a>, pins: &[Pin]) -> Self {
        let mut rows: Vec<Row<'a>> = Vec::new();
        for (index, stage) in candidate.stages.iter().enumerate() {
            for node in nodes.of_some(&stage.devices) {
                let count = stage.devices.iter().filter(|&&device| node.place(device).is_some()).count();
                let own = pins.iter().filter(|pin| (stage.first..=stage.last).contains(&pin.layer));
                let pinned = own.filter_map(|pin| node.place(u32::try_from(pin.device).ok()?)).collect();
                let wanted = DevicesWanted { count, pinned, is_torn: count < stage.devices.len() };
                match rows.iter_mut().find(|row| row.node.begin == node.begin) {
                    Some(row) if row.stages.end == index => {
                        row.stages.end = index + 1;
                        row.wanted.push(wanted);
                    }
                    // Only annealing comes to a node twice.
                    Some(_) => return Self { are_all: false, ..Self::NONE },
                    None => rows.push(Row { stages: index..index + 1, node, wanted: vec![wanted] }),
                }
            }
        }
        // Alone on its node a stage sends nothing within it.
        rows.retain(|row| (0..row.stages.len()).any(|stage| row.is_within(stage)));
        Self { rows, are_all: true }
    }
}

/// Wants what another process does, on the best devices.
pub(super) struct OnBestDevices<'a, W> {
    wanted: &'a mut W,
    place: &'a dyn Fn(&[PlacedStage]) -> Option<MappedCandidate>,
    passes: &'a Stop,
    left_out: Outcome,
}

impl<'a, W> OnBestDevices<'a, W> {
    pub(super) fn new(
        wanted: &'a mut W,
        place: &'a dyn Fn(&[PlacedStage]) -> Option<MappedCandidate>,
        passes: &'a Stop,
    ) -> Self {
        Self { wanted, place, passes, left_out: Outcome::NOTHING }
    }

    /// Plans of which it is not known whether other devices make them faster.
    pub(super) fn left_out(&self) -> Outcome {
        self.left_out
    }
}

impl<W: Wanted> Wanted for OnBestDevices<'_, W> {
    fn may_be(&self, least: &Least) -> bool {
        self.wanted.may_be(least)
    }

    fn take(&mut self, plan: Weighed) {
        let mapped = (self.place)(&plan.stages);
        let (seconds, is_proven) = mapped.map_or((None, false), |mut mapped| {
            self.passes.take(mapped.passes.saturating_mul(PASS));
            mapped.candidate.simulate();
            (mapped.candidate.simulated, mapped.is_proven)
        });
        if !is_proven && seconds.is_none_or(|seconds| seconds > plan.seconds) {
            self.left_out = self.left_out.and(Outcome {
                states: 0,
                ended: Ended::Bounded,
                open_seconds: plan.seconds,
                open_peak: plan.peaks.highest().unwrap_or(0),
            });
        }
        if let Some(seconds) = seconds {
            self.wanted.take(Weighed { seconds, ..plan });
        }
    }

    fn found(&mut self) -> Vec<Weighed> {
        self.wanted.found()
    }
}
