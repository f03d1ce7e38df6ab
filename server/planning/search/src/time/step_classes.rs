//! What distinguishes stages where seconds count: devices, micro-batches held, and the input's link.

use std::collections::HashMap;
use std::convert::Infallible;

use loadmaster_proto::training::Schedule;

use super::super::graph::{self, Counting, Counts, Likeness};
use super::super::{LinkId, PlaceId, Question, StageCosts, Step};

/// Steps that cost differently.
#[derive(Debug, Default)]
pub(super) struct StepClasses {
    /// One of each.
    pub(super) list: Vec<Step>,
    /// By place and step: the index of the one that is like it.
    of_step: Vec<Vec<u32>>,
}

impl StepClasses {
    /// Those from places that plans may come to.
    pub(super) fn of<C>(question: &Question<'_, C>, counts: &Counts) -> Self {
        let mut alike = Self { list: Vec::new(), of_step: vec![Vec::new(); question.places.count()] };
        let mut known: HashMap<(Likeness, LinkId), u32> = HashMap::new();
        for place in counts.on_the_way() {
            let like = |step: &Step| {
                *known.entry((Likeness::of(step), step.entry)).or_insert_with(|| {
                    alike.list.push(*step);
                    alike.list.len() as u32 - 1
                })
            };
            alike.of_step[place] = question.places.steps(place as PlaceId).iter().map(like).collect();
        }
        alike
    }
}

/// A stage that may follow at a node, whatever its layers and choice.
#[derive(Debug, Clone, Copy)]
pub(super) struct StepClass {
    /// Index of a step like its own in [`StepClasses::list`].
    pub(super) like: u32,
    /// Micro-batches that it holds.
    pub(super) in_flight: u32,
}

/// The graph of the search.
pub(super) type StepGraph = graph::Graph<StepClass>;

/// The graph of a question's places.
pub(super) fn graph<C: StageCosts>(
    question: &Question<'_, C>,
    counts: &Counts,
    alike: &StepClasses,
    counting: Counting,
) -> StepGraph {
    let Ok(graph) = StepGraph::of(question, counts, counting, |node, way| {
        let like = alike.of_step[node.place as usize][way.step];
        Ok::<_, Infallible>(Some(StepClass { like, in_flight: question.in_flight(way.after) }))
    });
    graph
}

/// How many stages after another one matter: as many as fill its devices with micro-batches, where bytes count.
pub(super) fn enough<C>(question: &Question<'_, C>, is_limited: bool) -> usize {
    match question.schedule {
        Schedule::OneFOneB if is_limited => question.micro_batches.saturating_sub(1) as usize,
        // Another stage always is another micro-batch.
        Schedule::PipeDream if is_limited => question.stages.end().saturating_sub(1),
        _ => 0,
    }
}
