//! Caches of the host that have nothing of what is measured next, as in training.

use std::fs;
use std::ops::RangeInclusive;

/// Fewest and most bytes that are written so that no cache has what is used next.
const BEYOND: RangeInclusive<usize> = 64 << 20..=256 << 20;
/// Most bytes of that of all ranks together: this is the host's memory, and outside every slot.
const TOGETHER: usize = 1 << 30;
/// Where Linux says how large the last cache is: `32768K`.
const LAST_CACHE: &str = "/sys/devices/system/cpu/cpu0/cache/index3/size";

/// Memory that is written between two exchanges. GPUs need none: theirs does not come through the host's caches.
#[derive(Debug)]
pub(super) struct Cooling(Vec<u64>);

impl Cooling {
    /// For a rank on a CPU slot, and nothing to write where it has a GPU.
    pub(super) fn new(ranks: u32, on_gpu: bool) -> Self {
        Self(vec![0; if on_gpu { 0 } else { beyond_caches(ranks) / size_of::<u64>() }])
    }

    /// Leaves nothing of what is exchanged next in a cache.
    pub(super) fn cool(&mut self) {
        self.0.iter_mut().for_each(|word| *word = word.wrapping_add(1));
        std::hint::black_box(&self.0);
    }
}

/// Bytes that no cache of the host has: twice the last cache, as far as it is known and within reason; of all ranks together no more than there is anywhere.
pub(super) fn beyond_caches(ranks: u32) -> usize {
    let most = (TOGETHER / ranks.max(1) as usize).max(BEYOND.start() / 4);
    let known = fs::read_to_string(LAST_CACHE).ok();
    let kibibytes = known.and_then(|text| text.trim().strip_suffix('K')?.parse::<usize>().ok());
    kibibytes.unwrap_or_default().saturating_mul(2 << 10).clamp(*BEYOND.start(), *BEYOND.end()).min(most)
}
