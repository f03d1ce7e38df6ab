//! An allocation trace in numbers human-readable: what a layer needs, taken apart.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{LayerTrace, Passage, Slot, TraceStep, block_of};
use crate::measure::measurement::LayerTimes;
use crate::training::StaticBytes;

/// What one layer needs at one micro-batch size, apart from its neighbours (memory accounting of its allocation trace).
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct LayerComponents {
    /// Index in the model.
    pub layer: usize,
    /// Parameters, gradients and optimizer state.
    pub static_bytes: StaticBytes,
    /// What one micro-batch keeps between forward and backward.
    pub retained: Retained,
    /// Most bytes within the forward pass beyond what it leaves behind, its output included.
    pub forward_transient: u64,
    /// Most bytes within the backward pass beyond what was there when it began.
    pub backward_transient: u64,
    /// Most bytes within the optimizer step beyond parameters, gradients and state.
    pub step_transient: u64,
    /// What enters the layer.
    pub input_bytes: u64,
    /// What leaves it.
    pub output_bytes: u64,
    /// Most bytes of collectives' buffers at once.
    pub communication_bytes: u64,
    /// Seconds of its passes.
    pub times: LayerTimes,
    /// Seconds of its share of the optimizer step.
    pub step_seconds: f64,
}

/// Bytes that one micro-batch keeps of a layer between forward and backward. Tensors at an edge are
/// shared with the neighbour there: between two layers they count once, whichever layer keeps them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Retained {
    /// Neither input nor output.
    pub inner: u64,
    /// Inputs that the layer keeps.
    pub inputs: u64,
    /// Outputs that the layer keeps; those that are also inputs are not counted twice.
    pub outputs: u64,
}

impl LayerComponents {
    /// Takes an allocation trace apart.
    pub fn of(trace: &LayerTrace, static_bytes: StaticBytes, times: LayerTimes, step_seconds: f64) -> Self {
        let passage = &trace.later;
        let mut live = Live::new(&passage.blocks, &passage.communication);
        live.run(passage.slot(Slot::Input));
        live.peak = live.bytes;
        live.run(passage.slot(Slot::Forward));
        let forward_peak = live.peak;
        let after_forward = live.bytes;
        live.run(passage.slot(Slot::Output));
        let retained = retained(passage, &live);
        live.run(passage.slot(Slot::Gradient));
        let before_backward = live.bytes;
        live.peak = live.bytes;
        live.run(passage.slot(Slot::Backward));
        let backward_peak = live.peak;
        live.run(passage.slot(Slot::InputGradient));

        let mut step = Live::new(&trace.step.blocks, &trace.step.communication);
        step.run(&trace.step.exchange);
        step.run(&trace.step.update);
        let bytes_of = |blocks: &[u32]| {
            distinct(blocks).fold(0, |sum: u64, block| sum.saturating_add(bytes(passage, block)))
        };
        Self {
            layer: trace.layer,
            static_bytes,
            retained,
            forward_transient: forward_peak.saturating_sub(after_forward),
            backward_transient: backward_peak.saturating_sub(before_backward),
            step_transient: step.peak,
            input_bytes: bytes_of(&passage.inputs),
            output_bytes: bytes_of(&passage.outputs),
            communication_bytes: live.communication_peak.max(step.communication_peak),
            times,
            step_seconds,
        }
    }
}

fn bytes(passage: &Passage, block: u32) -> u64 {
    passage.blocks.get(block as usize).copied().unwrap_or_default()
}

fn distinct(blocks: &[u32]) -> impl Iterator<Item = u32> + '_ {
    blocks
        .iter()
        .enumerate()
        .filter(|&(index, block)| !blocks[..index].contains(block))
        .map(|(_, &block)| block)
}

/// What is live once the output was handed over.
fn retained(passage: &Passage, live: &Live<'_>) -> Retained {
    let mut retained = Retained::default();
    let [inputs, outputs] =
        [&passage.inputs, &passage.outputs].map(|edge| edge.iter().collect::<BTreeSet<_>>());
    for (block, _) in (0_u32..).zip(&passage.blocks).filter(|&(block, _)| live.is_live(block)) {
        let bytes = bytes(passage, block);
        let kept = if inputs.contains(&block) {
            &mut retained.inputs
        } else if outputs.contains(&block) {
            &mut retained.outputs
        } else {
            &mut retained.inner
        };
        *kept = kept.saturating_add(bytes);
    }
    retained
}

/// Running sums over events.
struct Live<'a> {
    blocks: &'a [u64],
    communication: BTreeSet<u32>,
    live: Vec<bool>,
    bytes: u64,
    peak: u64,
    communication_bytes: u64,
    communication_peak: u64,
}

impl<'a> Live<'a> {
    fn new(blocks: &'a [u64], communication: &[u32]) -> Self {
        let live = vec![false; blocks.len()];
        let communication = communication.iter().copied().collect();
        Self { blocks, communication, live, bytes: 0, peak: 0, communication_bytes: 0, communication_peak: 0 }
    }

    fn is_live(&self, block: u32) -> bool {
        self.live.get(block as usize).copied().unwrap_or_default()
    }

    fn run(&mut self, events: &[i32]) {
        for &event in events {
            let (block, allocated) = block_of(event);
            let Some(&bytes) = self.blocks.get(block) else { continue };
            self.live[block] = allocated;
            let communicates = self.communication.contains(&(block as u32));
            if allocated {
                self.bytes = self.bytes.saturating_add(bytes);
                self.peak = self.peak.max(self.bytes);
                let sent = if communicates { bytes } else { 0 };
                self.communication_bytes = self.communication_bytes.saturating_add(sent);
                self.communication_peak = self.communication_peak.max(self.communication_bytes);
            } else {
                self.bytes = self.bytes.saturating_sub(bytes);
                self.communication_bytes -=
                    if communicates { bytes.min(self.communication_bytes) } else { 0 };
            }
        }
    }
}

impl TraceStep {
    /// Most bytes at once beyond parameters, gradients and state.
    pub fn peak(&self) -> u64 {
        let mut live = Live::new(&self.blocks, &self.communication);
        live.run(&self.exchange);
        live.run(&self.update);
        live.peak
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A layer like a linear map: keeps its input, has one scratch block in each pass.
    #[test]
    fn components_are_read_from_the_events() {
        // Blocks: input, scratch, output, inner, output gradient, parameter gradient, input gradient.
        let passage = Passage {
            blocks: vec![100, 7, 50, 30, 50, 11, 100],
            inputs: vec![0],
            outputs: vec![2],
            output_gradients: vec![4],
            input_gradients: vec![6],
            slots: [vec![1], vec![2, 3, 4, -2], vec![-3], vec![5], vec![6, 7, -6, -1, -4, -5], vec![-7]],
            ..Passage::default()
        };
        let step = TraceStep { blocks: vec![5, 6], update: vec![1, -1, 2, -2], ..TraceStep::default() };
        let trace = LayerTrace {
            layer: 3,
            content: String::new(),
            first: passage.clone(),
            later: passage,
            without_graph: Passage::default(),
            untrained_input: None,
            step,
            has_saved: false,
            overhead: 0,
        };
        let times = LayerTimes { layer: 3, ..LayerTimes::default() };
        let components = LayerComponents::of(&trace, StaticBytes::default(), times, 0.0);
        assert_eq!(components.retained, Retained { inner: 30, inputs: 100, outputs: 0 });
        assert_eq!((components.input_bytes, components.output_bytes), (100, 50));
        // 187 at most, 180 stay.
        assert_eq!(components.forward_transient, 7);
        // Both gradients.
        assert_eq!(components.backward_transient, 111);
        assert_eq!(components.step_transient, 6);
    }
}
