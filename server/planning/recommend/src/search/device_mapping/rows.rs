//! Which stages may change devices with each other?

use std::ops::Range;

use crate::search::Candidate;
use loadmaster_search::fleet::mapping::DevicesWanted;
use loadmaster_search::{Pin, UnlikeNode, UnlikeNodes};

/// Stages in a row on one node whose links are unlike.
#[derive(Debug)]
pub(super) struct Row<'a> {
    pub(super) stages: Range<usize>,
    pub(super) node: UnlikeNode<'a>,
    /// By stage, what it takes of the node.
    pub(super) wanted: Vec<DevicesWanted>,
}

impl Row<'_> {
    /// By stage, its devices on the node.
    pub(super) fn on_node(&self, devices: &[Vec<u32>]) -> Vec<Vec<u32>> {
        let here =
            |own: &Vec<u32>| own.iter().copied().filter(|&own| self.node.place(own).is_some()).collect();
        devices.get(self.stages.clone()).unwrap_or_default().iter().map(here).collect()
    }

    /// Gives stages these devices of the node; those that they have elsewhere stay.
    pub(super) fn put(&self, devices: &mut [Vec<u32>], placed: &[Vec<u32>]) {
        for (own, placed) in devices.get_mut(self.stages.clone()).into_iter().flatten().zip(placed) {
            let here = own.iter_mut().filter(|own| self.node.place(**own).is_some());
            here.zip(placed).for_each(|(own, placed)| *own = *placed);
        }
    }

    /// Whether what goes over the edge behind this one of its stages depends on the devices.
    pub(super) fn is_within(&self, stage: usize) -> bool {
        self.wanted.get(stage..stage + 2).is_some_and(DevicesWanted::are_within)
    }
}

/// The rows of a plan of which devices may change.
pub(super) struct Rows<'a> {
    pub(super) rows: Vec<Row<'a>>,
    /// Whether these are all that there are.
    pub(super) are_all: bool,
}

impl<'a> Rows<'a> {
    pub(super) const NONE: Self = Self { rows: Vec::new(), are_all: true };

    pub(super) fn of(candidate: &Candidate, nodes: &UnlikeNodes<'a>, pins: &[Pin]) -> Self {
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
