//! What stages cost at best, wherever they are: what bounds all orders of a fleet's nodes and all parts of it.

use super::{Choice, Fleet, KindSet, Link, LinkId, Peak, Seconds, StageAt, StageCosts};

/// Costs on the best of some kinds, whatever kind is asked about.
#[derive(Debug)]
pub struct Best<'a, C> {
    costs: &'a C,
    kinds: Vec<KindSet>,
}

impl<'a, C: StageCosts> Best<'a, C> {
    /// On the best of a fleet's kinds.
    pub fn of(costs: &'a C, fleet: &Fleet) -> Self {
        let mut kinds: Vec<KindSet> = fleet.nodes.iter().map(|node| KindSet::one(node.kind)).collect();
        kinds.sort_unstable();
        kinds.dedup();
        Self { costs, kinds }
    }

    fn on_each(&self, stage: &StageAt) -> impl Iterator<Item = StageAt> {
        let stage = *stage;
        self.kinds.iter().map(move |&kinds| StageAt { kinds, ..stage })
    }
}

impl<C: StageCosts> StageCosts for Best<'_, C> {
    fn layers(&self) -> usize {
        self.costs.layers()
    }

    fn choices(&self) -> &[Choice] {
        self.costs.choices()
    }

    fn seconds(&self, stage: &StageAt) -> Option<Seconds> {
        let all = self.on_each(stage).filter_map(|stage| self.costs.seconds(&stage));
        all.reduce(|one, other| Seconds {
            forward: one.forward.min(other.forward),
            backward: one.backward.min(other.backward),
            step: one.step.min(other.step),
        })
    }

    fn peak(&self, stage: &StageAt, in_flight: u32) -> Option<Peak> {
        let all = self.on_each(stage).filter_map(|stage| self.costs.peak(&stage, in_flight));
        all.reduce(|one, other| Peak {
            bytes: one.bytes.min(other.bytes),
            needed: one.needed.min(other.needed),
        })
    }

    fn cut_seconds(&self, layer: usize, link: LinkId, choice: usize) -> f64 {
        self.costs.cut_seconds(layer, link, choice)
    }

    fn cut_seconds_over(&self, layer: usize, link: Link, choice: usize) -> f64 {
        self.costs.cut_seconds_over(layer, link, choice)
    }
}
