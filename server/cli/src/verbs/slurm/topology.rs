//! How near each other a job's nodes must be, from which ranks of a plan must be.

use std::collections::BTreeMap;

use clap::ValueEnum;
use loadmaster_proto::wire::v1;

/// Slurm's topology plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Topology {
    /// Switches (topology/tree). The job gets --switches.
    Tree,
    /// Blocks of nodes (topology/block, Slurm 24.05 or newer). The job gets --segment.
    Block,
    /// No topology. The job gets no such option.
    Flat,
}

/// How a job asks for nodes that are near each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Near {
    /// Nodes of at most so many switches.
    Switches(usize),
    /// So many nodes at a time, each of one block.
    Segment(usize),
}

impl Near {
    /// What to ask for, if the ranks want anything.
    ///
    /// # Errors
    /// Says why Slurm cannot be told.
    pub(super) fn of(export: &v1::ExportPlanResponse, topology: Topology) -> Result<Option<Self>, String> {
        let groups = groups(export);
        let Some(&largest) = groups.iter().max().filter(|size| **size > 1) else { return Ok(None) };
        match topology {
            Topology::Flat => Ok(None),
            Topology::Tree => Ok(Some(Self::Switches(groups.len()))),
            Topology::Block if groups.iter().all(|size| *size == largest) => Ok(Some(Self::Segment(largest))),
            Topology::Block => {
                let sizes: Vec<String> = groups.iter().map(ToString::to_string).collect();
                Err(format!(
                    "the plan has groups of {} nodes that should be close in the network, but Slurm's --segment \
                     accepts only one group size. The job has no --segment",
                    sizes.join(", ")
                ))
            }
        }
    }

    /// The option of sbatch.
    pub(super) fn option(self) -> (&'static str, String) {
        match self {
            Self::Switches(most) => ("switches", most.to_string()),
            Self::Segment(nodes) => ("segment", nodes.to_string()),
        }
    }
}

/// Sizes of the groups of nodes that belong on one switch each: those that ranks of a stage are on, and those that are
/// joined by having one of these in common.
fn groups(export: &v1::ExportPlanResponse) -> Vec<usize> {
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    let mut stages: BTreeMap<i32, Vec<usize>> = BTreeMap::new();
    for place in &export.ranks {
        let name = place.device.as_ref().map_or("", |device| device.node.as_str());
        let next = numbers.len();
        let node = *numbers.entry(name).or_insert(next);
        stages.entry(place.stage).or_default().push(node);
    }
    // The group of each node: a number that all of a group have.
    let mut group: Vec<usize> = (0..numbers.len()).collect();
    let localities = export.allocation.iter().flat_map(|of| &of.localities);
    for of in localities.filter(|of| of.locality() == v1::Locality::Switch) {
        let ranks = usize::try_from(of.rank_count).unwrap_or(0).max(1);
        for together in stages.get(&of.stage).into_iter().flat_map(|nodes| nodes.chunks(ranks)) {
            for pair in together.windows(2) {
                if let (Some(&one), Some(&other)) = (group.get(pair[0]), group.get(pair[1])) {
                    group.iter_mut().filter(|of| **of == other).for_each(|of| *of = one);
                }
            }
        }
    }
    let mut sizes: BTreeMap<usize, usize> = BTreeMap::new();
    for of in group {
        *sizes.entry(of).or_default() += 1;
    }
    sizes.into_values().collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::request::testing::export;
    use super::*;

    #[test]
    fn stages_on_several_nodes_ask_for_switches_or_segments() {
        // Two stages on two nodes each.
        let plan = export(&[("a", "x", 2), ("b", "x", 2), ("c", "x", 2), ("d", "x", 2)], &[4, 4]);
        assert_eq!(Near::of(&plan, Topology::Tree), Ok(Some(Near::Switches(2))));
        assert_eq!(Near::of(&plan, Topology::Block), Ok(Some(Near::Segment(2))));
        assert_eq!(Near::of(&plan, Topology::Flat), Ok(None));
        // Each on a node of its own, and all on all.
        let apart = export(&[("a", "x", 2), ("b", "x", 2)], &[2, 2]);
        assert_eq!(Near::of(&apart, Topology::Tree), Ok(None));
        let joined = export(&[("a", "x", 2), ("b", "x", 2), ("c", "x", 2)], &[3, 3]);
        assert_eq!(Near::of(&joined, Topology::Tree), Ok(Some(Near::Switches(1))));
        // Three nodes and one: no segment has both sizes.
        let uneven = export(&[("a", "x", 2), ("b", "x", 2), ("c", "x", 2), ("d", "x", 2)], &[6, 2]);
        assert_eq!(Near::of(&uneven, Topology::Tree), Ok(Some(Near::Switches(2))));
        assert!(Near::of(&uneven, Topology::Block).is_err_and(|why| why.contains("3, 1 nodes")));
    }

    proptest! {
        /// Nodes are of one group exactly if a chain of stages leads from one to the other: counted by walking along it.
        #[test]
        fn groups_are_what_chains_of_stages_reach(nodes in 1..6_usize, stages in proptest::collection::vec(1..5_usize, 1..8)) {
            let names = ["a", "b", "c", "d", "e", "f"];
            let ranks: usize = stages.iter().sum();
            let per_node = ranks.div_ceil(nodes);
            let on: Vec<usize> = (0..ranks).map(|rank| rank / per_node).collect();
            let used = on.last().unwrap() + 1;
            let counts: Vec<(&str, &str, usize)> =
                (0..used).map(|node| (names[node], "x", on.iter().filter(|of| **of == node).count())).collect();
            let mut seen = vec![false; used];
            let mut expected = Vec::new();
            for start in 0..used {
                let (mut walk, mut size) = (vec![start], 0);
                while let Some(node) = walk.pop() {
                    if std::mem::replace(&mut seen[node], true) { continue; }
                    size += 1;
                    let mut first = 0;
                    for length in &stages {
                        let own = &on[first..first + length];
                        if own.contains(&node) { walk.extend(own); }
                        first += length;
                    }
                }
                if size > 0 { expected.push(size); }
            }
            let mut found = groups(&export(&counts, &stages));
            found.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(found, expected);
        }
    }
}
