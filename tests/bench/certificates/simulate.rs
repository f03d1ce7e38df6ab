//! How long an iteration takes: every pass and every transfer as an event that waits for others.
//!
//! A pass waits for the one before it on its stage and for its input; a transfer for the pass that makes what it
//! carries and for the one before it from that stage in that direction. So all times are longest ways through these
//! waits.

use crate::certificates::words::{Schedule, Transfers};

/// Seconds of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Seconds {
    pub(crate) forward: f64,
    pub(crate) backward: f64,
    pub(crate) step: f64,
}

/// When the last step ends. `edges` are the seconds of one transfer in either direction; one that blocks takes the time
/// of sender and receiver.
pub(crate) fn iteration(
    schedule: Schedule,
    stages: &[Seconds],
    edges: &[f64],
    micro_batches: u32,
    transfers: Transfers,
) -> f64 {
    let (count, m) = (stages.len(), micro_batches as usize);
    let orders: Vec<Vec<(bool, usize)>> = (0..count).map(|stage| order(schedule, count - stage, m)).collect();
    // When the input of each pass is there: by stage, direction and micro-batch.
    let mut inputs = vec![f64::NAN; count * 2 * m];
    let at = |stage: usize, is_forward: bool, batch: usize| (stage * 2 + usize::from(is_forward)) * m + batch;
    for batch in 0..m {
        inputs[at(0, true, batch)] = 0.0;
    }
    let mut next = vec![0; count];
    let mut free = vec![0.0_f64; count];
    let mut link_free = vec![[0.0_f64; 2]; count];
    let mut left: usize = orders.iter().map(Vec::len).sum();
    while left > 0 {
        let before = left;
        for stage in 0..count {
            while let Some(&(is_forward, batch)) = orders[stage].get(next[stage]) {
                let input = inputs[at(stage, is_forward, batch)];
                if input.is_nan() {
                    break;
                }
                // Edges in front of this stage and behind it.
                let front = stage.checked_sub(1).map(|edge| edges[edge]);
                let behind = edges.get(stage).copied();
                let (from, to) = if is_forward { (front, behind) } else { (behind, front) };
                let blocks = transfers == Transfers::Blocking;
                let receiving = if blocks { from.unwrap_or(0.0) } else { 0.0 };
                let takes = if is_forward { stages[stage].forward } else { stages[stage].backward };
                let end = free[stage].max(input) + receiving + takes;
                free[stage] = end;
                let neighbour = if is_forward { Some(stage + 1) } else { stage.checked_sub(1) };
                match (neighbour, to) {
                    (Some(neighbour), Some(edge)) if blocks => {
                        free[stage] = end + edge;
                        inputs[at(neighbour, is_forward, batch)] = end;
                    }
                    (Some(neighbour), Some(edge)) => {
                        let link = &mut link_free[stage][usize::from(is_forward)];
                        *link = link.max(end) + edge;
                        inputs[at(neighbour, is_forward, batch)] = *link;
                    }
                    // The last stage turns round.
                    _ if is_forward => inputs[at(stage, false, batch)] = end,
                    _ => {}
                }
                next[stage] += 1;
                left -= 1;
            }
        }
        assert!(left < before, "passes wait for each other");
    }
    (0..count).map(|stage| free[stage] + stages[stage].step).fold(0.0, f64::max)
}

/// The passes of a stage that has this many stages from it to the end, itself counted.
fn order(schedule: Schedule, to_the_end: usize, m: usize) -> Vec<(bool, usize)> {
    match schedule {
        Schedule::Gpipe => {
            (0..m).map(|batch| (true, batch)).chain((0..m).rev().map(|batch| (false, batch))).collect()
        }
        Schedule::OneFOneB => {
            let ahead = to_the_end.min(m) - 1;
            let mut passes: Vec<(bool, usize)> = (0..ahead).map(|batch| (true, batch)).collect();
            for batch in 0..m - ahead {
                passes.push((true, batch + ahead));
                passes.push((false, batch));
            }
            passes.extend((m - ahead..m).map(|batch| (false, batch)));
            passes
        }
    }
}

/// The most micro-batches of a stage between their forward and backward pass.
pub(crate) fn in_flight(schedule: Schedule, to_the_end: usize, m: u32) -> u32 {
    match schedule {
        Schedule::Gpipe => m,
        Schedule::OneFOneB => m.min(to_the_end as u32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(forward: f64, backward: f64, step: f64) -> Seconds {
        Seconds { forward, backward, step }
    }

    /// By hand.
    #[test]
    fn small_pipelines_take_what_a_drawing_says() {
        let beside = |schedule, stages: &[Seconds], edges: &[f64], m| {
            iteration(schedule, stages, edges, m, Transfers::Overlapping)
        };
        let one = [stage(1.0, 2.0, 0.5)];
        assert_eq!(beside(Schedule::Gpipe, &one, &[], 3), 9.5);
        assert_eq!(beside(Schedule::OneFOneB, &one, &[], 3), 9.5);
        // Two equal stages, two micro-batches, a tenth between them: GPipe fills, drains, and crosses four edges.
        let two = [stage(1.0, 1.0, 0.0), stage(1.0, 1.0, 0.0)];
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} {b}");
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
        let blocking = iteration(Schedule::Gpipe, &two, &[0.5], 1, Transfers::Blocking);
        assert!((blocking - (1.0 + 0.5 + 2.0 + 0.5 + 1.0)).abs() < 1e-12, "{blocking}");
    }
}
