//! When blocks are away.

use super::{Action, Block, Optimization, StageActions, Step, Steps, Swap};
use crate::error::Invalid;
use crate::training::boundaries::BoundaryInterval;

/// Which part of a layer's blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// All that the layer itself has done with when its step is over; of parameters, gradients and state all there is.
    Own,
    /// Its output, where the layer holds it and the one above does not: gone when that one has read it.
    Above,
}

/// A block that is away from its device from one boundary to another: it leaves behind a step, and is fetched for a later one.
/// Boundaries count from the start of an iteration; those at or behind the number of its steps are in the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Absence {
    /// When.
    pub at: BoundaryInterval,
    /// Which action, an index in [`StageActions::actions`].
    pub action: usize,
    /// Its layer, an index in the model.
    pub layer: usize,
    /// What it is.
    pub block: Block,
    /// Which part of it.
    pub part: Part,
    /// Of which micro-batch; none of blocks that all of them share.
    pub micro_batch: Option<u32>,
}

/// From the step that leaves a block to the one that needs it next.
type Use = (usize, usize);

impl Absence {
    /// That of a swap's block between two of its uses: which action, layer, part and micro-batch it is. None where it would
    /// be fetched before it is gone.
    pub fn of(
        swap: &Swap,
        (left, needed): Use,
        (action, layer, part, micro_batch): (usize, usize, Part, Option<u32>),
    ) -> Option<Self> {
        let [after, before] = [swap.release_after, swap.fetch_before].map(|steps| steps as usize);
        let (leaves, fetched) = (left + 1, needed.saturating_sub(before));
        let freed = leaves.saturating_add(after);
        let at = BoundaryInterval { fetched, needed, leaves, freed };
        (freed < fetched).then_some(Self { at, action, layer, block: swap.block, part, micro_batch })
    }
}

impl StageActions {
    /// All absences of an iteration, in the order in which blocks leave; those that would save nothing are none. A part
    /// that a layer turns out not to hold is away with no bytes.
    pub fn absences(&self, steps: &Steps) -> Vec<Absence> {
        let mut all = Vec::new();
        for (index, action) in self.actions.iter().enumerate() {
            let Optimization::Swap(swap) = &action.optimization else { continue };
            for layer in action.layers() {
                let mut away = |part, micro_batch, of| {
                    all.extend(Absence::of(swap, of, (index, layer, part, micro_batch)))
                };
                if swap.block.is_of_micro_batch() {
                    for (micro_batch, part, of) in uses_of_micro_batches(steps, layer, action, swap.block) {
                        away(part, Some(micro_batch), of);
                    }
                } else {
                    uses(steps, layer, swap.block).into_iter().for_each(|of| away(Part::Own, None, of));
                }
            }
        }
        in_order(all)
    }

    /// Checks that each swap has something away: that not all of its blocks would be fetched before they are gone, and stay.
    ///
    /// # Errors
    /// Names the field of the first action of which that is so, and how far its blocks' uses are apart.
    pub fn check_points(&self, steps: &Steps) -> Result<(), Invalid> {
        for (index, action) in self.actions.iter().enumerate() {
            let Optimization::Swap(swap) = &action.optimization else { continue };
            let away = |release_after, fetch_before| {
                let optimization = Optimization::Swap(Swap { release_after, fetch_before, ..swap.clone() });
                let alone = Action { optimization, ..action.clone() };
                Self { actions: vec![alone], ..Self::default() }.absences(steps)
            };
            let (after, before) = (swap.release_after, swap.fetch_before);
            if (after, before) == (0, 0) || !away(after, before).is_empty() {
                continue;
            }
            // Of blocks that have nothing between their uses there is nothing to be said.
            let Some(most) = away(0, 0).iter().map(|of| of.at.needed - of.at.leaves).max() else { continue };
            let why = format!(
                "{before} steps with a release delay of {after} steps is too much: every block is prefetched before \
                 its release, and stays on the device. Reduce the sum: at most {most} steps lie between two \
                 uses of a block"
            );
            let invalid = Invalid::field("swap.prefetch_distance_steps", why);
            return Err(invalid.of_entry(index).of_field("optimizations"));
        }
        Ok(())
    }
}

/// Sorted by boundary first: there are few of each, and moving them around is what sorting all of them takes.
fn in_order(all: Vec<Absence>) -> Vec<Absence> {
    let mut order: Vec<(usize, u32)> = (0..).zip(&all).map(|(index, of)| (of.at.leaves, index)).collect();
    let key = |index: u32| (all[index as usize].at.freed, all[index as usize]);
    order.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| key(a.1).cmp(&key(b.1))));
    order.into_iter().map(|(_, index)| all[index as usize]).collect()
}

fn uses_of_micro_batches(
    steps: &Steps,
    layer: usize,
    action: &Action,
    block: Block,
) -> Vec<(u32, Part, Use)> {
    let mut found = Vec::new();
    for micro_batch in (0..steps.micro_batches()).filter(|&of| action.is_for(steps.slot(of))) {
        let step = Step::Forward { micro_batch, layer };
        let Some(run) = steps.run(layer, steps.slot(micro_batch)) else { continue };
        let forward = steps.index(step);
        // Without a flush it may come back when the steps restart.
        let later = |left: usize, at: usize| (left, if at > left { at } else { at + steps.all().len() });
        let needed = |step| Some(later(forward?, steps.index(step)?));
        match block {
            Block::Activations if !run.is_recomputed => {
                let backward = Step::Backward { micro_batch, layer };
                found.extend(needed(backward).map(|of| (micro_batch, Part::Own, of)));
                // What the stage hands over is its transport's.
                let reader = steps.index(Step::Forward { micro_batch, layer: layer + 1 });
                let above = reader.zip(steps.index(backward)).map(|(reader, at)| later(reader, at));
                found.extend(above.map(|of| (micro_batch, Part::Above, of)));
            }
            Block::Inputs if run.is_recomputed && *run.layers.start() == layer => {
                let again = needed(Step::Again { micro_batch, layer });
                found.extend(again.map(|of| (micro_batch, Part::Own, of)));
            }
            Block::Versions => {
                let step = if run.is_recomputed {
                    Step::Again { micro_batch, layer }
                } else {
                    Step::Backward { micro_batch, layer }
                };
                let renewed = forward.and_then(|forward| steps.index_within(Step::Renew, forward));
                let of = renewed.zip(steps.index(step)).map(|(left, at)| later(left, at));
                found.extend(of.map(|of| (micro_batch, Part::Own, of)));
            }
            _ => {}
        }
    }
    found
}

/// Uses of what all micro-batches share, the last one of an iteration up to the first of the next where it lives on.
fn uses(steps: &Steps, layer: usize, block: Block) -> Vec<Use> {
    let is_use = |step: &Step| match *step {
        Step::Forward { layer: of, .. } | Step::Again { layer: of, .. } => {
            block == Block::Weights && of == layer
        }
        Step::Backward { layer: of, .. } => matches!(block, Block::Weights | Block::Gradients) && of == layer,
        Step::Renew => false,
        Step::Exchange => block == Block::Gradients,
        Step::Update { layer: of } => of == layer,
    };
    let at: Vec<usize> =
        steps.all().iter().enumerate().filter(|(_, step)| is_use(step)).map(|(index, _)| index).collect();
    let mut uses: Vec<Use> = at.windows(2).map(|pair| (pair[0], pair[1])).collect();
    if let (Some(first), Some(&last)) = (at.first(), at.last())
        // Gradients are forgotten with the last update.
        && block != Block::Gradients
    {
        uses.push((last, first + steps.all().len()));
    }
    uses
}
