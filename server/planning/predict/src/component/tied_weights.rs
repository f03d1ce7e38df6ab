//! A weight that the first and the last layer share, where one stage holds both.
//!
//! There the head's backward pass creates the gradient and the embedding's adds to it in the same
//! micro-batch, and there is one weight to update. Where one graph has both, autograd holds what the head computed back
//! until the embedding has computed its part, and adds both up at once. No layer alone shows that.

use loadmaster_proto::measure::trace::{Event, LayerTrace, Passage, Slot, block_of};

/// What is played of a stage's ends instead of their own passages.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TiedEnds {
    /// The embedding's first passage where the gradient of the shared weight exists already: its own contribution is
    /// freed when it has been added, as in later passages.
    pub(super) embedding_first: Passage,
    /// The head's later passages in one graph with the embedding: its contribution is there until the graph's end.
    pub(super) head_later: Passage,
}

impl TiedEnds {
    /// The ends of a stage whose shared weight has a gradient of so many bytes.
    pub(super) fn of(embedding: &LayerTrace, head: &LayerTrace, shared_bytes: u64) -> Self {
        Self {
            embedding_first: adding_to_shared(&embedding.first, &embedding.later, shared_bytes),
            head_later: held_back(&head.first, &head.later, shared_bytes),
        }
    }
}

/// The block that a first passage leaves behind as a gradient of so many bytes.
fn created(first: &Passage, bytes: u64) -> Option<usize> {
    first.left().into_iter().find(|&block| first.blocks.get(block) == Some(&bytes))
}

fn adding_to_shared(first: &Passage, later: &Passage, shared_bytes: u64) -> Passage {
    let backward = Slot::Backward as usize;
    let Some(created) = created(first, shared_bytes) else { return first.clone() };
    let mut passage = first.clone();
    let events = first.slot(Slot::Backward);
    let at = place_of_free(first, later, created).unwrap_or(events.len());
    let freed = Event::try_from(created + 1).map_or(0, |number| -number);
    passage.slots[backward].insert(at, freed);
    passage
}

fn held_back(first: &Passage, later: &Passage, shared_bytes: u64) -> Passage {
    let mut passage = later.clone();
    let of_later = created(first, shared_bytes).and_then(|created| counterpart(first, later, created));
    if let Some(block) = of_later {
        passage.slots[Slot::Backward as usize].retain(|&event| block_of(event) != (block, false));
    }
    passage
}

/// The block of a later backward pass that is allocated as the `created` one of the first.
pub(super) fn counterpart(first: &Passage, later: &Passage, created: usize) -> Option<usize> {
    let allocated = |passage: &Passage| -> Vec<usize> {
        let events = passage.slot(Slot::Backward).iter().map(|&event| block_of(event));
        events.filter(|&(_, allocated)| allocated).map(|(block, _)| block).collect()
    };
    let ordinal = allocated(first).into_iter().position(|block| block == created)?;
    allocated(later).get(ordinal).copied()
}

/// Where in the first backward pass the block would be freed if it were a later one: after as many
/// allocations as there.
fn place_of_free(first: &Passage, later: &Passage, created: usize) -> Option<usize> {
    let is_allocation = |event: &&Event| **event > 0;
    let events = later.slot(Slot::Backward);
    let counterpart = counterpart(first, later, created)?;
    let freed = events.iter().position(|&event| block_of(event) == (counterpart, false))?;
    let allocations_before = events[..freed].iter().filter(is_allocation).count();
    let mut seen = 0;
    for (position, &event) in first.slot(Slot::Backward).iter().enumerate() {
        if event > 0 {
            if seen == allocations_before {
                return Some(position);
            }
            seen += 1;
        }
    }
    Some(first.slot(Slot::Backward).len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks: gradient of the output, of the token table, of the position table.
    #[test]
    fn the_shared_gradient_is_freed_where_later_passages_free_it() {
        let passage = |backward: &[Event]| Passage {
            blocks: vec![10, 500, 70],
            slots: [vec![], vec![], vec![], vec![1], backward.to_vec(), vec![]],
            ..Passage::default()
        };
        let first = passage(&[2, 3, -1]);
        let later = passage(&[2, -2, 3, -3, -1]);
        assert_eq!(adding_to_shared(&first, &later, 500), passage(&[2, -2, 3, -1]));
        assert_eq!(adding_to_shared(&first, &later, 501), first, "nothing of that size is created");
        let late = passage(&[2, 3, -3, -1, -2]);
        assert_eq!(adding_to_shared(&first, &late, 500), passage(&[2, 3, -1, -2]));
    }

    /// Blocks: gradient of the output, of the weight, of the input.
    #[test]
    fn what_the_head_computed_is_held_back() {
        let passage = |backward: &[Event]| Passage {
            blocks: vec![10, 500, 70],
            slots: [vec![], vec![], vec![], vec![1], backward.to_vec(), vec![-3]],
            ..Passage::default()
        };
        let (first, later) = (passage(&[2, 3, -1]), passage(&[2, 3, -2, -1]));
        assert_eq!(held_back(&first, &later, 500), passage(&[2, 3, -1]));
        assert_eq!(held_back(&first, &later, 501), later, "nothing of that size is created");
    }
}
