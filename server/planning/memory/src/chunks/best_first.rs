//! Groups of choices that differ in intervals alone, in the order of their bounds. Few are ever looked at: so each
//! is bounded no better than it takes to know which is next. A group waits with a bound that is cheap to have, and
//! is bounded better when no other is before it.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use loadmaster_proto::chunks::host::HostParameters;

use super::choose::ROUNDING;
use super::layout_evaluation::LayoutEvaluation;
use super::question::ChunkQuestion;

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

/// Choices that differ in intervals alone.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChoiceGroup<'a> {
    pub(super) laid: &'a LayoutEvaluation<'a>,
    pub(super) host_copy: HostParameters,
    pub(super) on_device: usize,
    /// Whether none of those that differ in nothing else has fewer on the device.
    pub(super) is_first: bool,
}

impl<'a> ChoiceGroup<'a> {
    /// All that there is room for.
    pub(super) fn all(laid: &'a [LayoutEvaluation<'a>]) -> Vec<Self> {
        let mut groups = Vec::new();
        for laid in laid {
            let Some(most) = laid.most_that_fit() else { continue };
            for &host_copy in &laid.question.choices.host_copies {
                let Some(fewest) = laid.fewest_for_host(host_copy) else { continue };
                let counts = counts(laid.question, (fewest, most)).into_iter().enumerate();
                groups.extend(counts.map(|(index, on_device)| Self {
                    laid,
                    host_copy,
                    on_device,
                    is_first: index == 0,
                }));
            }
        }
        groups
    }

    /// No intervals take fewer seconds.
    pub(super) fn bound(&self) -> f64 {
        self.laid.bound(self.on_device)
    }

    /// The same without what micro-batches have on the host.
    pub(super) fn chunk_bound(&self) -> f64 {
        self.laid.chunk_bound(self.on_device)
    }
}

/// How many chunks' state may be on the device: the fewest and the most that there is room for, and powers of two between.
fn counts(question: &ChunkQuestion, (fewest, most): (usize, usize)) -> Vec<usize> {
    if fewest > most {
        return Vec::new();
    }
    if question.choices.on_device.is_some() {
        return vec![most];
    }
    let powers = (0..usize::BITS).map(|power| 1 << power).take_while(|&count: &usize| count < most);
    let powers = powers.filter(|&count| count > fewest);
    let mut counts: Vec<usize> = [fewest].into_iter().chain(powers).chain([most]).collect();
    counts.dedup();
    counts
}
