//! What a micro-batch costs at least where bytes have a price.
//!
//! With a price of what is kept beside the seconds of recomputing, the layers below a position cost the less the more is
//! kept above them, which runs may be longer for. How much that is, is rounded up to one of a few steps, so that a program
//! over positions and steps is never above what any choice costs.

use crate::actions::LayerBlocks;

/// Steps of what is kept above that are as far apart as the smallest input is large, and by what part of themselves later ones
/// are.
const EVEN_STEPS: u64 = 192;
const PART: u64 = 24;
/// Most parts into which all bytes that may be kept are divided.
const MOST_PARTS: u64 = 2048;

/// Layers, some of which are `away` between their passes.
#[derive(Debug, Clone, Copy)]
pub(super) struct SlotLayers<'a> {
    pub(super) layers: &'a [LayerBlocks],
    pub(super) away: &'a [bool],
    /// No choice keeps more.
    pub(super) bytes: u64,
}

impl SlotLayers<'_> {
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

/// What the layers below a position cost at least.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cost {
    /// Weighted seconds, and the price of bytes.
    pub(super) all: f64,
    /// Of a micro-batch.
    pub(super) seconds: f64,
    pub(super) kept: f64,
}

/// A price of bytes beside a weight of seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    pub(super) price: f64,
    pub(super) weight: f64,
}

/// Steps of what is kept above a position.
pub(super) struct Steps<'a> {
    slot_layers: SlotLayers<'a>,
    /// Bytes, of which there are at most so many at each step but the last, which has no end.
    bytes: Vec<u64>,
    /// By layer and step: the step with what is kept of it, and with its input alone.
    with: Vec<[Vec<u32>; 2]>,
}

impl<'a> Steps<'a> {
    pub(super) fn of(slot_layers: SlotLayers<'a>) -> Self {
        let (any, _) = slot_layers.most();
        let smallest = slot_layers.layers.iter().map(|layer| layer.input).filter(|&input| input > 0).min();
        let apart = smallest.unwrap_or(0).max(any / MOST_PARTS).max(1);
        let mut bytes = vec![0_u64];
        while let Some(&last) = bytes.last().filter(|&&last| last < any) {
            let more = if last < apart.saturating_mul(EVEN_STEPS) { apart } else { (last / PART).max(apart) };
            bytes.push(last.saturating_add(more));
        }
        let after = |kept: u64| -> Vec<u32> {
            let step = |above: &u64| bytes.partition_point(|&of| of < above.saturating_add(kept));
            bytes.iter().map(|above| step(above).min(bytes.len() - 1) as u32).collect()
        };
        let with = slot_layers.layers.iter().map(|layer| [after(layer.activations), after(layer.input)]);
        Self { slot_layers, with: with.collect(), bytes }
    }

    /// The step with so much kept.
    fn at(&self, kept: u64) -> usize {
        self.bytes.partition_point(|&of| of < kept).min(self.bytes.len() - 1)
    }

    /// The first step with room for what a run needs within a limit.
    fn with_room(&self, needs: u64, excess: u64) -> usize {
        self.at(needs.saturating_sub(excess))
    }
}

/// What the layers below each position cost at least within a limit.
pub(super) struct DualBound {
    /// By position, and by steps of what is kept above it.
    costs: Vec<Vec<Cost>>,
}

impl DualBound {
    /// That of a micro-batch which may need so much more than it keeps.
    pub(super) fn of(steps: &Steps<'_>, excess: u64, Terms { price, weight }: Terms) -> Self {
        let Steps { slot_layers, bytes, with } = steps;
        let nothing = vec![Cost::default(); bytes.len()];
        let mut costs = Vec::with_capacity(slot_layers.layers.len() + 1);
        costs.push(nothing);
        for (top, layer) in slot_layers.layers.iter().enumerate() {
            let [kept, _] = &with[top];
            let own: Vec<Cost> = if slot_layers.is_away(top) {
                let from = steps.with_room(layer.activations, excess);
                let never = Cost { all: f64::INFINITY, ..Cost::default() };
                let of = |(step, below): (usize, &Cost)| if step < from { never } else { *below };
                costs[top].iter().enumerate().map(of).collect()
            } else {
                let (more, below): (f64, &Vec<Cost>) = (layer.activations as f64, &costs[top]);
                let of = |&step: &u32| {
                    let below = below[step as usize];
                    Cost { all: below.all + price * more, kept: below.kept + more, ..below }
                };
                let mut own: Vec<Cost> = kept.iter().map(of).collect();
                let (mut needs, mut seconds) = (0_u64, 0.0);
                for first in (0..=top).rev().take_while(|&first| !slot_layers.is_away(first)) {
                    let of = slot_layers.layers[first];
                    needs = needs.max(of.working).saturating_add(of.activations);
                    seconds += of.seconds.again;
                    let (input, below) = (of.input as f64, &costs[first]);
                    let more = weight * seconds + price * input;
                    let from = steps.with_room(needs, excess);
                    for (own, &step) in own[from..].iter_mut().zip(&with[first][1][from..]) {
                        let below = &below[step as usize];
                        if below.all + more < own.all {
                            *own = Cost {
                                all: below.all + more,
                                seconds: below.seconds + seconds,
                                kept: below.kept + input,
                            };
                        }
                    }
                }
                own
            };
            costs.push(own);
        }
        Self { costs }
    }

    /// Of the layers below a position where so much is kept above it.
    pub(super) fn at(&self, steps: &Steps<'_>, position: usize, kept: u64) -> Cost {
        self.costs[position][steps.at(kept)]
    }

    /// Of all layers.
    pub(super) fn whole(&self) -> Cost {
        self.costs.last().and_then(|of| of.first()).copied().unwrap_or_default()
    }
}
