//! Where each step of a stage is: a table, since searches ask for millions of them.

use std::ops::RangeInclusive;

use super::Step;

/// Where each step is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Positions {
    first_layer: usize,
    layers: usize,
    /// Of the passes of each micro-batch, layer by layer: forward, again, backward.
    passes: Vec<Option<usize>>,
    /// Of each layer.
    updates: Vec<Option<usize>>,
    exchange: Option<usize>,
}

impl Positions {
    /// Those of all steps of a stage of these layers.
    pub(super) fn of(all: &[Step], layers: &RangeInclusive<usize>) -> Self {
        let mut at = Self {
            first_layer: *layers.start(),
            layers: layers.clone().count(),
            passes: Vec::with_capacity(all.len() * 3 / 2),
            updates: Vec::new(),
            exchange: None,
        };
        at.updates.resize(at.layers, None);
        for (position, &step) in all.iter().enumerate() {
            if let Some(pass) = at.pass(step)
                && at.passes.len() <= pass
            {
                at.passes.resize(pass + 1, None);
            }
            if let Some(own) = at.of_step(step) {
                *own = Some(position);
            }
        }
        at
    }

    fn layer(&self, layer: usize) -> Option<usize> {
        layer.checked_sub(self.first_layer).filter(|&layer| layer < self.layers)
    }

    /// The place of a pass in the table; none of what is no pass.
    fn pass(&self, step: Step) -> Option<usize> {
        let (micro_batch, layer, which) = match step {
            Step::Forward { micro_batch, layer } => (micro_batch, layer, 0),
            Step::Again { micro_batch, layer } => (micro_batch, layer, 1),
            Step::Backward { micro_batch, layer } => (micro_batch, layer, 2),
            Step::Exchange | Step::Update { .. } => return None,
        };
        let row = (micro_batch as usize).checked_mul(self.layers)?.checked_add(self.layer(layer)?)?;
        row.checked_mul(3)?.checked_add(which)
    }

    fn of_step(&mut self, step: Step) -> Option<&mut Option<usize>> {
        match step {
            Step::Exchange => Some(&mut self.exchange),
            Step::Update { layer } => self.layer(layer).and_then(|layer| self.updates.get_mut(layer)),
            _ => self.pass(step).and_then(|pass| self.passes.get_mut(pass)),
        }
    }

    /// Where a step is; none of one that the stage does not do.
    pub(super) fn get(&self, step: Step) -> Option<usize> {
        match step {
            Step::Exchange => self.exchange,
            Step::Update { layer } => self.updates.get(self.layer(layer)?).copied().flatten(),
            _ => self.passes.get(self.pass(step)?).copied().flatten(),
        }
    }
}
