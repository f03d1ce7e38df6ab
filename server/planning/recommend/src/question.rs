//! A question with everything that its answer is based on: the request, the profiles and the devices.

use std::ops::RangeInclusive;
use std::sync::Arc;

use loadmaster_launchers::{CutUnit, Recomputing, Rules, frameworks_with, rules};
use loadmaster_proto::error::Invalid;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::chunked::{AskedChunks, FixedChunks};
use loadmaster_proto::plan::compatibility::{Setting, Settings};
use loadmaster_proto::plan::constraints::Constraints;
use loadmaster_proto::plan::findings::AppliedCorrection;
use loadmaster_proto::plan::objective::{MemoryUnit, Objective, SearchMode};
use loadmaster_proto::plan::request::PlanRequest;
use loadmaster_proto::training::TrainingSpec;
use loadmaster_proto::training::actions::Allowed;
use loadmaster_proto::training::sharding::StateSharding;
use loadmaster_proto::training::stage::StageConfig;
use loadmaster_proto::warning::WarningCode;

use super::chunked::{ChunksQuestion, better};
use super::context::Context;
use super::fixed_partition::{GIVEN, named_stages, untouched};
use super::interleaved::{InterleavedQuestion, check_framework};
use super::memory_optimizations::{
    ActionsQuestion, Choice, Chooser, FrameworkRules, LayerMinima, most_at_a_host, plan_with_actions,
    tell_saved,
};
use super::objectives::FamilyContext;
use super::plan::{NamedPlan, PlanBuilder};
use super::problem::{
    Criteria, ProfiledChain, Reach, Transfers, batches, least_share, left_out, prices, recompute, schedules,
    transfers,
};
use super::result::{Fit, QuestionError, RecommendError, fit, recommend};
use super::search::{Job, efforts};
use loadmaster_predict::capture::merger;
use loadmaster_predict::learn::{Correction, Corrections};
use loadmaster_predict::{Margin, PredictionError};
use loadmaster_search::cost::Factors;
use loadmaster_search::fleet::{PlannedFleet, Subset};
use loadmaster_search::{Cuts, Pin, Stop, Unit};

/// A request for a recommendation, with the profiles and devices that it names.
#[derive(Debug, Clone)]
pub struct PlanQuestion {
    /// What is asked.
    pub request: PlanRequest,
    /// The profile that the plan is made from.
    pub chain: Arc<ProfiledChain>,
    /// Profiles of the same model on other kinds of devices.
    pub others: Vec<Arc<ProfiledChain>>,
    /// The devices that a plan may use. Groups that were named without a cluster keep their order.
    pub fleet: PlannedFleet,
    /// The training to plan for.
    pub training: TrainingSpec,
    /// What is kept free besides a predicted peak.
    pub margin: Margin,
    /// What predictions are multiplied with; none where no one asked for that.
    pub corrections: Option<Corrections>,
}

/// Whether any plan without chunks fits.
#[derive(Debug)]
pub(super) enum PlainFit {
    /// This one does. It is not the best.
    Plan(Box<Plan>),
    /// None does, and with more memory one would.
    TooLarge,
    /// None is possible, whatever the memory.
    Impossible,
}

/// A question with all defaults filled in.
struct Prepared<'a> {
    context: Context<'a>,
    job: &'a Job<'a>,
    criteria: Criteria,
    /// What tensor-parallel sizes were left out, human-readable.
    reach: Option<String>,
}

impl PlanQuestion {
    /// Searches: the plan, and the plans that it names.
    ///
    /// # Errors
    /// What is wrong with the request, or why there is no plan.
    pub fn answer(&self, stop: &Stop) -> Result<(NamedPlan, Vec<NamedPlan>), QuestionError> {
        self.found(stop).map_err(|error| error.with_note(self.fleet.island.as_deref()))
    }

    fn found(&self, stop: &Stop) -> Result<(NamedPlan, Vec<NamedPlan>), QuestionError> {
        let (plan, others) = match &self.request.chunks {
            None => self.plain(stop)?,
            Some(asked) if !asked.or_plain => (self.in_chunks(asked, stop)?, Vec::new()),
            Some(asked) => {
                let plain = self.without_chunks().plain(stop);
                better(self.objective_in_chunks(), plain, self.in_chunks(asked, stop))?
            }
        };
        Ok(((plan.name()?, plan), others))
    }

    /// Where no objective is named the fastest training in chunks is asked for.
    fn objective_in_chunks(&self) -> Objective {
        self.request.goal.objective.unwrap_or(Objective::MinIterationTime)
    }

    /// The same question for a plan without chunks.
    fn without_chunks(&self) -> Self {
        let mut plain = self.clone();
        plain.request.chunks = None;
        if plain.request.goal.objective.replace(self.objective_in_chunks()).is_none() {
            // Of the batch that was profiled, as in chunks.
            plain.request.named.micro_batch_size = true;
        }
        plain
    }

    /// Whether there is room for a training in chunks, of the first batch that is asked for.
    ///
    /// # Errors
    /// As [`Self::answer`], but for room.
    pub(super) fn has_room_in_chunks(&self, asked: &AskedChunks, stop: &Stop) -> Result<bool, QuestionError> {
        self.asked_in_chunks(asked, stop, |question| question.has_room())
    }

    /// Whether any plan without chunks fits; none where that takes a search, because the plan has to keep to more than its devices'
    /// memory.
    ///
    /// # Errors
    /// As [`Self::answer`], but for room.
    pub(super) fn fits_plain(&self, stop: &Stop) -> Result<Option<PlainFit>, QuestionError> {
        let PlanRequest { goal, mode, virtual_stages, allowed, partitioning, .. } = &self.request;
        let Constraints { max_iteration_seconds, max_peak_bytes, .. } = goal.constraints;
        let is_limited = max_iteration_seconds.is_some() || max_peak_bytes.is_some();
        let is_searched = *virtual_stages <= 1 && allowed.is_none() && partitioning.is_none();
        if is_limited || !is_searched || *mode != SearchMode::Exact {
            return Ok(None);
        }
        self.without_chunks().prepared(|Prepared { context, job, criteria, .. }| {
            Ok(Some(match fit(context.prices, job, &criteria, stop)? {
                Fit::Plan(found) => {
                    PlainFit::Plan(Box::new(PlanBuilder { context: &context }.recommendation(&found)?.0))
                }
                Fit::TooLarge => PlainFit::TooLarge,
                Fit::Impossible => PlainFit::Impossible,
                Fit::Unknown => return Ok(None),
            }))
        })
    }

    /// Checks what is known of a training in chunks without a search; nothing where none is asked for.
    ///
    /// # Errors
    /// Names the field that contradicts such a training.
    pub fn check_in_chunks(&self) -> Result<(), QuestionError> {
        let Some(asked) = &self.request.chunks else { return Ok(()) };
        self.prepared(|Prepared { context, criteria, .. }| {
            let (context, request, criteria, stop) = (&context, &self.request, &criteria, &Stop::default());
            Ok(ChunksQuestion { context, request, asked, criteria, stop }.check()?)
        })
    }

    fn in_chunks(&self, asked: &AskedChunks, stop: &Stop) -> Result<Plan, QuestionError> {
        self.asked_in_chunks(asked, stop, |question| question.answer())
    }

    fn asked_in_chunks<T>(
        &self,
        asked: &AskedChunks,
        stop: &Stop,
        ask: fn(&ChunksQuestion<'_>) -> Result<T, QuestionError>,
    ) -> Result<T, QuestionError> {
        self.prepared(|Prepared { context, criteria, .. }| {
            let criteria = Criteria { objective: self.objective_in_chunks(), ..criteria };
            let (context, request, criteria) = (&context, &self.request, &criteria);
            ask(&ChunksQuestion { context, request, asked, criteria, stop })
        })
    }

    /// Asks with all defaults filled in.
    fn prepared<T>(
        &self,
        ask: impl FnOnce(Prepared<'_>) -> Result<T, QuestionError>,
    ) -> Result<T, QuestionError> {
        let (request, chain) = (&self.request, &*self.chain);
        let kinds = self.by_kind();
        let prices = prices(&kinds, chain, self.training, self.margin);
        let names = self.fleet.names();
        let job = Job {
            names: &chain.layer_names,
            model: chain.model.as_ref(),
            fleet: &self.fleet.fleet,
            devices: &names,
            optimizer: &self.training.optimizer,
        };
        let reach = self.reach(&kinds);
        let transfers = self.transfers();
        let criteria = self.criteria(&kinds, reach.tensor_degrees, &transfers, &names)?;
        let context = Context {
            chain,
            kinds: &kinds,
            prices: &prices,
            fleet: &self.fleet,
            training: self.training,
            margin: self.margin,
            goal: request.goal.clone(),
            corrections: self.applied(&kinds),
            notes: self.fleet.notes.clone(),
            transfers,
        };
        ask(Prepared { context, job: &job, criteria, reach: reach.note })
    }

    /// The plan whose parameters and optimizer state are on its devices, all the time.
    fn plain(&self, stop: &Stop) -> Result<(Plan, Vec<NamedPlan>), QuestionError> {
        self.prepared(|prepared| self.searched(prepared, stop))
    }

    fn searched(&self, prepared: Prepared<'_>, stop: &Stop) -> Result<(Plan, Vec<NamedPlan>), QuestionError> {
        let request = &self.request;
        if request.virtual_stages > 1 || request.allowed.is_some() || !request.stage_actions.is_empty() {
            self.check_predicts_steps()?;
        }
        if self.request.virtual_stages > 1 {
            return self.interleaved(prepared, stop);
        }
        if let Some(allowed) = &self.request.allowed {
            return self.with_actions(prepared, allowed, stop);
        }
        let Prepared { mut context, job, criteria, reach } = prepared;
        let prices = context.prices;
        if let Some(partitioning) = &request.partitioning {
            // Nothing was searched.
            context.goal.objective = None;
            // Of thousands of stages each part takes a while.
            let goes_on = || if stop.is_requested() { Err(RecommendError::Stopped) } else { Ok(()) };
            goes_on()?;
            let mut plan = if request.stage_actions.is_empty() {
                let named = named_stages(prices, job, &criteria, partitioning)?;
                goes_on()?;
                PlanBuilder { context: &context }.plan(&named, GIVEN)?
            } else {
                if let Some(rules) = &criteria.rules {
                    let stages: Vec<_> = partitioning.stages().iter().map(StageConfig::layers).collect();
                    rules.check_recomputed(job.model, &stages, &request.stage_actions)?;
                }
                let untouched = untouched(prices, job, &criteria, partitioning)?;
                goes_on()?;
                let actions = &request.stage_actions;
                let plan = plan_with_actions(&context, &untouched, actions, request.copy_pace, GIVEN)?;
                self.check_host_memory(&plan)?;
                plan
            };
            goes_on()?;
            tell_saved(&context, &mut plan)?;
            return Ok((plan, Vec::new()));
        }
        let left_out = self.left_out(&criteria);
        context.notes.extend(reach.map(|why| WarningCode::SearchIncomplete.says(why)));
        context.notes.extend(left_out.clone().map(|why| WarningCode::SearchIncomplete.says(why)));
        let found = recommend(prices, job, &criteria, stop)
            .map_err(|error| QuestionError::from(error).with_note(left_out.as_deref()))?;
        PlanBuilder { context: &context }.recommendation(&found)
    }

    /// The plan whose devices have several interleaved stages, with what is chosen of what is allowed.
    fn interleaved(
        &self,
        prepared: Prepared<'_>,
        stop: &Stop,
    ) -> Result<(Plan, Vec<NamedPlan>), QuestionError> {
        let Prepared { mut context, job, criteria, reach, .. } = prepared;
        let request = &self.request;
        check_framework(&criteria)?;
        let allowed = request.allowed.as_ref().map(|allowed| self.there(allowed, &mut context));
        let allowed = match (allowed, &criteria.rules) {
            (Some(any), Some(rules)) => Some(rules.allowed(&any)?),
            (allowed, _) => allowed,
        };
        let objective = request.objective();
        // Of given stages nothing is searched but what is allowed.
        let is_searched = request.partitioning.is_none() || allowed.is_some();
        context.goal.objective = is_searched.then_some(objective);
        let left_out = self.left_out(&criteria).filter(|_| request.partitioning.is_none());
        if request.partitioning.is_none() {
            context.notes.extend(reach.map(|why| WarningCode::SearchIncomplete.says(why)));
            context.notes.extend(left_out.clone().map(|why| WarningCode::SearchIncomplete.says(why)));
        }
        let criteria = Criteria { objective, ..criteria };
        let (allowed, framework_rules) = (allowed.as_ref(), counting(&criteria, job));
        let cuts = criteria.cuts_for(job.model).map_err(RecommendError::Framework)?;
        let devices = Subset::whole(job.fleet);
        let (given, known) = (request.partitioning.as_ref(), &LayerMinima::default());
        let family = FamilyContext { context: &context, job, criteria: &criteria, given, stop, known };
        let (devices, cuts) = (&devices, &cuts);
        let question = InterleavedQuestion { family, devices, request, allowed, framework_rules, cuts };
        let found = question.answer().map_err(|error| error.with_note(left_out.as_deref()))?;
        self.check_host_memory(&found.0)?;
        Ok(found)
    }

    /// What was left out of the plans that were looked at, human-readable.
    fn left_out(&self, criteria: &Criteria) -> Option<String> {
        left_out(&self.request, &criteria.batches, criteria.least_share, self.fleet.fleet.devices())
    }

    /// Checks that the given actions of a plan take no more of a host than the request says.
    fn check_host_memory(&self, plan: &Plan) -> Result<(), Invalid> {
        let (most, taken) = (self.request.host_memory, most_at_a_host(plan));
        match most.filter(|most| *most < taken) {
            None => Ok(()),
            Some(most) => Err(Invalid::field(
                "memory.host_memory_bytes",
                format!(
                    "{most} is less than the CPU memory that the given memory optimizations need on one host \
                     ({taken}). Use at least {taken}, or other memory optimizations"
                ),
            )),
        }
    }

    /// What may be chosen, of no more of a host's memory than there is.
    fn there(&self, allowed: &Allowed, context: &mut Context<'_>) -> Allowed {
        let mut any = allowed.clone();
        if let Some(there) = self.fleet.host_memory().filter(|there| *there < any.host_memory) {
            let asked = any.host_memory;
            let note = format!(
                "offloaded blocks may use {there} of CPU memory per host, which is the limit of the cluster, instead \
                 of the requested {asked}"
            );
            context.notes.push(WarningCode::HostMemoryLimited.says(note));
            any.host_memory = there;
        }
        any
    }

    /// The plan whose stages do what is chosen of what is allowed, and of that what the framework can say.
    fn with_actions(
        &self,
        prepared: Prepared<'_>,
        allowed: &Allowed,
        stop: &Stop,
    ) -> Result<(Plan, Vec<NamedPlan>), QuestionError> {
        let Prepared { mut context, job, criteria, .. } = prepared;
        let request = &self.request;
        let any = self.there(allowed, &mut context);
        let allowed = match &criteria.rules {
            Some(rules) => rules.allowed(&any)?,
            None => any.clone(),
        };
        let chooser = if request.mode == SearchMode::Mpress { Chooser::Mpress } else { Chooser::Fastest };
        let framework_rules = counting(&criteria, job);
        let choice = Choice { chooser, allowed: &allowed, pace: request.copy_pace, framework_rules };
        let given = request.partitioning.as_ref();
        if given.is_none() {
            context.notes.extend(self.left_out(&criteria).map(|why| WarningCode::SearchIncomplete.says(why)));
        }
        let chunks = self.chunks_left_out(&context, &criteria, &any, stop);
        context.notes.extend(chunks.clone().map(|why| WarningCode::SearchIncomplete.says(why)));
        let known = &LayerMinima::default();
        let family = FamilyContext { context: &context, job, criteria: &criteria, given, stop, known };
        let question = ActionsQuestion { family, choice };
        let (mut plan, others) = question.answer().map_err(|error| error.with_note(chunks.as_deref()))?;
        plan.found.restriction = question.restriction(&plan, &any);
        tell_saved(&context, &mut plan)?;
        Ok((plan, others))
    }

    /// That no training in chunks is looked at, where the request leaves open what takes the host's memory and such a training
    /// might.
    fn chunks_left_out(
        &self,
        context: &Context<'_>,
        criteria: &Criteria,
        allowed: &Allowed,
        stop: &Stop,
    ) -> Option<String> {
        let of_chunks =
            [Objective::MinIterationTime, Objective::MinPeakMemory, Objective::MaxBatch, Objective::MaxModel];
        let request = &self.request;
        let is_open = request.host_memory_alone && of_chunks.contains(&criteria.objective);
        if !is_open || !context.chain.predictor.knows_chunks() || context.chain.model.is_none() {
            return None;
        }
        let asked = &AskedChunks {
            or_plain: true,
            fixed: FixedChunks::default(),
            recomputes: Vec::new(),
            host_memory: allowed.host_memory,
            host_update: None,
        };
        ChunksQuestion { context, request, asked, criteria, stop }.check().ok()?;
        Some(
            "chunked training was not searched. Set `memory.mode` to MEMORY_MODE_BEST to compare it with a plan without \
             chunks, or to MEMORY_MODE_CHUNKS to search only chunked training"
                .to_owned(),
        )
    }

    /// Refuses before a search what no search can find: every such plan needs the bytes of each of its steps.
    fn check_predicts_steps(&self) -> Result<(), PredictionError> {
        let predictors = self.by_kind().into_iter().map(|(chain, _)| &chain.predictor);
        match predictors.into_iter().find(|predictor| !predictor.knows_steps()) {
            Some(predictor) => Err(PredictionError::NoActions { predictor: predictor.name() }),
            None => Ok(()),
        }
    }

    /// The tensor-parallel sizes that are searched.
    fn reach(&self, kinds: &[(&ProfiledChain, Factors)]) -> Reach {
        let largest = self.fleet.fleet.nodes.iter().map(|node| node.devices).max().unwrap_or(0);
        Reach::new(&self.request.goal, kinds.iter().map(|(chain, _)| &*chain.predictor), largest)
    }

    /// The profile of each kind of device, in the fleet's order, and what its predictions are multiplied with.
    fn by_kind(&self) -> Vec<(&ProfiledChain, Factors)> {
        let chains = || std::iter::once(&self.chain).chain(&self.others).map(|chain| &**chain);
        self.fleet
            .kinds()
            .filter_map(|kind| chains().find(|chain| chain.device_kind == kind))
            .map(|chain| (chain, self.factors(chain)))
            .collect()
    }

    fn factors(&self, chain: &ProfiledChain) -> Factors {
        let factor = |of: Option<&Correction>| of.map_or(1.0, |of| of.factor);
        let [bytes, seconds] = self.learnt(chain).map(factor);
        Factors { bytes, seconds }
    }

    /// What the bytes and the seconds of a profile are multiplied with.
    fn learnt(&self, chain: &ProfiledChain) -> [Option<&Correction>; 2] {
        let Some(corrections) = &self.corrections else { return [None, None] };
        let (kind, predictor) = (chain.device_kind.as_str(), chain.predictor.name());
        let bytes = corrections.bytes(kind, predictor, chain.predictor.ledger());
        [bytes, corrections.seconds(kind, predictor)]
    }

    /// What was multiplied with what, once for each kind of device.
    fn applied(&self, kinds: &[(&ProfiledChain, Factors)]) -> Vec<AppliedCorrection> {
        let mut applied: Vec<AppliedCorrection> = Vec::new();
        for correction in kinds.iter().flat_map(|(chain, _)| self.learnt(chain)).flatten() {
            let one = correction.applied();
            if !applied.contains(&one) {
                applied.push(one);
            }
        }
        applied
    }

    fn criteria(
        &self,
        kinds: &[(&ProfiledChain, Factors)],
        tensor_degrees: Vec<u32>,
        transfers: &Transfers,
        names: &[String],
    ) -> Result<Criteria, QuestionError> {
        let Self { request, chain, training, .. } = self;
        let goal = &request.goal;
        let mut cuts = cuts(&goal.constraints, chain.layer_names.len(), names, goal.cluster.is_some())?;
        let is_merged = self.merge(&mut cuts)?;
        let smallest = kinds.iter().filter_map(|(chain, _)| chain.predictor.smallest_share());
        let least_share = least_share(request, smallest.max());
        let schedules = schedules(request, training)?;
        if let Some(model) = &chain.model {
            let check = |&schedule| TrainingSpec { schedule, ..*training }.check_model(model);
            schedules.iter().try_for_each(check)?;
        }
        let rules = goal.framework.map(|framework| rules(framework).in_precision(training.precision));
        let policies = recompute(request, training);
        if let Some(rules) = rules {
            rules.check_is_one_stage(request)?;
            rules.check_shardings(request, &training.optimizer)?;
            let has_shards = match &request.partitioning {
                Some(given) => given.stages().iter().any(|stage| stage.tensor_degree > 1),
                None => tensor_degrees != [1],
            };
            let is_sequence = chain.predictor.sequence_parallel() && has_shards;
            if is_sequence && !rules.sequence_parallel {
                let can = frameworks_with(|rules| rules.sequence_parallel);
                Settings::default()
                    .says(Setting::Framework, rules.framework)
                    .says_instead(Setting::SequenceProfile, "", can)
                    .check()?;
            }
            // Trainings in chunks, and what chooses actions, have policies of their own.
            if request.allowed.is_none() && request.chunks.is_none() {
                let field = if goal.constraints.recompute.is_empty() {
                    "problem.recompute"
                } else {
                    "constraints.recompute_policies"
                };
                let stages = self.known_stages(&rules);
                rules.check_policies((field, &policies), chain.model.as_ref(), stages.as_deref())?;
            }
        }
        let alike = rules.filter(|rules| !rules.has_policies_of_stages(chain.model.as_ref()));
        Settings::default()
            .says_some(Setting::AlikeFrameworkOfModel, alike.map(|rules| rules.framework))
            .when(goal.constraints.recompute_per_stage, Setting::RecomputePerStage)
            .check()?;
        Ok(Criteria {
            objective: request.objective(),
            shape: goal.shape,
            rules,
            constraints: Constraints { tensor_degrees, ..goal.constraints.clone() },
            batches: batches(request, training, least_share)?,
            least_share,
            schedules,
            recompute: policies,
            may_shard: rules
                .is_none_or(|rules| rules.shardings(&training.optimizer).contains(&StateSharding::Optimizer)),
            sequence_parallel: chain.predictor.sequence_parallel(),
            overlap: transfers.overlap,
            unit: match goal.memory_unit {
                MemoryUnit::Bytes => Unit::Bytes,
                MemoryUnit::Share => Unit::Share,
            },
            mode: request.mode,
            seed: request.seed,
            cuts,
            is_merged,
            keeps_order: goal.cluster.is_none(),
            alternatives: request.alternatives,
            brief: request.brief,
            efforts: efforts(request.search_seconds),
        })
    }

    /// The layers of each stage where they are given, or there can be but one.
    fn known_stages(&self, rules: &Rules) -> Option<Vec<RangeInclusive<usize>>> {
        let given = self.request.partitioning.as_ref();
        if let Some(given) = given {
            return Some(given.stages().iter().map(StageConfig::layers).collect());
        }
        let is_one = rules.cut == CutUnit::Nowhere
            || self.request.goal.constraints.max_stages == Some(1)
            || self.fleet.fleet.devices() == 1;
        is_one.then(|| vec![0..=self.chain.layer_names.len().saturating_sub(1)])
    }

    /// Keeps layers together that are too small to cut between, if the request asks for that (CAPTURE, III-A3).
    fn merge(&self, cuts: &mut Cuts) -> Result<bool, QuestionError> {
        let layers = self.chain.layer_names.len();
        let Some(left) = self.request.merge_layers_to.filter(|&left| left < layers) else {
            return Ok(false);
        };
        let stages = self.fleet.fleet.devices().min(u32::try_from(layers).unwrap_or(u32::MAX));
        let metrics = merger::metrics(&*self.chain.predictor, &self.training, stages)?;
        let groups = merger::merge(&metrics, left);
        let is_merged = !groups.is_empty();
        groups.into_iter().for_each(|group| cuts.keep_together(group));
        Ok(is_merged)
    }

    /// Whether transfers overlap computing: the same for all plans of a request.
    fn transfers(&self) -> Transfers {
        let kinds: Vec<&str> = self.fleet.kinds().collect();
        let Self { request, chain, .. } = self;
        transfers(request.overlap, request.goal.framework, &chain.framework, &kinds, request.virtual_stages)
    }
}

/// The framework of criteria, where that counts what it recomputes.
fn counting<'a>(criteria: &Criteria, job: &Job<'a>) -> Option<FrameworkRules<'a>> {
    let counts = |rules: &Rules| rules.recomputing != Recomputing::Anything;
    criteria.rules.filter(counts).map(|rules| FrameworkRules { rules, model: job.model })
}

/// Where the chain may be cut, and what is pinned to which of the devices with these names.
fn cuts(
    constraints: &Constraints,
    layers: usize,
    names: &[String],
    is_on_cluster: bool,
) -> Result<Cuts, Invalid> {
    let mut cuts = Cuts::anywhere(layers);
    for &(first, last) in &constraints.keep_together {
        cuts.keep_together(first..=last);
    }
    for &after in &constraints.cut_after {
        cuts.require_after(after);
    }
    for (index, pin) in constraints.pins.iter().enumerate() {
        let named = names.iter().position(|name| *name == pin.device);
        let device = named
            .or_else(|| pin.device.parse().ok().filter(|&position: &usize| position < names.len()))
            .ok_or_else(|| {
                let why = if is_on_cluster {
                    format!("{:?} is not one of the devices of this request. Use `node/index`", pin.device)
                } else {
                    format!(
                        "{:?} is not the position of a device. Use 0 to {}",
                        pin.device,
                        names.len().saturating_sub(1)
                    )
                };
                Invalid::field(format!("constraints.layer_pins[{index}].device"), why)
            })?;
        cuts.pin(Pin { layer: pin.layer, device });
    }
    Ok(cuts)
}
