//! The layers of a micro-batch: which of them are away, and what it needs at most above what it keeps.

use crate::actions::LayerBlocks;

/// Layers, some of which are `away` between their passes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limited<'a> {
    pub(super) layers: &'a [LayerBlocks],
    pub(super) away: &'a [bool],
    /// No choice keeps more.
    pub(super) bytes: u64,
}

impl Limited<'_> {
    pub(super) fn is_away(&self, layer: usize) -> bool {
        self.away.get(layer).copied().unwrap_or(false)
    }

    /// What any run below a position needs at most, and what each layer alone does.
    pub(super) fn needs(&self, position: usize) -> (u64, u64) {
        let (mut below, mut most, mut alone) = (0_u64, 0, 0);
        for (index, layer) in self.layers.iter().enumerate().take(position) {
            let working = if self.is_away(index) { 0 } else { layer.working };
            below = below.saturating_add(layer.activations);
            most = most.max(below.saturating_add(working));
            alone = alone.max(layer.activations.saturating_add(working));
        }
        (most, alone)
    }

    /// The input of all layers but the lowest, where they are as large.
    pub(super) fn even_input(&self) -> Option<u64> {
        let mut inputs = self.layers.iter().skip(1).map(|layer| layer.input);
        let input = inputs.next().unwrap_or(0);
        inputs.all(|other| other == input).then_some(input)
    }

    /// The most that any choice needs above what it keeps, and the most of single layers.
    pub(super) fn most(&self) -> (u64, u64) {
        self.needs(self.layers.len())
    }
}
