//! Why nothing fits, in the smallest terms that help.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::stage::Partitioning;

use super::search::{self, Shape};

/// Why there is no partitioning.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Infeasible {
    /// A device would have no layer, or there is no device.
    #[error("{stages} stages for {layers} layers: every stage needs a device and a layer")]
    MoreStagesThanLayers {
        /// Stages asked for, one per device.
        stages: usize,
        /// Layers to cut.
        layers: usize,
    },
    /// A layer fits on no device, neither alone nor in any other stage. Of several such layers the one
    /// that lacks most, where it lacks least. Not said of inner layers of one or two stages, which are
    /// never alone.
    #[error(
        "layer {layer} fits on no device: layers {first} to {last} on device {device} need {needed} of \
         {capacity}, {} too much",
        needed_more(*needed, *capacity)
    )]
    LayerTooLarge {
        /// Index of the layer.
        layer: usize,
        /// First layer of the stage that lacks least, as a rule the layer itself.
        first: usize,
        /// Last layer of that stage.
        last: usize,
        /// Position of its device in the pipeline.
        device: usize,
        /// Its peak.
        needed: Bytes,
        /// Capacity of that device.
        capacity: Bytes,
    },
    /// Each layer fits somewhere, but no partitioning does.
    #[error(
        "no partitioning fits: the best one ({best}) needs {} of {} on device {device}, {} too much",
        needed, capacity, needed_more(*needed, *capacity)
    )]
    NoPartitioning {
        /// The partitioning that exceeds the capacities least (leximax over the excess).
        best: Partitioning,
        /// Position of the device that lacks most in it.
        device: usize,
        /// Peak there.
        needed: Bytes,
        /// Capacity of that device.
        capacity: Bytes,
    },
}

impl Infeasible {
    /// Bytes that are missing on the named device; none when no number of bytes would help.
    pub fn missing(&self) -> Option<Bytes> {
        match *self {
            Self::MoreStagesThanLayers { .. } => None,
            Self::LayerTooLarge { needed, capacity, .. } | Self::NoPartitioning { needed, capacity, .. } => {
                Some(needed_more(needed, capacity))
            }
        }
    }
}

fn needed_more(needed: Bytes, capacity: Bytes) -> Bytes {
    Bytes(needed.0.saturating_sub(capacity.0))
}

/// Says why no partitioning fits, once the search has found none.
pub(super) fn explain(
    layers: usize,
    capacities: &[u64],
    cost: impl Fn(usize, usize, usize) -> u64,
) -> Infeasible {
    if let Some(error) = layer_too_large(layers, capacities, &cost) {
        return error;
    }
    let stages = capacities.len();
    let excess = |stage: usize, first, last| Some(cost(stage, first, last).saturating_sub(capacities[stage]));
    let best = search::search(layers, stages, excess).and_then(|sizes| Partitioning::from_sizes(&sizes).ok());
    let Some(best) = best else {
        return Infeasible::MoreStagesThanLayers { stages, layers }; // Impossible: nothing is forbidden.
    };
    let peaks = best.stages().iter().enumerate().map(|(device, stage)| {
        let needed = cost(device, stage.first_layer, stage.last_layer);
        (needed.saturating_sub(capacities[device]), std::cmp::Reverse(device), needed)
    });
    let (_, std::cmp::Reverse(device), needed) = peaks.max().unwrap_or_default();
    Infeasible::NoPartitioning {
        best,
        device,
        needed: Bytes(needed),
        capacity: Bytes(capacities.get(device).copied().unwrap_or(0)),
    }
}

/// A stage that does not fit, in the order of what it lacks; the first device and stage win ties.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Excess {
    bytes: u64,
    device: usize,
    first: usize,
    last: usize,
    needed: u64,
}

/// The layer that lacks most bytes where it lacks least, if there is one that fits nowhere.
///
/// Costs need not grow with the stage (a layer alone keeps its own input, which may be larger than
/// its stage's), so "fits nowhere" means: in no stage of any position that contains it.
fn layer_too_large(
    layers: usize,
    capacities: &[u64],
    cost: &impl Fn(usize, usize, usize) -> u64,
) -> Option<Infeasible> {
    let shape = Shape { layers, stages: capacities.len() };
    let mut least: Vec<Option<Excess>> = vec![None; layers];
    let mut can_be_alone = vec![false; layers];
    for (device, &capacity) in capacities.iter().enumerate() {
        for first in shape.firsts(device) {
            let ends = shape.ends(device, first);
            can_be_alone[first] |= ends.contains(&(first + 1));
            // Going down, `best` is the best of the stages that reach `last` or farther: all of them
            // hold it.
            let mut best: Option<Excess> = None;
            for last in (first..*ends.end()).rev() {
                if ends.contains(&(last + 1)) {
                    let needed = cost(device, first, last);
                    let bytes = needed.saturating_sub(capacity);
                    best = smaller(best, Some(Excess { bytes, device, first, last, needed }));
                }
                least[last] = smaller(least[last], best);
            }
        }
    }
    let too_large = least.into_iter().enumerate().filter(|&(layer, _)| can_be_alone[layer]);
    let (layer, Excess { device, first, last, needed, .. }) = too_large
        .filter_map(|(layer, least)| least.filter(|least| least.bytes > 0).map(|least| (layer, least)))
        .max_by_key(|&(layer, least)| (least.bytes, std::cmp::Reverse(layer)))?;
    let capacity = Bytes(capacities[device]);
    Some(Infeasible::LayerTooLarge { layer, first, last, device, needed: Bytes(needed), capacity })
}

fn smaller(a: Option<Excess>, b: Option<Excess>) -> Option<Excess> {
    a.into_iter().chain(b).min()
}
