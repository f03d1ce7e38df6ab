//! What a search asks about stages: bytes and seconds, as numbers.

use std::ops::Range;

use loadmaster_simulate::Seconds;

use super::choice::Choice;
use super::places::LinkId;
use super::topology::{KindSet, Link};

/// A stage on devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StageAt {
    /// Index of the first layer.
    pub first: usize,
    /// Index of the last layer, inclusive.
    pub last: usize,
    /// Index of its choice in [`StageCosts::choices`].
    pub choice: usize,
    /// Kinds of its devices: the slowest and the fullest of them count.
    pub kinds: KindSet,
    /// Slowest link within each of its groups of tensor shards.
    pub tensor_link: LinkId,
    /// Slowest link within each of its groups of replicas.
    pub data_link: LinkId,
    /// Groups of tensor shards that share a node's link to the outside while they all work, or 1.
    pub tensor_rings: u32,
    /// Groups of replicas that do.
    pub data_rings: u32,
}

impl StageAt {
    /// These layers where links do not matter, under the first choice: the first link, which no group shares.
    pub fn anywhere(first: usize, last: usize, kinds: KindSet) -> Self {
        Self { first, last, choice: 0, kinds, tensor_link: 0, data_link: 0, tensor_rings: 1, data_rings: 1 }
    }
}

/// Bytes on the fullest device of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peak {
    /// What is predicted, and compared.
    pub bytes: u64,
    /// What a device must allow: the upper end of the prediction's interval.
    pub needed: u64,
}

/// Bytes and seconds of every stage at one micro-batch size. Every answer takes constant time, because a
/// search may ask for millions, and is always the same.
pub trait StageCosts {
    /// Layers of the chain.
    fn layers(&self) -> usize;

    /// The ways to run a stage, in a fixed order.
    fn choices(&self) -> &[Choice];

    /// Seconds of a stage; none where it cannot be run so.
    fn seconds(&self, stage: &StageAt) -> Option<Seconds>;

    /// Bytes of a stage that holds this many micro-batches at once; none where it cannot be run so.
    /// They never fall when more micro-batches are held.
    fn peak(&self, stage: &StageAt, in_flight: u32) -> Option<Peak>;

    /// The same of the stages that begin like this one and end with each of these layers, in order.
    fn peaks(&self, stage: &StageAt, lasts: Range<usize>, in_flight: u32) -> Vec<Option<Peak>> {
        lasts.map(|last| self.peak(&StageAt { last, ..*stage }, in_flight)).collect()
    }

    /// Seconds that one micro-batch's activations and their gradients take over the link by which a stage with
    /// this choice receives or sends them, where the chain is cut after `layer`. Each of its replicas takes its own
    /// samples, all at once. Of the two sides of a cut the slower one counts ([`Question::edge_seconds`]).
    ///
    /// [`Question::edge_seconds`]: super::Question::edge_seconds
    fn cut_seconds(&self, layer: usize, link: LinkId, choice: usize) -> f64;

    /// The same over a link that need not be one of those which are known by number: no longer over a faster one.
    fn cut_seconds_over(&self, layer: usize, link: Link, choice: usize) -> f64;

    /// Whether a stage's passes take what its layers' take one by one, added up.
    fn adds_up(&self) -> bool {
        false
    }

    /// Whether [`Self::squeezed`] ever answers.
    fn squeezes(&self) -> bool {
        false
    }

    /// What it takes to make a stage need this many bytes less, by computing some of its layers again; none where
    /// that cannot be. `exactly`, or with quick bounds. A stage that holds more micro-batches is no easier to squeeze:
    /// what its layers save of one is part of what it needs for it.
    fn squeezed(&self, stage: &StageAt, in_flight: u32, less: u64, exactly: bool) -> Option<Squeezed> {
        let _ = (stage, in_flight, less, exactly);
        None
    }
}

/// Seconds that a stage's passes of one micro-batch take longer because it computes layers again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Squeezed {
    /// No selection of layers takes less.
    pub at_least: f64,
    /// Some selection takes this.
    pub at_most: f64,
}
