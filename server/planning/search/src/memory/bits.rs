//! Rows of bits: sets of layers, by the hundred thousand.

use std::ops::Range;

/// Rows of equally many bits.
#[derive(Debug, Clone)]
pub(super) struct Bits {
    words: Vec<u64>,
    /// Words of a row.
    width: usize,
}

impl Bits {
    /// All bits clear.
    pub(super) fn new(rows: usize, bits: usize) -> Self {
        let width = bits.div_ceil(64).max(1);
        Self { words: vec![0; rows * width], width }
    }

    pub(super) fn row(&self, row: usize) -> &[u64] {
        &self.words[row * self.width..(row + 1) * self.width]
    }

    pub(super) fn set(&mut self, row: usize, bit: usize) {
        self.words[row * self.width + bit / 64] |= 1 << (bit % 64);
    }

    /// Sets a bit where that is said, without a branch: it is said of every other one, in no order.
    pub(super) fn set_if(&mut self, row: usize, bit: usize, is_so: bool) {
        self.words[row * self.width + bit / 64] |= u64::from(is_so) << (bit % 64);
    }

    /// Sets bits that follow each other.
    pub(super) fn set_all(&mut self, row: usize, bits: Range<usize>) {
        let words = &mut self.words[row * self.width..(row + 1) * self.width];
        for (index, word) in words.iter_mut().enumerate() {
            let [from, to] = [bits.start, bits.end].map(|bit| bit.saturating_sub(64 * index).min(64));
            if from < to {
                *word |= u64::MAX >> (64 - (to - from)) << from;
            }
        }
    }

    pub(super) fn has(&self, row: usize, bit: usize) -> bool {
        self.words[row * self.width + bit / 64] & (1 << (bit % 64)) != 0
    }

    /// Adds the bits that two other sets have in common to a row.
    pub(super) fn add_common(&mut self, row: usize, one: &[u64], other: &[u64]) {
        let words = &mut self.words[row * self.width..(row + 1) * self.width];
        words.iter_mut().zip(one.iter().zip(other)).for_each(|(word, (a, b))| *word |= a & b);
    }

    /// The bits that are set, ascending.
    pub(super) fn ones(words: &[u64]) -> impl Iterator<Item = usize> {
        Self::common(words, words)
    }

    /// The bits that are set in both, ascending.
    pub(super) fn common<'a>(one: &'a [u64], other: &'a [u64]) -> impl Iterator<Item = usize> + 'a {
        one.iter().zip(other).enumerate().flat_map(|(index, (a, b))| {
            let mut word = a & b;
            std::iter::from_fn(move || {
                let bit = (word != 0).then(|| word.trailing_zeros() as usize)?;
                word &= word - 1;
                Some(index * 64 + bit)
            })
        })
    }

    /// Whether both have a bit in common.
    pub(super) fn meet(one: &[u64], other: &[u64]) -> bool {
        one.iter().zip(other).any(|(a, b)| a & b != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows do not touch each other, at the edges of words neither.
    #[test]
    fn rows_are_sets() {
        let mut bits = Bits::new(3, 130);
        for (from, to) in [(0, 130), (0, 0), (7, 7), (63, 65), (64, 128), (5, 6), (128, 130)] {
            bits.set_all(0, from..to);
            assert!(Bits::ones(bits.row(0)).eq(from..to), "{from}..{to}");
            bits = Bits::new(3, 130);
        }
        [0, 63, 64, 129].into_iter().for_each(|bit| bits.set(1, bit));
        bits.set_all(2, 60..70);
        assert_eq!(Bits::ones(bits.row(1)).collect::<Vec<_>>(), [0, 63, 64, 129]);
        assert_eq!(Bits::common(bits.row(1), bits.row(2)).collect::<Vec<_>>(), [63, 64]);
        assert!(Bits::ones(bits.row(0)).next().is_none());
        assert!(bits.has(1, 129) && !bits.has(1, 128));
        assert!(Bits::meet(bits.row(1), bits.row(2)) && !Bits::meet(bits.row(0), bits.row(2)));
        let (one, other) = (bits.row(1).to_vec(), bits.row(2).to_vec());
        bits.add_common(0, &one, &other);
        assert_eq!(Bits::ones(bits.row(0)).collect::<Vec<_>>(), [63, 64]);
    }
}
