//! Many things in a row, drawn in few places.

use std::ops::Range;

/// Things in a row, in pieces that are as equal as can be, none of them empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pieces {
    things: usize,
    pieces: usize,
}

impl Pieces {
    /// So many things in at most so many pieces.
    pub(crate) fn new(things: usize, most: usize) -> Self {
        // Products of both stay within 64 bits.
        let things = things.min(u32::MAX as usize);
        Self { things, pieces: most.clamp(1, u32::MAX as usize).min(things) }
    }

    /// How many pieces there are.
    pub(crate) fn len(self) -> usize {
        self.pieces
    }

    /// The things of a piece.
    pub(crate) fn range(self, piece: usize) -> Range<usize> {
        let from = |piece: usize| piece.min(self.pieces) * self.things / self.pieces.max(1);
        from(piece)..from(piece.saturating_add(1))
    }

    /// The things of each piece, in order.
    pub(crate) fn ranges(self) -> impl Iterator<Item = Range<usize>> {
        (0..self.pieces).map(move |piece| self.range(piece))
    }

    /// The piece that a thing is in; of things behind the last one the last piece.
    pub(crate) fn of(self, thing: usize) -> usize {
        let thing = thing.min(self.things.saturating_sub(1));
        ((thing + 1) * self.pieces).saturating_sub(1) / self.things.max(1)
    }

    /// Things of the largest piece.
    pub(crate) fn largest(self) -> usize {
        self.things.div_ceil(self.pieces.max(1))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Every thing is in exactly one piece, which says so.
        #[test]
        fn pieces_are_all_things_once(things in 0..400_usize, most in 0..300_usize) {
            let pieces = Pieces::new(things, most);
            let all: Vec<usize> = pieces.ranges().flatten().collect();
            prop_assert_eq!(all, (0..things).collect::<Vec<_>>());
            for (piece, range) in pieces.ranges().enumerate() {
                prop_assert!(!range.is_empty() && range.len() <= pieces.largest());
                prop_assert!(range.clone().all(|thing| pieces.of(thing) == piece));
            }
            let sizes = || pieces.ranges().map(|range| range.len());
            prop_assert!(sizes().max().unwrap_or(0) - sizes().min().unwrap_or(0) <= 1);
            prop_assert!(pieces.len() <= most.max(1));
        }
    }

    #[test]
    fn strange_numbers_are_pieces_of_something() {
        for (things, most) in [(usize::MAX, usize::MAX), (0, 0), (1, usize::MAX), (usize::MAX, 0)] {
            let pieces = Pieces::new(things, most);
            for at in [0, 1, usize::MAX] {
                assert!(pieces.of(at) < pieces.len().max(1), "{things} {most}");
                assert!(pieces.range(at).len() <= pieces.largest(), "{things} {most}");
            }
        }
    }
}
