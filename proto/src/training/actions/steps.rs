//! The steps of a stage in an iteration, layer by layer; the runs of layers that are recomputed together; and an index of the
//! steps.

use std::ops::RangeInclusive;

use super::{Optimization, StageActions};
use crate::model::Model;
use crate::training::chunk_order::ChunkOrder;
use crate::training::schedule::Pass;
use crate::training::stage::StageConfig;
use crate::training::{RecomputePolicy, TrainingSpec};

/// One pass of one layer, or its update.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// The forward pass of a micro-batch through a layer.
    Forward {
        /// Micro-batch within the iteration.
        micro_batch: u32,
        /// Index in the model.
        layer: usize,
    },
    /// The same once more, where the backward pass of its run begins.
    Again {
        /// Micro-batch within the iteration.
        micro_batch: u32,
        /// Index in the model.
        layer: usize,
    },
    /// The backward pass of a micro-batch through a layer.
    Backward {
        /// Micro-batch within the iteration.
        micro_batch: u32,
        /// Index in the model.
        layer: usize,
    },
    /// The weights get memory of their own for the next update, and those so far stay with the micro-batch that went forward
    /// with them last (PipeDream). Only where others are in flight meanwhile.
    Renew,
    /// Gradients are added up among replicas, and among both ends of a tied weight. Only where there are any.
    Exchange,
    /// The optimizer updates a layer.
    Update {
        /// Index in the model.
        layer: usize,
    },
}

/// The steps of a stage in one iteration. Handing over what leaves a stage belongs to the step that computed it, waiting
/// for what enters it to the first step of the pass that takes it.
///
/// Under PipeDream nothing is flushed, and what is done with every micro-batch is a *turn*: one goes forward, an earlier one
/// backward, and the weights are updated. Steps are then those of as many turns as micro-batches are in flight, after which
/// they restart; number n of the training is micro-batch `n mod in_flight` of them. What fills the pipeline are turns
/// that only go forward.
///
/// ```
/// use loadmaster_proto::training::actions::{Step, StageActions, Steps};
/// use loadmaster_proto::training::schedule::Pass;
///
/// let passes = [Pass::Forward(0), Pass::Backward(0)];
/// let runs = StageActions::default().runs(3..=4, Default::default(), 0);
/// let steps = Steps::of(&passes, 3..=4, &[runs], false);
/// assert_eq!(
///     steps.all(),
///     [
///         Step::Forward { micro_batch: 0, layer: 3 },
///         Step::Forward { micro_batch: 0, layer: 4 },
///         Step::Backward { micro_batch: 0, layer: 4 },
///         Step::Backward { micro_batch: 0, layer: 3 },
///         Step::Update { layer: 3 },
///         Step::Update { layer: 4 },
///     ]
/// );
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Steps {
    all: Vec<Step>,
    at: Positions,
    runs: Vec<Vec<Run>>,
    /// How many turns there are; none of a stage that flushes.
    turns: Option<u32>,
}

impl Steps {
    /// The steps of these passes of a stage; `runs` are those of each slot in order, at least one.
    pub fn of(passes: &[Pass], layers: RangeInclusive<usize>, runs: &[Vec<Run>], exchanges: bool) -> Self {
        let mut all = Vec::new();
        passes.iter().for_each(|&pass| add_pass(&mut all, pass, &layers, runs));
        add_updates(&mut all, &layers, exchanges);
        let at = Positions::of(&all, &layers);
        Self { all, at, runs: runs.to_vec(), turns: None }
    }

    /// The steps of a stage that never flushes: as many turns as `runs` has slots, one of each micro-batch in flight.
    ///
    /// ```
    /// use loadmaster_proto::training::actions::{Step, StageActions, Steps};
    ///
    /// let runs = StageActions::default().runs(3..=3, Default::default(), 0);
    /// let steps = Steps::endless(3..=3, &[runs.clone(), runs], false);
    /// let turn = |forward, backward| {
    ///     let forward = Step::Forward { micro_batch: forward, layer: 3 };
    ///     [forward, Step::Backward { micro_batch: backward, layer: 3 }, Step::Renew, Step::Update { layer: 3 }]
    /// };
    /// assert_eq!(steps.all(), [turn(1, 0), turn(0, 1)].concat());
    /// assert_eq!(steps.index_within(Step::Renew, 5), Some(6));
    /// ```
    pub fn endless(layers: RangeInclusive<usize>, runs: &[Vec<Run>], exchanges: bool) -> Self {
        let turns = u32::try_from(runs.len()).unwrap_or(u32::MAX).max(1);
        let mut all = Vec::new();
        for turn in 0..turns {
            // A stage of k micro-batches in flight is always k − 1 forward passes ahead.
            for pass in [Pass::Forward((turn + turns - 1) % turns), Pass::Backward(turn)] {
                add_pass(&mut all, pass, &layers, runs);
            }
            if turns > 1 {
                all.push(Step::Renew);
            }
            add_updates(&mut all, &layers, exchanges);
        }
        let at = Positions::of(&all, &layers);
        Self { all, at, runs: runs.to_vec(), turns: Some(turns) }
    }

    /// The steps of stage `index` of `count` under a plan's settings. `exchanges` says whether its gradients are added up
    /// with those of others.
    pub fn of_stage(
        training: &TrainingSpec,
        stage: &StageConfig,
        (index, count): (u32, u32),
        actions: &StageActions,
        exchanges: bool,
    ) -> Self {
        let TrainingSpec { schedule, micro_batches, recompute, .. } = *training;
        let in_flight = schedule.in_flight(count, index, micro_batches).max(1);
        let runs: Vec<Vec<Run>> =
            (0..in_flight).map(|slot| actions.runs(stage.layers(), recompute, slot)).collect();
        if schedule.updates_always() {
            return Self::endless(stage.layers(), &runs, exchanges);
        }
        let passes = schedule.passes(count, index, micro_batches);
        Self::of(&passes, stage.layers(), &runs, exchanges)
    }

    /// The steps of a whole model on one device that is trained in chunks: every layer is a run by itself, so that nothing
    /// needs to come or leave within a pass. Chunks are updated beside them, not in steps.
    ///
    /// ```
    /// use loadmaster_proto::training::chunk_order::ChunkOrder;
    /// use loadmaster_proto::training::actions::{Step, Steps};
    /// use loadmaster_proto::training::{Optimizer, Precision, RecomputePolicy, Schedule, TrainingSpec};
    ///
    /// let training = TrainingSpec {
    ///     precision: Precision::Bf16,
    ///     optimizer: Optimizer::default(),
    ///     schedule: Schedule::Gpipe,
    ///     micro_batch_size: 8,
    ///     micro_batches: 2,
    ///     recompute: RecomputePolicy::None,
    ///     seed: 0,
    /// };
    /// let steps = Steps::of_chunks(&training, 2, ChunkOrder::Layer);
    /// let layers = |step: &Step| match *step {
    ///     Step::Forward { micro_batch, layer } => ("forward", layer, micro_batch),
    ///     Step::Backward { micro_batch, layer } => ("backward", layer, micro_batch),
    ///     _ => unreachable!("nothing is recomputed"),
    /// };
    /// let (forward, backward) = steps.all().split_at(4);
    /// let forward: Vec<_> = forward.iter().map(layers).collect();
    /// assert_eq!(forward, [("forward", 0, 0), ("forward", 0, 1), ("forward", 1, 0), ("forward", 1, 1)]);
    /// assert!(backward.iter().map(layers).is_sorted_by_key(|(_, layer, _)| std::cmp::Reverse(layer)));
    /// ```
    pub fn of_chunks(training: &TrainingSpec, layers: usize, order: ChunkOrder) -> Self {
        let TrainingSpec { schedule, micro_batches, recompute, .. } = *training;
        let layers = 0..=layers.saturating_sub(1);
        let passes = schedule.passes(1, 0, micro_batches);
        let is_recomputed = recompute != RecomputePolicy::None;
        let runs: Vec<Run> =
            layers.clone().map(|layer| Run { layers: layer..=layer, is_recomputed }).collect();
        let in_flight = match order {
            ChunkOrder::MicroBatch => schedule.in_flight(1, 0, micro_batches),
            ChunkOrder::Layer => micro_batches,
        };
        let runs = vec![runs; in_flight.max(1) as usize];
        let mut all = Vec::new();
        match order {
            ChunkOrder::MicroBatch => {
                passes.iter().for_each(|&pass| add_pass(&mut all, pass, &layers, &runs))
            }
            ChunkOrder::Layer => {
                let (forward, backward): (Vec<Pass>, Vec<Pass>) =
                    passes.into_iter().partition(|pass| matches!(pass, Pass::Forward(_)));
                let upwards = layers.clone().map(|layer| (layer, &forward));
                for (layer, passes) in upwards.chain(layers.clone().rev().map(|layer| (layer, &backward))) {
                    let run = [vec![Run { layers: layer..=layer, is_recomputed }]];
                    passes.iter().for_each(|&pass| add_pass(&mut all, pass, &(layer..=layer), &run));
                }
            }
        }
        let at = Positions::of(&all, &layers);
        Self { all, at, runs, turns: None }
    }

    /// Whether a stage's gradients are added up with those of others: of replicas, or of the other end of a tied weight.
    /// Where the model is not known, no weight is tied.
    pub fn exchanges(model: Option<&Model>, stage: &StageConfig) -> bool {
        let has_one_end =
            |model: &Model| (stage.first_layer == 0) != (stage.last_layer + 1 == model.layers().len());
        stage.data_degree > 1 || model.is_some_and(|model| has_one_end(model) && model.has_tied_head())
    }

    /// All of them in order.
    pub fn all(&self) -> &[Step] {
        &self.all
    }

    /// Which one it is; of those that every turn has, the first.
    pub fn index(&self, step: Step) -> Option<usize> {
        self.at.get(step)
    }

    /// Which one it is; of those that every turn has, that of the turn in which another step is.
    pub fn index_within(&self, step: Step, turn_of: usize) -> Option<usize> {
        let first = self.at.get(step)?;
        Some(match (step, self.turn()) {
            (Step::Renew | Step::Exchange | Step::Update { .. }, Some(turn)) => {
                turn_of / turn.max(1) * turn + first
            }
            _ => first,
        })
    }

    /// How many steps a turn has; none of a stage that flushes.
    pub fn turn(&self) -> Option<usize> {
        self.turns.map(|turns| self.all.len() / turns.max(1) as usize)
    }

    /// How many micro-batches there are: above the highest number of one.
    pub(super) fn micro_batches(&self) -> u32 {
        self.at.micro_batches()
    }

    /// Slots of micro-batches in flight.
    pub fn slots(&self) -> u32 {
        u32::try_from(self.runs.len()).unwrap_or(u32::MAX).max(1)
    }

    /// The slot of a micro-batch.
    pub fn slot(&self, micro_batch: u32) -> u32 {
        micro_batch % self.slots()
    }

    /// The runs of a slot, in order.
    pub fn runs(&self, slot: u32) -> &[Run] {
        self.runs.get(slot as usize).map_or(&[], Vec::as_slice)
    }

    /// The run that a layer is in, for a slot.
    pub fn run(&self, layer: usize, slot: u32) -> Option<&Run> {
        let runs = self.runs(slot);
        // They follow each other.
        let run = runs.get(runs.partition_point(|run| *run.layers.end() < layer));
        run.filter(|run| run.layers.contains(&layer))
    }
}

fn add_pass(all: &mut Vec<Step>, pass: Pass, layers: &RangeInclusive<usize>, runs: &[Vec<Run>]) {
    match pass {
        Pass::Forward(micro_batch) => {
            all.extend(layers.clone().map(|layer| Step::Forward { micro_batch, layer }));
        }
        Pass::Backward(micro_batch) => {
            let slot = micro_batch as usize % runs.len().max(1);
            for Run { layers, is_recomputed } in runs.get(slot).into_iter().flatten().rev() {
                if *is_recomputed {
                    all.extend(layers.clone().map(|layer| Step::Again { micro_batch, layer }));
                }
                all.extend(layers.clone().rev().map(|layer| Step::Backward { micro_batch, layer }));
            }
        }
    }
}

fn add_updates(all: &mut Vec<Step>, layers: &RangeInclusive<usize>, exchanges: bool) {
    if exchanges {
        all.push(Step::Exchange);
    }
    all.extend(layers.clone().map(|layer| Step::Update { layer }));
}

/// Where each step is, the first of those that every turn has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Positions {
    first_layer: usize,
    layers: usize,
    /// The exchange, the renewal, the updates of all layers, and the passes of one micro-batch after another: of each layer forward,
    /// once more and backward.
    at: Vec<Option<usize>>,
}

impl Positions {
    /// Those of all steps of a stage of these layers.
    pub(super) fn of(all: &[Step], layers: &RangeInclusive<usize>) -> Self {
        let (first_layer, layers) = (*layers.start(), layers.clone().count());
        let mut positions = Self { first_layer, layers, at: Vec::with_capacity(all.len() * 3 / 2) };
        for (position, &step) in all.iter().enumerate() {
            let Some(entry) = positions.entry(step) else { continue };
            if positions.at.len() <= entry {
                positions.at.resize(entry + 1, None);
            }
            positions.at[entry].get_or_insert(position);
        }
        positions
    }

    /// Where a step is; none of one that the stage does not do.
    pub(super) fn get(&self, step: Step) -> Option<usize> {
        self.at.get(self.entry(step)?).copied().flatten()
    }

    /// Above the highest number of a micro-batch that passes.
    pub(super) fn micro_batches(&self) -> u32 {
        let passes = self.at.len().saturating_sub(1 + self.layers);
        u32::try_from(passes.div_ceil((3 * self.layers).max(1))).unwrap_or(u32::MAX)
    }

    /// A step's place in the table; none of other stages' layers.
    fn entry(&self, step: Step) -> Option<usize> {
        let of_layer =
            |layer: usize| layer.checked_sub(self.first_layer).filter(|&layer| layer < self.layers);
        let (micro_batch, layer, which) = match step {
            Step::Exchange => return Some(0),
            Step::Renew => return Some(1),
            Step::Update { layer } => return Some(2 + of_layer(layer)?),
            Step::Forward { micro_batch, layer } => (micro_batch, layer, 0),
            Step::Again { micro_batch, layer } => (micro_batch, layer, 1),
            Step::Backward { micro_batch, layer } => (micro_batch, layer, 2),
        };
        let row = (micro_batch as usize).checked_mul(self.layers)?.checked_add(of_layer(layer)?)?;
        row.checked_mul(3)?.checked_add(2 + self.layers + which)
    }
}

/// Neighbouring layers of a stage that are kept, or recomputed, as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Its layers in the model.
    pub layers: RangeInclusive<usize>,
    /// Whether only its input is kept.
    pub is_recomputed: bool,
}

impl StageActions {
    /// The runs of the stage of these layers for the micro-batches in a slot, in order. Kept layers next to each other
    /// are one run.
    pub fn runs(&self, layers: RangeInclusive<usize>, policy: RecomputePolicy, slot: u32) -> Vec<Run> {
        match policy {
            RecomputePolicy::None => self.recomputed_for(layers, slot),
            RecomputePolicy::Stage => vec![Run { layers, is_recomputed: true }],
            RecomputePolicy::Layer => {
                layers.map(|layer| Run { layers: layer..=layer, is_recomputed: true }).collect()
            }
        }
    }

    fn recomputed_for(&self, layers: RangeInclusive<usize>, slot: u32) -> Vec<Run> {
        let is_run =
            |action: &&super::Action| action.optimization == Optimization::Recompute && action.is_for(slot);
        let mut recomputed: Vec<RangeInclusive<usize>> =
            self.actions.iter().filter(is_run).map(super::Action::layers).collect();
        recomputed.sort_by_key(|run| *run.start());
        let mut runs = Vec::with_capacity(2 * recomputed.len() + 1);
        let mut next = *layers.start();
        for run in recomputed {
            if next < *run.start() {
                runs.push(Run { layers: next..=run.start() - 1, is_recomputed: false });
            }
            next = run.end() + 1;
            runs.push(Run { layers: run, is_recomputed: true });
        }
        if next <= *layers.end() {
            runs.push(Run { layers: next..=*layers.end(), is_recomputed: false });
        }
        runs
    }
}
