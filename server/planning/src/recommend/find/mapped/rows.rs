//! Which stages may change devices with each other?

use std::ops::Range;

use crate::recommend::find::Candidate;
use crate::search::{Pin, UnlikeNode, UnlikeNodes};

/// Stages in a row on one node whose links are unlike.
#[derive(Debug)]
pub(super) struct Row<'a> {
    pub(super) stages: Range<usize>,
    pub(super) node: UnlikeNode<'a>,
    /// By stage, the devices of the node that its layers are pinned to.
    pub(super) pinned: Vec<Vec<u32>>,
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
        let mut elsewhere: Vec<u32> = Vec::new();
        for (index, stage) in candidate.stages.iter().enumerate() {
            let Some(node) = nodes.node(&stage.devices) else {
                elsewhere.extend(&stage.devices);
                continue;
            };
            let own = pins.iter().filter(|pin| (stage.first..=stage.last).contains(&pin.layer));
            let own = own.filter_map(|pin| node.place(u32::try_from(pin.device).ok()?)).collect();
            match rows.iter_mut().find(|row| row.node.begin == node.begin) {
                Some(row) if row.stages.end == index => {
                    row.stages.end = index + 1;
                    row.pinned.push(own);
                }
                // Only annealing comes to a node twice.
                Some(_) => return Self { are_all: false, ..Self::NONE },
                None => rows.push(Row { stages: index..index + 1, node, pinned: vec![own] }),
            }
        }
        // Alone on its node a stage sends nothing within it. What one on several nodes has of them stays as it is.
        let is_alone = |row: &Row<'_>| row.stages.len() == 1;
        let is_torn = |row: &Row<'_>| elsewhere.iter().any(|&device| row.node.place(device).is_some());
        let are_all = !rows.iter().any(is_torn);
        rows.retain(|row| !is_alone(row) && !is_torn(row));
        Self { rows, are_all }
    }
}
