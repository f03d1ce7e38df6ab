//! What layers cost alone, summed up from the first one on.

use crate::Seconds;
use loadmaster_predict::{Exchange, Origin, Predictor, Share};

/// Parts of a second in which sums are kept: about a picosecond. Sums of whole numbers have no rounding, so
/// that stages of equal layers take exactly the same time wherever they are, and a search meets few distinct
/// times.
const PARTS_PER_SECOND: f64 = (1_u64 << 40) as f64;

/// Sums over the layers before each layer, and over all: one entry more than layers.
#[derive(Debug, Clone, Default)]
pub(super) struct Sums {
    before: Vec<Sum>,
    outputs: Vec<u64>,
    origins: Vec<Option<Origin>>,
    tied_bytes: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    forward: u64,
    backward: u64,
    step: u64,
    gradient_bytes: u64,
    exchange_bytes: u64,
    exchanges: u32,
    /// Layers whose seconds are not known.
    unknown: u32,
}

impl Sums {
    pub(super) fn of(predictor: &dyn Predictor, share: Share, layers: usize) -> Self {
        let costs = predictor.layer_costs(share);
        let mut sums = Self {
            before: Vec::with_capacity(layers + 1),
            outputs: Vec::with_capacity(layers),
            origins: Vec::with_capacity(layers),
            tied_bytes: predictor.tied_bytes(share.tensor_degree),
        };
        let mut sum = Sum::default();
        sums.before.push(sum);
        for layer in 0..layers {
            let cost = costs.get(layer).copied().flatten();
            match cost {
                Some(cost) => {
                    let add = |to: &mut u64, seconds: f64| *to = to.saturating_add(parts(seconds));
                    add(&mut sum.forward, cost.seconds.forward);
                    add(&mut sum.backward, cost.seconds.backward);
                    add(&mut sum.step, cost.seconds.step);
                    sum.gradient_bytes = sum.gradient_bytes.saturating_add(cost.gradient_bytes);
                    sum.exchange_bytes = sum.exchange_bytes.saturating_add(cost.exchange.bytes);
                    sum.exchanges = sum.exchanges.saturating_add(cost.exchange.count);
                }
                None => sum.unknown += 1,
            }
            sums.before.push(sum);
            sums.outputs.push(cost.map_or(0, |cost| cost.output_bytes));
            sums.origins.push(cost.map(|cost| cost.origin));
        }
        sums
    }

    fn ends(&self, first: usize, last: usize) -> Option<(&Sum, &Sum)> {
        Some((self.before.get(first)?, self.before.get(last + 1)?))
    }

    /// Passes and updates of the layers; none where those of one are not known.
    pub(super) fn seconds(&self, first: usize, last: usize) -> Option<Seconds> {
        let (from, to) = self.ends(first, last).filter(|(from, to)| from.unknown == to.unknown)?;
        let seconds = |of: fn(&Sum) -> u64| (of(to) - of(from)) as f64 / PARTS_PER_SECOND;
        Some(Seconds {
            forward: seconds(|sum| sum.forward),
            backward: seconds(|sum| sum.backward),
            step: seconds(|sum| sum.step),
        })
    }

    /// What shards sum in one direction.
    pub(super) fn exchange(&self, first: usize, last: usize) -> Exchange {
        self.ends(first, last).map_or_else(Exchange::default, |(from, to)| Exchange {
            count: to.exchanges - from.exchanges,
            bytes: to.exchange_bytes - from.exchange_bytes,
        })
    }

    /// Gradients of a device of the layers.
    pub(super) fn gradient_bytes(&self, first: usize, last: usize) -> u64 {
        self.ends(first, last).map_or(0, |(from, to)| to.gradient_bytes - from.gradient_bytes)
    }

    /// What leaves a layer.
    pub(super) fn output_bytes(&self, layer: usize) -> u64 {
        self.outputs.get(layer).copied().unwrap_or(0)
    }

    /// The gradient of a weight that first and last layer share.
    pub(super) fn tied_bytes(&self) -> u64 {
        self.tied_bytes
    }

    /// The least certain reading of the layers.
    pub(super) fn origin(&self, first: usize, last: usize) -> Option<Origin> {
        let origins: Option<Vec<Origin>> = self.origins.get(first..=last)?.iter().copied().collect();
        origins?.into_iter().max()
    }

    /// About how many bytes they take.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>()
            + size_of_val(&*self.before)
            + size_of_val(&*self.outputs)
            + size_of_val(&*self.origins)
    }

    /// Whether any layer's seconds are known.
    pub(super) fn knows_seconds(&self) -> bool {
        self.origins.iter().any(Option::is_some)
    }
}

/// Seconds in parts, rounded; what is no time is the longest.
fn parts(seconds: f64) -> u64 {
    if seconds.is_nan() { u64::MAX } else { (seconds * PARTS_PER_SECOND).round() as u64 }
}
