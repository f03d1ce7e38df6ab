//! Which of a plan's stages is on which device of a node whose links are unlike.
//!
//! Devices of a node are alike but for these links, so stages change places as long as that makes the iteration shorter; a device
//! that would be idle may take a stage over. What a stage needs does not depend on it, so memory stays as it is.
//!
//! On nodes of up to 8 devices all orders are told apart by the links between neighbours, and most are no faster over any edge than
//! some other one: the few that are left ([`Orders`]) are simulated, those first that take least at least. On nodes with more
//! devices, these are exchanged.
//!
//! | file | question |
//! |---|---|
//! | `rows` | which stages may change devices with each other? |
//! | `clock` | what does an iteration take where edges take other seconds? |
//! | `search` | which devices are best? |

mod clock;
mod rows;
mod search;

use std::cell::RefCell;
use std::rc::Rc;

use super::candidate::Candidate;
use loadmaster_search::fleet::mapping::{DevicesWanted, Orders};
use loadmaster_search::{Pin, StageCosts, UnlikeLinks, UnlikeNodes};
use rows::Rows;
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

/// Orders on nodes that were listed before: plans have as many stages on a node again and again.
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
        let Rows { rows, are_all } = if nodes.is_empty() { Rows::NONE } else { Rows::of(&self, nodes, pins) };
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
