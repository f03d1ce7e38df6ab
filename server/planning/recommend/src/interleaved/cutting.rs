//! Where a chain is best cut into a number of stages: all ways where they are few, else from a fair one by small moves.

use std::cmp::Ordering;

use loadmaster_search::{Cuts, Stop};

/// How long a search may go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Patience {
    /// Most ways to cut that are all looked at.
    pub(super) ways: u64,
    /// Most ways that are looked at one move from another.
    pub(super) moves: u64,
    /// How many ways are wanted that come next to the best.
    pub(super) next: usize,
}

impl Patience {
    /// Of who takes the best way that is found.
    pub(super) const ALL: Self = Self { ways: 6_000, moves: 20_000, next: 0 };
    /// Of who only looks for where to begin.
    pub(super) const SOME: Self = Self { ways: 1_500, moves: 1_500, next: 0 };
}

/// The number of best ways to cut that a search keeps, unless the caller wants more.
const TOLD: usize = 8;

/// What a way to cut is worth: less is better.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Worth {
    /// Bytes that devices lack, or by how much limits are exceeded: nothing counts before that.
    pub(super) lacks: f64,
    /// What is asked for, the most important first.
    pub(super) values: Vec<f64>,
}

impl Worth {
    /// Which one is better, that first.
    pub(super) fn by(&self, other: &Self) -> Ordering {
        let values = || {
            let pairs = self.values.iter().zip(&other.values);
            pairs.map(|(own, other)| own.total_cmp(other)).find(|of| of.is_ne()).unwrap_or(Ordering::Equal)
        };
        self.lacks.total_cmp(&other.lacks).then_with(values)
    }
}

/// Says what a way to cut is worth, by the last layers of its stages. It may leave out one that is no better than another one: the best
/// so far, or the last of those that are wanted.
pub(super) type Weigh<'a> = dyn FnMut(&[usize], Option<&Worth>) -> Option<Worth> + 'a;

/// A way to cut.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Cut {
    /// The last layer of each stage.
    pub(super) ends: Vec<usize>,
    pub(super) worth: Worth,
}

/// What a search for the best one came to.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Cutting {
    /// The best ones of those that were weighed, best first; none where no way is allowed, or none has a worth.
    pub(super) found: Vec<Cut>,
    /// Whether all ways were looked at.
    pub(super) is_complete: bool,
    /// Ways that were looked at.
    pub(super) looked_at: u64,
}

/// Looks for the best way to cut a chain into so many stages. `weights` say how much each layer has to do, which is where the search
/// begins.
pub(super) fn cut<'a>(
    cuts: &Cuts,
    weights: &[f64],
    stages: usize,
    (patience, stop): (Patience, &'a Stop),
    weigh: &'a mut Weigh<'a>,
) -> Cutting {
    let layers = weights.len();
    let inner = || 0..layers.saturating_sub(1);
    let allowed: Vec<usize> = inner().filter(|&layer| cuts.may_end(layer)).collect();
    let required: Vec<usize> = inner().filter(|&layer| cuts.must_end(layer)).collect();
    let mut search = CutSearch { found: Vec::new(), looked_at: 0, layers, patience, stop, weigh };
    let inside = stages.saturating_sub(1);
    let is_possible = stages > 0
        && layers >= stages
        && allowed.len() >= inside
        && required.len() <= inside
        && required.iter().all(|layer| allowed.contains(layer));
    if !is_possible {
        return search.ended(true);
    }
    let free: Vec<usize> = allowed.iter().copied().filter(|layer| !required.contains(layer)).collect();
    let is_small = ways(free.len(), inside - required.len(), patience.ways) <= patience.ways;
    if is_small {
        search.all(&free, &required, inside - required.len());
        let is_complete = !stop.is_requested();
        return search.ended(is_complete);
    }
    search.from(fair(&allowed, &required, weights, stages), &allowed, &required);
    search.ended(false)
}

/// How many ways there are to choose some of so many, as far as there are no more than `most`.
fn ways(of: usize, some: usize, most: u64) -> u64 {
    let mut ways = 1_u64;
    for index in 0..some.min(of.saturating_sub(some)) {
        ways = ways.saturating_mul((of - index) as u64) / (index as u64 + 1);
        if ways > most {
            return u64::MAX;
        }
    }
    ways
}

/// Ends of stages that have about equally much to do.
fn fair(allowed: &[usize], required: &[usize], weights: &[f64], stages: usize) -> Vec<usize> {
    let all: f64 = weights.iter().sum();
    let mut done = 0.0;
    let sums: Vec<f64> = weights
        .iter()
        .map(|weight| {
            done += weight;
            done
        })
        .collect();
    let mut ends = required.to_vec();
    for stage in 1..stages {
        if ends.len() + 1 == stages {
            break;
        }
        let wanted = all * stage as f64 / stages as f64;
        let off = |layer: usize| (sums.get(layer).copied().unwrap_or(0.0) - wanted).abs();
        let nearest = allowed.iter().filter(|layer| !ends.contains(layer));
        if let Some(&nearest) = nearest.min_by(|&&one, &&other| off(one).total_cmp(&off(other))) {
            ends.push(nearest);
        }
    }
    ends.sort_unstable();
    ends
}

struct CutSearch<'a> {
    found: Vec<Cut>,
    looked_at: u64,
    layers: usize,
    patience: Patience,
    stop: &'a Stop,
    weigh: &'a mut Weigh<'a>,
}

impl CutSearch<'_> {
    fn ended(self, is_complete: bool) -> Cutting {
        Cutting { found: self.found, is_complete, looked_at: self.looked_at }
    }

    /// Looks at a way, by the ends of all stages but the last one. Whether it is the best so far.
    fn look(&mut self, inner: &[usize]) -> bool {
        let mut ends = inner.to_vec();
        ends.push(self.layers - 1);
        self.looked_at += 1;
        let known = self.found.get(self.patience.next).map(|last| &last.worth);
        let Some(worth) = (self.weigh)(&ends, known) else { return false };
        let at = self.found.partition_point(|known| known.worth.by(&worth).is_le());
        let told = TOLD.max(self.patience.next + 1);
        if at < told && self.found.iter().all(|known| known.ends != ends) {
            self.found.insert(at, Cut { ends, worth });
            self.found.truncate(told);
            return at == 0;
        }
        false
    }

    /// All ways to choose so many of the free ends besides the required ones, in order.
    fn all(&mut self, free: &[usize], required: &[usize], some: usize) {
        let mut chosen: Vec<usize> = (0..some).collect();
        loop {
            let mut inner: Vec<usize> = chosen.iter().map(|&index| free[index]).collect();
            inner.extend_from_slice(required);
            inner.sort_unstable();
            self.look(&inner);
            if self.stop.is_requested() {
                return;
            }
            // The last one that can go on does, and those behind it follow it.
            let last = (0..some).rev().find(|&at| chosen[at] < free.len() - some + at);
            let Some(at) = last else { return };
            chosen[at] += 1;
            for behind in at + 1..some {
                chosen[behind] = chosen[behind - 1] + 1;
            }
        }
    }

    /// Moves neighbouring ends one allowed place on or back, as long as that makes it better.
    fn from(&mut self, first: Vec<usize>, allowed: &[usize], required: &[usize]) {
        self.look(&first);
        let mut now = first;
        loop {
            let mut better = None;
            for from in 0..now.len() {
                for to in from..now.len() {
                    for is_on in [true, false] {
                        if self.stop.is_requested() || self.looked_at >= self.patience.moves {
                            return;
                        }
                        let Some(moved) = moved(&now, from..to + 1, is_on, allowed, required) else {
                            continue;
                        };
                        if self.look(&moved) {
                            better = Some(moved);
                        }
                    }
                }
            }
            let Some(better) = better else { return };
            now = better;
        }
    }
}

/// The ends with some of them one allowed place further on or back; none where one must stay, or would meet another.
fn moved(
    ends: &[usize],
    some: std::ops::Range<usize>,
    is_on: bool,
    allowed: &[usize],
    required: &[usize],
) -> Option<Vec<usize>> {
    let mut moved = ends.to_vec();
    for end in &mut moved[some] {
        if required.contains(end) {
            return None;
        }
        let at = allowed.binary_search(end).ok()?;
        *end = *allowed.get(if is_on { at + 1 } else { at.checked_sub(1)? })?;
    }
    moved.windows(2).all(|pair| pair[0] < pair[1]).then_some(moved)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What is worth least by the sum of squares of what stages have to do, of which a device lacks what is above a cap.
    fn weigh(ends: &[usize], weights: &[f64], cap: f64) -> Worth {
        let mut first = 0;
        let (mut lacks, mut sum) = (0.0, 0.0);
        for &end in ends {
            let own: f64 = weights[first..=end].iter().sum();
            lacks += (own - cap).max(0.0);
            sum += own * own;
            first = end + 1;
        }
        Worth { lacks, values: vec![sum] }
    }

    /// Every way to cut, by which layers end a stage, without any order of looking.
    fn brute(cuts: &Cuts, weights: &[f64], stages: usize, cap: f64) -> (Option<Worth>, u64) {
        let inner = weights.len() - 1;
        let (mut best, mut ways): (Option<Worth>, u64) = (None, 0);
        for mask in 0_u32..1 << inner {
            let is_end = |layer: usize| mask & 1 << layer != 0;
            let keeps = |layer: usize| match is_end(layer) {
                true => cuts.may_end(layer),
                false => !cuts.must_end(layer),
            };
            if mask.count_ones() as usize + 1 != stages || !(0..inner).all(keeps) {
                continue;
            }
            ways += 1;
            let mut ends: Vec<usize> = (0..inner).filter(|&layer| is_end(layer)).collect();
            ends.push(inner);
            let worth = weigh(&ends, weights, cap);
            if best.as_ref().is_none_or(|best| worth.by(best).is_lt()) {
                best = Some(worth);
            }
        }
        (best, ways)
    }

    proptest! {
        /// Where all ways are looked at each is looked at once, and the best of them is found, whatever must be kept together or cut.
        #[test]
        fn of_few_ways_the_best_is_found(
            weights in prop::collection::vec(1.0..9.0_f64, 2..10),
            stages in 1_usize..6,
            together in prop::option::of((0_usize..8, 1_usize..3)),
            required in prop::option::of(0_usize..8),
            cap in 3.0..40.0_f64,
        ) {
            let mut cuts = Cuts::anywhere(weights.len());
            if let Some((first, more)) = together {
                cuts.keep_together(first..=first + more);
            }
            if let Some(layer) = required.filter(|&layer| layer + 1 < weights.len()) {
                cuts.require_after(layer);
            }
            let found = cut(&cuts, &weights, stages, (Patience::ALL, &Stop::default()), &mut |ends, _| {
                Some(weigh(ends, &weights, cap))
            });
            let (best, ways) = brute(&cuts, &weights, stages, cap);
            prop_assert!(found.is_complete);
            prop_assert_eq!(found.looked_at, ways);
            match (found.found.first().map(|best| best.worth.clone()), best) {
                (Some(found), Some(best)) => prop_assert!(found.by(&best).is_eq(), "{found:?} {best:?}"),
                (found, best) => prop_assert_eq!(found, best),
            }
        }
    }

    /// Of too many ways some are looked at; of layers that are alike the fair way is found, and it is not called complete.
    #[test]
    fn of_many_ways_a_fair_one_is_found() {
        let weights = vec![1.0; 96];
        let cuts = Cuts::anywhere(96);
        let weigh = |ends: &[usize]| Some(weigh(ends, &weights, 100.0));
        let found = cut(&cuts, &weights, 16, (Patience::ALL, &Stop::default()), &mut |ends, _| weigh(ends));
        assert!(!found.is_complete);
        assert_eq!(found.found[0].worth.values, [16.0 * 36.0]);
    }
}
