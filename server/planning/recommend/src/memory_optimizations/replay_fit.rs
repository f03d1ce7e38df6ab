//! Actions that a replay finds to fit.
//!
//! The chooser sums the bytes of blocks. A replay also sees which bytes blocks share and how the allocator rounds them. The
//! bytes that are missing in a replay are left free in the next call of the chooser.
//!
//! A choice by sums may also miss actions that fit with nothing to spare. Then the first of a few plain ways in which each stage
//! fits is taken.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::training::actions::{
    Action, Allowed, Block, Optimization, PeerPool, StageActions, Way,
};

use super::choice::{ActionSearch, Choice, Chooser, TimedActions};
use super::problem::{ActionProblem, recompute, swap};
use crate::context::Context;
use crate::problem::ProfiledChain;
use crate::result::{QuestionError, RecommendError};
use loadmaster_memory::actions::optimizer::{Effort, Known, StagePolicies};
use loadmaster_memory::actions::{PeakMemory, PlanError, Question, StageWork, optimizer, paper};
use loadmaster_predict::StageSetting;

/// The most calls of the chooser.
const ROUNDS: u32 = 24;
/// After how many rounds twice as much is left free besides.
const MORE_AFTER: u32 = 4;

/// Actions that fit, and the seconds of an iteration as their chooser estimated them.
#[derive(Debug)]
struct Fitting {
    actions: Vec<StageActions>,
    seconds: f64,
    policies: StagePolicies,
    /// By stage: bytes that a replay sees besides blocks.
    besides: Vec<u64>,
}

/// Actions that fit, and where a search for others may begin.
pub(super) type FittingActions = (Vec<StageActions>, StagePolicies);

/// What was found soon.
#[derive(Debug)]
pub(super) struct Incumbent {
    /// None where nothing fits that is found soon, which does not say that nothing does.
    fitting: Option<Fitting>,
    /// What must be left free for it, by stage.
    reserve: Vec<u64>,
}

impl Incumbent {
    /// What must be left free most likely, by stage.
    pub(super) fn likely(self) -> Vec<u64> {
        let Self { fitting, reserve } = self;
        fitting.map_or_else(|| reserve.clone(), |found| found.likely(&reserve))
    }

    /// Seconds of an iteration; endless where nothing was found.
    pub(super) fn seconds(&self) -> f64 {
        self.fitting.as_ref().map_or(f64::INFINITY, |found| found.seconds)
    }
}

impl Fitting {
    /// Of stages that fit as they are.
    fn untouched(problem: &ActionProblem<'_>) -> Self {
        let stages = problem.stages.len();
        Self {
            actions: vec![StageActions::default(); stages],
            seconds: problem.untouched.iteration_seconds().unwrap_or(f64::INFINITY),
            policies: StagePolicies::default(),
            besides: vec![0; stages],
        }
    }

    /// What must be left free where this was found with so much of it: a plan that leaves nothing free needs as much besides as
    /// this one, most likely.
    fn likely(&self, reserve: &[u64]) -> Vec<u64> {
        reserve.iter().zip(&self.besides).map(|(&reserve, &besides)| reserve.max(besides)).collect()
    }
}

impl ActionSearch<'_> {
    /// Actions that a replay finds to fit; policies are those of a plan that the search for the fastest begins with.
    pub(super) fn actions(
        &self,
        problem: &ActionProblem<'_>,
        policies: &StagePolicies,
    ) -> Result<Vec<StageActions>, QuestionError> {
        let begun = self.incumbent(problem)?;
        self.fitting_actions(problem, begun, policies).map(|(actions, _)| actions)
    }

    /// What must be left free, learnt from plans that are found soon.
    pub(super) fn incumbent(&self, problem: &ActionProblem<'_>) -> Result<Incumbent, QuestionError> {
        let mut reserve = vec![0_u64; problem.stages.len()];
        let is_mpress = self.choice.chooser == Chooser::Mpress;
        if !is_mpress && self.choice.framework_rules.is_none() && self.fits_untouched(problem)? {
            return Ok(Incumbent { fitting: Some(Fitting::untouched(problem)), reserve });
        }
        if let Some(framework_rules) = self.choice.framework_rules {
            let TimedActions { actions, seconds } = self.expressible(problem, framework_rules)?;
            let (policies, besides) = (StagePolicies::default(), reserve.clone());
            return Ok(Incumbent { fitting: Some(Fitting { actions, seconds, policies, besides }), reserve });
        }
        let is_endless = problem.candidate.schedule.updates_always();
        let effort = if is_mpress || is_endless { Effort::All } else { Effort::Few };
        match self.fitting(problem, (effort, &StagePolicies::default()), &mut reserve) {
            Ok(found) => Ok(Incumbent { fitting: Some(found), reserve }),
            Err(QuestionError::Recommend(RecommendError::NoPlan { .. })) if !is_mpress => {
                Ok(Incumbent { fitting: None, reserve: vec![0; problem.stages.len()] })
            }
            Err(error) => Err(error),
        }
    }

    /// The fastest actions that are found, after those that were found soon.
    pub(super) fn fitting_actions(
        &self,
        problem: &ActionProblem<'_>,
        begun: Incumbent,
        policies: &StagePolicies,
    ) -> Result<FittingActions, QuestionError> {
        // No actions make stages faster that fit as they are, unless they share cores.
        if let Some(found) = &begun.fitting
            && found.actions.iter().all(StageActions::is_empty)
            && problem.node.cores.is_none()
        {
            return Ok((found.actions.clone(), StagePolicies::default()));
        }
        match self.searched(problem, begun, policies) {
            Ok((found, policies)) => {
                let actions = self.or_again(problem, Some(&found))?;
                Ok((actions.unwrap_or(found), policies))
            }
            Err(error @ QuestionError::Recommend(RecommendError::NoPlan { .. })) => {
                Ok((self.or_again(problem, None)?.ok_or(error)?, StagePolicies::default()))
            }
            Err(error) => Err(error),
        }
    }

    /// The same by the search that adds blocks up.
    fn searched(
        &self,
        problem: &ActionProblem<'_>,
        begun: Incumbent,
        policies: &StagePolicies,
    ) -> Result<FittingActions, QuestionError> {
        let alone = |actions| (actions, StagePolicies::default());
        let whole = |found: Fitting| (found.actions, found.policies);
        let all = (Effort::All, policies);
        let Incumbent { fitting: few, mut reserve } = begun;
        let is_found = self.choice.chooser == Chooser::Mpress || self.choice.framework_rules.is_some();
        if let Some(found) = few.as_ref().filter(|_| is_found) {
            return Ok(alone(found.actions.clone()));
        }
        if problem.candidate.schedule.updates_always() {
            return self.fastest_endless(problem, few.map(|few| few.actions)).map(alone);
        }
        let Some(few) = few else {
            return match self.fitting(problem, all, &mut reserve) {
                Ok(found) => Ok(whole(found)),
                Err(QuestionError::Recommend(error @ RecommendError::NoPlan { .. })) => {
                    let choice = Choice { chooser: Chooser::Mpress, ..self.choice };
                    let mpress = ActionSearch { choice, ..*self };
                    let found = mpress.actions(problem, &StagePolicies::default()).ok();
                    let found = found.or_else(|| self.minimum_memory(problem));
                    found.map(alone).ok_or_else(|| error.into())
                }
                Err(error) => Err(error),
            };
        };
        let mut likely = few.likely(&reserve);
        let mut found = self.fitting(problem, all, &mut likely);
        if found.is_err() && likely != reserve {
            found = self.fitting(problem, all, &mut reserve);
        }
        Ok(whole(found.ok().filter(|found| found.seconds <= few.seconds).unwrap_or(few)))
    }

    /// Asks until a replay finds that everything fits, each time from what was found before; by stage, `reserve` is what is left
    /// free for what it sees besides.
    fn fitting(
        &self,
        problem: &ActionProblem<'_>,
        (effort, policies): (Effort, &StagePolicies),
        reserve: &mut [u64],
    ) -> Result<Fitting, QuestionError> {
        let Self { context, choice: Choice { allowed, chooser, .. }, stop } = *self;
        let no_room = |stage: usize, missing: u64| {
            Err(stage_lacks(context, problem, (stage, missing), &with_all(allowed)).into())
        };
        let node = problem.node_within(allowed);
        let mut lacks: Option<(usize, u64)> = None;
        let mut policies = policies.clone();
        for round in 0..ROUNDS {
            let question = problem.question(&node, reserve, allowed, stop);
            // What never flushes is searched from MPress's plans on.
            let is_endless = problem.candidate.schedule.updates_always();
            let found = match chooser {
                Chooser::Fastest if !is_endless => {
                    // Plans that are found soon begin with nothing.
                    let before = (effort == Effort::All).then_some(&policies);
                    let known = Known { policies: before, ..problem.known() };
                    optimizer::unproven(&question, known, effort).map(|plan| {
                        policies = plan.policies;
                        (plan.actions, plan.seconds)
                    })
                }
                Chooser::Fastest | Chooser::Mpress => {
                    // It may be asked of more micro-batches than an iteration has.
                    let share =
                        f64::from(problem.candidate.batch.micro_batches) / f64::from(question.micro_batches);
                    paper::plan(&question).map(|plan| (plan.actions, plan.seconds * share))
                }
            };
            let (found, seconds) = match found {
                Ok(found) => found,
                Err(PlanError::NoRoom { stage, missing }) => {
                    // What a replay found to be missing is missing as well.
                    let (stage, missing) = lacks.unwrap_or((stage, missing));
                    return no_room(stage, missing);
                }
                Err(PlanError::Stopped) => return Err(RecommendError::Stopped.into()),
                Err(error) => {
                    return Err(Invalid::field("constraints.pipeline_layout", error.to_string()).into());
                }
            };
            let held = on_devices(&question, &found);
            // Pools are as large as the replay finds them.
            let chosen: Vec<StageActions> = found
                .into_iter()
                .map(|of| StageActions { actions: of.actions, ..StageActions::default() })
                .collect();
            let stages = context.replayed(&problem.settings, &chosen)?;
            lacks = None;
            let mut besides = Vec::with_capacity(reserve.len());
            for (index, reserve) in reserve.iter_mut().enumerate() {
                let needed = stages.prediction(index).map_or(0, |of| context.needed(&of));
                besides.push(needed.saturating_sub(held.get(index).copied().unwrap_or(0)));
                let capacity = problem.node.capacity.get(index).copied().unwrap_or(0);
                let missing = needed.saturating_sub(capacity);
                if missing > 0 {
                    // Room that was left is taken by the next plan: what a replay sees besides is what must be free.
                    // Little of much that was overlooked would be asked for repeatedly: from round to round it is more.
                    let more = missing.saturating_mul(1 << (round / MORE_AFTER));
                    *reserve = besides[index].max(reserve.saturating_add(more));
                    lacks = lacks.or(Some((index, missing)));
                }
            }
            let mut at_hosts = stages.acted.iter().map(|of| of.host_peak()).enumerate();
            if lacks.is_none() && node.hosts_have_room(&mut at_hosts) {
                return Ok(Fitting { actions: chosen, seconds, policies, besides });
            }
        }
        let (stage, missing) = lacks.unwrap_or((0, 0));
        no_room(stage, missing)
    }
}

/// That a stage lacks so many bytes with all that may be done.
pub(super) fn stage_lacks(
    context: &Context<'_>,
    problem: &ActionProblem<'_>,
    (stage, missing): (usize, u64),
    all: &str,
) -> RecommendError {
    let config =
        problem.settings.get(stage).map(|own| own.stage).map_or_else(String::new, |own| own.to_string());
    let why = format!("stage {stage} ({config}) needs {} more {all}", Bytes(missing));
    let device = problem.candidate.stages.get(stage).and_then(|own| own.devices.first().copied());
    RecommendError::no_actions(why, Bytes(missing), context.device_name(device))
}

/// All that is allowed: `with recompute, host over activations`.
pub(crate) fn with_all(allowed: &Allowed) -> String {
    let ways: Vec<&str> = allowed.ways.iter().map(|way| way.as_str()).collect();
    let blocks: Vec<&str> = allowed.blocks.iter().map(|block| block.as_str()).collect();
    let host = match allowed.ways.contains(&Way::CpuOffload) && allowed.host_memory.0 == 0 {
        true => " (CPU memory is not allowed; to allow it, set `memory.host_memory_bytes`)",
        false => "",
    };
    let blocks = if blocks.is_empty() { "no blocks (none is allowed)".to_owned() } else { blocks.join(", ") };
    format!("with {}{host} over {blocks}", ways.join(", "))
}

/// By stage: the peak bytes of its device by the chooser's sums, pools for other stages included.
fn on_devices(question: &Question<'_>, actions: &[StageActions]) -> Vec<u64> {
    let of_stage = |(stage, actions): (usize, &StageActions)| {
        let blocks = question.stages.get(stage)?;
        let place = question.place(stage);
        let work = StageWork::of(blocks, place, question.order, question.micro_batches, actions);
        let guests = |of: &PeerPool| question.node.guests(of.stage as usize, stage);
        let peer_pools = actions.peer_pools.iter().map(|of| of.bytes.0.saturating_mul(guests(of)));
        let peer_pools = peer_pools.fold(0, u64::saturating_add);
        Some(PeakMemory::of(blocks, &work, actions).device.saturating_add(peer_pools))
    };
    actions.iter().enumerate().map(|of| of_stage(of).unwrap_or(0)).collect()
}

impl ActionSearch<'_> {
    /// Actions with which a replay finds all stages to fit; none where no plain way does.
    pub(super) fn minimum_memory(&self, problem: &ActionProblem<'_>) -> Option<Vec<StageActions>> {
        self.plain(problem, |mut ways, capacity| {
            ways.retain(|way| way.needed <= capacity);
            ways.into_iter().next()
        })
    }

    /// Plain actions with which a replay finds every stage to need least.
    pub(super) fn least(&self, problem: &ActionProblem<'_>) -> Option<Vec<StageActions>> {
        self.plain(problem, |ways, _| ways.into_iter().min_by_key(|way| way.needed))
    }

    /// Returns the choice for every stage among the plain ways for which the host has memory left.
    fn plain(
        &self,
        problem: &ActionProblem<'_>,
        choose: impl Fn(Vec<PlainWay>, u64) -> Option<PlainWay>,
    ) -> Option<Vec<StageActions>> {
        let Self { context, choice: Choice { allowed, .. }, .. } = *self;
        let mut chosen = Vec::with_capacity(problem.settings.len());
        let node = problem.node_within(allowed);
        let mut at_hosts: Vec<u64> = Vec::with_capacity(problem.settings.len());
        for ((setting, blocks), &capacity) in
            problem.settings.iter().zip(&problem.stages).zip(&problem.node.capacity)
        {
            let is_large = |action: &Action| match &action.optimization {
                Optimization::Swap(swap) => {
                    blocks.bytes(action.first_layer, swap.block) >= allowed.smallest_block.0
                }
                Optimization::Recompute => true,
            };
            let ways = ways(context.chain, setting, allowed).into_iter();
            let played = ways.filter_map(|mut actions| {
                actions.actions.retain(is_large);
                let acted = context.chain.predictor.acted(setting, &actions).ok()?;
                let needed = context.needed(&acted.prediction(0));
                Some(PlainWay { actions, needed, host: acted.host_peak() })
            });
            let has_room =
                |way: &PlainWay| node.hosts_have_room(at_hosts.iter().copied().chain([way.host]).enumerate());
            let way = choose(played.filter(has_room).collect(), capacity)?;
            at_hosts.push(way.host);
            chosen.push(way.actions);
        }
        Some(chosen)
    }
}

/// A plain way, and what a stage needs with it.
struct PlainWay {
    actions: StageActions,
    needed: u64,
    host: u64,
}

/// Returns the ways that a stage may take, those first that take less time.
pub(super) fn ways(chain: &ProfiledChain, setting: &StageSetting, allowed: &Allowed) -> Vec<StageActions> {
    let layers = setting.stage.layers();
    let has = |way: Way, block: Block| allowed.ways.contains(&way) && allowed.blocks.contains(&block);
    let swaps = |blocks: &[Block]| -> Vec<Action> {
        let own = blocks.iter().filter(|block| has(Way::CpuOffload, **block));
        let stays = |block: Block, layer| match block {
            Block::Weights | Block::Gradients => chain.is_tied(layer),
            Block::Versions => setting.in_flight() == 1,
            Block::Activations | Block::Inputs | Block::Optimizer => false,
        };
        let leaves = |block: Block, layer| block.may_leave(setting.training.schedule) && !stays(block, layer);
        let of_block = |&block: &Block| {
            let leaving: Vec<usize> = layers.clone().filter(|&layer| leaves(block, layer)).collect();
            leaving.into_iter().map(move |layer| swap(block, layer, layer))
        };
        own.flat_map(of_block).collect()
    };
    let again: Vec<Action> =
        layers.clone().filter(|_| allowed.ways.contains(&Way::Recompute)).map(recompute).collect();
    let lasting = swaps(&[Block::Versions, Block::Gradients, Block::Optimizer, Block::Weights]);
    let inputs = if again.is_empty() { Vec::new() } else { swaps(&[Block::Inputs]) };
    let activations = swaps(&[Block::Activations]);
    let ways = [
        Vec::new(),
        again.clone(),
        lasting.clone(),
        activations.clone(),
        [again.clone(), lasting.clone()].concat(),
        [activations, lasting.clone()].concat(),
        [again, inputs, lasting].concat(),
    ];
    ways.into_iter().map(|actions| StageActions { actions, ..StageActions::default() }).collect()
}
