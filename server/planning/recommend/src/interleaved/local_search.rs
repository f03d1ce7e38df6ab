//! What stages that take turns do about their memory, layer by layer, and its change as long as that makes the iteration faster.
//!
//! A change removes an action, replaces it, or moves it from one place to another.

use std::collections::{BTreeMap, BTreeSet};

use loadmaster_proto::training::actions::{
    Absence, Action, Allowed, Block, Destination, Optimization, StageActions, Stripe, Swap, Way,
};

use super::greedy_fit::{GreedyFit, MemoryUse};
use crate::result::QuestionError;
use loadmaster_search::StageCosts;

/// Something that can be done about a layer's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Measure {
    /// About what is saved in its forward passes.
    Saved(Way),
    /// A block that lasts is away between its uses.
    Lasting(Block),
}

/// The memory optimizations of a stage.
#[derive(Debug, Clone, PartialEq, Eq)]
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

    /// Returns whether this is done about a layer already, or something else for its saved activations.
    pub(super) fn has(&self, measure: Measure, layer: usize) -> bool {
        match measure {
            Measure::Saved(_) => self.saved.get(layer).is_some_and(Option::is_some),
            Measure::Lasting(block) => self.lasting.contains_key(&(block, layer)),
        }
    }

    /// The same as a plan says it of a stage that begins with this layer. Neighbouring layers that do the same are one action, but
    /// for those that are recomputed: each is a run of its own.
    pub(super) fn actions(&self, first: usize) -> StageActions {
        let swap = |block: Block, to: Option<u32>| {
            let to = to.map_or(Destination::Host, |stage| {
                Destination::Peers(vec![Stripe { stage, share: Stripe::WHOLE }])
            });
            Optimization::Swap(Swap { block, to, release_after: self.steps, fetch_before: self.steps })
        };
        let mut actions: Vec<Action> = Vec::new();
        let mut push = |layer: usize, optimization: Optimization| {
            let layer = first + layer;
            match actions
                .last_mut()
                .filter(|last| optimization != Optimization::Recompute && last.optimization == optimization)
            {
                Some(last) if last.last_layer + 1 == layer => last.last_layer = layer,
                _ => actions.push(Action {
                    first_layer: layer,
                    last_layer: layer,
                    slots: Vec::new(),
                    optimization,
                }),
            }
        };
        for (layer, saved) in self.saved.iter().enumerate() {
            match saved {
                None => {}
                Some((Way::Recompute, _)) => push(layer, Optimization::Recompute),
                Some((Way::CpuOffload, _)) => push(layer, swap(Block::Activations, None)),
                Some((Way::PeerSwap, peer)) => push(layer, swap(Block::Activations, Some(*peer))),
            }
        }
        for (&(block, layer), &to) in &self.lasting {
            push(layer, swap(block, to));
        }
        StageActions { actions, ..StageActions::default() }
    }
}

/// What is tried until a device fits, in which order: every order of the ways, with what lasts first or last. First with copies that
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
fn permutations<T: Clone>(items: &[T]) -> Vec<Vec<T>> {
    if items.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (index, first) in items.iter().enumerate() {
        let mut others = items.to_vec();
        others.remove(index);
        for mut rest in permutations(&others) {
            rest.insert(0, first.clone());
            all.push(rest);
        }
    }
    all
}

/// Most simulations of actions that fit.
const MOST_SIMULATIONS: u32 = 600;
/// Steps between a use of a block and its absence that are tried.
const STEPS: [u32; 4] = [0, 1, 2, 4];
/// By what share of itself an iteration must be faster to be another one.
const FASTER: f64 = 1e-9;

impl<C: StageCosts> GreedyFit<'_, C> {
    /// The same with less or other things done, while all fit, as far as that is faster: one change, or one thing undone and
    /// another done on the same device instead.
    pub(super) fn local_search(
        &self,
        mut best: (Vec<ActionSet>, f64),
    ) -> Result<Vec<ActionSet>, QuestionError> {
        loop {
            let before = best.1;
            for stage in 0..best.0.len() {
                if !self.improve_stage(stage, &mut best)? {
                    return Ok(best.0);
                }
            }
            if best.1 >= before * (1.0 - FASTER) {
                return Ok(best.0);
            }
        }
    }

    /// Takes what stages might do instead where one of them does one thing less or otherwise: false where there is no time for more.
    /// Long chains have very many such changes, so one is made at a time.
    fn improve_stage(&self, stage: usize, best: &mut (Vec<ActionSet>, f64)) -> Result<bool, QuestionError> {
        let all = best.0.clone();
        let look = self.look(&all)?;
        let device = stage % self.pipeline.interleaving.devices().max(1);
        let measures: BTreeSet<Measure> =
            orders(self.allowed).into_iter().flat_map(|(_, measures)| measures).collect();
        for (other, is_less) in self.others(stage, &all[stage], &measures, &look) {
            let mut with = all.clone();
            with[stage] = other;
            // Something else of the same device instead.
            for &measure in measures.iter().filter(|_| is_less) {
                for more in self.pipeline.interleaving.own(device) {
                    for layer in 0..with[more].saved.len() {
                        if with[more].has(measure, layer) {
                            continue;
                        }
                        let mut instead = with.clone();
                        if self.take(&mut instead[more], more, layer, measure, &look)
                            && instead != all
                            && !self.take_if_faster(instead, best)?
                        {
                            return Ok(false);
                        }
                    }
                }
            }
            if !self.take_if_faster(with, best)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes a change with which all fit and that is faster: false where there is no time for that.
    fn take_if_faster(
        &self,
        changed: Vec<ActionSet>,
        best: &mut (Vec<ActionSet>, f64),
    ) -> Result<bool, QuestionError> {
        if self.stop.is_requested() || self.simulations.get() >= MOST_SIMULATIONS {
            return Ok(false);
        }
        let look = self.look(&changed)?;
        if look.fits() && look.host <= self.allowed.host_memory.0 {
            let then = self.seconds_of(&look.acted)?;
            if then < best.1 * (1.0 - FASTER) {
                *best = (changed, then);
            }
        }
        Ok(true)
    }

    /// What a stage might do instead, one change each: copies with more or less time, a layer that keeps what it saves or has it
    /// elsewhere, a block that stays. And whether that does less.
    fn others(
        &self,
        stage: usize,
        optimizations: &ActionSet,
        measures: &BTreeSet<Measure>,
        look: &MemoryUse,
    ) -> Vec<(ActionSet, bool)> {
        let mut others = Vec::new();
        let moves = !optimizations.lasting.is_empty()
            || optimizations.saved.iter().flatten().any(|(way, _)| *way != Way::Recompute);
        for steps in STEPS.into_iter().filter(|&steps| moves && steps != optimizations.steps) {
            others.push((ActionSet { steps, ..optimizations.clone() }, false));
        }
        for layer in 0..optimizations.saved.len() {
            let Some((now, _)) = optimizations.saved[layer] else { continue };
            let mut kept = optimizations.clone();
            kept.saved[layer] = None;
            for &measure in measures.iter().filter(|&&of| of != Measure::Saved(now)) {
                let mut elsewhere = kept.clone();
                if matches!(measure, Measure::Saved(_))
                    && self.take(&mut elsewhere, stage, layer, measure, look)
                {
                    others.push((elsewhere, false));
                }
            }
            others.push((kept, true));
        }
        for key in optimizations.lasting.keys() {
            let mut kept = optimizations.clone();
            kept.lasting.remove(key);
            others.push((kept, true));
        }
        others
    }

    /// The same without what moves nothing: blocks whose uses are too near each other for the steps between them.
    pub(super) fn without_idle(
        &self,
        mut optimizations: Vec<ActionSet>,
    ) -> Result<Vec<ActionSet>, QuestionError> {
        let look = self.look(&optimizations)?;
        for (stage, (optimizations, acted)) in optimizations.iter_mut().zip(&look.acted).enumerate() {
            let first = self.settings[stage].stage.first_layer;
            let moves = |layer: usize, block: Block| {
                let is_its = |absence: &Absence| absence.layer == first + layer && absence.block == block;
                acted.away.iter().any(|away| is_its(&away.absence))
            };
            for (layer, saved) in optimizations.saved.iter_mut().enumerate() {
                let is_idle =
                    saved.is_some_and(|(way, _)| way != Way::Recompute && !moves(layer, Block::Activations));
                if is_idle {
                    *saved = None;
                }
            }
            optimizations.lasting.retain(|&(block, layer), _| moves(layer, block));
        }
        Ok(optimizations)
    }
}
