//! The merger against its definition, taken literally.

use proptest::prelude::*;

use super::*;

/// Merges as the paper says it: look at all pairs, merge the smallest, restart.
fn by_definition(layers: &[MergedLayer], left: usize) -> Vec<RangeInclusive<usize>> {
    let mut groups: Vec<(MergedLayer, RangeInclusive<usize>)> =
        layers.iter().enumerate().map(|(index, &layer)| (layer, index..=index)).collect();
    while groups.len() > left.max(1) {
        let together = |pair: usize| groups[pair].0.isolated + groups[pair + 1].0.added;
        // `min_by_key` returns the first of several.
        let best = (0..groups.len() - 1).min_by_key(|&pair| together(pair)).unwrap();
        let (next, range) = groups.remove(best + 1);
        groups[best].0 = groups[best].0.with(next);
        groups[best].1 = *groups[best].1.start()..=*range.end();
    }
    groups.into_iter().map(|(_, range)| range).collect()
}

fn layers() -> impl Strategy<Value = Vec<MergedLayer>> {
    // Few values, so that ties abound.
    let layer = (0_i128..20, -5_i128..10).prop_map(|(isolated, added)| MergedLayer { isolated, added });
    proptest::collection::vec(layer, 0..30)
}

/// `M_i(first) + Σ M_a`, the additive rule.
fn additive(layers: &[MergedLayer]) -> i128 {
    layers[0].isolated + layers[1..].iter().map(|layer| layer.added).sum::<i128>()
}

proptest! {
    /// The quick way gives what the definition gives, for any layers and any number left.
    #[test]
    fn merging_follows_the_definition(layers in layers(), left in 0_usize..35) {
        prop_assert_eq!(merge(&layers, left), by_definition(&layers, left));
    }

    /// As many groups as asked for, in order, without gap or overlap.
    #[test]
    fn groups_cover_the_layers_in_order(layers in layers(), left in 0_usize..35) {
        let groups = merge(&layers, left);
        prop_assert_eq!(groups.len(), layers.len().min(left.max(1)));
        let covered: Vec<usize> = groups.into_iter().flatten().collect();
        prop_assert_eq!(covered, (0..layers.len()).collect::<Vec<_>>());
    }

    /// A stage of merged layers needs by the additive rule what the same layers need one by one.
    #[test]
    fn merging_never_changes_what_a_stage_needs(layers in layers(), left in 1_usize..35) {
        let groups = merge(&layers, left);
        let merged: Vec<MergedLayer> = groups
            .iter()
            .map(|group| layers[group.clone()].iter().copied().reduce(MergedLayer::with).unwrap())
            .collect();
        for first in 0..groups.len() {
            for last in first..groups.len() {
                let alone = &layers[*groups[first].start()..=*groups[last].end()];
                prop_assert_eq!(additive(&merged[first..=last]), additive(alone));
            }
        }
    }
}

/// A worked example: the cheap end of the chain is merged, not the dear beginning.
#[test]
fn the_pair_that_is_smallest_together_goes_first() {
    let layer = |isolated, added| MergedLayer { isolated, added };
    let layers = [layer(100, 0), layer(60, 50), layer(20, 5), layer(10, 4)];
    // Together: 150, 65, 24.
    assert_eq!(merge(&layers, 3), [0..=0, 1..=1, 2..=3]);
    // Then: 150 and 60 + (5 + 4) = 69.
    assert_eq!(merge(&layers, 2), [0..=0, 1..=3]);
    assert_eq!(merge(&layers, 9), [0..=0, 1..=1, 2..=2, 3..=3]);
}
