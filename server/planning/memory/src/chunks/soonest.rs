//! Groups in the order of their bounds, of which few are ever looked at: so each is bounded no better than it takes to know which
//! is next. A group waits with a bound that is cheap to have, and is bounded better when no other is before it.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use super::choose::ROUNDING;
use super::group::ChoiceGroup;

/// What a group is bounded by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bounded {
    /// Passes alone.
    Passes,
    /// Passes and chunks, without what micro-batches have on the host.
    Chunks,
    /// All that its bound knows.
    All,
}

/// A group that waits.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    /// No more than its bound.
    seconds: f64,
    /// Its position among all groups: of equal bounds the first is first.
    position: usize,
    by: Bounded,
}

impl Waiting {
    fn order(&self, other: &Self) -> Ordering {
        self.seconds.total_cmp(&other.seconds).then(self.position.cmp(&other.position))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.order(other) == Ordering::Equal
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order(other)
    }
}

/// Groups with their bounds, the lowest first.
#[derive(Debug)]
pub(super) struct Soonest<'a> {
    groups: Vec<ChoiceGroup<'a>>,
    waiting: BinaryHeap<Reverse<Waiting>>,
}

impl<'a> Soonest<'a> {
    pub(super) fn of(groups: Vec<ChoiceGroup<'a>>) -> Self {
        let of = |(position, group): (usize, &ChoiceGroup<'_>)| {
            let seconds = below(group.laid.ground.pass_seconds());
            Reverse(Waiting { seconds, position, by: Bounded::Passes })
        };
        let waiting = groups.iter().enumerate().map(of).collect();
        Self { groups, waiting }
    }

    /// All of them, in no order.
    pub(super) fn groups(&self) -> &[ChoiceGroup<'a>] {
        &self.groups
    }
}

impl<'a> Iterator for Soonest<'a> {
    type Item = (ChoiceGroup<'a>, f64);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let Reverse(Waiting { seconds, position, by }) = self.waiting.pop()?;
            let group = self.groups.get(position)?;
            let (seconds, by) = match by {
                Bounded::Passes => (below(group.chunk_bound()), Bounded::Chunks),
                Bounded::Chunks => (group.bound(), Bounded::All),
                Bounded::All => return Some((*group, seconds)),
            };
            self.waiting.push(Reverse(Waiting { seconds, position, by }));
        }
    }
}

/// Sums of fewer summands may be larger by their rounding.
fn below(seconds: f64) -> f64 {
    seconds * (1.0 - ROUNDING)
}
