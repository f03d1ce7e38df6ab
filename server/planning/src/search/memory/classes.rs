//! The states of the search: where a stage begins among the devices, and how many stages are left.
//!
//! A *node* is a place together with the number of stages from there on, where that matters. A state of the
//! search is a node and a layer.

use std::collections::HashMap;
use std::ops::Range;

use super::super::{KindSet, PlaceId, Question, StageCosts, Step};
use super::counts::Counts;
use super::effort::Effort;
use super::leximax::Unfinished;

/// Stages with equal bytes wherever they are: what they cost depends on this and on their layers alone.
#[derive(Debug, Clone)]
pub(super) struct Class {
    /// A step that takes such devices.
    pub(super) step: Step,
    /// Micro-batches that the stage holds.
    pub(super) in_flight: u32,
    /// By first layer: the first one that such a stage must not have because of pins; empty without pins.
    pub(super) walls: Vec<usize>,
}

/// A stage that may follow at a node, whatever its layers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Move {
    /// The node after it.
    pub(super) to: usize,
    /// Which of the place's steps it takes.
    pub(super) step: usize,
    /// How many devices that is.
    pub(super) devices: u32,
    /// Index of its class.
    pub(super) class: usize,
}

/// A place with the number of stages from there on.
#[derive(Debug, Clone)]
pub(super) struct Node {
    /// The place.
    pub(super) place: PlaceId,
    /// Where its moves are in [`Graph::moves`].
    pub(super) moves: Range<usize>,
    /// Layers that may be the next one here: each stage before and after has one at least.
    pub(super) firsts: Range<usize>,
}

/// All nodes that are on a path from the first place to the last. Every move leads to a later node; the
/// last node is the end.
#[derive(Debug, Default)]
pub(super) struct Graph {
    pub(super) nodes: Vec<Node>,
    pub(super) moves: Vec<Move>,
    pub(super) classes: Vec<Class>,
    /// How many nodes are at the first place. They come first.
    pub(super) starts: usize,
    pub(super) layers: usize,
}

impl Graph {
    /// The nodes and moves of a question; empty where its places have no path with so many stages.
    pub(super) fn of<C: StageCosts>(
        question: &Question<'_, C>,
        effort: &Effort<'_>,
    ) -> Result<Self, Unfinished> {
        let limits = effort.limits;
        let counts = Counts::of(question, limits)?;
        let layers = question.costs.layers();
        // The first node of each place.
        let begins = counts.by_place.iter().scan(0, |next, counts| {
            let begin = *next;
            *next += counts.len();
            Some(begin)
        });
        let begins: Vec<usize> = begins.collect();
        let node = |place: PlaceId, stages: usize| {
            let position =
                counts.by_place[place as usize].binary_search_by_key(&stages, |count| count.stages);
            position.ok().map(|position| begins[place as usize] + position)
        };
        let mut graph =
            Self { layers, starts: counts.by_place.first().map_or(0, Vec::len), ..Self::default() };
        let all = counts.by_place.iter().map(Vec::len).sum();
        // Fewest stages before each node.
        let mut before: Vec<Option<usize>> = vec![None; all];
        before.iter_mut().take(graph.starts).for_each(|before| *before = Some(0));
        let mut classes: HashMap<ClassKey, usize> = HashMap::new();
        for (place, here) in (0..).zip(&counts.by_place) {
            let walls: Vec<Vec<usize>> =
                (0..question.places.steps(place).len()).map(|step| question.walls(place, step)).collect();
            for count in here {
                let begin = graph.moves.len();
                let Some(already) = before[graph.nodes.len()] else {
                    graph.nodes.push(Node { place, moves: begin..begin, firsts: 0..0 });
                    continue;
                };
                let in_flight = question.in_flight(count.stages.saturating_sub(1));
                for (index, step) in question.places.steps(place).iter().enumerate() {
                    for to in counts.after(count.stages).filter_map(|stages| node(step.to, stages)) {
                        before[to] = Some(before[to].map_or(already + 1, |known| known.min(already + 1)));
                        let key = (step.kinds, step.devices, in_flight, walls[index].clone());
                        let class = *classes.entry(key).or_insert_with_key(|key| {
                            let walls = key.3.clone();
                            graph.classes.push(Class { step: *step, in_flight, walls });
                            graph.classes.len() - 1
                        });
                        graph.moves.push(Move { to, step: index, devices: step.devices, class });
                    }
                }
                if graph.moves.len() > limits.moves {
                    return Err(Unfinished::TooMany);
                }
                effort.list(graph.moves.len() - begin)?;
                let firsts = match (place, count.stages) {
                    (0, _) => 0..layers.min(1),
                    (_, 0) => layers..layers + 1,
                    _ => already..(layers + 1).saturating_sub(count.fewest).max(already),
                };
                graph.nodes.push(Node { place, moves: begin..graph.moves.len(), firsts });
            }
        }
        Ok(graph)
    }
}

/// What tells classes apart: kinds and number of devices, micro-batches in flight, where pins end stages.
type ClassKey = (KindSet, u32, u32, Vec<usize>);
