//! What a stage holds and how long it takes, block by block: what actions are decided on.

use loadmaster_proto::training::actions::Block;

use loadmaster_simulate::copies::LayerSeconds;

/// A layer of a stage. Bytes are those of one of its devices.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LayerBlocks {
    /// How long it takes.
    pub seconds: LayerSeconds,
    /// What a micro-batch leaves for its backward pass.
    pub activations: u64,
    /// What is left of that when the layer is recomputed: its input.
    pub input: u64,
    /// The weights that a micro-batch went forward with, where each in flight keeps its own (PipeDream); else 0.
    pub versions: u64,
    /// Its parameters, with master weights.
    pub weights: u64,
    /// The gradients of these.
    pub gradients: u64,
    /// The optimizer's state of these.
    pub optimizer: u64,
    /// What its backward pass needs on top when the layer has been recomputed.
    pub working: u64,
}

/// The layers of a stage.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StageBlocks {
    /// Index of its first layer in the model.
    pub first_layer: usize,
    /// Its layers, in order.
    pub layers: Vec<LayerBlocks>,
    /// What its device holds besides, all the time.
    pub fixed: u64,
}

impl LayerBlocks {
    /// Bytes of a block: of one micro-batch where there is one of each.
    pub fn bytes(&self, block: Block) -> u64 {
        match block {
            Block::Activations => self.activations,
            Block::Inputs => self.input,
            Block::Versions => self.versions,
            Block::Weights => self.weights,
            Block::Gradients => self.gradients,
            Block::Optimizer => self.optimizer,
        }
    }

    /// What it holds of no micro-batch.
    pub fn lasting(&self) -> u64 {
        self.weights.saturating_add(self.gradients).saturating_add(self.optimizer)
    }
}

impl StageBlocks {
    /// A layer, by its index in the model.
    pub fn layer(&self, layer: usize) -> Option<&LayerBlocks> {
        self.layers.get(layer.checked_sub(self.first_layer)?)
    }

    /// Bytes of a block of a layer; 0 of a layer that is not there.
    pub fn bytes(&self, layer: usize, block: Block) -> u64 {
        self.layer(layer).map_or(0, |of| of.bytes(block))
    }

    /// Indices of its layers in the model.
    pub fn range(&self) -> std::ops::RangeInclusive<usize> {
        self.first_layer..=(self.first_layer + self.layers.len()).saturating_sub(1)
    }
}
