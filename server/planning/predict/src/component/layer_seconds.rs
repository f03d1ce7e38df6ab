//! How long layers take at settings between and beyond the recorded ones, and what they cost one by one, without
//! playing their allocation traces.

use loadmaster_proto::training::shard::{Shard, ShardParameter};

use super::Component;
use crate::{Exchange, LayerCost, Origin, Share, StageSeconds};

/// Reads seconds between two recorded sizes on a straight line over the samples. Below the smaller size they are those of that:
/// what a pass costs whatever its samples (launching kernels, starting threads) is not on the line through two larger ones.
///
/// Beyond the larger one, each sample takes what it takes there: a line through two recordings that are a few percent off
/// is several times as far off where it goes on. The end of an iteration does not depend on the samples, so that both
/// recordings are of the same.
pub(super) fn over_size(
    recorded: [u32; 2],
    target: u32,
) -> impl Fn(StageSeconds, StageSeconds) -> StageSeconds {
    let [n, m] = recorded.map(f64::from);
    let target = f64::from(target);
    let pass = move |at_low: f64, at_high: f64| {
        if target < n {
            return at_low;
        }
        if target > m {
            // Times are noisy: a larger micro-batch never takes less than a smaller one took.
            return at_low.max(at_high * target / m);
        }
        at_low + (at_high - at_low) * (target - n) / (m - n)
    };
    move |low, high| StageSeconds {
        forward: pass(low.forward, high.forward),
        backward: pass(low.backward, high.backward),
        step: (low.step + high.step) / 2.0,
    }
}

/// Reads seconds on A + B/n over the shards.
pub(super) fn over_degree(
    recorded: [u32; 2],
    target: u32,
) -> impl Fn(StageSeconds, StageSeconds) -> StageSeconds {
    let [n, m] = recorded.map(f64::from);
    let target = f64::from(target);
    let read = move |low: f64, high: f64| {
        let shrinking = (low - high) * n * m / (m - n);
        // Times are noisy: more shards never save more than their share of the work, and fewer save none.
        let least = match target {
            more if more > m => high * m / more,
            fewer if fewer < n => low,
            _ => 0.0,
        };
        (low - shrinking / n + shrinking / target).max(least)
    };
    move |low, high| StageSeconds {
        forward: read(low.forward, high.forward),
        backward: read(low.backward, high.backward),
        step: read(low.step, high.step),
    }
}

/// How a target is read from the two recorded values next to it.
pub(super) fn origin(recorded: [u32; 2], target: u32) -> Origin {
    let between = recorded[0] < target && target < recorded[1];
    if between { Origin::Interpolated } else { Origin::Extrapolated }
}

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
        let (StageSeconds { forward, backward, step }, origin) =
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

    /// The gradient of a weight that the model's ends share, on the largest of this many shards.
    pub(super) fn tied(&self, tensor_degree: u32) -> u64 {
        let head = self.model.layers().last().filter(|_| self.model.has_tied_head());
        let shard = Shard { index: 0, degree: tensor_degree };
        let shared = head.and_then(|head| head.kind.shard_shared_parameter(shard));
        shared.map_or(0, |shared| shared.elements() * self.training.precision.gradient_bytes())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(seconds: f64) -> StageSeconds {
        StageSeconds { forward: seconds, backward: seconds, step: seconds }
    }

    proptest! {
        /// However noisy two recordings are: below both a pass takes what the smaller one took, beyond both no less
        /// than either, and between them what is between them.
        #[test]
        fn seconds_are_never_read_below_the_smallest_recording(
            (low, high) in (1e-6..1.0_f64, 1e-6..1.0_f64), size in 2_u32..64, more in 1_u32..64, target in 1_u32..256,
        ) {
            let recorded = [size, size + more];
            let [at_low, at_high] = [low, high].map(all);
            let StageSeconds { forward: read, backward, step } = over_size(recorded, target)(at_low, at_high);
            prop_assert_eq!((backward, step), (read, (low + high) / 2.0));
            let (least, most) = (low.min(high), low.max(high));
            match target {
                below if below < recorded[0] => prop_assert_eq!(read, low),
                beyond if beyond > recorded[1] => {
                    prop_assert!(read >= most);
                    let each = read / f64::from(beyond);
                    prop_assert!(low > high || (each * f64::from(recorded[1]) / high - 1.0).abs() < 1e-9);
                }
                _ => prop_assert!((least * 0.999_999..=most * 1.000_001).contains(&read), "{read}"),
            }
        }

        /// No number of shards has an iteration of no time.
        #[test]
        fn shards_never_take_nothing(
            (low, high) in (1e-6..1.0_f64, 1e-6..1.0_f64), power in 1_u32..5, target in 1_u32..6,
        ) {
            let (recorded, target) = ([1 << power, 1 << (power + 1)], 1_u32 << target);
            let read = over_degree(recorded, target)(all(low), all(high)).step;
            let share = f64::from(recorded[1]) / f64::from(target.max(recorded[1]));
            prop_assert!(read >= low.min(high) * share * 0.999_999, "{read}");
        }
    }

    /// A backward pass whose two recordings differ by noise alone keeps its proportion to the forward pass.
    #[test]
    fn a_backward_pass_does_not_shrink_below_its_recordings() {
        // As measured on CPU slots: 4 samples take 2.0 ms forward and 4.2 back, 8 take 2.6 and 7.6.
        let (four, eight) = (
            StageSeconds { forward: 2.0, backward: 4.2, step: 1.0 },
            StageSeconds { forward: 2.6, backward: 7.6, step: 1.1 },
        );
        let one = over_size([4, 8], 1)(four, eight);
        assert_eq!((one.forward, one.backward), (four.forward, four.backward));
        assert!(one.backward > 2.0 * one.forward);
    }
}
