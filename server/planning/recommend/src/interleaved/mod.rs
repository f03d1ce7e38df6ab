//! Plans with virtual pipeline stages: interleaved 1F1B (Megatron-LM, SC'21, 2.2).
//!
//! | module | question |
//! |---|---|
//! | here | which search answers what is asked? |
//! | `checks` | what of the request can no such plan do? |
//! | `pipeline` | what do stages cost on their devices, what do replays of them return, and what does a plan store? |
//! | `interleaving` | what do devices hold and do that take turns? |
//! | `cutting` | where is the chain best cut? |
//! | `family` | what do objectives ask of it, and what is reported beside a plan? |
//! | `best` | which plan is best of all that may be chosen, and what is each way to cut worth? |
//! | `greedy_fit` | which memory optimizations make it fit, where a framework says them too? |
//! | `local_search` | what may stages do about their memory, and which changes of that are faster? |
//!
//! Stage k is on the devices of place k modulo the places along the pipeline, which uses all devices in their order. The peak of
//! a stage is its device's peak. Interleaving divides the bubble by the number of stages per device, and needs more memory.
//!
//! * A device executes the steps of all its stages. Its bytes in each step are those of the running stage, and the bytes that its
//!   other stages left after their last steps.
//! * Every partition is evaluated by replay and simulation where these are few. Otherwise stage boundaries move from an even
//!   partition. A certificate then states the gap to a bound of every partition: the seconds of all layers spread over the
//!   devices, plus the way to each device's first stage and back.
//! * Memory optimizations are added greedily until a replay fits on every device. Then single changes are kept while a simulation
//!   becomes faster.
//! * All objectives ask for the fastest plan within devices, micro-batches and a peak. Values are rejected by complete
//!   searches, or by the bytes that layers need alone; with memory optimizations by the latter only.
//! * A front has up to 15 peaks, one right below the other, while each result is optimal. Otherwise up to 32 peaks are sampled.
//! * Where another order of the devices may be better (several nodes, different links), no other order is evaluated. Bounds then
//!   cover any order, or are not stated.
//!
//! Ranks do not train such plans. Frameworks with virtual stages (Megatron, Megatron-Bridge, `other`) receive them as exports.
//! Operations that assume one stage per device, such as trials and new predictions, reject them (`Plan::check_flat`).

mod best;
mod checks;
mod cutting;
mod family;
mod greedy_fit;
mod interleaving;
mod local_search;
mod pipeline;
#[cfg(test)]
mod tests;

use loadmaster_proto::error::Invalid;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::objective::Objective;
use loadmaster_proto::plan::request::PlanRequest;
use loadmaster_proto::training::actions::{Allowed, StageActions};
use loadmaster_proto::training::stage::{Partitioning, StageConfig};

use super::fixed_partition::GIVEN;
use super::memory_optimizations::{CopyLinks, FrameworkRules};
use super::objectives::{Answer, FamilyContext, FamilySolution, best};
use super::problem::Variant;
use super::result::{QuestionError, RecommendError};
use super::search::{Candidate, Effort, Inquiry, KnownOrders};
pub(super) use checks::check_framework;
use greedy_fit::GreedyFit;
pub(super) use interleaving::Interleaving;
pub use interleaving::{DeviceResidency, InterleavingError};
use loadmaster_predict::MOST_PASSES;
use loadmaster_search::cost::{Market as _, Prices};
use loadmaster_search::fleet::Subset;
use loadmaster_search::{Choice, Cuts, StageCosts};
pub(super) use pipeline::timed_in_turn;
use pipeline::{BuiltPlan, Pipeline, places};

/// Solver of such plans.
const SOLVER: &str = "interleaved/1";

/// A question for a plan whose devices have several interleaved stages.
#[derive(Clone, Copy)]
pub(super) struct InterleavedQuestion<'a> {
    pub(super) family: FamilyContext<'a>,
    pub(super) request: &'a PlanRequest,
    /// Which actions may be chosen; none where none are to be.
    pub(super) allowed: Option<&'a Allowed>,
    /// The framework that is to say them; none where it says any, or no one is named.
    pub(super) framework_rules: Option<FrameworkRules<'a>>,
    /// The devices of a plan, which takes all of them.
    pub(super) devices: &'a Subset,
    /// Where the chain may be cut, the framework's restrictions included.
    pub(super) cuts: &'a Cuts,
}

impl InterleavedQuestion<'_> {
    /// The best plan by the criteria's objective, or that of the stages that are given, and the plans that it names.
    ///
    /// # Errors
    /// What of the request no such plan can do, what the profile lacks, or that nothing fits, as far as anything was found.
    pub(super) fn answer(&self) -> Answer {
        self.check()?;
        if !self.is_searched() {
            return Ok((self.found()?.plan, Vec::new()));
        }
        match self.family.criteria.objective {
            // Without actions one search knows all peaks.
            Objective::MinPeakMemory if self.allowed.is_none() => self.at_once(self.family.criteria),
            _ => best(self),
        }
    }

    /// Whether there is anything to choose.
    fn is_searched(&self) -> bool {
        self.family.given.is_none() || self.allowed.is_some()
    }

    /// The fastest plan on the devices, or that with the lowest peaks, as the criteria say.
    ///
    /// # Errors
    /// As [`Self::answer`].
    fn found(&self) -> Result<FamilySolution, QuestionError> {
        let repeated = self.devices.in_turn(self.request.virtual_stages);
        let cuts = self.cuts.without_pins();
        let (effort, orders) = (Effort::usual(self.family.stop), KnownOrders::default());
        let inquiry = Inquiry {
            market: self.family.context.prices,
            job: self.family.job,
            subset: &repeated,
            criteria: self.family.criteria,
            cuts: &cuts,
            effort: &effort,
            orders: &orders,
        };
        match self.family.given {
            Some(partitioning) => {
                let plan = self.given(inquiry, partitioning)?;
                let seconds = plan.iteration_seconds().unwrap_or(f64::INFINITY);
                let certificate = self.certificate(seconds, None, 0);
                Ok(FamilySolution::new(plan, certificate))
            }
            None => self.best(inquiry),
        }
    }

    /// The plan of stages that the request names, with the actions that it names, or allows.
    fn given(
        &self,
        inquiry: Inquiry<'_, Prices<'_>>,
        partitioning: &Partitioning,
    ) -> Result<Plan, QuestionError> {
        let variant = self.variant_of(partitioning)?;
        let anywhere = Cuts::anywhere(self.family.context.prices.layers());
        let inquiry = inquiry.on(inquiry.subset, &anywhere);
        let pipeline = self.pipeline(inquiry, &variant)?;
        let ends: Vec<usize> = partitioning.stages().iter().map(|stage| stage.last_layer).collect();
        let candidate = pipeline.candidate(&ends).ok_or_else(|| {
            RecommendError::Unpredictable(
                "the profile cannot predict a stage of the pipeline layout. Use another layout, or profile the \
                 parallel sizes of its stages".to_owned(),
            )
        })?;
        let links = CopyLinks::between(self.family.context, &candidate, self.request.copy_pace);
        if let Some(allowed) = self.allowed {
            let plan = self.greedy_fit(&pipeline, &candidate, allowed, &links)?;
            self.check_seconds(plan.iteration_seconds(), false)?;
            return Ok(plan);
        }
        let actions = &*self.request.stage_actions;
        let with = (!actions.is_empty()).then_some((actions, &links));
        let BuiltPlan { plan, lacks } = pipeline.plan(&candidate, with, GIVEN)?;
        let Some((device, needed)) = lacks else { return Ok(plan) };
        let position = candidate.stages[device].devices.first().copied().unwrap_or_default();
        let told =
            format!("{} with {} virtual pipeline stages per device", plan.partition(), plan.virtual_stages);
        let device_name = self.family.job.device(position).unwrap_or_default();
        let capacity = plan.stages[device].capacity;
        Err(RecommendError::given_does_not_fit(told, (position, device_name), needed, capacity).into())
    }

    /// The plan of a candidate with the fastest actions that are found to fit.
    fn greedy_fit<C: StageCosts>(
        &self,
        pipeline: &Pipeline<'_, C>,
        candidate: &Candidate,
        allowed: &Allowed,
        links: &CopyLinks,
    ) -> Result<Plan, QuestionError> {
        let most = self.family.criteria.constraints.max_peak_bytes.unwrap_or(u64::MAX);
        let lighter = GreedyFit::new(
            self.family.context,
            pipeline,
            candidate,
            (allowed, links),
            most,
            self.family.stop,
        )?;
        let actions: Vec<StageActions> = match self.framework_rules {
            Some(framework_rules) => lighter.expressible(framework_rules)?,
            None => lighter.greedy_fit()?,
        };
        Ok(pipeline.plan(candidate, Some((&actions, links)), SOLVER)?.plan)
    }

    /// Seconds that an iteration may take.
    fn limit(&self) -> f64 {
        self.family.criteria.constraints.max_iteration_seconds.unwrap_or(f64::INFINITY)
    }

    /// Whether no other order of the devices could be better: the one that is looked at is asked for, or all are alike.
    fn is_any_order(&self) -> bool {
        let fleet = &self.devices.fleet;
        self.family.criteria.keeps_order || fleet.nodes.len() == 1 && !fleet.has_unlike_links()
    }

    fn pipeline<'p>(
        &'p self,
        inquiry: Inquiry<'p, Prices<'p>>,
        variant: &'p Variant,
    ) -> Result<Pipeline<'p, <Prices<'p> as loadmaster_search::cost::Market>::Costs>, QuestionError> {
        let each = self.request.virtual_stages;
        Pipeline::new(self.family.context, inquiry, variant, self.devices, each)
            .ok_or_else(|| in_no_groups(variant.batch.micro_batches, places(variant, self.devices)).into())
    }

    /// What a partitioning leaves open, of stages that have equally many devices.
    fn variant_of(&self, partitioning: &Partitioning) -> Result<Variant, QuestionError> {
        let stages = partitioning.stages();
        let each = self.request.virtual_stages as usize;
        let (covered, layers) = (partitioning.layer_count(), self.family.context.prices.layers());
        if covered != layers {
            return Err(RecommendError::CoversOther { covered, layers }.into());
        }
        let refuse = |why: String| Err(Invalid::field("constraints.pipeline_layout", why).into());
        if !stages.len().is_multiple_of(each) || stages.len() / each < 2 {
            return refuse(format!(
                "has {} stages, but needs {each} stages per pipeline rank on at least two ranks. Use a multiple of \
                 {each} stages, or another `problem.virtual_stage_count`",
                stages.len()
            ));
        }
        let recompute = self.family.criteria.recompute.first().copied().unwrap_or_default();
        let way = |stage: &StageConfig| Choice::of(stage, recompute);
        let choice = stages.first().map_or(Choice::SINGLE, way);
        if let Some(other) = stages.iter().find(|stage| way(stage) != choice) {
            return refuse(format!(
                "has stages with different parallel sizes or state shardings ({other}), but stages of one device need \
                 equal ones. Use the same for all stages"
            ));
        }
        let needed = choice.devices().saturating_mul((stages.len() / each) as u32);
        let there = self.devices.devices();
        if needed != there {
            return Err(RecommendError::DeviceCount { needed, there }.into());
        }
        let (Some(&batch), Some(&schedule)) =
            (self.family.criteria.batches.first(), self.family.criteria.schedules.first())
        else {
            return Err(RecommendError::Stopped.into());
        };
        check_length(layers, batch.micro_batches)?;
        Ok(Variant { batch, schedule, choices: vec![choice], stages: stages.len()..=stages.len() })
    }
}

/// # Errors
/// An iteration has more passes of layers than are replayed and simulated.
fn check_length(layers: usize, micro_batches: u32) -> Result<(), Invalid> {
    if (layers as u64).saturating_mul(micro_batches.into()) <= MOST_PASSES {
        return Ok(());
    }
    let why = format!(
        "{micro_batches} is too large for a model of {layers} layers: virtual pipeline stages are planned for at most \
         {MOST_PASSES} passes of layers per iteration. Use fewer, larger micro-batches"
    );
    Err(Invalid::field("problem.micro_batch_count", why))
}

/// Micro-batches that are no groups of as many as there are places along the pipeline.
fn in_no_groups(micro_batches: u32, places: usize) -> Invalid {
    let why = format!(
        "{micro_batches} is not a multiple of the pipeline-parallel size {places}, which virtual pipeline stages need. \
         Use a multiple of {places}"
    );
    Invalid::field("problem.micro_batch_count", why)
}
