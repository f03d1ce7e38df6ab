//! What layers cost one by one, without playing their tapes.

use loadmaster_proto::training::shard::{Shard, ShardParameter};

use super::Component;
use super::layer_seconds::LayerSeconds;
use crate::{Exchange, LayerCost, Share, StageSeconds};

impl Component {
    /// What each layer costs besides the bytes of a peak. Seconds of shards were measured with their collectives
    /// in them.
    pub(super) fn costs(&self, share: Share) -> Vec<Option<LayerCost>> {
        let mut costs: Vec<Option<LayerCost>> = Vec::with_capacity(self.contents.len());
        for layer in 0..self.contents.len() {
            // Equal layers mostly follow each other.
            let like = layer.checked_sub(1).filter(|&before| self.contents[before] == self.contents[layer]);
            let cost = like.and_then(|before| costs.get(before).copied());
            costs.push(cost.unwrap_or_else(|| self.cost(layer, share)));
        }
        costs
    }

    fn cost(&self, layer: usize, share: Share) -> Option<LayerCost> {
        let Share { micro_batch_size, tensor_degree } = share;
        let content = self.contents.get(layer)?;
        let (LayerSeconds { forward, backward, step }, origin) =
            self.library.seconds(content, tensor_degree, micro_batch_size)?;
        let precision = self.training.precision;
        let kind = &self.model.layers().get(layer)?.kind;
        let parameters = kind.shard_parameters(Shard { index: 0, degree: tensor_degree });
        let outputs = self.model.edge(layer + 1).iter();
        let per_sample: u64 = outputs.map(|shape| loadmaster_proto::model::layer::elements(shape)).sum();
        Some(LayerCost {
            seconds: StageSeconds { forward, backward, step },
            exchange: Exchange::default(),
            gradient_bytes: parameters.iter().map(ShardParameter::elements).sum::<u64>()
                * precision.gradient_bytes(),
            output_bytes: per_sample
                .saturating_mul(precision.scalar_bytes())
                .saturating_mul(u64::from(micro_batch_size)),
            origin,
        })
    }

    /// The gradient of a weight that the model's ends share, on the fullest of this many shards.
    pub(super) fn tied(&self, tensor_degree: u32) -> u64 {
        let head = self.model.layers().last().filter(|_| self.model.has_tied_head());
        let shard = Shard { index: 0, degree: tensor_degree };
        let shared = head.and_then(|head| head.kind.shard_shared_parameter(shard));
        shared.map_or(0, |shared| shared.elements() * self.training.precision.gradient_bytes())
    }
}
