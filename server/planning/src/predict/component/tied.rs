//! A weight that the first and the last layer share, where one stage holds both.
//!
//! There the head's backward pass creates the gradient and the embedding's adds to it in the same
//! micro-batch, and there is one weight to update. No layer alone shows that.

use loadmaster_proto::measure::tape::{Event, Passage, Slot, block_of};

/// The embedding's first passage where the gradient of the shared weight, of this many bytes, exists
/// already: its own contribution to that gradient is freed when it has been added, as in later passages.
pub(super) fn adding_to_shared(first: &Passage, later: &Passage, shared_bytes: u64) -> Passage {
    let backward = Slot::Backward as usize;
    let created = first.left().into_iter().find(|&block| first.blocks.get(block) == Some(&shared_bytes));
    let Some(created) = created else { return first.clone() };
    let mut passage = first.clone();
    let events = first.slot(Slot::Backward);
    let at = place_of_free(first, later, created).unwrap_or(events.len());
    let freed = Event::try_from(created + 1).map_or(0, |number| -number);
    passage.slots[backward].insert(at, freed);
    passage
}

/// Where in the first backward pass the block would be freed if it were a later one: after as many
/// allocations as there.
fn place_of_free(first: &Passage, later: &Passage, created: usize) -> Option<usize> {
    let is_allocation = |event: &&Event| **event > 0;
    let number = |passage: &Passage, block: usize| {
        passage
            .slot(Slot::Backward)
            .iter()
            .filter(is_allocation)
            .position(|&event| block_of(event).0 == block)
    };
    let ordinal = number(first, created)?;
    let events = later.slot(Slot::Backward);
    let counterpart = events.iter().filter(is_allocation).nth(ordinal).map(|&event| block_of(event).0)?;
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
}
