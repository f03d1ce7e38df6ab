//! How long layers take at settings between and beyond the recorded ones, without their tapes.

use loadmaster_proto::shard::{Shard, ShardParameter};

use super::Component;
use super::library::LayerSeconds;
use crate::planning::predictor::{Exchange, LayerCost, Origin, Share, StageSeconds};

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
        let per_sample: u64 = outputs.map(|shape| loadmaster_proto::layer::elements(shape)).sum();
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

/// Reads seconds on a straight line over the samples.
pub(super) fn over_size(recorded: [u32; 2], target: u32) -> impl Fn(f64, f64) -> f64 {
    let [n, m] = recorded.map(f64::from);
    move |at_low: f64, at_high: f64| {
        // Times are noisy: a larger micro-batch never takes less than a smaller one took.
        let least = if f64::from(target) > m { at_high } else { 0.0 };
        (at_low + (at_high - at_low) * (f64::from(target) - n) / (m - n)).max(least)
    }
}

/// Reads seconds on A + B/n over the shards.
pub(super) fn over_degree(recorded: [u32; 2], target: u32) -> impl Fn(f64, f64) -> f64 {
    let [n, m] = recorded.map(f64::from);
    let target = f64::from(target);
    move |low: f64, high: f64| {
        let shrinking = (low - high) * n * m / (m - n);
        // Times are noisy: more shards never save more than their share of the work.
        let least = if target > m { high * m / target } else { 0.0 };
        (low - shrinking / n + shrinking / target).max(least)
    }
}

/// How a target is read from the two recorded values next to it.
pub(super) fn origin(recorded: [u32; 2], target: u32) -> Origin {
    let between = recorded[0] < target && target < recorded[1];
    if between { Origin::Interpolated } else { Origin::Extrapolated }
}

impl LayerSeconds {
    /// This one and a larger one, read in between or beyond.
    pub(super) fn and(&self, other: &Self, read: impl Fn(f64, f64) -> f64) -> Self {
        Self {
            forward: read(self.forward, other.forward),
            backward: read(self.backward, other.backward),
            step: read(self.step, other.step),
        }
    }
}
