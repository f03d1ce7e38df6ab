//! What is known of a stage from before.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use super::dual_bound::SlotLayers;
use super::keep_sets::{Grains, SlotChoices};
use super::lagrangian::{self, Fewest};
use super::stage_policy::{Built, Care, LASTING, Stage, StagePolicy};
use crate::actions::LayerBlocks;
use crate::actions::striping::Receiver;

/// Most layers of a stage whose choices are all told apart.
const MOST_TOLD_APART: usize = 16;
/// Parts into which the bytes that a micro-batch keeps are divided where the stage has more layers.
const LABEL_GRAINS: u64 = 1024;
/// Most layers of a run there: a longer one saves few inputs more, and all of it is there while it goes backward.
const LONGEST_RUN: usize = 12;
/// The same of what it needs on top.
const LEVEL_GRAINS: u64 = 64;

/// Most choices, and most of what came of policies, that a stage keeps for another time: each may take a megabyte.
const MOST_KEPT: usize = 16;

/// Which layers' activations are away between their passes, and whether inputs of what is recomputed are.
type Away = (Vec<bool>, bool);

/// What is away by slot, whether inputs are, and bytes.
type FewestOf = (Vec<Vec<bool>>, bool, u64);

/// What is known of a stage from before.
#[derive(Debug, Clone, Default)]
pub(super) struct StageMemo {
    /// By what is away, and whether inputs are: all weightings of the stage share them.
    choices: Rc<RefCell<HashMap<Away, Rc<SlotChoices>>>>,
    /// What came of policies that ask for no peers, each of which many plans begin with.
    built: RefCell<HashMap<StagePolicy, Option<Built>>>,
    /// The last answer of [`Stage::fewest`].
    fewest: RefCell<Option<(FewestOf, Option<Rc<Fewest>>)>>,
}

impl StageMemo {
    /// What holds of the same stage with other weights of its slots, too.
    pub(super) fn of_another_weighting(&self) -> Self {
        Self { choices: Rc::clone(&self.choices), ..Self::default() }
    }
}

impl Stage<'_> {
    fn grains(&self) -> Grains {
        let all: u64 = self.blocks.layers.iter().map(|layer| layer.activations).sum();
        let level = all / LEVEL_GRAINS;
        if self.blocks.layers.len() <= MOST_TOLD_APART {
            return Grains { level, ..Grains::default() };
        }
        Grains { label: all / LABEL_GRAINS, level, run: Some(LONGEST_RUN) }
    }

    /// What a micro-batch may keep with such layers away.
    pub(super) fn choices_of(&self, away: &[bool], inputs: bool) -> Rc<SlotChoices> {
        let key = (away.to_vec(), inputs);
        if let Some(known) = self.memo.choices.borrow().get(&key) {
            return Rc::clone(known);
        }
        let again = self.question.allowed.recompute;
        let stop = self.question.stop;
        let layers = self.layers_without(inputs);
        let found = Rc::new(SlotChoices::of(&layers, away, self.room, again, self.grains(), stop));
        let mut known = self.memo.choices.borrow_mut();
        if known.len() >= MOST_KEPT {
            known.clear();
        }
        known.insert(key, Rc::clone(&found));
        found
    }

    /// Its layers, without their inputs where these are away.
    fn layers_without(&self, inputs: bool) -> Vec<LayerBlocks> {
        let kept =
            |layer: &LayerBlocks| LayerBlocks { input: if inputs { 0 } else { layer.input }, ..*layer };
        self.blocks.layers.iter().map(kept).collect()
    }

    /// The fewest seconds of recomputing with such layers away by slot, within so many bytes. None where its layers are few,
    /// so that all choices are distinguished, or others are away in some of its slots.
    pub(super) fn fewest(&self, away: &[Vec<bool>], inputs: bool, bytes: u64) -> Option<Rc<Fewest>> {
        if self.layers() as usize <= MOST_TOLD_APART || !self.question.allowed.recompute {
            return None;
        }
        let key = (away.to_vec(), inputs, bytes);
        if let Some((_, found)) = self.memo.fewest.borrow().as_ref().filter(|known| known.0 == key) {
            return found.clone();
        }
        let layers = self.layers_without(inputs);
        let alike = away.first().filter(|first| away.iter().all(|of| of == *first));
        let slot_layers = alike.map(|away| SlotLayers { layers: &layers, away, bytes });
        let found = slot_layers
            .and_then(|slot_layers| lagrangian::fewest(slot_layers, &self.weights, self.question.stop))
            .map(Rc::new);
        *self.memo.fewest.borrow_mut() = Some((key, found.clone()));
        found
    }

    /// Whether layers are so many that choices of slots which are all alike are soon told apart, and nothing else is allowed.
    pub(super) fn is_soon_exact(&self) -> bool {
        let allowed = self.question.allowed;
        let is_alone = allowed.recompute && !allowed.host && !allowed.peers;
        is_alone && self.weights.windows(2).all(|pair| pair[0] == pair[1])
    }

    /// The stage with what a policy says, if it fits. What goes to peers is built each time: it depends on what is free there.
    pub(super) fn built_once(&self, policy: StagePolicy, receivers: &[Receiver]) -> Option<Built> {
        let goes_near = policy.near && LASTING.iter().any(|&block| policy.lasting(block) > 0);
        if policy.peers > 0 || goes_near {
            return self.built(policy, receivers, Care::Few);
        }
        if let Some(known) = self.memo.built.borrow().get(&policy) {
            return known.clone();
        }
        let built = self.built(policy, receivers, Care::Few);
        let mut known = self.memo.built.borrow_mut();
        if known.len() >= MOST_KEPT {
            known.clear();
        }
        known.insert(policy, built.clone());
        built
    }
}
