//! Which stages may follow which, as a graph: places and, where it matters, how many stages are still to come.
//!
//! A stage's peak under 1F1B, and a limit on the number of stages, depend on how many stages come after it.
//! Where every way from a place to the end has equally many stages (all stages of one size) the place says it
//! already. Elsewhere a node is a place with a number; or, much smaller, a place alone with the fewest or the
//! most that may come, which answers too well or too badly ([`Counting`]).

use std::ops::Range;

use loadmaster_proto::training::Schedule;

use super::super::{PlaceId, Question, StageCosts, Step};

/// How the stages to come are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counting {
    /// As few as any way to the end has: no plan is valued worse than it is.
    Fewest,
    /// As many as any way to the end has: no plan is valued better than it is.
    Most,
    /// Exactly.
    Exact,
}

/// Whether stages on the devices of two steps cost the same.
fn are_alike(one: &Step, other: &Step) -> bool {
    (one.devices, one.kinds, one.inside, one.across, one.per_node, one.split, one.others, one.entry)
        == (
            other.devices,
            other.kinds,
            other.inside,
            other.across,
            other.per_node,
            other.split,
            other.others,
            other.entry,
        )
}

/// Steps that cost differently.
#[derive(Debug, Default)]
pub(super) struct Alike {
    /// One of each.
    pub(super) list: Vec<Step>,
    /// By place and step: the index of the one that is like it.
    of_step: Vec<Vec<u32>>,
}

impl Alike {
    /// Those from places that plans may come to.
    pub(super) fn of<C>(question: &Question<'_, C>, counts: &Counts) -> Self {
        let mut alike = Self { list: Vec::new(), of_step: vec![Vec::new(); question.places.count()] };
        for place in counts.reachable() {
            let steps = question.places.steps(place as PlaceId).iter();
            alike.of_step[place] = steps
                .map(|step| {
                    let known = alike.list.iter().position(|known| are_alike(known, step));
                    known.unwrap_or_else(|| {
                        alike.list.push(*step);
                        alike.list.len() - 1
                    }) as u32
                })
                .collect();
        }
        alike
    }
}

/// A stage's devices, from one node to another.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arc {
    /// The node after it.
    pub(super) to: u32,
    /// Which step of the place it is.
    pub(super) step: u32,
    /// Index of one like it in [`Alike::list`].
    pub(super) like: u32,
    /// Micro-batches that the stage holds.
    pub(super) in_flight: u32,
    /// Index in [`Graph::walls`] of the layers that it must not have.
    pub(super) walls: u32,
}

/// A place, with the number of stages to come where that is part of the state.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) place: PlaceId,
    pub(super) arcs: Range<usize>,
}

/// All nodes and arcs. Arcs lead to nodes with larger indices.
#[derive(Debug)]
pub(super) struct Graph {
    pub(super) nodes: Vec<Node>,
    pub(super) arcs: Vec<Arc>,
    /// By first layer of a stage: the first layer that it must not have because of pins. The first is empty: no pins.
    pub(super) walls: Vec<Vec<usize>>,
    /// Nodes where a plan may begin.
    pub(super) starts: Vec<u32>,
    /// The node where every plan ends; none where no way leads there.
    pub(super) end: Option<u32>,
}

/// How many stages may come after each place, and which of the counts have to be told apart.
#[derive(Debug)]
pub(super) struct Counts {
    /// By place, by number of stages to come: whether a way to the end has so many. Numbers at or above the
    /// last are one.
    ways: Vec<Vec<bool>>,
    /// Whether each place can be reached from the first.
    reached: Vec<bool>,
    /// Fewest and most stages to come, by place.
    extremes: Vec<(u32, u32)>,
    /// Numbers from here on need not be told apart.
    saturated: usize,
}

impl Counts {
    /// Of the ways that keep to the question's numbers of stages. `holds` says whether bytes count.
    pub(super) fn of<C: StageCosts>(question: &Question<'_, C>, holds: bool) -> Self {
        let places = question.places;
        let count = places.count();
        let layers = question.costs.layers();
        let most = (*question.stages.end()).min(layers);
        let mut reached = vec![false; count];
        if let Some(first) = reached.first_mut() {
            *first = true;
        }
        for place in 0..count {
            if reached[place] {
                for step in places.steps(place as PlaceId) {
                    reached[step.to as usize] = true;
                }
            }
        }
        const NONE: (u32, u32) = (u32::MAX, 0);
        let mut extremes = vec![NONE; count];
        if let Some(last) = extremes.last_mut() {
            *last = (0, 0);
        }
        for place in (0..count).rev() {
            for step in places.steps(place as PlaceId) {
                let (fewest, longest) = extremes[step.to as usize];
                if fewest != u32::MAX {
                    extremes[place].0 = extremes[place].0.min(fewest + 1);
                    extremes[place].1 = extremes[place].1.max(longest + 1);
                }
            }
        }
        let longest = extremes.first().map_or(0, |&(_, longest)| longest as usize).min(layers);
        let saturated = if most < longest {
            most + 1
        } else {
            let held = match question.schedule {
                Schedule::OneFOneB if holds => question.micro_batches.saturating_sub(1) as usize,
                _ => 0,
            };
            held.max(*question.stages.start()).min(layers)
        };
        let mut ways = vec![Vec::new(); count];
        if let Some(last) = ways.last_mut() {
            *last = vec![true];
        }
        for place in (0..count).rev().filter(|&place| reached[place]) {
            let mut own = std::mem::take(&mut ways[place]);
            for step in places.steps(place as PlaceId) {
                for (after, _) in ways[step.to as usize].iter().enumerate().filter(|&(_, &is)| is) {
                    let number = (after + 1).min(saturated);
                    // Beyond the most stages there is nothing; at the saturated number of a bounded count too.
                    if number > most {
                        continue;
                    }
                    if own.len() <= number {
                        own.resize(number + 1, false);
                    }
                    own[number] = true;
                }
            }
            ways[place] = own;
        }
        Self { ways, reached, extremes, saturated }
    }

    /// Most micro-batches that a stage of any plan may hold.
    pub(super) fn most_held<C: StageCosts>(&self, question: &Question<'_, C>) -> u32 {
        let longest = self.extremes.first().map_or(0, |&(_, longest)| longest as usize);
        question.in_flight(longest.min(question.costs.layers()).saturating_sub(1))
    }

    /// Nodes of the graph that counts exactly.
    pub(super) fn exact_nodes(&self) -> usize {
        self.reachable().map(|place| self.ways[place].iter().filter(|&&is| is).count()).sum()
    }

    /// Nodes of a graph of places alone.
    pub(super) fn plain_nodes(&self) -> usize {
        self.reachable().count()
    }

    fn reachable(&self) -> impl Iterator<Item = usize> {
        (0..self.reached.len()).filter(|&place| self.reached[place] && self.extremes[place].0 != u32::MAX)
    }
}

impl Graph {
    /// The graph of a question's places.
    pub(super) fn build<C: StageCosts>(
        question: &Question<'_, C>,
        counts: &Counts,
        alike: &Alike,
        counting: Counting,
    ) -> Self {
        let places = question.places;
        let layers = question.costs.layers();
        let mut graph = Self {
            nodes: Vec::new(),
            arcs: Vec::new(),
            walls: vec![Vec::new()],
            starts: Vec::new(),
            end: None,
        };
        // Index of the node of each place and number; places alone have the number 0.
        let mut index: Vec<Vec<u32>> = vec![Vec::new(); places.count()];
        let mut held: Vec<(PlaceId, usize)> = Vec::new();
        for place in counts.reachable() {
            let numbers: Vec<usize> = match counting {
                Counting::Exact => (0..counts.ways[place].len()).filter(|&n| counts.ways[place][n]).collect(),
                Counting::Fewest | Counting::Most => vec![0],
            };
            index[place] = vec![u32::MAX; numbers.last().map_or(0, |last| last + 1)];
            for number in numbers {
                index[place][number] = held.len() as u32;
                held.push((place as PlaceId, number));
            }
        }
        for &(place, number) in &held {
            let begin = graph.arcs.len();
            for (step_index, step) in places.steps(place).iter().enumerate() {
                let to = step.to as usize;
                let walls = graph.walls_of(question, place, step_index);
                let like = alike.of_step[place as usize][step_index];
                for (after, &node) in index[to].iter().enumerate().filter(|&(_, &node)| node != u32::MAX) {
                    let stages_after = match counting {
                        Counting::Exact if (after + 1).min(counts.saturated) != number => continue,
                        Counting::Exact => after,
                        Counting::Fewest => counts.extremes[to].0 as usize,
                        Counting::Most => (counts.extremes[to].1 as usize).min(layers.saturating_sub(1)),
                    };
                    graph.arcs.push(Arc {
                        to: node,
                        step: step_index as u32,
                        like,
                        in_flight: question.in_flight(stages_after),
                        walls,
                    });
                }
            }
            graph.nodes.push(Node { place, arcs: begin..graph.arcs.len() });
        }
        let fewest = *question.stages.start();
        graph.starts = index.first().map_or_else(Vec::new, |starts| {
            let starts = starts.iter().enumerate().filter(|&(_, &node)| node != u32::MAX);
            let enough =
                |number: usize| counting != Counting::Exact || number >= fewest.min(counts.saturated);
            starts.filter(|&(number, _)| enough(number)).map(|(_, &node)| node).collect()
        });
        graph.end = index.last().and_then(|end| end.first()).copied().filter(|&node| node != u32::MAX);
        graph
    }

    /// Where stages on a step's devices must end, as an index of [`Graph::walls`].
    fn walls_of<C: StageCosts>(&mut self, question: &Question<'_, C>, place: PlaceId, step: usize) -> u32 {
        let walls = question.walls(place, step);
        let known = self.walls.iter().position(|known| *known == walls);
        known.unwrap_or_else(|| {
            self.walls.push(walls);
            self.walls.len() - 1
        }) as u32
    }
}
