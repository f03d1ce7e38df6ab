//! Groups in the order of their bounds, of which few are ever looked at: so each is bounded no better than it takes to know which
//! is next. A group waits with a bound that is cheap to have, and is bounded better when no other is before it.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use super::choose::ROUNDING;
use super::group::ChoiceGroup;

/// What a group is bounded by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BoundKind {
    /// Passes alone.
    Passes,
    /// Passes and chunks, without what micro-batches have on the host.
    Chunks,
    /// All that its bound knows.
    All,
}

/// A group that waits.
#[derive(Debug, Clone, Copy)]
struct QueuedGroup {
    /// No more than its bound.
    seconds: f64,
    /// Its position among all groups: of equal bounds the first is first.
    position: usize,
    by: BoundKind,
}

impl QueuedGroup {
    fn order(&self, other: &Self) -> Ordering {
        self.seconds.total_cmp(&other.seconds).then(self.position.cmp(&other.position))
    }
}

impl PartialEq for QueuedGroup {
    fn eq(&self, other: &Self) -> bool {
        self.order(other) == Ordering::Equal
    }
}

impl Eq for QueuedGroup {}

impl PartialOrd for QueuedGroup {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for QueuedGroup {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order(other)
    }
}

/// Groups with their bounds, the lowest first.
#[derive(Debug)]
pub(super) struct BestFirst<'a> {
    groups: Vec<ChoiceGroup<'a>>,
    waiting: BinaryHeap<Reverse<QueuedGroup>>,
}

impl<'a> BestFirst<'a> {
    pub(super) fn of(groups: Vec<ChoiceGroup<'a>>) -> Self {
        let of = |(position, group): (usize, &ChoiceGroup<'_>)| {
            let seconds = below(group.laid.ground.pass_seconds());
            Reverse(QueuedGroup { seconds, position, by: BoundKind::Passes })
        };
        let waiting = groups.iter().enumerate().map(of).collect();
        Self { groups, waiting }
    }

    /// All of them, in no order.
    pub(super) fn groups(&self) -> &[ChoiceGroup<'a>] {
        &self.groups
    }
}

impl<'a> Iterator for BestFirst<'a> {
    type Item = (ChoiceGroup<'a>, f64);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let Reverse(QueuedGroup { seconds, position, by }) = self.waiting.pop()?;
            let group = self.groups.get(position)?;
            let (seconds, by) = match by {
                BoundKind::Passes => (below(group.chunk_bound()), BoundKind::Chunks),
                BoundKind::Chunks => (group.bound(), BoundKind::All),
                BoundKind::All => return Some((*group, seconds)),
            };
            self.waiting.push(Reverse(QueuedGroup { seconds, position, by }));
        }
    }
}

/// Sums of fewer summands may be larger by their rounding.
fn below(seconds: f64) -> f64 {
    seconds * (1.0 - ROUNDING)
}
