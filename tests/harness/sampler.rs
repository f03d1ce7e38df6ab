//! The same sample every time: a small generator whose numbers no release of a crate changes.

/// Splitmix64 (Steele, Lea and Flood, 2014).
#[derive(Debug, Clone)]
pub struct Sampler(u64);

impl Sampler {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is above zero; the bias of a remainder does not matter here.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// A number between two.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * ((self.next() >> 11) as f64 / (1_u64 << 53) as f64)
    }

    /// A number between two above 0, each order of magnitude as likely.
    pub fn scale(&mut self, low: f64, high: f64) -> f64 {
        self.between(low.ln(), high.ln()).exp()
    }

    /// A whole number from `low` to `high`, both included.
    pub fn whole(&mut self, low: u32, high: u32) -> u32 {
        low + self.below((high - low + 1) as usize) as u32
    }

    /// One of these, of which there is one at least.
    pub fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// True in so many of a hundred cases.
    pub fn percent(&mut self, percent: u32) -> bool {
        self.whole(0, 99) < percent
    }

    /// Each of these with some probability, at least one.
    pub fn some<T: Copy>(&mut self, of: &[T]) -> Vec<T> {
        let some: Vec<T> = of.iter().copied().filter(|_| self.percent(60)).collect();
        if some.is_empty() { vec![self.one(of)] } else { some }
    }

    /// `count` of the items, or all of them, in their order.
    pub fn pick<T: Clone>(&mut self, items: &[T], count: usize) -> Vec<T> {
        let mut left = count.min(items.len());
        let mut picked = Vec::with_capacity(left);
        for (index, item) in items.iter().enumerate() {
            if left > 0 && self.below(items.len() - index) < left {
                picked.push(item.clone());
                left -= 1;
            }
        }
        picked
    }

    /// Numbers of layers of `stages` stages that cover `layers` layers, each cut equally likely.
    pub fn sizes(&mut self, layers: usize, stages: usize) -> Vec<usize> {
        let cuts: Vec<usize> = (1..layers).collect();
        let mut bounds = vec![0];
        bounds.extend(self.pick(&cuts, stages.saturating_sub(1)));
        bounds.push(layers);
        bounds.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second run measures what the first one did.
    #[test]
    fn a_seed_gives_one_sample() {
        let items: Vec<usize> = (0..100).collect();
        let pick = |seed| Sampler::new(seed).pick(&items, 10);
        assert_eq!(pick(7), pick(7));
        assert_ne!(pick(7), pick(8));
        assert!(pick(7).is_sorted() && pick(7).len() == 10);
        assert_eq!(Sampler::new(1).pick(&items, 1_000), items);
    }

    #[test]
    fn sizes_cover_the_layers() {
        let mut sampler = Sampler::new(3);
        for _ in 0..200 {
            let sizes = sampler.sizes(9, 4);
            assert!(sizes.len() == 4 && sizes.iter().sum::<usize>() == 9 && !sizes.contains(&0), "{sizes:?}");
        }
        assert_eq!(sampler.sizes(4, 4), [1, 1, 1, 1]);
        assert_eq!(sampler.sizes(5, 1), [5]);
    }
}
