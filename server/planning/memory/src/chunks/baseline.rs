//! What others do, simulated as the planner's own choices are: by the same steps, costs and lanes.
//!
//! | who | what is on the device | when is the host's part updated? |
//! |---|---|---|
//! | ZeRO-Offload | all parameters, always; their gradients leave when they are complete | when the backward pass is over |
//! | PatrickStar | what its margin has room for of the state; of parameters the chunk with the farthest next use leaves | the same |
//!
//! Both keep a low-precision copy of the parameters on the host.

use std::cmp::Reverse;
use std::rc::Rc;

use loadmaster_proto::chunks::embedding::EmbeddingPlace;
use loadmaster_proto::chunks::groups::Groups;
use loadmaster_proto::chunks::host::HostParameters;
use loadmaster_proto::chunks::layout::{List, Lists};
use loadmaster_proto::chunks::packing::{ChunkLayout, Packing};
use loadmaster_proto::chunks::residency::intervals::ResidencyInterval;
use loadmaster_proto::chunks::residency::paging_intervals::Paging;
use loadmaster_proto::chunks::residency::uses::{PayloadUses, Uses};
use loadmaster_proto::chunks::sizes::ChunkSizes;
use loadmaster_proto::chunks::stage::{ChunkEviction, ChunkedStage, Chunks, UpdateTime};
use loadmaster_proto::error::Invalid;
use loadmaster_proto::training::RecomputePolicy;
use loadmaster_proto::training::boundaries::BoundaryInterval;
use loadmaster_proto::training::chunk_order::ChunkOrder;

use super::chunk_usage::ChunkUsage;
use super::layout_evaluation::LayoutEvaluation;
use super::pass_costs::{PassCosts, StepSequences};
use super::plan::ChunkPlan;
use super::question::{ChunkQuestion, PassChoice, Passes};
use super::refusal::NoChunks;

/// The least number of chunks that sizes of a model are tried for to which PatrickStar's own do not fit.
const LEAST_CHUNKS: u64 = 32;
/// What share of the margin PatrickStar's optimizer may take (`margin_use_ratio`).
const MARGIN_USE_RATIO: f64 = 0.8;

/// How others train what does not fit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Baseline {
    /// ZeRO-Offload's static partition, with micro-batches in this order.
    Static(ChunkOrder),
    /// PatrickStar as published.
    PatrickStar(PatrickStar),
}

/// PatrickStar's settings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PatrickStar {
    /// What share of the device it uses (`overall_gpu_mem_ratio`).
    pub overall_ratio: f64,
    /// What share of that chunks may take in its first iteration, which finds out what else there is
    /// (`warmup_gpu_chunk_mem_ratio`, 0.1 where no one names another).
    pub warmup_ratio: f64,
}

impl Baseline {
    /// PatrickStar as published, but that it may use all of the device, as others do, and in its first iteration, too.
    pub const PATRICKSTAR: Self = Self::PatrickStar(PatrickStar { overall_ratio: 1.0, warmup_ratio: 1.0 });

    /// Its fastest iteration, whichever of the question's recomputation policies that takes.
    ///
    /// # Errors
    /// As [`Self::plan`], of the last policy.
    pub fn fastest(&self, question: &ChunkQuestion, passes: &impl Passes) -> Result<ChunkPlan, NoChunks> {
        let mut fastest: Result<ChunkPlan, NoChunks> = Err(NoChunks::Stopped);
        for &recompute in &question.choices.recomputes {
            match (self.plan(question, passes, recompute), &fastest) {
                (Ok(plan), Ok(known)) if plan.lanes.iteration_seconds >= known.lanes.iteration_seconds => {}
                (Err(_), Ok(_)) => {}
                (found, _) => fastest = found,
            }
        }
        fastest
    }

    /// Its iteration. Of the question's choices none matter but staging.
    ///
    /// # Errors
    /// There is no room for it, what steps cost is not known, or the question makes no sense.
    pub fn plan(
        &self,
        question: &ChunkQuestion,
        passes: &impl Passes,
        recompute: RecomputePolicy,
    ) -> Result<ChunkPlan, NoChunks> {
        question.check()?;
        ChunkedStage::check_training(&question.training(recompute))?;
        let (layout, order) = match *self {
            Self::Static(order) => (ChunkLayout::Aligned, order),
            Self::PatrickStar(_) => (ChunkLayout::Patrickstar, ChunkOrder::MicroBatch),
        };
        let of = PassChoice { order, recompute, embedding: EmbeddingPlace::Chunk, activations: None };
        let ground = PassCosts::of(question, passes, of, &mut StepSequences::default())?;
        let lists = Lists::new(question.training.precision, &question.training.optimizer)?;
        let sequence = question.sequence();
        let packing = Packing::new(&sequence, layout, lists)?;
        let places = packing.lay_out(published_size(&packing, layout)?)?;
        // PatrickStar with memory-saving communication, which gives each other one chunk at a time: in parts these are as many
        // bytes of each device, and as many between ranks.
        let placed = ChunkUsage::new(question, &ground, (layout, lists), &places)?;
        let laid = LayoutEvaluation::new(&ground, Rc::new(placed));
        match self {
            Self::Static(_) => {
                let chunks = laid.chunks(HostParameters::Stored, 0)?;
                let intervals = static_intervals(&chunks.uses);
                finish(&laid, question.capacity.0, published_stage(&laid, Vec::new()), (&chunks, intervals))
            }
            Self::PatrickStar(settings) => settings.plan(&laid),
        }
    }
}

impl PatrickStar {
    /// Checks that its first iteration has room: what a step uses of chunks in a share of the device, beside whatever else there is.
    /// No one counts state then.
    fn check_first(&self, laid: &LayoutEvaluation<'_>, overall: u64, room: &[u64]) -> Result<(), NoChunks> {
        let share = (overall as f64 * self.warmup_ratio) as u64;
        let least = laid.placed.least_chunk_bytes(0);
        let lacks = least.iter().zip(room).map(|(least, room)| least.saturating_sub(share.min(*room)));
        let most =
            lacks.enumerate().filter(|(_, lack)| *lack > 0).max_by_key(|&(step, lack)| (lack, Reverse(step)));
        lacking(laid, most).map_or(Ok(()), Err)
    }

    fn plan(&self, laid: &LayoutEvaluation<'_>) -> Result<ChunkPlan, NoChunks> {
        let overall = (laid.question.capacity.0 as f64 * self.overall_ratio) as u64;
        let room: Vec<u64> =
            laid.ground.costs.needed.iter().map(|needed| overall.saturating_sub(*needed)).collect();
        self.check_first(laid, overall, &room)?;
        let mut count = Margin::of(laid, overall).on_device();
        loop {
            // In list order.
            let on_device: Vec<usize> = (0..count).collect();
            let uses = laid.placed.uses.clone().with_on_device(&on_device, &laid.placed.sharing);
            let chunks = laid.chunks_of(uses, HostParameters::Stored)?;
            let stage = ChunkedStage { moves: ChunkEviction::WriteBack, ..published_stage(laid, on_device) };
            match (stage.paged(Paging::AT_NEED, &chunks, &room), count) {
                (Ok(intervals), _) => return finish(laid, overall, stage, (&chunks, intervals)),
                (Err(why), 0) => {
                    let least = laid.placed.least_chunk_bytes(0);
                    return Err(lacking(laid, laid.lack_of(&least, overall)).unwrap_or_else(|| why.into()));
                }
                // Its margin knows nothing of gradients that are apart.
                (Err(_), _) => count -= 1,
            }
        }
    }
}

/// What decides how much of the optimizer's state PatrickStar keeps on the device (§ device-aware operator placement).
#[derive(Debug, Clone, Copy)]
pub(super) struct Margin {
    /// Bytes of the device that it uses.
    pub(super) overall: f64,
    /// The most of `N(t)`.
    pub(super) most: f64,
    /// Ranks, each of which owns one chunk of a group.
    pub(super) ranks: usize,
    /// Chunks of each list, and their elements.
    pub(super) chunks: usize,
    pub(super) chunk_elements: f64,
    /// Bytes that an element takes in the list of parameters, and in all others.
    pub(super) scalar_bytes: f64,
    pub(super) state_bytes: f64,
}

/// Why there is no room, where so much lacks of the device in a step.
fn lacking(laid: &LayoutEvaluation<'_>, device: Option<(usize, u64)>) -> Option<NoChunks> {
    laid.told(HostParameters::Stored, 0, (device, 0)).map(|lack| NoChunks::NoRoom(Box::new(lack)))
}

impl Margin {
    fn of(laid: &LayoutEvaluation<'_>, overall: u64) -> Self {
        let scalar = laid.placed.lists.scalar_bytes(List::Parameters);
        Self {
            overall: overall as f64,
            most: laid.ground.most_needed() as f64,
            ranks: usize::try_from(laid.placed.sharing.ranks()).unwrap_or(usize::MAX),
            chunks: laid.placed.count(),
            chunk_elements: laid.placed.places.chunk_elements() as f64,
            scalar_bytes: scalar as f64,
            state_bytes: (laid.placed.lists.parameter_bytes() - scalar) as f64,
        }
    }

    /// Groups whose state it has room for, with memory-saving communication: in what is left beside others, the parameters that
    /// a rank owns and a chunk more.
    pub(super) fn groups(&self) -> usize {
        let own = self.chunks as f64 / self.ranks as f64;
        let parameters = (own + 1.0) * self.scalar_bytes * self.chunk_elements;
        let margin = self.overall - self.most - parameters;
        let groups = (margin / (self.state_bytes * self.chunk_elements) * MARGIN_USE_RATIO).ceil() - 1.0;
        // Casts of negative numbers end at 0.
        (groups as usize).min(self.chunks.div_ceil(self.ranks))
    }

    /// The chunks of these groups. Ours are shared in parts, which take as much of each device as whole chunks of one rank each.
    fn on_device(&self) -> usize {
        self.groups().saturating_mul(self.ranks).min(self.chunks)
    }
}

/// The best of the sizes that PatrickStar tries; of a model that is too small for them, the best sum of parameter
/// groups up to a 32nd of it.
fn published_size(packing: &Packing<'_>, layout: ChunkLayout) -> Result<u64, Invalid> {
    let groups = Groups::new(layout, 1, None)?;
    let all: u64 = packing.extents().sum();
    let largest = (all / LEAST_CHUNKS).max(packing.largest_atom());
    let grids = [ChunkSizes::GridA, ChunkSizes::GridB].into_iter();
    let tried = grids.filter_map(|sizes| packing.choose(sizes, largest, &groups, 1).ok());
    let best = tried
        .flat_map(|tried| tried.footprints)
        .max_by(|one, other| one.utilisation().total_cmp(&other.utilisation()));
    match best {
        Some(best) => Ok(best.chunk_elements),
        None => {
            let tried = packing.choose(ChunkSizes::Breakpoints, largest, &groups, 1)?;
            Ok(tried.footprints.first().map_or(largest, |best| best.chunk_elements))
        }
    }
}

/// What both do. An unchanged chunk is dropped, not copied back, when it is evicted.
fn published_stage(laid: &LayoutEvaluation<'_>, on_device: Vec<usize>) -> ChunkedStage {
    ChunkedStage { update: UpdateTime::AfterBackward, on_device, ..laid.stage(HostParameters::Stored, 0) }
}

/// Parameters are there from the first boundary to the last. Gradients that are apart are there from the first of them, and
/// have a step to leave in.
pub(super) fn static_intervals(uses: &Uses) -> Vec<ResidencyInterval> {
    let steps = uses.steps();
    let of = |of: &PayloadUses| {
        let (&needed, &last) = of.steps.first().zip(of.steps.last())?;
        let (fetched, freed) =
            if of.payload.is_gradients { (needed, (last + 2).min(steps)) } else { (0, steps) };
        Some(ResidencyInterval {
            at: BoundaryInterval { fetched, needed, leaves: last + 1, freed },
            payload: of.payload,
        })
    };
    uses.payloads().iter().filter_map(of).collect()
}

/// Simulates it, if there is room in so many bytes of the device: also for steps that use no chunk.
fn finish(
    laid: &LayoutEvaluation<'_>,
    capacity: u64,
    stage: ChunkedStage,
    (chunks, intervals): (&Chunks, Vec<ResidencyInterval>),
) -> Result<ChunkPlan, NoChunks> {
    let question = laid.question;
    let on_device = stage.on_device.len();
    let plan = ChunkPlan::of(stage, chunks, intervals, laid.ground, question.rates)?;
    let lacks =
        (laid.lack_of(&plan.resident, capacity), plan.host_bytes.0.saturating_sub(question.host_memory.0));
    match laid.told(HostParameters::Stored, on_device, lacks) {
        None => Ok(plan),
        Some(lack) => Err(NoChunks::NoRoom(Box::new(lack))),
    }
}
