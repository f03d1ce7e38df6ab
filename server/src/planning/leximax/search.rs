//! The dynamic program behind [`balance`](super::balance).
//!
//! Two passes from the last stage to the first. The first one finds the *bottleneck*, the smallest
//! possible highest peak of the stages that are left, for every number of stages and layers left:
//! plain numbers, cheap to compare. The second one keeps the best sorted vector of peaks per state,
//! but only of states and stages at or below the whole model's bottleneck. Nothing above it can be part
//! of an optimum, and that is most of them.

use std::cmp::Ordering;

/// The best rest of a pipeline from some layer on.
#[derive(Debug, Clone)]
struct Rest {
    /// Its peaks, highest first.
    peaks: Vec<u64>,
    /// Its place in the order of all rests of equally many stages; equal peaks share one.
    rank: usize,
}

/// The sizes of the stages of the leximax-smallest partitioning; none when `cost` allows none.
///
/// `cost(stage, first, last)` is none where the stage must not be. Ties: the smallest first stage,
/// then the smallest second one, and so on.
pub(super) fn search(
    layers: usize,
    stages: usize,
    cost: impl Fn(usize, usize, usize) -> Option<u64>,
) -> Option<Vec<usize>> {
    let shape = Shape { layers, stages };
    let bottlenecks = bottlenecks(&shape, &cost);
    let limit = bottlenecks.first()?.first().copied().flatten()?;

    // `ends[stage][first]`: where the stage ends (exclusive) in the best rest from `first` on.
    let mut ends: Vec<Vec<usize>> = vec![Vec::new(); stages];
    let mut rests: Vec<Option<Rest>> = vec![None; layers + 1];
    rests[layers] = Some(Rest { peaks: Vec::new(), rank: 0 });
    for stage in (0..stages).rev() {
        let mut best: Vec<Option<Rest>> = vec![None; layers + 1];
        ends[stage] = vec![0; layers + 1];
        for first in shape.firsts(stage) {
            if bottlenecks[stage][first].is_none_or(|bottleneck| bottleneck > limit) {
                continue;
            }
            let mut choice: Option<(u64, &Rest, usize)> = None;
            for end in shape.ends(stage, first) {
                let Some(rest) = &rests[end] else { continue };
                let Some(peak) = cost(stage, first, end - 1).filter(|&peak| peak <= limit) else { continue };
                // Ends ascend and only a strictly better one replaces, so ties go to the smallest.
                if choice.is_none_or(|(other, others, _)| compare(peak, rest, other, others).is_lt()) {
                    choice = Some((peak, rest, end));
                }
            }
            if let Some((peak, rest, end)) = choice {
                let peaks = inserted(&peak, &rest.peaks).copied().collect();
                best[first] = Some(Rest { peaks, rank: 0 });
                ends[stage][first] = end;
            }
        }
        rank(&mut best);
        rests = best;
    }

    rests[0].as_ref()?;
    let mut first = 0;
    let sizes = ends.iter().map(|ends| {
        let size = ends[first] - first;
        first = ends[first];
        size
    });
    Some(sizes.collect())
}

/// Which states exist: every stage has at least one layer.
pub(super) struct Shape {
    pub(super) layers: usize,
    pub(super) stages: usize,
}

impl Shape {
    /// First layers that stage `stage` can have.
    pub(super) fn firsts(&self, stage: usize) -> std::ops::RangeInclusive<usize> {
        let most = self.layers - (self.stages - stage);
        if stage == 0 { 0..=0 } else { stage..=most }
    }

    /// Ends (exclusive) that it can have from `first` on.
    pub(super) fn ends(&self, stage: usize, first: usize) -> std::ops::RangeInclusive<usize> {
        let after = self.stages - stage - 1;
        if after == 0 { self.layers..=self.layers } else { first + 1..=self.layers - after }
    }
}

/// `[stage][first]`: the smallest possible highest peak of the stages from `stage` on when they hold
/// the layers from `first` on; none where no partitioning is allowed.
fn bottlenecks(shape: &Shape, cost: &impl Fn(usize, usize, usize) -> Option<u64>) -> Vec<Vec<Option<u64>>> {
    let mut all = vec![vec![None; shape.layers + 1]; shape.stages + 1];
    all[shape.stages][shape.layers] = Some(0);
    for stage in (0..shape.stages).rev() {
        for first in shape.firsts(stage) {
            all[stage][first] = shape
                .ends(stage, first)
                .filter_map(|end| {
                    let tail = all[stage + 1][end]?;
                    Some(cost(stage, first, end - 1)?.max(tail))
                })
                .min();
        }
    }
    all
}

/// Numbers the rests by their order.
fn rank(rests: &mut [Option<Rest>]) {
    let mut sorted: Vec<&mut Rest> = rests.iter_mut().flatten().collect();
    sorted.sort_by(|a, b| a.peaks.cmp(&b.peaks));
    for next in 1..sorted.len() {
        let same = sorted[next].peaks == sorted[next - 1].peaks;
        sorted[next].rank = sorted[next - 1].rank + usize::from(!same);
    }
}

/// Compares `a` put in its place among `rest_a` with `b` among `rest_b`, highest peak first.
///
/// Putting the same peak into two rests keeps their order, so only where the peaks and the rests
/// disagree do the vectors have to be read. With many ties that is what most of the time is saved on.
fn compare(a: u64, rest_a: &Rest, b: u64, rest_b: &Rest) -> Ordering {
    match (a.cmp(&b), rest_a.rank.cmp(&rest_b.rank)) {
        (Ordering::Equal, order) | (order, Ordering::Equal) => order,
        (peaks, rests) if peaks == rests => peaks,
        _ => inserted(&a, &rest_a.peaks).cmp(inserted(&b, &rest_b.peaks)),
    }
}

/// The peaks of a rest with one more in its place.
fn inserted<'a>(peak: &'a u64, rest: &'a [u64]) -> impl Iterator<Item = &'a u64> {
    let (above, below) = rest.split_at(rest.partition_point(|other| other > peak));
    above.iter().chain(std::iter::once(peak)).chain(below)
}
