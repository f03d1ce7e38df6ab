//! How a training in chunks is asked for: what is given, and what may be chosen.

use std::ops::RangeInclusive;

use loadmaster_predict::{Away, PredictionError};
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::chunks::activations::{ActivationPlace, ActivationPoints};
use loadmaster_proto::chunks::embedding::{EmbeddingPlace, HostTable};
use loadmaster_proto::chunks::groups::Sharing;
use loadmaster_proto::chunks::host::HostParameters;
use loadmaster_proto::chunks::packing::Packing;
use loadmaster_proto::chunks::sequence::Sequence;
use loadmaster_proto::chunks::stage::{ChunkedStage, UpdateTime};
use loadmaster_proto::cluster::device::CPU_KIND;
use loadmaster_proto::error::{Invalid, in_range};
use loadmaster_proto::model::Model;
use loadmaster_proto::plan::chunked::ChunkPolicy;
use loadmaster_proto::plan::rates::LaneRates;
use loadmaster_proto::training::chunk_order::ChunkOrder;
use loadmaster_proto::training::stage::StageConfig;
use loadmaster_proto::training::{RecomputePolicy, TrainingSpec};

/// A model that is to be trained in chunks, by one rank or by several that share them.
#[derive(Debug, Clone)]
pub struct ChunkQuestion {
    /// The model.
    pub model: Model,
    /// How it is trained, but for what is recomputed, which is chosen. Its micro-batch is that of all ranks.
    pub training: TrainingSpec,
    /// Replicas of the model, each on a device of its own with its share of every micro-batch: each owns a part of every chunk.
    pub ranks: u32,
    /// Shards of each replica, each on a device of its own: each has chunks of its own tensors, which it shares with the same
    /// shard of the other replicas.
    pub shards: u32,
    /// Bytes of a rank's device, for chunks and all else.
    pub capacity: Bytes,
    /// Bytes of the host that each rank's part of the chunks may take.
    pub host_memory: Bytes,
    /// How fast copies and updates are.
    pub rates: LaneRates,
    /// What may be chosen.
    pub choices: ChunkChoices,
}

/// What may be chosen: what has one value is fixed.
#[derive(Debug, Clone, PartialEq)]
pub struct ChunkChoices {
    /// Which chunks are on the device in which step.
    pub policy: ChunkPolicy,
    /// Chunk sizes.
    pub sizes: TriedSizes,
    /// In which order micro-batches pass.
    pub orders: Vec<ChunkOrder>,
    /// What is recomputed.
    pub recomputes: Vec<RecomputePolicy>,
    /// What the host holds of the parameters.
    pub host_copies: Vec<HostParameters>,
    /// Where the embedding table is when the embedding computes. On the host where no shards compute the embedding
    /// of a model that has one.
    pub embeddings: Vec<EmbeddingPlace>,
    /// Where what layers keep of a micro-batch is between its passes.
    pub activations: Vec<ActivationPlace>,
    /// Where those leave and come that are on the host.
    pub points: Vec<ActivationPoints>,
    /// How many payloads are on their way before they are needed.
    pub ahead: RangeInclusive<usize>,
    /// How many steps a complete payload has to leave in.
    pub behind: RangeInclusive<usize>,
    /// How many chunks have their state on the device, or all where there are fewer; any number where none is named.
    pub on_device: Option<usize>,
    /// Buffers that gradients pass through where they have no place on the host.
    pub staging: usize,
    /// When chunks are updated.
    pub update: UpdateTime,
    /// What is faster by less than this share is not looked for.
    pub tolerance: f64,
    /// Most choices that are simulated. What that leaves out counts in the answer's bound.
    pub most_simulated: usize,
}

/// Chunk sizes that are tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TriedSizes {
    /// These, elements.
    Named(Vec<u64>),
    /// Two of each octave from a 1024th of the model to all of it: sums of parameter groups, as PatrickStar's are not.
    Spread,
}

impl Default for ChunkChoices {
    /// All that is trained.
    fn default() -> Self {
        Self {
            policy: ChunkPolicy::Loadmaster,
            sizes: TriedSizes::Spread,
            orders: vec![ChunkOrder::Layer, ChunkOrder::MicroBatch],
            recomputes: vec![RecomputePolicy::None, RecomputePolicy::Layer],
            host_copies: vec![HostParameters::Stored, HostParameters::Cast],
            embeddings: vec![EmbeddingPlace::Chunk, EmbeddingPlace::Host],
            activations: vec![ActivationPlace::Device, ActivationPlace::Host],
            // With no step to hide a copy least is on the device; more of them hide those of layers unlike their neighbours.
            points: [1, 3, 0]
                .map(|steps| ActivationPoints { release_after: steps, fetch_before: steps })
                .to_vec(),
            ahead: 0..=3,
            behind: 0..=2,
            on_device: None,
            staging: 2,
            update: UpdateTime::OnArrival,
            tolerance: 1e-3,
            most_simulated: 8_192,
        }
    }
}

impl ChunkChoices {
    /// All that is trained on a kind of device: parameters that are rounded for a GPU pass through buffers, too.
    pub fn on(kind: &str) -> Self {
        let usual = Self::default();
        if kind == CPU_KIND { usual } else { Self { staging: 2 * usual.staging, ..usual } }
    }

    /// Whether chunks may leave; otherwise all parameters stay on the device for the whole iteration.
    pub(super) fn is_paged(&self) -> bool {
        self.policy != ChunkPolicy::Static
    }
}

/// What of a training decides which steps there are, and what they need besides payloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PassChoice {
    /// In which order micro-batches pass.
    pub order: ChunkOrder,
    /// What is recomputed.
    pub recompute: RecomputePolicy,
    /// Where the embedding takes its rows from.
    pub embedding: EmbeddingPlace,
    /// Where activations leave and come that are on the host; none where they are on the device.
    pub activations: Option<ActivationPoints>,
}

/// What a device needs besides payloads, and how long its passes take.
#[derive(Debug, Clone, PartialEq)]
pub struct StepCosts {
    /// Bytes that each step must find beside payloads: `N(t)` with its margin, as
    /// [`Moments::needed`](loadmaster_predict::Moments::needed) returns them.
    pub needed: Vec<u64>,
    /// Seconds of each step.
    pub seconds: Vec<f64>,
    /// What of micro-batches is on the host, and when.
    pub away: Vec<Away>,
    /// The most bytes of that at once.
    pub pool: Bytes,
}

/// Who knows what steps cost.
pub trait Passes {
    /// The costs of the steps of [`Steps::of_chunks`](loadmaster_proto::training::actions::Steps::of_chunks).
    ///
    /// # Errors
    /// What the profile lacks.
    fn costs(&self, of: PassChoice) -> Result<StepCosts, PredictionError>;
}

impl<F: Fn(PassChoice) -> Result<StepCosts, PredictionError>> Passes for F {
    fn costs(&self, of: PassChoice) -> Result<StepCosts, PredictionError> {
        self(of)
    }
}

impl ChunkQuestion {
    /// The stage that its devices are.
    pub fn stage(&self) -> StageConfig {
        let whole = StageConfig::single(0, self.model.layers().len().saturating_sub(1));
        StageConfig { data_degree: self.ranks, tensor_degree: self.shards, ..whole }
    }

    /// The tensors of a device: of the first shard, which is the longest of each.
    pub(super) fn sequence(&self) -> Sequence {
        Sequence::of_stage(&self.model, &self.stage(), 0)
    }

    /// The training with this recomputation.
    pub(super) fn training(&self, recompute: RecomputePolicy) -> TrainingSpec {
        TrainingSpec { recompute, ..self.training }
    }

    /// Where the embedding table may be: of the choices those that the model and its ranks can do, or all where they
    /// can do none.
    pub fn embeddings(&self) -> Vec<EmbeddingPlace> {
        let mut able = self.choices.embeddings.clone();
        able.retain(|&place| HostTable::check(place, &self.model, &self.stage()).is_ok());
        if able.is_empty() { self.choices.embeddings.clone() } else { able }
    }

    /// All that may be chosen of what decides steps, with activations in one of these places.
    pub(super) fn pass_choices_in(&self, places: &[ActivationPlace]) -> Vec<PassChoice> {
        let ChunkChoices { orders, recomputes, .. } = &self.choices;
        let embeddings = self.embeddings();
        let mut all = Vec::new();
        for activations in places.iter().flat_map(|&place| self.points_in(place)) {
            for &recompute in recomputes {
                for &order in orders {
                    let of =
                        |&embedding: &EmbeddingPlace| PassChoice { order, recompute, embedding, activations };
                    all.extend(embeddings.iter().map(of));
                }
            }
        }
        all
    }

    /// The points that are tried of activations in a place.
    fn points_in(&self, place: ActivationPlace) -> Vec<Option<ActivationPoints>> {
        match place {
            ActivationPlace::Device => vec![None],
            ActivationPlace::Host => self.choices.points.iter().copied().map(Some).collect(),
        }
    }

    /// All that may be chosen of what decides steps.
    pub fn pass_choices(&self) -> Vec<PassChoice> {
        self.pass_choices_in(&self.places())
    }

    /// Where activations may be, the device first: what is on the host is looked at last.
    pub(super) fn places(&self) -> Vec<ActivationPlace> {
        let mut places = self.choices.activations.clone();
        places.sort_unstable();
        places.dedup();
        places
    }

    /// # Errors
    /// Names a choice that allows nothing, a training that cannot be in chunks, or a rate that is none.
    pub(super) fn check(&self) -> Result<(), Invalid> {
        let ChunkChoices {
            sizes,
            orders,
            recomputes,
            host_copies,
            embeddings,
            activations,
            points,
            ahead,
            behind,
            update,
            ..
        } = &self.choices;
        let is_empty = [
            ("sizes", matches!(sizes, TriedSizes::Named(sizes) if sizes.is_empty())),
            ("orders", orders.is_empty()),
            ("recomputes", recomputes.is_empty()),
            ("host_copies", host_copies.is_empty()),
            ("embeddings", embeddings.is_empty()),
            ("activations", activations.is_empty()),
            ("points", points.is_empty()),
            ("ahead", ahead.is_empty()),
            ("behind", behind.is_empty()),
        ];
        if let Some((field, _)) = is_empty.into_iter().find(|(_, is_empty)| *is_empty) {
            return Err(Invalid::field(field, "allows nothing. Set at least one value"));
        }
        if *update == UpdateTime::AfterBackward && host_copies.contains(&HostParameters::Cast) {
            let why = format!(
                "{} requires the CPU optimizer timing {}. Change one of the two",
                HostParameters::Cast,
                UpdateTime::OnArrival
            );
            return Err(Invalid::field("host_copies", why));
        }
        in_range("staging", self.choices.staging, 1..=ChunkedStage::MAX_STAGING)?;
        for &recompute in recomputes {
            ChunkedStage::check_training(&self.training(recompute))?;
        }
        Sharing::new(self.ranks, 1)?;
        in_range("shards", self.shards, 1..=StageConfig::MAX_TENSOR_DEGREE)?;
        let LaneRates {
            up,
            down,
            copy_seconds,
            update,
            device_update,
            gather,
            collective_seconds,
            host_memory,
        } = self.rates;
        let rates = [
            ("up", up),
            ("down", down),
            ("update", update),
            ("device_update", device_update),
            ("gather", gather),
            ("host_memory", host_memory.unwrap_or(1.0)),
        ];
        if let Some((field, rate)) = rates.into_iter().find(|(_, rate)| !(rate.is_finite() && *rate > 0.0)) {
            return Err(
                Invalid::field(field, format!("{rate} is not valid. Use a value above 0")).under("rates")
            );
        }
        in_range("tolerance", self.choices.tolerance, 0.0..=1.0)?;
        for (field, seconds) in [("copy_seconds", copy_seconds), ("collective_seconds", collective_seconds)] {
            if !(seconds.is_finite() && seconds >= 0.0) {
                return Err(
                    Invalid::field(field, format!("{seconds} is not valid. Use 0 or more")).under("rates")
                );
            }
        }
        Ok(())
    }
}

/// Halvings of the model down to the smallest size that is tried.
const MOST_HALVINGS: u32 = 9;
/// Sizes of which one is kept between a power of two and the one below.
const PER_OCTAVE: u64 = 8;

impl TriedSizes {
    /// The sizes that are tried of a packing, largest first. Named ones that cannot be are left out.
    ///
    /// # Errors
    /// Why the last that was named cannot be.
    pub(super) fn of(&self, packing: &Packing<'_>) -> Result<Vec<u64>, Invalid> {
        let mut refused = None;
        let mut sizes = Vec::new();
        let mut add = |size: u64| match packing.checked_size(size) {
            Ok(size) => sizes.push(size),
            Err(why) => refused = Some(why),
        };
        match self {
            Self::Named(named) => named.iter().for_each(|&size| add(size)),
            Self::Spread => spread(packing).into_iter().for_each(&mut add),
        }
        sizes.sort_unstable_by(|one, other| other.cmp(one));
        sizes.dedup();
        match refused {
            Some(why) if sizes.is_empty() => Err(why.under("sizes")),
            _ => Ok(sizes),
        }
    }
}

/// All of it in one chunk, and of each octave below that what the largest chunk of its power of two holds, and of some sizes
/// between its ends the one that wastes least.
fn spread(packing: &Packing<'_>) -> Vec<u64> {
    let all: u64 = packing.extents().sum();
    let mut sizes = vec![all, packing.largest_atom()];
    for halvings in 0..=MOST_HALVINGS {
        let power = (all.next_power_of_two() >> (halvings + 1)).max(1);
        let tried: Vec<(u64, u64)> = (0..PER_OCTAVE)
            .filter_map(|part| power.checked_sub(power / 2 / PER_OCTAVE * part))
            .filter_map(|size| shrunk(packing, size))
            .collect();
        sizes.extend(tried.first().map(|of| of.0));
        sizes.extend(tried.iter().min_by_key(|of| of.1).map(|of| of.0));
    }
    sizes
}

/// What the largest chunk of a size holds, and what all chunks of this have room for: the same parameter groups are
/// in the same chunks, with less room beside them. None of a size that cannot be.
fn shrunk(packing: &Packing<'_>, size: u64) -> Option<(u64, u64)> {
    let chunk_elements = packing.checked_size(size).ok()?;
    // A table that is a chunk of its own by itself has no room beside it.
    let shared = packing.chunk_sizes(chunk_elements).filter(|&(capacity, _)| capacity >= chunk_elements);
    let extents: Vec<u64> = shared.map(|(_, extent)| extent).collect();
    let fullest = extents.iter().copied().filter(|&extent| extent <= size).max().unwrap_or(size);
    let capacity = extents.iter().fold(0_u64, |sum, &extent| sum.saturating_add(extent.max(fullest)));
    Some((fullest, capacity))
}
