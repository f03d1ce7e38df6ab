//! Which stages may follow which: places and, where it matters, how many stages are still to come.
//!
//! What a stage holds under 1F1B, and a limit on the number of stages, depend on how many stages come after it.
//! Where every way from a place to the end has equally many stages (all stages of one size) the place says it
//! already. Elsewhere a *node* is a place with a number; or, much smaller, a place alone, for which the fewest or the
//! most stages that may come are counted ([`Counting`]). A state of a search is a node and a layer.
//!
//! Each search labels the arcs with what it distinguishes stages by: bytes depend on less than seconds do.
//!
//! | module | what it does |
//! |---|---|
//! | `counts` | how many stages may come after each place |

mod counts;

use std::collections::HashMap;
use std::ops::Range;

use super::places::SplitId;
use super::{KindSet, LinkId, PlaceId, Question, StageCosts, Step};

pub(super) use counts::{Counting, Counts, Lengths};

/// The devices of a stage, from one node to another.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arc<L> {
    /// The node after it.
    pub(super) to: u32,
    /// Which step of the place it is.
    pub(super) step: u32,
    /// Index in [`Graph::walls`] of the layers that it must not have.
    pub(super) walls: u32,
    /// What the search distinguishes it by.
    pub(super) label: L,
}

/// A place, with the number of stages to come where that is part of the state.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) place: PlaceId,
    /// Where its arcs are in [`Graph::arcs`].
    pub(super) arcs: Range<usize>,
    /// The fewest stages that a plan has before it; none where no plan gets here.
    pub(super) before: Option<u32>,
    /// The fewest stages that a plan has from here on.
    pub(super) after: u32,
}

/// A stage that may follow at a node, for its label.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way<'a> {
    /// Which of the place's steps it takes.
    pub(super) step: usize,
    /// That step.
    pub(super) devices: &'a Step,
    /// As in [`Arc`].
    pub(super) walls: u32,
    /// Stages that come after it, as far as they are distinguished.
    pub(super) after: usize,
}

/// All nodes on ways from the first place to the last, and the stages between them. Arcs lead to later nodes, and the
/// last node is the end.
#[derive(Debug)]
pub(super) struct Graph<L> {
    pub(super) nodes: Vec<Node>,
    pub(super) arcs: Vec<Arc<L>>,
    /// By first layer of a stage: the first layer that it must not have because of pins. The first is empty: no pins.
    pub(super) walls: Vec<Vec<usize>>,
    /// Nodes where a plan may begin.
    pub(super) starts: Vec<u32>,
    pub(super) layers: usize,
}

impl<L> Graph<L> {
    /// The graph of a question's places. `label` says what a stage at a node is to the search, none where the search
    /// leaves it out, or why it gives up.
    pub(super) fn of<C: StageCosts, E>(
        question: &Question<'_, C>,
        counts: &Counts,
        counting: Counting,
        mut label: impl FnMut(&Node, &Way<'_>) -> Result<Option<L>, E>,
    ) -> Result<Self, E> {
        let (mut graph, index) = Self::of_nodes(question, counts, counting);
        let mut barred = HashMap::from([(Vec::new(), 0)]);
        for place in counts.on_the_way() {
            let steps = question.places.steps(place as PlaceId);
            let walls: Vec<u32> = (0..steps.len())
                .map(|step| graph.bar(question.walls(place as PlaceId, step), &mut barred))
                .collect();
            for (number, node) in (0..).zip(&index[place]) {
                let Some(node) = node.map(|node| node as usize) else { continue };
                let (own, begin) = (graph.nodes[node].clone(), graph.arcs.len());
                for (step, (devices, &walls)) in steps.iter().zip(&walls).enumerate() {
                    let next = &index[devices.to as usize];
                    for (number, after) in counts.after(counting, number, devices.to) {
                        let Some(&Some(to)) = next.get(number) else { continue };
                        if let Some(label) = label(&own, &Way { step, devices, walls, after })? {
                            graph.arcs.push(Arc { to, step: step as u32, walls, label });
                            graph.lead(&own, to);
                        }
                    }
                }
                graph.nodes[node].arcs = begin..graph.arcs.len();
            }
        }
        Ok(graph)
    }

    /// The nodes, and by place and number the index of each.
    fn of_nodes<C: StageCosts>(
        question: &Question<'_, C>,
        counts: &Counts,
        counting: Counting,
    ) -> (Self, Vec<Vec<Option<u32>>>) {
        let (nodes, arcs, walls, starts) = (Vec::new(), Vec::new(), vec![Vec::new()], Vec::new());
        let mut graph = Self { nodes, arcs, walls, starts, layers: question.costs.layers() };
        let mut index = vec![Vec::new(); question.places.count()];
        for place in counts.on_the_way() {
            for (number, after) in counts.numbers(counting, place) {
                let node = graph.nodes.len() as u32;
                let is_start =
                    place == 0 && (counting != Counting::Exact || question.stages.contains(&number));
                graph.starts.extend(is_start.then_some(node));
                let before = is_start.then_some(0);
                graph.nodes.push(Node { place: place as PlaceId, arcs: 0..0, before, after });
                index[place].resize(number, None);
                index[place].push(Some(node));
            }
        }
        (graph, index)
    }

    /// The index of walls, which are added where they are new.
    fn bar(&mut self, walls: Vec<usize>, barred: &mut HashMap<Vec<usize>, u32>) -> u32 {
        // Without pins nothing is barred, and each step of each variant comes here.
        if walls.is_empty() {
            return 0;
        }
        *barred.entry(walls).or_insert_with_key(|walls| {
            self.walls.push(walls.clone());
            self.walls.len() as u32 - 1
        })
    }

    /// Notes that a stage leads from one node to another.
    fn lead(&mut self, from: &Node, to: u32) {
        let known = &mut self.nodes[to as usize].before;
        let here = from.before.map(|before| before + 1);
        *known = known.iter().copied().chain(here).min();
    }

    /// The layers that may be the next one at a node: each stage before and after has one at least.
    pub(super) fn firsts(&self, node: &Node) -> Range<usize> {
        let past = self.layers + 1;
        match (node.before, node.after as usize) {
            (None, _) => 0..0,
            (Some(0), _) => 0..self.layers.min(1),
            (_, 0) => self.layers..past,
            (Some(before), after) => before as usize..past.saturating_sub(after).max(before as usize),
        }
    }

    /// By first layer: the first layer that the stages of an arc must not have; empty without pins.
    pub(super) fn walls(&self, arc: usize) -> &[usize] {
        &self.walls[self.arcs[arc].walls as usize]
    }
}

/// What stages on a step's devices cost depends on, besides their layers, their choice and their input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Likeness {
    devices: u32,
    kinds: KindSet,
    inside: LinkId,
    across: LinkId,
    per_node: u32,
    split: SplitId,
    others: u32,
}

impl Likeness {
    pub(crate) fn of(step: &Step) -> Self {
        let &Step { to: _, devices, kinds, entry: _, inside, across, per_node, split, others } = step;
        Self { devices, kinds, inside, across, per_node, split, others }
    }
}
