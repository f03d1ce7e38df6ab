//! What stages may do about their memory, layer by layer, and as a plan says it.

use std::collections::BTreeMap;

use loadmaster_proto::training::actions::{
    Action, Allowed, Block, Deed, Destination, StageActions, Stripe, Swap, Way,
};

/// Something that can be done about a layer's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Measure {
    /// About what is saved in its forward passes.
    Saved(Way),
    /// A block that lasts is away between its uses.
    Lasting(Block),
}

/// What a stage does about its memory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ActionSet {
    /// By layer, where what is saved in its forward passes goes; kept where none.
    pub(super) saved: Vec<Option<(Way, u32)>>,
    /// Layers of which such a block is away, and the stage with it; on the host where none.
    pub(super) lasting: BTreeMap<(Block, usize), Option<u32>>,
    /// Steps between a use and an absence.
    pub(super) steps: u32,
}

impl ActionSet {
    /// Nothing is done.
    pub(super) fn none(layers: usize, steps: u32) -> Self {
        Self { saved: vec![None; layers], lasting: BTreeMap::new(), steps }
    }

    /// Whether this is done about a layer already, or for what it saves in its passes something else.
    pub(super) fn has(&self, measure: Measure, layer: usize) -> bool {
        match measure {
            Measure::Saved(_) => self.saved.get(layer).is_some_and(Option::is_some),
            Measure::Lasting(block) => self.lasting.contains_key(&(block, layer)),
        }
    }

    /// The same as a plan says it of a stage that begins with this layer. Neighbouring layers that do the same are one action, but
    /// for those that are computed again: each is a run of its own.
    pub(super) fn actions(&self, first: usize) -> StageActions {
        let swap = |block: Block, to: Option<u32>| {
            let to = to.map_or(Destination::Host, |stage| {
                Destination::Peers(vec![Stripe { stage, share: Stripe::WHOLE }])
            });
            Deed::Swap(Swap { block, to, release_after: self.steps, fetch_before: self.steps })
        };
        let mut actions: Vec<Action> = Vec::new();
        let mut push = |layer: usize, deed: Deed| {
            let layer = first + layer;
            match actions.last_mut().filter(|last| deed != Deed::Recompute && last.deed == deed) {
                Some(last) if last.last_layer + 1 == layer => last.last_layer = layer,
                _ => actions.push(Action { first_layer: layer, last_layer: layer, slots: Vec::new(), deed }),
            }
        };
        for (layer, saved) in self.saved.iter().enumerate() {
            match saved {
                None => {}
                Some((Way::Recompute, _)) => push(layer, Deed::Recompute),
                Some((Way::Host, _)) => push(layer, swap(Block::Activations, None)),
                Some((Way::Peer, peer)) => push(layer, swap(Block::Activations, Some(*peer))),
            }
        }
        for (&(block, layer), &to) in &self.lasting {
            push(layer, swap(block, to));
        }
        StageActions { actions, ..StageActions::default() }
    }
}

/// What is tried until a device fits, in which order: every order of the ways, with what lasts first or last; first with copies that
/// have a step for themselves, which hold more, then with none.
pub(super) fn orders(allowed: &Allowed) -> Vec<(u32, Vec<Measure>)> {
    let lasting = |block: &&Block| !block.is_of_micro_batch();
    let leaves = allowed.ways.iter().any(|way| *way != Way::Recompute);
    let lasting: Vec<Measure> = allowed
        .blocks
        .iter()
        .filter(lasting)
        .filter(|_| leaves)
        .map(|&block| Measure::Lasting(block))
        .collect();
    let may_leave = allowed.blocks.contains(&Block::Activations);
    let ways = allowed.ways.iter().copied().filter(|&way| way == Way::Recompute || may_leave);
    let saved: Vec<Measure> = ways.map(Measure::Saved).collect();
    let mut orders = Vec::new();
    for saved in permutations(&saved) {
        orders.push([saved.clone(), lasting.clone()].concat());
        if !lasting.is_empty() {
            orders.push([lasting.clone(), saved].concat());
        }
    }
    let steps: &[u32] = if leaves { &[1, 0] } else { &[1] };
    steps.iter().flat_map(|&steps| orders.iter().map(move |order| (steps, order.clone()))).collect()
}

/// Every order of a few things.
fn permutations<T: Clone>(of: &[T]) -> Vec<Vec<T>> {
    if of.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (index, first) in of.iter().enumerate() {
        let mut others = of.to_vec();
        others.remove(index);
        for mut rest in permutations(&others) {
            rest.insert(0, first.clone());
            all.push(rest);
        }
    }
    all
}
