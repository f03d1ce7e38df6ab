//! The seconds of an iteration.
//!
//! Every pass and every transfer of an iteration is an event that waits for others. A pass waits for the one before it on its
//! device and for its input; a transfer for the pass that makes what it carries and for the one before it from that device in that
//! direction. So all times are longest ways through these waits.

use crate::words::{CommunicationOverlap, Schedule};

/// Seconds of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Seconds {
    pub forward: f64,
    pub backward: f64,
    pub step: f64,
}

/// Seconds of one transfer between a stage and the next one.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Edge {
    pub forward: f64,
    pub backward: f64,
}

impl Edge {
    /// As long in either direction.
    pub fn each_way(seconds: f64) -> Self {
        Self { forward: seconds, backward: seconds }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pass {
    pub stage: usize,
    pub is_forward: bool,
    pub micro_batch: usize,
}

/// Stages, and the edges between them. A transfer that blocks takes the time of sender and receiver.
#[derive(Debug, Clone, Copy)]
pub struct Pipeline<'a> {
    pub stages: &'a [Seconds],
    pub edges: &'a [Edge],
    pub micro_batches: u32,
    pub transfers: CommunicationOverlap,
}

/// A pass or a transfer that waits for another one: the end of `to` is so many seconds or more behind that of `from`, which is of a
/// micro-batch that is so many earlier.
struct Wait {
    from: usize,
    to: usize,
    seconds: f64,
    earlier: f64,
}

impl Pipeline<'_> {
    /// Seconds from the first pass to the end of the last step, with a device for each stage; under PipeDream, which has no end, those
    /// of as many micro-batches in the long run.
    pub fn iteration(&self, schedule: Schedule) -> f64 {
        let (count, m) = (self.stages.len(), self.micro_batches as usize);
        match schedule {
            Schedule::Pipedream => f64::from(self.micro_batches) * self.period(),
            _ => {
                self.in_turns(&(0..count).map(|stage| passes(schedule, stage, count, m)).collect::<Vec<_>>())
            }
        }
    }

    /// The same where each device has these passes, one after another, and every so manyth stage.
    pub fn in_turns(&self, turns: &[Vec<Pass>]) -> f64 {
        let (count, m) = (self.stages.len(), self.micro_batches as usize);
        // When the input of each pass is there: by stage, direction and micro-batch.
        let mut inputs = vec![f64::NAN; count * 2 * m];
        let at = |pass: Pass| (pass.stage * 2 + usize::from(pass.is_forward)) * m + pass.micro_batch;
        for micro_batch in 0..m {
            inputs[at(Pass { stage: 0, is_forward: true, micro_batch })] = 0.0;
        }
        let blocks = self.transfers == CommunicationOverlap::Off;
        let mut next = vec![0; turns.len()];
        let mut free = vec![0.0_f64; turns.len()];
        let mut link_free = vec![[0.0_f64; 2]; turns.len()];
        let mut left: usize = turns.iter().map(Vec::len).sum();
        while left > 0 {
            let before = left;
            for (device, turns) in turns.iter().enumerate() {
                while let Some(&pass) = turns.get(next[device]) {
                    let input = inputs[at(pass)];
                    if input.is_nan() {
                        break;
                    }
                    let (receives, sends) = (self.receives(pass), self.sends(pass));
                    let receiving = receives.filter(|_| blocks).unwrap_or(0.0);
                    let end = free[device].max(input) + receiving + self.takes(pass);
                    free[device] = end;
                    let neighbour = if pass.is_forward { pass.stage + 1 } else { pass.stage.wrapping_sub(1) };
                    match sends {
                        Some(seconds) if blocks => {
                            free[device] = end + seconds;
                            inputs[at(Pass { stage: neighbour, ..pass })] = end;
                        }
                        Some(seconds) => {
                            let link = &mut link_free[device][usize::from(pass.is_forward)];
                            *link = link.max(end) + seconds;
                            inputs[at(Pass { stage: neighbour, ..pass })] = *link;
                        }
                        // The last stage turns round.
                        None if pass.is_forward => inputs[at(Pass { is_forward: false, ..pass })] = end,
                        None => {}
                    }
                    next[device] += 1;
                    left -= 1;
                }
            }
            assert!(left < before, "passes wait for each other");
        }
        let over = |(device, free): (usize, f64)| {
            free + self.stages.iter().skip(device).step_by(turns.len()).map(|stage| stage.step).sum::<f64>()
        };
        free.into_iter().enumerate().map(over).fold(0.0, f64::max)
    }

    fn takes(&self, pass: Pass) -> f64 {
        let stage = self.stages[pass.stage];
        if pass.is_forward { stage.forward } else { stage.backward }
    }

    /// Seconds of the transfer of a pass's input; none at either end of the pipeline.
    fn receives(&self, pass: Pass) -> Option<f64> {
        match pass.is_forward {
            true => pass.stage.checked_sub(1).map(|edge| self.edges[edge].forward),
            false => self.edges.get(pass.stage).map(|edge| edge.backward),
        }
    }

    /// Seconds of the transfer of what a pass makes.
    fn sends(&self, pass: Pass) -> Option<f64> {
        match pass.is_forward {
            true => self.edges.get(pass.stage).map(|edge| edge.forward),
            false => pass.stage.checked_sub(1).map(|edge| self.edges[edge].backward),
        }
    }

    /// Seconds from one micro-batch to the next in the long run, where every backward pass is followed by its stage's step.
    fn period(&self) -> f64 {
        let (count, blocks) = (self.stages.len(), self.transfers == CommunicationOverlap::Off);
        let ended = |stage: usize, is_forward: bool| 4 * stage + usize::from(is_forward);
        let sent = |stage: usize, is_forward: bool| 4 * stage + 2 + usize::from(is_forward);
        let mut waits = Vec::new();
        let mut wait = |from, to, seconds, earlier| waits.push(Wait { from, to, seconds, earlier });
        for (stage, own) in self.stages.iter().enumerate() {
            let pass = |is_forward| Pass { stage, is_forward, micro_batch: 0 };
            let busy = |seconds: Option<f64>| seconds.filter(|_| blocks).unwrap_or(0.0);
            let takes = |is_forward| busy(self.receives(pass(is_forward))) + self.takes(pass(is_forward));
            let sends = |is_forward| busy(self.sends(pass(is_forward)));
            // As many micro-batches are in flight as there are stages to the end.
            let ahead = (count - stage) as f64;
            wait(ended(stage, true), ended(stage, false), sends(true) + takes(false), 1.0 - ahead);
            wait(ended(stage, false), ended(stage, true), sends(false) + own.step + takes(true), ahead);
            for is_forward in [true, false] {
                let Some(seconds) = self.sends(pass(is_forward)) else { continue };
                let neighbour = if is_forward { stage + 1 } else { stage - 1 };
                let received = Pass { stage: neighbour, ..pass(is_forward) };
                let made = ended(neighbour, is_forward);
                if blocks {
                    wait(
                        ended(stage, is_forward),
                        made,
                        self.receives(received).unwrap_or(0.0) + self.takes(received),
                        0.0,
                    );
                    continue;
                }
                wait(ended(stage, is_forward), sent(stage, is_forward), seconds, 0.0);
                wait(sent(stage, is_forward), sent(stage, is_forward), seconds, 1.0);
                wait(sent(stage, is_forward), made, self.takes(received), 0.0);
            }
        }
        longest_circle(4 * count, &waits)
    }
}

/// The most seconds for each micro-batch of waits that go round: by Bellman and Ford's search for a circle that takes longer than the
/// longest one before it, until there is none.
fn longest_circle(events: usize, waits: &[Wait]) -> f64 {
    let mut period = 0.0;
    loop {
        let mut ends = vec![0.0_f64; events];
        let mut by: Vec<Option<&Wait>> = vec![None; events];
        let mut later = None;
        for _ in 0..=events {
            later = None;
            for wait in waits {
                let end = ends[wait.from] + wait.seconds - period * wait.earlier;
                if end > ends[wait.to] + 1e-10 * (1.0 + period) {
                    (ends[wait.to], by[wait.to], later) = (end, Some(wait), Some(wait.to));
                }
            }
            if later.is_none() {
                return period;
            }
        }
        // What is still later after as many rounds as there are events waits for a circle.
        let before = |event: usize| by[event].expect("it waits for something");
        let begin = (0..events).fold(later.expect("something is later"), |event, _| before(event).from);
        let (mut event, mut seconds, mut micro_batches) = (begin, 0.0, 0.0);
        loop {
            let wait = before(event);
            (event, seconds, micro_batches) =
                (wait.from, seconds + wait.seconds, micro_batches + wait.earlier);
            if event == begin {
                break;
            }
        }
        if seconds / micro_batches <= period {
            return period;
        }
        period = seconds / micro_batches;
    }
}

/// The passes of a stage.
fn passes(schedule: Schedule, stage: usize, count: usize, m: usize) -> Vec<Pass> {
    let forward = |micro_batch| Pass { stage, is_forward: true, micro_batch };
    let backward = |micro_batch| Pass { stage, is_forward: false, micro_batch };
    if schedule == Schedule::Gpipe {
        return (0..m).map(forward).chain((0..m).rev().map(backward)).collect();
    }
    let ahead = (count - stage).min(m) - 1;
    let pairs = (0..m - ahead).flat_map(|index| [forward(index + ahead), backward(index)]);
    (0..ahead).map(forward).chain(pairs).chain((m - ahead..m).map(backward)).collect()
}

/// The most micro-batches between their forward and backward pass, of a stage that has this many stages from it to the end, itself
/// counted.
pub fn in_flight(schedule: Schedule, to_the_end: usize, micro_batches: u32) -> u32 {
    match schedule {
        Schedule::Gpipe => micro_batches,
        Schedule::OneFOneB => micro_batches.min(to_the_end as u32),
        Schedule::Pipedream => to_the_end as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(forward: f64, backward: f64, step: f64) -> Seconds {
        Seconds { forward, backward, step }
    }

    fn iteration(
        schedule: Schedule,
        stages: &[Seconds],
        edges: &[f64],
        m: u32,
        transfers: CommunicationOverlap,
    ) -> f64 {
        let edges: Vec<Edge> = edges.iter().copied().map(Edge::each_way).collect();
        Pipeline { stages, edges: &edges, micro_batches: m, transfers }.iteration(schedule)
    }

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-12, "{a} {b}");
    }

    /// By hand.
    #[test]
    fn small_pipelines_take_what_a_drawing_says() {
        let beside = |schedule, stages: &[Seconds], edges: &[f64], m| {
            iteration(schedule, stages, edges, m, CommunicationOverlap::On)
        };
        let one = [stage(1.0, 2.0, 0.5)];
        assert_eq!(beside(Schedule::Gpipe, &one, &[], 3), 9.5);
        assert_eq!(beside(Schedule::OneFOneB, &one, &[], 3), 9.5);
        // Two equal stages, two micro-batches, a tenth between them: GPipe fills, drains, and crosses four edges.
        let two = [stage(1.0, 1.0, 0.0), stage(1.0, 1.0, 0.0)];
        close(beside(Schedule::Gpipe, &two, &[0.1], 2), 6.2);
        close(beside(Schedule::OneFOneB, &two, &[0.1], 2), 6.2);
        // A link that takes five seconds for each of two micro-batches: 1 + 2 · 5, then through the last stage and
        // back: the second gradient waits for nobody under 1F1B, because the first left long ago.
        close(beside(Schedule::OneFOneB, &two, &[5.0], 2), 1.0 + 10.0 + 2.0 + 5.0 + 1.0);
        // GPipe's last stage holds both gradients back until both forward passes are over.
        close(beside(Schedule::Gpipe, &two, &[5.0], 2), 1.0 + 10.0 + 2.0 + 5.0 + 5.0 + 1.0 - 0.0);
    }

    /// A transfer that blocks takes both ends' time.
    #[test]
    fn blocking_transfers_take_both_ends() {
        let two = [stage(1.0, 1.0, 0.0), stage(1.0, 1.0, 0.0)];
        close(
            iteration(Schedule::Gpipe, &two, &[0.5], 1, CommunicationOverlap::Off),
            1.0 + 0.5 + 2.0 + 0.5 + 1.0,
        );
    }

    /// In the long run a stage that is always busy decides, with a step for each micro-batch; or a link; or the way to the end and back,
    /// which two micro-batches are on at once.
    #[test]
    fn pipedream_goes_as_fast_as_what_is_slowest() {
        let four = |stages: &[Seconds], edge: f64, transfers| {
            iteration(Schedule::Pipedream, stages, &[edge], 4, transfers)
        };
        let uneven = [stage(1.0, 2.0, 0.5), stage(1.0, 1.0, 0.0)];
        close(four(&uneven, 0.0, CommunicationOverlap::On), 4.0 * 3.5);
        close(four(&uneven, 0.5, CommunicationOverlap::Off), 4.0 * 4.5);
        let even = [stage(1.0, 1.0, 0.0), stage(1.0, 1.0, 0.0)];
        close(four(&even, 1.5, CommunicationOverlap::On), 4.0 * (4.0 + 3.0) / 2.0);
        close(four(&even, 9.0, CommunicationOverlap::On), 4.0 * (4.0 + 18.0) / 2.0);
    }
}
