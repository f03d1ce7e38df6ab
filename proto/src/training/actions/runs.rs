//! Which layers of a stage are computed again together, and which are kept.

use std::ops::RangeInclusive;

use super::{Deed, StageActions};
use crate::training::RecomputePolicy;

/// Neighbouring layers of a stage that are kept, or computed again, as a whole.
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
        let is_run = |action: &&super::Action| action.deed == Deed::Recompute && action.is_for(slot);
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
