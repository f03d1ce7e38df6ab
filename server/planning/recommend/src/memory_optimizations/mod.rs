//! Plans with memory optimizations: bytes by replay, seconds by simulation.
//!
//! | module | question |
//! |---|---|
//! | here | what becomes of a plan when its stages do these actions? |
//! | `problem` | which question does the chooser get, and what does each layer hold? |
//! | `choice` | which actions are chosen, and what does each way come to alone? |
//! | `certificate` | how good are they? |
//! | `replay_fit` | which actions does a replay find to fit, and which plain ones where none of those do? |
//! | `recompute_sets` | which runs are recomputed at least, by a replay of every set of them? |
//! | `expressible_actions` | which of those fit that a framework can say? |
//! | `links` | what do copies go over, and who says how fast that is? |
//! | `nodes` | are peers on the same node, has its host the memory, and which cores do its CPU slots share? |
//! | `stages` | which stages are actions chosen for? |
//! | `device_mapping` | which of them is on which device, where links between devices are unlike, edges included? |
//! | `seconds` | how long does an iteration take with the copies, also if the pipeline never flushes? |
//! | `pipelines` | which plan with chosen actions is the fastest within some devices, micro-batches and a peak? |
//!
//! A replay plays every step of every micro-batch on the predictor. It sees tensors that layers share, and rounding of
//! allocators, which sums of blocks miss. The choice is therefore repeated with the missing bytes set aside until the replay
//! fits.
//!
//! * *Stages.* Where a request names no stages, several pipelines of its shape are tried: the fastest without memory limits, and
//!   the fastest with 4 to 1 times the devices' memory. Where stages may have several devices, deeper pipelines are tried too.
//!   The plans with the fastest first results are improved further.
//! * *Devices of a stage* act alike. Bytes are per device, CPU memory is counted for all of them, and the slowest link stands for
//!   all.
//! * *Mappings.* On nodes with different links, mappings of stages to devices are compared by quickly found plans, P2P transfers
//!   included. Idle devices of the node take part. A bound uses the best links, so it holds for every mapping.
//! * *Frameworks* express few choices of recompute. They are replayed in order, the smallest first, and the first that fits is
//!   taken. The question is then repeated without the framework, which gives the cost of the restriction.
//! * *Objectives* all ask for the fastest plan within devices, batches and a peak. A value is optimal only where a bound rejects
//!   every better one; the rest remains in the gap.

mod certificate;
mod choice;
mod device_mapping;
mod expressible_actions;
mod links;
mod nodes;
mod pipelines;
mod problem;
mod recompute_sets;
mod replay_fit;
mod seconds;
mod stages;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::measure::offload::CopyPace;
use loadmaster_proto::plan::{Plan, PlanStage};
use loadmaster_proto::training::TrainingSpec;
use loadmaster_proto::training::actions::{Optimization, StageActions};

pub(super) use certificate::{baseline, outlined};
pub(super) use choice::{Choice, Chooser};
pub(super) use expressible_actions::FrameworkRules;
pub(super) use links::{CopiesAsPlanned, CopyLinks, HostRates, or_other_rates};
pub(super) use nodes::{check_acts_on, least_on_cores, may_be_peers, most_at_a_host, most_taken};
pub(super) use pipelines::{ActionsQuestion, LayerMinima};
pub(super) use problem::{recompute, stage_blocks};
pub(super) use replay_fit::with_all;
pub(super) use seconds::{
    LayersOfStage, Timed, TimedStage, all_layer_seconds, has_no_sense, in_proportion, mean_again,
    stage_seconds, timed, used,
};
pub(super) use stages::Stages;

use super::context::Context;
use super::fixed_partition::GIVEN;
use super::plan::PlanBuilder;
use super::result::{QuestionError, RecommendError};
use super::search::Candidate;
use loadmaster_memory::actions::saved_bytes;
use loadmaster_predict::{ActionsError, PredictionError, StageSetting};
use loadmaster_simulate::copies::LayerSeconds;

/// The bytes that a stage's devices reserve for other stages, if any. A stage that swaps to them may be the one that takes
/// too much.
fn peer_pools(stage: usize, actions: &StageActions) -> String {
    let bytes = actions.peer_pools.iter().fold(0_u64, |all, of| all.saturating_add(of.bytes.0));
    let senders: Vec<String> = actions.peer_pools.iter().map(|of| of.stage.to_string()).collect();
    if senders.is_empty() {
        return String::new();
    }
    format!(
        ", of which stage {stage} reserves {} for blocks that are swapped from stage {}",
        Bytes(bytes),
        senders.join(", ")
    )
}

/// The plan of a candidate whose stages do these actions; those beyond the list do nothing.
///
/// # Errors
/// Actions that make no sense, by their path in the request; a profile that lacks what they are predicted from; the
/// first stage that does not fit even so.
pub(super) fn plan_with_actions(
    context: &Context<'_>,
    candidate: &Candidate,
    actions: &[StageActions],
    pace: CopyPace,
    solver: &str,
) -> Result<Plan, QuestionError> {
    let builder = PlanBuilder { context };
    let mut plan = builder.plan(candidate, solver)?;
    nodes::check_peers(&nodes::devices_of(&plan), actions)?;
    let stages = context.replayed(&context.settings(candidate), actions)?;
    if solver == GIVEN {
        // An action without effect is a mistake in the request.
        stages.check_points().map_err(ActionsError::from)?;
    }
    for (index, stage) in plan.stages.iter_mut().enumerate() {
        if let Some(prediction) = stages.prediction(index) {
            builder.rewrite(stage, &prediction);
        }
        stage.actions = stages.actions.get(index).cloned().unwrap_or_default();
    }
    let pools = stages.actions.iter().map(|own| own.host_pool.0);
    nodes::check_hosts(context.fleet, &nodes::devices_of(&plan), pools)?;
    check_fits(context, &plan, candidate)?;
    let timed = timed(context, candidate, &stages, &|| CopyLinks::between(context, candidate, pace))?;
    for (index, stage) in plan.stages.iter_mut().enumerate() {
        stage.offload =
            stages.offload(index, |peer| timed.as_ref().map_or(0.0, |timed| timed.waited(index, peer)));
    }
    if let Some(timed) = timed {
        timed.tell(&mut plan);
    }
    Ok(plan)
}

/// Says by what the stages of a plan hold less.
///
/// # Errors
/// What the profile lacks.
pub(super) fn tell_saved(context: &Context<'_>, plan: &mut Plan) -> Result<(), PredictionError> {
    let settings = settings(plan);
    for (stage, setting) in plan.stages.iter_mut().zip(&settings) {
        if stage.actions.is_empty() {
            continue;
        }
        // Bytes alone.
        let seconds = vec![LayerSeconds::default(); stage.config.layers().count()];
        let blocks = match stage_blocks(context.chain, setting, &seconds) {
            Ok(blocks) => blocks,
            // Recordings of older profiles do not say what could leave, which nothing does.
            Err(PredictionError::NotProfiled(_)) if !swaps(&stage.actions) => continue,
            Err(why) => return Err(why),
        };
        stage.saved = Some(saved_bytes(&blocks, stage.in_flight, &stage.actions));
    }
    Ok(())
}

fn check_fits(context: &Context<'_>, plan: &Plan, candidate: &Candidate) -> Result<(), RecommendError> {
    let Some(index) = plan.stages.iter().position(|stage| !fits(stage)) else { return Ok(()) };
    let stage = &plan.stages[index];
    let device = candidate.stages.get(index).and_then(|stage| stage.devices.first().copied());
    let position = device.unwrap_or_default();
    let told =
        format!("{} with these memory optimizations{}", plan.partition(), peer_pools(index, &stage.actions));
    let device = (position, context.device_name(Some(position)));
    Err(RecommendError::given_does_not_fit(told, device, needed(stage).0, stage.capacity))
}

/// The bytes that a stage's devices must hold.
fn needed(stage: &PlanStage) -> Bytes {
    stage.interval.map_or(Bytes(stage.predicted_peak), |interval| interval.high)
}

fn fits(stage: &PlanStage) -> bool {
    needed(stage).0 <= stage.capacity
}

/// Stages as they will be trained.
pub(super) fn settings(plan: &Plan) -> Vec<StageSetting> {
    let stage_count = u32::try_from(plan.stages.len()).unwrap_or(u32::MAX);
    (0..stage_count)
        .zip(&plan.stages)
        .map(|(stage_index, stage)| StageSetting {
            stage: stage.config,
            stage_index,
            stage_count,
            training: TrainingSpec { recompute: stage.recompute, ..plan.training },
        })
        .collect()
}

/// Whether any of a stage's blocks leave its device.
pub(super) fn swaps(actions: &StageActions) -> bool {
    actions.actions.iter().any(|action| matches!(action.optimization, Optimization::Swap(_)))
}

impl From<ActionsError> for QuestionError {
    fn from(error: ActionsError) -> Self {
        match error {
            ActionsError::Invalid(invalid) => invalid.into(),
            ActionsError::Prediction(error) => error.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::bytes::Bytes;
    use loadmaster_proto::plan::objective::Objective;
    use loadmaster_proto::training::actions::{PeerPool, StageActions, StagedAction};
    use loadmaster_proto::training::stage::Partitioning;

    use crate::QuestionError;
    use crate::tests::fixture::Fixture;

    /// Two stages on two devices with so much memory.
    fn fixture(capacity: u64) -> Fixture {
        Fixture::new(Objective::MinIterationTime, 2, capacity).with(|fixture| {
            fixture.request.partitioning = Some(Partitioning::from_sizes(&[3, 2]).unwrap());
            fixture.request.allowed = None;
        })
    }

    /// These, as they are typed.
    fn actions(typed: &[&str]) -> Vec<StageActions> {
        StageActions::by_stage(typed.iter().map(|text| text.parse::<StagedAction>().unwrap()).collect())
    }

    fn with(fixture: &Fixture, actions: Vec<StageActions>) -> Fixture {
        fixture.with(|fixture| fixture.request.stage_actions = actions)
    }

    fn refusal(fixture: &Fixture) -> String {
        fixture.answer().unwrap_err().to_string()
    }

    /// A profile from before recordings contained what autograd saves works for recompute as any other. Where something is
    /// to leave the device, the error requests a new profile.
    #[test]
    fn older_profiles_know_what_is_computed_again() {
        let (now, earlier) = (fixture(1 << 30), fixture(1 << 30).recorded_earlier());
        let again = actions(&["0/0..1=recompute"]);
        let peaks = [&now, &earlier].map(|fixture| with(fixture, again.clone()).plan().peak());
        assert_eq!(peaks[0], peaks[1]);
        assert!(peaks[0] < now.plan().peak());
        let saved =
            [&now, &earlier].map(|fixture| with(fixture, again.clone()).plan().stages[0].saved.is_some());
        assert_eq!(saved, [true, false], "nobody knows what else could leave");
        let away = with(&earlier, actions(&["0/0..1=activations:host"]));
        assert!(refusal(&away).contains("Run a new profile"), "{}", refusal(&away));
        assert!(matches!(away.answer(), Err(QuestionError::Prediction(_))), "what the profile lacks");
    }

    /// Where a stage has no room for what another stage swaps to it, the error names both stages.
    #[test]
    fn a_peer_without_room_is_told_of_what_it_lends() {
        let sent = actions(&["0/0..1=activations:1@100%"]);
        let needs = with(&fixture(1 << 30), sent.clone()).plan().stages[1].predicted_peak;
        let full = with(&fixture(needs - 1), sent);
        let told = refusal(&full);
        assert!(
            told.contains("of which stage 1 reserves") && told.contains("swapped from stage 0"),
            "{told}"
        );
        let alone = with(&fixture(1), actions(&["0/0..1=recompute"]));
        assert!(!refusal(&alone).contains("reserves"), "{}", refusal(&alone));
    }

    /// Pools that are given too small, or for no one, are named by their path.
    #[test]
    fn pools_that_are_too_small_are_named() {
        let mut host = actions(&["0/0..1=activations:host"]);
        host[0].host_pool = Bytes(1);
        let told = refusal(&with(&fixture(1 << 30), host));
        assert!(told.contains("memory.stage_memory_optimizations[0].host_pool_bytes"), "{told}");
        let mut peer = actions(&["0/0..1=activations:1@100%"]);
        peer.resize_with(2, StageActions::default);
        peer[1].peer_pools = vec![PeerPool { stage: 0, bytes: Bytes(1) }];
        let told = refusal(&with(&fixture(1 << 30), peer));
        assert!(told.contains("memory.stage_memory_optimizations[1].peer_pools"), "{told}");
    }
}
