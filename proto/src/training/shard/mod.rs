//! Trained tensors of each device of a stage.
//!
//! Every replica holds all of them. The shards of a tensor-parallel stage split them as follows:
//!
//! * attention and MLP in Megatron's two ways: the first map by its outputs, the second by its inputs;
//! * embedding and head by the vocabulary;
//! * plain linear maps and convolutions by their outputs.
//!
//! Small tensors (normalizations, positions, biases that are added to a sum) are on every shard.
//!
//! Devices of a stage are numbered as in Megatron-LM, the shard varying fastest. A rank belongs to two groups: the shards of its
//! own replica, and the ranks that hold the same tensors in other replicas.

use std::ops::Range;

use crate::error::Invalid;
use crate::model::Model;
use crate::model::layer::{Buffer, LayerKind, Parameter, Shape, elements};
use crate::training::sharding::scalars_of_part;
use crate::training::stage::StageConfig;
use crate::training::{StaticBytes, TrainingSpec};

/// One of the shards into which a tensor-parallel stage splits its tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shard {
    /// Which, from 0.
    pub index: u32,
    /// Of how many.
    pub degree: u32,
}

impl Shard {
    /// All of it.
    pub const WHOLE: Self = Self { index: 0, degree: 1 };

    /// Its part of an axis: parts are in order and as even as possible, the first ones one longer.
    pub fn range(self, extent: i64) -> Range<i64> {
        let (index, degree) = (i64::from(self.index), i64::from(self.degree.max(1)));
        let (share, longer) = (extent / degree, extent % degree);
        let start = index * share + index.min(longer);
        start..start + share + i64::from(index < longer)
    }
}

/// A slice of a tensor along one axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    /// The axis.
    pub axis: usize,
    /// The parts of the axis that belong to it, put together in this order: several where the axis
    /// consists of blocks that are split one by one (queries, keys, values).
    pub ranges: Vec<Range<i64>>,
}

/// What a shard holds of a parameter.
#[derive(Debug, Clone, PartialEq)]
pub struct ShardParameter {
    /// The whole parameter.
    pub whole: Parameter,
    /// The shard's slice of it; none where every shard holds all.
    pub slice: Option<Slice>,
}

impl ShardParameter {
    /// The shape of what the shard holds.
    pub fn shape(&self) -> Shape {
        let mut shape = self.whole.shape.clone();
        if let Some(slice) = &self.slice
            && let Some(extent) = shape.get_mut(slice.axis)
        {
            *extent = slice.ranges.iter().map(|range| range.end - range.start).sum();
        }
        shape
    }

    /// Scalars that the shard holds.
    pub fn elements(&self) -> u64 {
        elements(&self.shape())
    }
}

/// How the shards split a parameter: one axis, made of blocks of these lengths.
struct Split {
    axis: usize,
    blocks: Vec<i64>,
}

impl LayerKind {
    /// What a shard holds of [`Self::parameters`], in the same order.
    pub fn shard_parameters(&self, shard: Shard) -> Vec<ShardParameter> {
        let slices = |parameter| slice(self, parameter, shard);
        self.parameters().into_iter().map(slices).collect()
    }

    /// What a shard of the last stage holds of [`Self::shared_parameter`].
    pub fn shard_shared_parameter(&self, shard: Shard) -> Option<ShardParameter> {
        self.shared_parameter().map(|parameter| slice(self, parameter, shard))
    }

    /// Whether a tensor-parallel stage of this degree can hold the layer.
    ///
    /// # Errors
    /// Names the hyper-parameter that the degree does not divide, or that is too small for it.
    pub fn check_tensor_degree(&self, degree: u32) -> Result<(), Invalid> {
        let Self::TransformerBlock(block) = self else { return Ok(()) };
        let (degree, feed_forward_size) = (i64::from(degree), block.feed_forward_size);
        for (field, count) in [("heads", block.heads), ("key_value_heads", block.key_value_heads())] {
            if count % degree != 0 {
                return Err(Invalid::field(
                    field,
                    format!(
                        "{count} is not a multiple of the tensor-parallel size {degree}. Heads cannot be split: use a \
                         divisor of {count}"
                    ),
                ));
            }
        }
        if feed_forward_size < degree {
            return Err(Invalid::field(
                "feed_forward_size",
                format!(
                    "{feed_forward_size} is less than the tensor-parallel size {degree}. Use a smaller tensor-parallel \
                     size"
                ),
            ));
        }
        Ok(())
    }

    fn split(&self, parameter: &Parameter) -> Option<Split> {
        let along = |axis: usize| {
            let extent = parameter.shape.get(axis).copied()?;
            Some(Split { axis, blocks: vec![extent] })
        };
        match self {
            Self::Conv2d { .. }
            | Self::Linear { .. }
            | Self::LanguageModelHead { .. }
            | Self::Pooler { .. }
            | Self::ImageClassifier { .. } => along(0),
            // Not what follows the map: normalisation and positions.
            Self::ReluConvBatchNorm { .. } | Self::AmoebaCell(_) if parameter.shape.len() == 4 => along(0),
            Self::LatentTokens { .. } if matches!(parameter.name, "weight" | "bias") => along(0),
            Self::TokenEmbedding(_) if parameter.name == "token" => along(0),
            Self::TransformerBlock(block) => match parameter.name {
                "attention.qkv.weight" | "attention.qkv.bias" => {
                    let (queries, keys) = (block.query_size(), block.key_value_size());
                    Some(Split { axis: 0, blocks: vec![queries, keys, keys] })
                }
                "attention.query.weight"
                | "attention.query.bias"
                | "attention.key.weight"
                | "attention.key.bias"
                | "attention.value.weight"
                | "attention.value.bias"
                | "mlp.gate.weight"
                | "mlp.gate.bias"
                | "mlp.in.weight"
                | "mlp.in.bias" => along(0),
                "attention.out.weight" | "mlp.out.weight" => along(1),
                _ => None,
            },
            _ => None,
        }
    }
}

/// An axis that is shorter than the degree is not split: every shard would compute nearly all of it anyway.
fn slice(kind: &LayerKind, whole: Parameter, shard: Shard) -> ShardParameter {
    let split = kind
        .split(&whole)
        .filter(|split| shard.degree > 1 && split.blocks.iter().all(|&block| is_split(block, shard.degree)));
    let slice = split.map(|Split { axis, blocks }| {
        let mut start = 0;
        let ranges = blocks
            .into_iter()
            .map(|block| {
                let part = shard.range(block);
                let range = start + part.start..start + part.end;
                start += block;
                range
            })
            .collect();
        Slice { axis, ranges }
    });
    ShardParameter { whole, slice }
}

/// Whether an axis of this extent is split over `degree` shards.
pub fn is_split(extent: i64, degree: u32) -> bool {
    degree > 1 && extent >= i64::from(degree)
}

impl StageConfig {
    /// The shard of its layers' tensors that its device number `index` holds.
    pub fn shard(&self, index: u32) -> Shard {
        let degree = self.tensor_degree.max(1);
        Shard { index: index % degree, degree }
    }

    /// The part of each of its tensors that its device number `index` updates.
    pub fn updated(&self, index: u32) -> Shard {
        match self.optimizer_parts() {
            1 => Shard::WHOLE,
            degree => Shard { index: self.replica(index), degree },
        }
    }
}

impl Model {
    /// What device number `index` of a stage holds, in the order of the layers. The copy of a tied
    /// weight counts only where the embedding is not in the stage.
    pub fn rank_parameters(&self, stage: &StageConfig, index: u32) -> Vec<ShardParameter> {
        self.rank_layers(stage, index).flatten().collect()
    }

    /// The same, layer by layer; the copy of a tied weight comes behind the last.
    pub fn rank_layers(&self, stage: &StageConfig, index: u32) -> impl Iterator<Item = Vec<ShardParameter>> {
        let shard = stage.shard(index);
        let layers = self.layers().get(stage.first_layer..=stage.last_layer).unwrap_or_default();
        let is_apart = stage.first_layer > 0 && stage.last_layer + 1 == self.layers().len();
        let copy = layers.last().filter(|_| is_apart);
        let copy = copy.and_then(|layer| layer.kind.shard_shared_parameter(shard));
        layers.iter().map(move |layer| layer.kind.shard_parameters(shard)).chain(copy.map(|copy| vec![copy]))
    }

    /// Bytes of parameters, gradients, optimizer state and buffers on device number `index` of a stage.
    /// None holds more than device 0.
    pub fn rank_static_bytes(&self, stage: &StageConfig, index: u32, training: &TrainingSpec) -> StaticBytes {
        let parameters = self.rank_parameters(stage, index);
        let sizes = || parameters.iter().map(ShardParameter::elements);
        let (scalars, updated) = (sizes().sum(), scalars_of_part(sizes(), stage.updated(index)));
        // Every shard holds all buffers: they belong to what is replicated.
        let buffers = self.stage_buffers(stage.first_layer, stage.last_layer);
        StaticBytes {
            buffers: training.buffer_bytes(buffers.iter().map(Buffer::elements).sum()),
            ..training.sharded_bytes(scalars, updated)
        }
    }

    /// Whether this model can be trained with this stage at this micro-batch size.
    ///
    /// # Errors
    /// The data-parallel size does not divide the micro-batch, or the tensor-parallel size does not fit a layer; the path
    /// is that of a field of the stage.
    pub fn check_stage(&self, stage: &StageConfig, micro_batch_size: u32) -> Result<(), Invalid> {
        if !micro_batch_size.is_multiple_of(stage.data_degree.max(1)) {
            return Err(Invalid::field(
                "data_degree",
                format!(
                    "{} does not divide the micro-batch size {micro_batch_size}. Use a divisor",
                    stage.data_degree
                ),
            ));
        }
        if stage.tensor_degree <= 1 {
            return Ok(());
        }
        let layers = self.layers().iter().enumerate();
        for (index, layer) in layers.take(stage.last_layer + 1).skip(stage.first_layer) {
            layer.kind.check_tensor_degree(stage.tensor_degree).map_err(|invalid| {
                invalid!("tensor_degree", "does not fit layers[{index}] ({}): {invalid}", layer.name)
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
