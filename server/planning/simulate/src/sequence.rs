//! When an iteration ends, of pipelines that are asked for repeatedly.
//!
//! In which sequence passes can be looked at, each behind all that it waits for, is up to the order of passes on each
//! device alone, not to how long they take. So it is found once, and every pipeline of as many stages is one loop over it.

use loadmaster_proto::training::schedule::Pass;

use super::order::Turn;
use super::simulate::Ends;
use super::{Edge, Overlap, Pipeline};

/// All passes of an iteration, each behind those that it waits for.
#[derive(Debug)]
pub(super) struct Sequence {
    passes: Vec<SequencePass>,
    devices: usize,
    /// How many inputs there are.
    inputs: usize,
}

/// A pass: where, and between which inputs.
#[derive(Debug, Clone, Copy)]
struct SequencePass {
    device: u32,
    stage: u32,
    is_backward: bool,
    /// The number of its input, and of that of the pass that it hands on to.
    takes: u32,
    gives: u32,
    /// The edges that these come over.
    over: [Option<u32>; 2],
}

/// A device while its passes are looked at.
#[derive(Debug, Clone, Copy, Default)]
struct DeviceState {
    free: f64,
    /// When its links, forward and backward, have sent what they were given.
    sent: [f64; 2],
}

impl Sequence {
    /// That of these turns of as many stages; none where devices wait for each other.
    pub(super) fn of(turns: &[Vec<Turn>], stages: usize) -> Option<Self> {
        let pass_of = |turn: &Turn| match turn.pass {
            Pass::Forward(index) => (false, index as usize),
            Pass::Backward(index) => (true, index as usize),
        };
        let all = || turns.iter().flatten();
        let micro_batches = all().map(|turn| pass_of(turn).1 + 1).max()?;
        // One more, for what no one takes.
        let inputs = 2 * stages * micro_batches + 1;
        let input = |stage: usize, is_backward: bool, index: usize| {
            (2 * stage + usize::from(is_backward)) * micro_batches + index
        };
        let mut is_there = vec![false; inputs];
        is_there.iter_mut().take(micro_batches).for_each(|of| *of = true);
        let mut next = vec![0; turns.len()];
        let mut passes = Vec::with_capacity(all().count());
        let mut awake: Vec<usize> = (0..turns.len()).rev().collect();
        while let Some(device) = awake.pop() {
            while let Some(turn) = turns[device].get(next[device]) {
                let (stage, (is_backward, index)) = (turn.stage as usize, pass_of(turn));
                let takes = input(stage, is_backward, index);
                if stage >= stages || !is_there[takes] {
                    break;
                }
                next[device] += 1;
                let (below, above) = (stage.checked_sub(1), (stage + 1 < stages).then_some(stage + 1));
                let (gives, to) = match (is_backward, above, below) {
                    (false, Some(above), _) => (input(above, false, index), Some(above)),
                    // The last stage turns round.
                    (false, None, _) => (input(stage, true, index), None),
                    (true, _, Some(below)) => (input(below, true, index), Some(below)),
                    (true, _, None) => (inputs - 1, None),
                };
                is_there[gives] = true;
                awake.extend(to.map(|to| to % turns.len()).filter(|&to| to != device));
                let [in_front, behind] = [below, above.map(|above| above - 1)];
                let over = if is_backward { [behind, in_front] } else { [in_front, behind] };
                let number = |of: usize| u32::try_from(of).ok();
                passes.push(SequencePass {
                    device: number(device)?,
                    stage: turn.stage,
                    is_backward,
                    takes: number(takes)?,
                    gives: number(gives)?,
                    over: over.map(|edge| edge.and_then(number)),
                });
            }
        }
        let is_whole = passes.len() == all().count();
        is_whole.then_some(Self { passes, devices: turns.len(), inputs })
    }

    /// How many passes there are.
    pub(super) fn len(&self) -> usize {
        self.passes.len()
    }

    /// When a pipeline of as many stages and micro-batches ends, whose devices step once at the end.
    pub(super) fn ends(&self, pipeline: &Pipeline<'_>) -> Ends {
        let overlaps = pipeline.overlap == Overlap::Computing;
        let mut devices = vec![DeviceState::default(); self.devices];
        let mut there = vec![0.0_f64; self.inputs];
        let crossing = |edge: u32, is_backward: bool| {
            let Edge { forward, backward } = pipeline.edges[edge as usize];
            if is_backward { backward } else { forward }
        };
        for of in &self.passes {
            let seconds = &pipeline.stages[of.stage as usize];
            let own = &mut devices[of.device as usize];
            let takes = if of.is_backward { seconds.backward } else { seconds.forward };
            let [receives, sends] = of.over;
            let receiving = match receives {
                Some(edge) if !overlaps => crossing(edge, of.is_backward),
                _ => 0.0,
            };
            let start = own.free.max(there[of.takes as usize]) + receiving;
            let end = start + takes;
            own.free = end;
            there[of.gives as usize] = match sends {
                Some(edge) if overlaps => {
                    let sent = &mut own.sent[usize::from(of.is_backward)];
                    *sent = end.max(*sent) + crossing(edge, of.is_backward);
                    *sent
                }
                Some(edge) => {
                    own.free = end + crossing(edge, of.is_backward);
                    end
                }
                None => end,
            };
        }
        let step = |device: usize| -> f64 {
            pipeline.stages.iter().skip(device).step_by(self.devices.max(1)).map(|stage| stage.step).sum()
        };
        let ended = devices.iter().enumerate().map(|(device, own)| own.free + step(device));
        Ends {
            first_passes: devices.first().map_or(0.0, |first| first.free),
            iteration: ended.fold(0.0, f64::max),
        }
    }
}
