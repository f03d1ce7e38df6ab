//! Which lanes must be looked at together, because one changes the speed of another.

use std::collections::BTreeSet;

use super::{Links, Way};

/// A way, and who uses it.
pub(super) struct WayTable {
    pub(super) way: Way,
    pub(super) bytes_per_second: f64,
    pub(super) latency_seconds: f64,
    pub(super) core_share: f64,
    /// Indices in [`Tables::groups`](super::tables::Tables::groups).
    pub(super) groups: Vec<u32>,
    /// Where its speed may change, or two devices ask for it.
    pub(super) component: Option<u32>,
}

impl WayTable {
    /// Whether copies over it share a rate with others.
    pub(super) fn shares(&self) -> bool {
        !self.groups.is_empty()
    }
}

/// All ways, numbered in their order.
pub(super) struct Ways {
    pub(super) ways: Vec<WayTable>,
    /// Those of each route.
    pub(super) of_routes: Vec<Vec<u32>>,
    /// The number of each node of CPU slots, and its component.
    pub(super) nodes: Vec<(u32, u32)>,
    /// How many there are.
    pub(super) components: usize,
}

impl Ways {
    /// The ways of links which these devices ask for.
    pub(super) fn of(links: &Links, askers: &[BTreeSet<u32>]) -> Self {
        let names: Vec<Way> = links.ways.keys().copied().collect();
        let positions = |ways: &[Way]| -> Vec<u32> {
            let at = |way: &Way| names.binary_search(way).ok().map(|at| at as u32);
            let found: BTreeSet<u32> = ways.iter().filter_map(at).collect();
            found.into_iter().collect()
        };
        let groups: Vec<Vec<u32>> = links.shared.iter().map(|shared| positions(&shared.ways)).collect();
        let of_routes: Vec<Vec<u32>> = links.routes.iter().map(|route| positions(&route.ways)).collect();
        // Ways first, then nodes.
        let count = names.len() + links.cores.len();
        let mut together = LaneUnion::new(count);
        // Whose speed, or order of copies, is not known beforehand.
        let mut is_open = vec![false; count];
        for of in &groups {
            of.iter().for_each(|&way| together.join(of[0], way));
        }
        for &way in groups.iter().chain(&of_routes).flatten() {
            is_open[way as usize] = true;
        }
        for (way, askers) in askers.iter().enumerate() {
            is_open[way] |= askers.len() > 1;
        }
        for (node, of) in (names.len()..).zip(&links.cores) {
            is_open[node] = true;
            for (way, askers) in askers.iter().enumerate() {
                if of.devices.iter().any(|device| askers.contains(device)) {
                    together.join(node as u32, way as u32);
                    is_open[way] = true;
                }
            }
        }
        let mut numbers: Vec<Option<u32>> = vec![None; count];
        let mut components = 0;
        let mut component = |of: usize| {
            let first = together.first(of as u32) as usize;
            *numbers[first].get_or_insert_with(|| {
                components += 1;
                components - 1
            })
        };
        let mut ways: Vec<WayTable> = Vec::with_capacity(names.len());
        for (index, (&way, rate)) in links.ways.iter().enumerate() {
            let is_in = |&(_, ways): &(u32, &Vec<u32>)| ways.contains(&(index as u32));
            ways.push(WayTable {
                way,
                bytes_per_second: rate.bytes_per_second,
                latency_seconds: rate.latency_seconds,
                core_share: rate.core_share,
                groups: (0..).zip(&groups).filter(is_in).map(|(group, _)| group).collect(),
                component: is_open[index].then(|| component(index)),
            });
        }
        let nodes = (0..).zip(names.len()..count).map(|(node, index)| (node, component(index))).collect();
        Self { ways, of_routes, nodes, components: components as usize }
    }
}

/// Which numbers belong together.
struct LaneUnion(Vec<u32>);

impl LaneUnion {
    fn new(count: usize) -> Self {
        Self((0..count as u32).collect())
    }

    fn first(&mut self, mut of: u32) -> u32 {
        while self.0[of as usize] != of {
            self.0[of as usize] = self.0[self.0[of as usize] as usize];
            of = self.0[of as usize];
        }
        of
    }

    fn join(&mut self, one: u32, other: u32) {
        let (one, other) = (self.first(one), self.first(other));
        self.0[one.max(other) as usize] = one.min(other);
    }
}
