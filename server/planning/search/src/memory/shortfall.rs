//! Why nothing fits, in the smallest terms that help.

use loadmaster_proto::bytes::Bytes;

use super::super::{Assignment, Cuts, PlacedStage, Question, StageCosts, Stop};
use super::Peaks;
use super::bits::Bits;
use super::classes::{ClassGraph, classed};
use super::costs::{Costs, Measure, NONE};
use super::effort::{MemoryEffort, SizeLimits, Stopped};
use super::exact;
use super::reach::Reachable;

/// Why no plan fits.
#[derive(Debug, Clone, PartialEq)]
pub enum Shortfall {
    /// There is no plan, however much memory the devices had.
    NoPlan(Obstacle),
    /// No plan fits.
    Plan {
        /// A layer that fits nowhere, neither alone nor in any other stage of any plan; none where each fits
        /// somewhere, but they do not fit all at once. Of several such layers the one that lacks most where it
        /// lacks least. Not said of layers that no plan has in a stage of their own.
        layer: Option<usize>,
        /// The best attempt: the plan whose devices lack least (leximax over the bytes that they lack).
        best: Assignment<Peaks>,
        /// The stage that lacks most in it, the first of several: no plan's device with the highest peak lacks less.
        shortage: Shortage,
    },
}

/// A stage that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortage {
    pub stage: PlacedStage,
    /// Bytes that each of its devices must hold, the margin of the prediction included.
    pub needed: Bytes,
    /// Bytes that the smallest of them allows.
    pub capacity: Bytes,
}

impl Shortage {
    /// Bytes that are missing on each device.
    pub fn missing(&self) -> Bytes {
        Bytes(self.needed.0.saturating_sub(self.capacity.0))
    }
}

/// What rules every plan out, the first of these that does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle {
    /// Stages that may be so large do not fill all devices, as many as there may be, with a layer in each.
    Devices,
    /// They do, but not with these cuts.
    Cuts,
    /// They do, but not with the pinned layers where they have to be.
    Pins,
    /// They do, but each plan has a stage for which the costs know no way to run it.
    Costs,
}

/// Says why no plan of the question fits; none where one does, when stopped, or where the question is too large to
/// tell.
pub fn explain<C: StageCosts>(question: &Question<'_, C>, stop: &Stop) -> Option<Shortfall> {
    let question = Question { within_capacity: true, stages: question.stages.clone(), ..*question };
    let mut effort = MemoryEffort::new(stop, SizeLimits::USUAL);
    let (graph, classes) = classed(&question, &effort).ok()?;
    let costs = Costs::ask(&question, &graph, &classes, Measure::Lack, &effort).ok()?;
    let reach = Reachable::of(&graph, &costs, NONE - 1, None, &mut effort).ok()?;
    if !reach.is_open(&graph) {
        return obstacle(&question, stop).map(Shortfall::NoPlan);
    }
    let lacks = Lacks { graph: &graph, classes: classes.len(), costs: &costs, reach: &reach };
    let layer = lacks.largest_layer(&mut effort).ok()?;
    let best = exact::leximax(&question, Measure::Lack, stop, SizeLimits::USUAL).ok()?.best?;
    let count = best.stages.len();
    let shortages = best.stages.iter().enumerate().filter_map(|(index, &stage)| {
        let step = question.places.steps(stage.from).get(stage.step)?;
        let at = question.stage_at(step, stage.first, stage.last, stage.choice);
        let needed = Bytes(question.costs.peak(&at, question.in_flight(count - 1 - index))?.needed);
        Some(Shortage { stage, needed, capacity: question.fleet.capacity(step.kinds) })
    });
    // The last of several maxima is the one that is returned.
    let shortage = shortages.rev().max_by_key(Shortage::missing).filter(|most| most.missing().0 > 0)?;
    Some(Shortfall::Plan { layer, best, shortage })
}

/// What rules every plan out; none when stopped.
fn obstacle<C: StageCosts>(question: &Question<'_, C>, stop: &Stop) -> Option<Obstacle> {
    let is_possible = |cuts: &Cuts| {
        let question = Question { cuts, stages: question.stages.clone(), ..*question };
        let mut effort = MemoryEffort::new(stop, SizeLimits::USUAL);
        let (graph, classes) = classed(&question, &effort).ok()?;
        let costs = Costs::ask(&question, &graph, &classes, Measure::Nothing, &effort).ok()?;
        Some(Reachable::of(&graph, &costs, NONE - 1, None, &mut effort).ok()?.is_open(&graph))
    };
    Some(match () {
        () if !is_possible(&Cuts::anywhere(question.costs.layers()))? => Obstacle::Devices,
        () if !is_possible(&question.cuts.without_pins())? => Obstacle::Cuts,
        () if !is_possible(question.cuts)? => Obstacle::Pins,
        () => Obstacle::Costs,
    })
}

struct Lacks<'a> {
    graph: &'a ClassGraph,
    classes: usize,
    costs: &'a Costs,
    reach: &'a Reachable,
}

impl Lacks<'_> {
    /// The layer that lacks most bytes where it lacks least, if there is one that fits nowhere.
    ///
    /// Costs need not grow with the stage (a layer alone keeps its own input, which may be larger than its
    /// stage's), so "fits nowhere" means: in no stage of any plan that contains it.
    fn largest_layer(&self, effort: &mut MemoryEffort<'_>) -> Result<Option<usize>, Stopped> {
        let layers = self.graph.layers;
        let met = self.reach.met(self.graph, effort)?;
        let stages = self.stages(&met);
        let mut least: Vec<Option<u64>> = vec![None; layers];
        let mut can_be_alone = vec![false; layers];
        for class in 0..self.classes {
            for (first, is_alone) in can_be_alone.iter_mut().enumerate() {
                let ends: Vec<usize> = Bits::ones(stages.row(class * layers + first)).collect();
                *is_alone |= ends.first() == Some(&(first + 1));
                // Going down, `best` is the best of the stages that reach a layer or farther: all hold it.
                let mut best: Option<u64> = None;
                let mut ends = ends.into_iter().rev().peekable();
                let farthest = ends.peek().copied().unwrap_or(first);
                for layer in (first..farthest).rev() {
                    if let Some(end) = ends.next_if_eq(&(layer + 1)) {
                        best = best.into_iter().chain([self.costs.get(class, first, end)]).min();
                    }
                    least[layer] = least[layer].into_iter().chain(best).min();
                }
            }
        }
        let nowhere = least.into_iter().enumerate().filter(|&(layer, _)| can_be_alone[layer]);
        let nowhere = nowhere.filter_map(|(layer, least)| Some((layer, least.filter(|&least| least > 0)?)));
        let largest = nowhere.max_by_key(|&(layer, least)| (least, std::cmp::Reverse(layer)));
        Ok(largest.map(|(layer, _)| layer))
    }

    /// The stages of all plans: ends by class and first layer.
    fn stages(&self, met: &Bits) -> Bits {
        let layers = self.graph.layers;
        let mut stages = Bits::new(self.classes * layers, layers + 1);
        for (index, node) in self.graph.nodes.iter().enumerate() {
            for arc in &self.graph.arcs[node.arcs.clone()] {
                let (class, open) = (arc.label.class(), self.reach.layers.row(arc.to as usize));
                for first in Bits::ones(met.row(index)) {
                    let row = class * layers + first;
                    stages.add_common(row, self.reach.within.row(row), open);
                }
            }
        }
        stages
    }
}
