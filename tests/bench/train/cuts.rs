//! How a chain of blocks is cut: as evenly as can be, with those that are left over anywhere.

/// What stages have of blocks, the later stages first to have one more: they hold fewer micro-batches.
fn shares(blocks: u32, stages: u32) -> Vec<Vec<u32>> {
    let (each, over) = (blocks / stages, blocks % stages);
    let with_one_more = |mask: &u32| mask.count_ones() == over;
    let share = |mask: u32| (0..stages).map(|stage| each + (mask >> stage & 1)).collect();
    (0..1_u32 << stages).rev().filter(with_one_more).map(share).collect()
}

/// Partitionings of GPT-2: an embedding, blocks, a norm and a head. None where a stage would be empty.
pub(crate) fn partitionings(blocks: u32, stages: usize) -> Vec<String> {
    let Ok(count @ 1..) = u32::try_from(stages) else { return Vec::new() };
    let text = |mut share: Vec<u32>| {
        share[0] += 1;
        share[stages - 1] += 2;
        share
            .iter()
            .all(|&layers| layers > 0)
            .then(|| share.iter().map(ToString::to_string).collect::<Vec<_>>().join("-"))
    };
    shares(blocks, count).into_iter().filter_map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every stage has as many as any other or one more, wherever that is.
    #[test]
    fn blocks_are_shared_evenly_in_every_way() {
        assert_eq!(partitionings(4, 4), ["2-1-1-3"]);
        assert_eq!(partitionings(5, 4), ["2-1-1-4", "2-1-2-3", "2-2-1-3", "3-1-1-3"]);
        assert_eq!(partitionings(6, 4).len(), 6);
        assert_eq!(partitionings(3, 2), ["2-4", "3-3"]);
        assert_eq!(partitionings(2, 4), ["1-1-1-2"], "the stages in the middle have nothing else");
        assert!(partitionings(1, 4).is_empty(), "one of them has nothing");
    }
}
