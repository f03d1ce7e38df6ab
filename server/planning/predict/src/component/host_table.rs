//! An embedding whose table of tokens is on the host: rows come instead of being looked up, and no gradient of the table is made.
//!
//! The rows are what a lookup makes, and live as long; of what the layer recorded the gradient of the table alone is missing.
//! What else kernels of a GPU took to make it still counts: then a little less is needed than is said. The layer's tokens live until
//! its backward pass as well, but are nothing that autograd saves: they do not leave.

use loadmaster_proto::measure::tape::{LayerTape, Passage, Slot, block_of};

use super::tied_weights::counterpart;

/// The tape of an embedding without the gradient of its table, of so many bytes.
pub(super) fn without_table(tape: &LayerTape, bytes: u64) -> LayerTape {
    let LayerTape { first, later, .. } = tape;
    // Rows are taken first, so their gradients are found last.
    let created = first.left().into_iter().rev().find(|&block| first.blocks.get(block) == Some(&bytes));
    let Some(created) = created else { return tape.clone() };
    let of_later = counterpart(first, later, created);
    LayerTape {
        first: without(first, created),
        later: of_later.map_or_else(|| later.clone(), |block| without(later, block)),
        ..tape.clone()
    }
}

/// A passage in whose backward pass a block is never made, and in which autograd does not save what the layer takes.
fn without(passage: &Passage, block: usize) -> Passage {
    let mut passage = passage.clone();
    passage.slots[Slot::Backward as usize].retain(|&event| block_of(event).0 != block);
    passage.saved.retain(|saved| !passage.inputs.contains(saved));
    passage
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::measure::tape::{Event, TapeStep};

    use super::*;

    /// Blocks: gradient of the output, of positions, of the table, and one of a later pass.
    #[test]
    fn the_gradient_of_the_table_is_gone_and_nothing_else() {
        let passage = |backward: &[Event]| Passage {
            blocks: vec![10, 70, 500],
            inputs: vec![0],
            slots: [vec![], vec![], vec![], vec![1], backward.to_vec(), vec![]],
            ..Passage::default()
        };
        let tape = |first: &[Event], later: &[Event]| LayerTape {
            layer: 0,
            content: "embedding".to_owned(),
            first: passage(first),
            later: passage(later),
            without_graph: Passage::default(),
            untrained_input: None,
            step: TapeStep::default(),
            has_saved: false,
            overhead: 0,
        };
        let whole = tape(&[2, 3, -1], &[2, -2, 3, -3, -1]);
        assert_eq!(without_table(&whole, 500), tape(&[2, -1], &[2, -2, -1]));
        assert_eq!(without_table(&whole, 501), whole, "nothing of that size is made");
        // What it takes is not saved, what is at other places is.
        let saving = |saved: &[u32]| {
            let mut tape = tape(&[2, 3, -1], &[2, -2, 3, -3, -1]);
            tape.first.saved = saved.to_vec();
            without_table(&tape, 500).first.saved
        };
        assert_eq!(saving(&[0, 1]), [1]);
    }
}
