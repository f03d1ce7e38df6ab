//! Bytes on a device of a stage in each step, computed from a layer table.
//!
//! A table does not record when a layer's memory is allocated and freed. So a micro-batch holds all that it keeps from its first step
//! to its last one, and every pass holds the largest transient bytes of the stage:
//!
//! ```text
//! static parts  weights, gradients, optimizer state, buffers of collectives, overhead
//! + kept        for each micro-batch in flight: activations of kept layers, inputs of recomputed runs
//! + recomputed  activations of the run that the running backward pass recomputes
//! + edges       the stage's input of each micro-batch in flight, and its output
//! + transient   the largest of the stage
//! - away        blocks that are offloaded to CPU memory, or swapped to a peer
//! ```
//!
//! A stage without memory optimizations thus has the peak of [`memory`], which a search compares it with. In the reserved and the
//! device memory accounting, the allocator is assumed to reuse the memory that a moved block freed. It keeps transient bytes between
//! passes, also while other virtual stages of the device run.

use std::collections::BTreeMap;

use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::training::actions::{Absence, Block, Part, Run, StageActions, Step, Steps};
use loadmaster_proto::training::boundaries::CycleBytes;

use super::level::LayerLevel;
use super::{NAME, TablePredictor, memory};
use crate::memory_optimizations::{in_places, seconds, stripes};
use crate::{
    ActionsPrediction, Away, Breakdown, MOST_BYTES, Prediction, PredictionError, Share, StageSetting,
    StepBytes,
};

/// A stage's layers and what its steps hold together.
struct TableStage<'a> {
    setting: &'a StageSetting,
    levels: Vec<LayerLevel>,
    /// Sums of the activations of the layers before each layer, and of all.
    activations: Vec<u64>,
    /// Whether the allocator keeps the transient bytes of a pass.
    keeps_transients: bool,
    steps: &'a Steps,
    /// The peak without memory optimizations, of which static parts, transient bytes and overhead are used.
    whole: Breakdown,
    /// The stage's output, on its way.
    output: u64,
}

impl TableStage<'_> {
    fn level(&self, layer: usize) -> Option<&LayerLevel> {
        self.levels.get(layer.checked_sub(self.setting.stage.first_layer)?)
    }

    /// Activations of all layers of a run.
    fn of_run(&self, run: &Run) -> u64 {
        let before = |layer: usize| {
            let position = layer.saturating_sub(self.setting.stage.first_layer);
            self.activations.get(position).or_else(|| self.activations.last()).copied().unwrap_or(0)
        };
        before(run.layers.end().saturating_add(1)).saturating_sub(before(*run.layers.start()))
    }

    /// What a micro-batch in a slot keeps between its passes: activations, and the stage's input.
    fn kept(&self, slot: u32) -> [u64; 2] {
        let first = self.setting.stage.first_layer;
        let runs = self.steps.runs(slot);
        let activations = runs.iter().fold(0, |sum: u64, run| {
            let own = match (run.is_recomputed, *run.layers.start()) {
                (false, start) if start == first => self.of_run(run),
                // Nobody else keeps the input of a run behind a recomputed one, whether its first layer's activations contain it or not.
                (false, start) => {
                    let first =
                        self.level(start).map_or(0, |level| level.input.saturating_sub(level.activation));
                    self.of_run(run).saturating_add(first)
                }
                // The stage's own input is at its edge.
                (true, start) if start == first => 0,
                (true, start) => self.level(start).map_or(0, |level| level.input),
            };
            sum.saturating_add(own)
        });
        // The model's own input is kept only where recomputation starts from it.
        let starts_again = runs.first().is_some_and(|run| run.is_recomputed);
        let input =
            if first > 0 || starts_again { self.levels.first().map_or(0, |level| level.input) } else { 0 };
        [activations, input]
    }

    /// Bytes of activations that are recomputed for the backward pass of a layer.
    fn again(&self, step: Step) -> u64 {
        match step {
            Step::Again { micro_batch, layer } | Step::Backward { micro_batch, layer } => {
                let run = self.steps.run(layer, self.steps.slot(micro_batch)).filter(|run| run.is_recomputed);
                run.map_or(0, |run| self.of_run(run))
            }
            Step::Forward { .. } | Step::Renew | Step::Exchange | Step::Update { .. } => 0,
        }
    }

    /// Bytes of a layer's block that are moved off the device.
    fn away(&self, absence: Absence, actions: &StageActions) -> Away {
        let bytes = match (self.level(absence.layer), absence.part) {
            (Some(level), Part::Own) => {
                let training = &self.setting.training;
                let scalars = memory::scalars(training, level.parameters);
                let stored = training.divided_bytes(scalars, self.setting.stage.optimizer_parts());
                match absence.block {
                    Block::Activations => level.activation,
                    Block::Inputs => level.input,
                    Block::Weights => stored.parameters,
                    Block::Gradients => stored.gradients,
                    Block::Optimizer => stored.optimizer,
                    Block::Versions => 0,
                }
            }
            // A tensor between two layers is in the bytes of the one that a table lists it for.
            (_, Part::Above) | (None, Part::Own) => 0,
        };
        Away::of(absence, &[bytes], stripes(actions, &absence))
    }

    /// The bytes of each step.
    fn curve(&self, away: &[Away]) -> Vec<StepBytes> {
        let all = self.steps.all();
        let gone = |blocks: &[Block]| {
            let mut gone = CycleBytes::new(all.len());
            let of_blocks = away.iter().filter(|away| blocks.contains(&away.absence.block));
            of_blocks.for_each(|away| gone.add(away.absence.at.away(), away.bytes));
            gone.sums()
        };
        let moved = [Block::Weights, Block::Gradients, Block::Optimizer].map(|block| gone(&[block]));
        let of_batches = gone(&[Block::Activations, Block::Inputs]);
        // From the first step of a micro-batch to its last one.
        let mut open: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
        for (index, step) in all.iter().enumerate() {
            if let Step::Forward { micro_batch, .. }
            | Step::Again { micro_batch, .. }
            | Step::Backward { micro_batch, .. } = *step
            {
                open.entry(micro_batch).and_modify(|(_, last)| *last = index).or_insert((index, index));
            }
        }
        // What it keeps in each step, and what is there at the boundary before it.
        let mut kept: [[CycleBytes; 2]; 2] =
            std::array::from_fn(|_| std::array::from_fn(|_| CycleBytes::new(all.len())));
        for (&micro_batch, &(first, last)) in &open {
            let bytes = self.kept(self.steps.slot(micro_batch));
            for (sums, from) in kept.iter_mut().zip([first, first + 1]) {
                sums.iter_mut().zip(bytes).for_each(|(sum, bytes)| sum.add(from..last + 1, bytes));
            }
        }
        let between = if self.keeps_transients { self.whole.transient } else { 0 };
        let [now, before] = kept.map(|sums| sums.map(|of| of.sums()));
        let of = |(index, &step): (usize, &Step)| {
            let held = |[activations, inputs]: &[Vec<u64>; 2], [again, output, transient]: [u64; 3]| {
                let part = |whole: u64, moved: &[u64]| whole.saturating_sub(moved[index]);
                let edges = inputs[index].saturating_add(output);
                // Moved bytes are subtracted from the activations first, then from the stage's input.
                let left = of_batches[index].saturating_sub(activations[index]);
                Breakdown {
                    weights: part(self.whole.weights, &moved[0]),
                    gradients: part(self.whole.gradients, &moved[1]),
                    optimizer: part(self.whole.optimizer, &moved[2]),
                    activations: part(activations[index], &of_batches).saturating_add(again).min(MOST_BYTES),
                    edges: edges.saturating_sub(left).min(MOST_BYTES),
                    transient,
                    ..self.whole
                }
            };
            let is_pass = !matches!(step, Step::Renew | Step::Exchange | Step::Update { .. });
            let output = if is_pass { self.output } else { 0 };
            let transient = if is_pass { self.whole.transient } else { between };
            StepBytes {
                at_boundary: held(&before, [0, 0, between]).total(),
                most: held(&now, [self.again(step), output, transient]),
            }
        };
        all.iter().enumerate().map(of).collect()
    }
}

/// Returns the predicted memory and time of each device of a stage with these memory optimizations.
///
/// # Errors
/// What the table lacks, and versions of weights, which no table contains.
pub(super) fn acted(
    table: &TablePredictor,
    setting: &StageSetting,
    actions: &StageActions,
    steps: Steps,
) -> Result<ActionsPrediction, PredictionError> {
    if setting.training.schedule.updates_always() {
        let why = "memory optimizations with the schedule pipedream need allocation traces, which a layer table does not contain. \
                   Use the schedule gpipe or 1f1b, or profile with `profiling_mode` PROFILING_MODE_PER_LAYER";
        return Err(PredictionError::NotProfiled(why.to_owned()));
    }
    if table.rows.recomputes() {
        let why = "memory optimizations and virtual pipeline stages need a layer table without recomputation, but \
                   layer_table.recompute is layer. Import a table without recomputation";
        return Err(PredictionError::NotProfiled(why.to_owned()));
    }
    let levels = table.levels_of(&setting.stage, Share::of(setting))?;
    let (whole, origin) = memory::breakdown(table, setting, &levels);
    let sends = setting.stage.last_layer + 1 < table.layers;
    let output = if sends { levels.last().map_or(0, |level| level.output) } else { 0 };
    let mut activations = vec![0_u64];
    for level in &levels {
        activations.push(activations.last().copied().unwrap_or(0).saturating_add(level.activation));
    }
    let keeps_transients = table.ledger != Accounting::Allocated;
    let held = TableStage { setting, levels, activations, keeps_transients, steps: &steps, whole, output };
    let away: Vec<Away> =
        actions.absences(&steps).into_iter().map(|absence| held.away(absence, actions)).collect();
    let curve = held.curve(&away);
    let most = curve.iter().map(|step| step.most).rev().max_by_key(Breakdown::total).unwrap_or(whole);
    let own: Option<Vec<_>> = held.levels.iter().map(|level| Some(level.seconds?.0)).collect();
    let prediction = Prediction {
        bytes: Bytes(most.total()),
        breakdown: Some(most),
        seconds: own.map(|own| seconds(&own, &steps, setting)),
        margin: Some(table.margin),
        seconds_margin: None,
        predictor: NAME,
        origin,
    };
    // What is moved may be more than the table says, and a pool must have room for it.
    let mut pools = in_places(&away, steps.all().len());
    for pool in &mut pools {
        pool.peak = pool.peak.saturating_add((pool.peak as f64 * table.margin).ceil() as u64);
    }
    Ok(ActionsPrediction::new(prediction, steps, curve, away, pools))
}
