//! The classes of stages: what a search over bytes distinguishes.

use std::collections::HashMap;

use loadmaster_proto::training::Schedule;

use super::super::graph::{self, Counting, Counts};
use super::super::{KindSet, Question, StageCosts, Step};
use super::effort::{MemoryEffort, Unfinished};

/// Stages with equal bytes wherever they are: what they cost depends on this and on their layers alone.
#[derive(Debug, Clone)]
pub(super) struct Class {
    /// A step that takes such devices.
    pub(super) step: Step,
    /// Micro-batches that the stage holds.
    pub(super) in_flight: u32,
    /// Index in [`graph::Graph::walls`] of the layers that such a stage must not have.
    pub(super) walls: u32,
}

/// A stage that may follow at a node, whatever its layers.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClassStep {
    class: u32,
    /// How many devices it takes.
    pub(super) devices: u32,
}

impl ClassStep {
    /// Index of its class.
    pub(super) fn class(self) -> usize {
        self.class as usize
    }
}

/// The graph of the search.
pub(super) type ClassGraph = graph::Graph<ClassStep>;

/// The nodes and arcs of a question, none where its places have no path with so many stages; and the classes of its
/// stages. Where a stage holds as many micro-batches as there are, it does not matter how many more follow.
pub(super) fn classed<C: StageCosts>(
    question: &Question<'_, C>,
    effort: &MemoryEffort<'_>,
) -> Result<(ClassGraph, Vec<Class>), Unfinished> {
    let enough = match question.schedule {
        Schedule::Gpipe => 1,
        Schedule::OneFOneB => question.micro_batches.max(1) as usize,
        Schedule::PipeDream => (*question.stages.end()).max(1),
    };
    let most = effort.limits.moves;
    let counts = Counts::of(question, enough, most).ok_or(Unfinished::TooMany)?;
    let most_after = question.costs.layers().saturating_sub(1);
    let mut classes = Vec::new();
    let mut known: HashMap<(KindSet, u32, u32, u32), u32> = HashMap::new();
    let mut arcs = 0;
    let graph = ClassGraph::of(question, &counts, Counting::Exact, |node, way| {
        if node.before.is_none() {
            return Ok(None);
        }
        arcs += 1;
        if arcs > most {
            return Err(Unfinished::TooMany);
        }
        effort.list()?;
        let &Step { kinds, devices, .. } = way.devices;
        let in_flight = question.in_flight(way.after.min(most_after));
        let class = *known.entry((kinds, devices, in_flight, way.walls)).or_insert_with(|| {
            classes.push(Class { step: *way.devices, in_flight, walls: way.walls });
            classes.len() as u32 - 1
        });
        Ok(Some(ClassStep { class, devices }))
    })?;
    Ok((graph, classes))
}
