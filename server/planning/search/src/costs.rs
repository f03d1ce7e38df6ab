//! What a search asks about stages: bytes and seconds, as numbers; how a stage shares its work; and the lowest costs anywhere.

use std::fmt;
use std::ops::Range;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::training::RecomputePolicy;
use loadmaster_proto::training::sharding::StateSharding;
use loadmaster_proto::training::stage::StageConfig;
use loadmaster_simulate::Seconds;

use super::Fleet;
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
    /// Kinds of its devices: the slowest and the highest peak of them count.
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

/// Bytes on the device with the highest peak of a stage.
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

    /// What it takes to make a stage need this many bytes less, by recomputing some of its layers; none where
    /// that cannot be. `exactly`, or with quick bounds. A stage that holds more micro-batches is no easier to squeeze:
    /// what its layers save of one is part of what it needs for it.
    fn squeezed(&self, stage: &StageAt, in_flight: u32, less: u64, exactly: bool) -> Option<Squeezed> {
        let _ = (stage, in_flight, less, exactly);
        None
    }
}

/// Seconds that a stage's passes of one micro-batch take longer because it recomputes layers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Squeezed {
    /// No selection of layers takes less.
    pub at_least: f64,
    /// Some selection takes this.
    pub at_most: f64,
}

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

/// A way to run a stage: `data × tensor` devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Choice {
    /// Replicas that split the micro-batch.
    pub data: u32,
    /// Shards that split the tensors, within each replica.
    pub tensor: u32,
    /// What the backward pass recomputes.
    pub recompute: RecomputePolicy,
    /// The shards divide activations along the sequence.
    pub sequence: bool,
    /// States that the replicas divide among each other.
    pub sharding: StateSharding,
}

impl Choice {
    /// One device that keeps everything.
    pub const SINGLE: Self = Self {
        data: 1,
        tensor: 1,
        recompute: RecomputePolicy::None,
        sequence: false,
        sharding: StateSharding::None,
    };

    /// The way in which a stage is shared, with this recompute policy.
    pub fn of(stage: &StageConfig, recompute: RecomputePolicy) -> Self {
        let StageConfig {
            data_degree: data,
            tensor_degree: tensor,
            sequence_parallel: sequence,
            sharding,
            ..
        } = *stage;
        Self { data, tensor, recompute, sequence, sharding }
    }

    /// These sizes with the other settings of this choice; one replica divides no states, and one shard no sequence.
    #[must_use]
    pub fn resized(self, data: u32, tensor: u32) -> Self {
        let sharding = if data > 1 { self.sharding } else { StateSharding::None };
        Self { data, tensor, sequence: self.sequence && tensor > 1, sharding, ..self }
    }

    /// Returns the stage of these layers that is shared so.
    pub fn stage(self, first_layer: usize, last_layer: usize) -> StageConfig {
        let Self {
            data: data_degree,
            tensor: tensor_degree,
            sequence: sequence_parallel,
            sharding,
            recompute: _,
        } = self;
        StageConfig { first_layer, last_layer, data_degree, tensor_degree, sequence_parallel, sharding }
    }

    /// Devices that it takes.
    pub fn devices(self) -> u32 {
        self.data.saturating_mul(self.tensor)
    }
}

/// `data2×tensor4`, with sequence parallelism, state sharding and the recompute policy where there are any.
impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "data{}×tensor{}", self.data, self.tensor)?;
        if self.sequence {
            f.write_str(" sequence")?;
        }
        if !self.sharding.is_none() {
            write!(f, " ZeRO-{}", self.sharding.zero_stage())?;
        }
        match self.recompute {
            RecomputePolicy::None => Ok(()),
            policy => write!(f, " recompute {policy}"),
        }
    }
}

/// How peaks are compared, and capped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Unit {
    #[default]
    Bytes,
    /// As the part of its device's capacity that a stage takes: what counts where devices differ.
    Share,
}

impl Unit {
    /// A whole device, in parts: shares are whole numbers of them, rounded up, so that they compare exactly. So many
    /// that a float holds their number, and that no byte of a device is less than one.
    pub const WHOLE: u64 = 1 << 50;

    /// What a peak comes to on a device of this capacity.
    pub fn of(self, bytes: u64, capacity: Bytes) -> u64 {
        match self {
            Self::Bytes => bytes,
            Self::Share if bytes == 0 => 0,
            Self::Share if capacity.0 == 0 => u64::MAX,
            Self::Share => {
                let parts = (u128::from(bytes) * u128::from(Self::WHOLE)).div_ceil(u128::from(capacity.0));
                u64::try_from(parts).unwrap_or(u64::MAX)
            }
        }
    }

    /// The most bytes that come to at most this on a device of this capacity.
    pub fn most_bytes(self, most: u64, capacity: Bytes) -> u64 {
        match self {
            Self::Bytes => most,
            Self::Share => {
                let bytes = u128::from(most) * u128::from(capacity.0) / u128::from(Self::WHOLE);
                u64::try_from(bytes).unwrap_or(u64::MAX)
            }
        }
    }
}
