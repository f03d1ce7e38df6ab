//! The layers beside which a layer's added memory is measured.
//!
//! `M_a(k) = PM(n..k) − PM(n..k−1)` holds for one set of neighbours `n..k−1` (CAPTURE, III-A1). Peaks
//! are maxima, not sums, so the choice of `n` decides how good CAPTURE's predictor is: with one
//! neighbour it overestimates, with all layers before `k` it often underestimates. Therefore the
//! set is a value that is chosen, passed on and reported, never an assumption.

/// The first neighbour of every layer but the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbours {
    /// `first[k]` for layer `k`; entry 0 is unused and 0.
    first: Vec<usize>,
}

impl Neighbours {
    /// CAPTURE's growing sets: blocks start at the multiples of L/G, rounded up, and the neighbours
    /// of a layer are all layers since the last block start *before* it. So a layer that starts a
    /// block has the whole block before it as neighbours (Description 1, lines 5 and 11).
    ///
    /// L = 30 over G = 4 has blocks of 8, 7, 8 and 7 layers. `blocks` of 0 count as 1.
    ///
    /// ```
    /// use loadmaster_predict::profiling::neighbours::Neighbours;
    ///
    /// let of = Neighbours::growing(30, 4);
    /// assert_eq!(of.first_of(8), Some(0), "a block's first layer has the block before it");
    /// assert_eq!(of.first_of(9), Some(8));
    /// ```
    pub fn growing(layers: usize, blocks: usize) -> Self {
        let starts = block_starts(layers, blocks);
        let mut start = 0;
        let first = (0..layers)
            .map(|layer| {
                // The last start below `layer`: starts ascend by at least 1.
                while starts.get(start + 1).is_some_and(|&next| next < layer) {
                    start += 1;
                }
                starts.get(start).copied().unwrap_or(0)
            })
            .collect();
        Self { first }
    }

    /// The `count` layers before each layer, fewer where there are not as many. One is enough to
    /// compute every `M_a` and too few to trust it.
    pub fn previous(layers: usize, count: usize) -> Self {
        let count = count.max(1);
        Self { first: (0..layers).map(|layer| layer.saturating_sub(count)).collect() }
    }

    /// All layers before each layer.
    pub fn from_first_layer(layers: usize) -> Self {
        Self { first: vec![0; layers] }
    }

    /// First neighbour of a layer; none for the first layer and for layers that do not exist.
    pub fn first_of(&self, layer: usize) -> Option<usize> {
        (layer > 0).then(|| self.first.get(layer).copied()).flatten()
    }

    /// The same sets but for one layer.
    #[must_use]
    pub(super) fn with(mut self, layer: usize, first: usize) -> Self {
        if let Some(entry) = self.first.get_mut(layer) {
            *entry = first.min(layer.saturating_sub(1));
        }
        self
    }

    /// Number of layers.
    pub fn layers(&self) -> usize {
        self.first.len()
    }

    /// The stages of several layers whose peaks the added memories are differences of, as (first,
    /// last) and in order of the last layer. The stages of one layer are needed besides.
    pub fn stages(&self) -> Vec<(usize, usize)> {
        let mut stages = Vec::new();
        for layer in 1..self.layers() {
            let first = self.first[layer];
            for stage in [(first, layer - 1), (first, layer)] {
                if stage.0 < stage.1 && !stages.contains(&stage) {
                    stages.push(stage);
                }
            }
        }
        stages
    }
}

/// Where each of `blocks` blocks of (almost) equal size starts.
pub(super) fn block_starts(layers: usize, blocks: usize) -> Vec<usize> {
    let blocks = blocks.clamp(1, layers.max(1));
    (0..blocks).map(|block| (block * layers).div_ceil(blocks)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The growing sets of VGG11 over four devices are those of blocks of 8, 7, 8 and 7 layers.
    #[test]
    fn a_growing_set_restarts_one_layer_after_each_multiple_of_l_over_g() {
        assert_eq!(block_starts(30, 4), [0, 8, 15, 23]);
        let neighbours = Neighbours::growing(30, 4);
        assert_eq!(neighbours.first_of(0), None);
        assert_eq!(neighbours.first_of(1), Some(0));
        assert_eq!(neighbours.first_of(8), Some(0), "line 5: the first device grows to L/G + 1");
        assert_eq!(neighbours.first_of(9), Some(8));
        assert_eq!(neighbours.first_of(15), Some(8));
        assert_eq!(neighbours.first_of(29), Some(23));
        assert_eq!(neighbours.first_of(30), None);
    }

    /// Every set is non-empty and ends right before its layer, whatever the numbers.
    #[test]
    fn every_layer_but_the_first_has_a_neighbour() {
        for layers in 1..=40 {
            for blocks in 0..=layers + 2 {
                let neighbours = Neighbours::growing(layers, blocks);
                for layer in 1..layers {
                    assert!(neighbours.first_of(layer).unwrap() < layer, "{layers} {blocks} {layer}");
                }
            }
        }
    }
}
