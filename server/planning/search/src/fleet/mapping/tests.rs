use std::collections::BTreeSet;

use loadmaster_oracle::arrangements;
use loadmaster_samples::CUBE_MESH;
use proptest::prelude::*;

use super::*;

fn alike(devices: usize, link: impl Fn(usize, usize) -> u32) -> LinkGraph {
    LinkGraph::new(&vec![(); devices], link)
}

fn cube_mesh() -> LinkGraph {
    alike(8, |a, b| CUBE_MESH[a][b])
}

#[test]
fn a_hybrid_cube_mesh_has_10_080_mappings() {
    assert_eq!(cube_mesh().symmetries().len(), 4);
    let classes = cube_mesh().classes(8).unwrap();
    assert_eq!(classes.len(), 10_080);
    assert_eq!(classes.iter().collect::<BTreeSet<_>>().len(), 10_080);
    assert_eq!(classes[0], [0, 1, 2, 3, 4, 5, 6, 7], "the order of the devices comes first");
}

#[test]
fn a_switch_has_one_mapping_and_an_odd_device_as_many_as_stages() {
    assert_eq!(alike(8, |_, _| 6).classes(8).unwrap(), [[0, 1, 2, 3, 4, 5, 6, 7]]);
    // It may have any stage, or in a pipeline that leaves devices out none.
    let with_one_large = LinkGraph::new(&[1, 1, 2, 1], |_, _| 6);
    assert_eq!(with_one_large.classes(4).unwrap().len(), 4);
    assert_eq!(with_one_large.classes(2).unwrap(), [[0, 1], [0, 2], [2, 0]]);
}

#[test]
fn links_may_differ_by_direction() {
    // A ring: turned, but not turned over.
    assert_eq!(alike(4, |a, b| u32::from((a + 1) % 4 == b)).classes(4).unwrap().len(), 24 / 4);
    assert_eq!(
        alike(4, |a, b| u32::from((a + 1) % 4 == b || (b + 1) % 4 == a)).classes(4).unwrap().len(),
        24 / 8
    );
}

#[test]
fn more_devices_than_can_be_listed_and_too_few_have_none() {
    assert_eq!(alike(9, |_, _| 6).classes(2), None);
    assert_eq!(alike(2, |_, _| 6).classes(3), None);
    assert_eq!(alike(0, |_, _| 6).classes(0).unwrap(), [[0; 0]]);
    assert_eq!(best(&alike(2, |_, _| 6), 3, 9, |_| Promise { bound: 0.0, guess: 0.0 }, |_| Some(1.0)), None);
}

/// All ways to give so many stages different devices.
pub(crate) fn every_mapping(devices: usize, stages: usize) -> Vec<Vec<usize>> {
    arrangements(&(0..devices).collect::<Vec<_>>(), stages)
}

/// Devices of two kinds and links of three, not the same both ways.
fn graphs() -> impl Strategy<Value = LinkGraph> {
    (1_usize..=5, 1_u32..=3, any::<bool>(), 1_u8..=2).prop_flat_map(|(devices, links, is_even, kinds)| {
        let kinds = proptest::collection::vec(0..kinds, devices);
        let links = proptest::collection::vec(0..links, devices * devices);
        (kinds, links).prop_map(move |(kinds, links)| {
            let at = |a: usize, b: usize| if is_even { (a.min(b), a.max(b)) } else { (a, b) };
            LinkGraph::new(&kinds, |a, b| links[at(a, b).0 * devices + at(a, b).1])
        })
    })
}

proptest! {
    /// Brute force: of every mapping, with every permutation that leaves kinds and links as they are, exactly one is
    /// listed.
    #[test]
    fn every_class_is_listed_once(graph in graphs(), fewer in 0_usize..3) {
        let devices = graph.devices();
        let stages = devices.saturating_sub(fewer);
        let leaves_links = |way: &&Vec<usize>| {
            (0..devices).all(|a| graph.is_like(a, way[a]))
                && (0..devices).all(|a| (0..devices).all(|b| graph.link(a, b) == graph.link(way[a], way[b])))
        };
        let permutations = every_mapping(devices, devices);
        let symmetries: Vec<&Vec<usize>> = permutations.iter().filter(leaves_links).collect();
        let listed: BTreeSet<Vec<usize>> = graph.classes(stages).unwrap().into_iter().collect();
        prop_assert_eq!(listed.len(), graph.classes(stages).unwrap().len());
        let mut classes = BTreeSet::new();
        for mapping in every_mapping(devices, stages) {
            let class: BTreeSet<Vec<usize>> =
                symmetries.iter().map(|way| mapping.iter().map(|&device| way[device]).collect()).collect();
            prop_assert_eq!(class.intersection(&listed).count(), 1);
            classes.insert(class.first().cloned());
        }
        prop_assert_eq!(classes.len(), listed.len());
        if stages == devices {
            prop_assert_eq!(listed.len() * symmetries.len(), permutations.len());
        }
    }

    /// Whatever a mapping is worth, no mapping is worth more, listed or not, and a bound leaves nothing good out. Without
    /// the list the order of the devices is never bettered for the worse.
    #[test]
    fn no_mapping_is_better_than_the_best(
        graph in graphs(), weights in proptest::collection::vec(0_u32..4, 25), slack in 0_u32..3,
    ) {
        // Seconds of neighbours: what a link's number says, weighted by stage.
        let devices = graph.devices();
        let value = |mapping: &[usize]| -> f64 {
            let kinds = mapping.iter().enumerate().map(|(stage, &device)| weights[stage] as usize * graph.kinds[device]);
            let links = mapping.windows(2).enumerate().map(|(stage, pair)| {
                weights[stage] as usize * graph.link(pair[0], pair[1]).unwrap()
            });
            kinds.chain(links).sum::<usize>() as f64
        };
        let promise = |of: &[usize]| Promise { bound: value(of) - f64::from(slack), guess: f64::from(weights[of[0]]) };
        let found = best(&graph, devices, 120, promise, |of| Some(value(of))).unwrap();
        let values = every_mapping(devices, devices).iter().map(|of| value(of)).fold(f64::INFINITY, f64::min);
        prop_assert_eq!(found.value, values);
        prop_assert_eq!(value(&found.mapping), values);
        prop_assert!(found.is_exact && Some(found.valued) <= found.classes);
        let hasty = best(&graph, devices, 1, promise, |of| Some(value(of))).unwrap();
        prop_assert!(hasty.valued == 1 && (!hasty.is_exact || hasty.value == values));
        let exchanged = exchanged(devices, devices, 1_000, |of| Some(value(of))).unwrap();
        prop_assert!(exchanged.value >= values && !exchanged.is_exact);
        prop_assert!(exchanged.value <= value(&(0..devices).collect::<Vec<_>>()));
    }
}
