//! Where each step of a stage is: a table, since searches ask for millions of them.

use std::ops::RangeInclusive;

use super::Step;

/// Where each step is, the first of those that every turn has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Positions {
    first_layer: usize,
    layers: usize,
    /// The exchange, the renewal, the updates of all layers, and the passes of one micro-batch after another: of each layer forward,
    /// again and backward.
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
