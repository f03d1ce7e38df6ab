//! A plan whose stages do memory actions: its bytes by replay, its seconds by simulation.
//!
//! | module | question |
//! |---|---|
//! | here | what becomes of a plan when its stages do these actions? |
//! | `pools` | what is set aside for what is away, and is it enough? |
//! | `seconds` | how long does an iteration take with the copies? |

mod pools;
mod seconds;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::measure::offload::{CopyCount, CopyPace, Offload};
use loadmaster_proto::plan::prediction::Interval;
use loadmaster_proto::plan::{Plan, PlanStage};
use loadmaster_proto::training::TrainingSpec;
use loadmaster_proto::training::actions::{ActedStage, Block, Deed, StageActions};

use super::answer::{QuestionError, RecommendError};
use super::find::Candidate;
use super::plan::{Writer, scaled};
use crate::iteration::copies::{Copied, Way};
use crate::predict::{Acted, Prediction, StageSetting};

/// What stages do, and what that needs.
struct ActedStages {
    /// With all pools.
    actions: Vec<StageActions>,
    /// By stage.
    acted: Vec<Acted>,
    /// What the fullest device of each stage has of others at once, pools whole.
    hosted: Vec<u64>,
}

impl Writer<'_> {
    /// The plan of a candidate whose stages do these actions; those beyond the list do nothing.
    ///
    /// # Errors
    /// Actions that make no sense, by their path in the request; a profile that lacks what they are predicted from; the
    /// first stage that does not fit even so.
    pub(super) fn acted(
        &self,
        candidate: &Candidate,
        actions: &[StageActions],
        pace: CopyPace,
        solver: &str,
    ) -> Result<Plan, QuestionError> {
        let mut plan = self.plan(candidate, solver)?;
        let settings = settings(&plan);
        self.check(&plan, &settings, actions)?;
        let stages = self.act(&plan, &settings, actions)?;
        for (index, stage) in plan.stages.iter_mut().enumerate() {
            let prediction = stages.acted[index].prediction(stages.hosted[index]);
            self.rewrite(stage, &prediction);
            stage.actions = stages.actions[index].clone();
        }
        self.check_fits(&plan, candidate)?;
        let timed = self.timed(candidate, &stages, pace)?;
        for (index, stage) in plan.stages.iter_mut().enumerate() {
            if !stage.actions.is_empty() {
                let copied = timed.as_ref().map(|timed| &timed.copied);
                stage.offload = Some(offload(index, &stages, copied));
            }
        }
        if let Some(timed) = timed {
            timed.tell(&mut plan);
        }
        Ok(plan)
    }

    fn check(
        &self,
        plan: &Plan,
        settings: &[StageSetting],
        actions: &[StageActions],
    ) -> Result<(), QuestionError> {
        let refuse = |why: String| Err(Invalid::field("stage_actions", why).into());
        if actions.len() > settings.len() {
            return refuse(format!(
                "has {} entries, the partitioning {} stages",
                actions.len(),
                settings.len()
            ));
        }
        let Some(model) = &self.chain.model else {
            return refuse(
                "needs a model whose layers are known; this chain is known by name alone".to_owned(),
            );
        };
        for (index, (of, setting)) in actions.iter().zip(settings).enumerate() {
            let at = |invalid: Invalid| invalid.under(&format!("stage_actions[{index}]"));
            let StageSetting { stage, stage_index, stage_count, training } = setting;
            let acted = ActedStage { model, training, stage, index: *stage_index, count: *stage_count };
            of.check(acted).map_err(at)?;
            pools::check_nodes(plan, index, of).map_err(at)?;
        }
        Ok(())
    }

    fn act(
        &self,
        plan: &Plan,
        settings: &[StageSetting],
        given: &[StageActions],
    ) -> Result<ActedStages, QuestionError> {
        let mut actions: Vec<StageActions> = given.to_vec();
        actions.resize(settings.len(), StageActions::default());
        let mut acted = Vec::with_capacity(settings.len());
        for (setting, actions) in settings.iter().zip(&actions) {
            acted.push(self.chain.predictor.acted(setting, actions)?);
        }
        let hosted = pools::complete(plan, &mut actions, &acted)?;
        Ok(ActedStages { actions, acted, hosted })
    }

    /// Gives a stage the bytes that its actions leave.
    fn rewrite(&self, stage: &mut PlanStage, prediction: &Prediction) {
        // What the untouched stage was multiplied with.
        let factor = self.kinds.iter().map(|(_, factors)| factors.bytes).fold(1.0, f64::max);
        let bytes = prediction.bytes.0;
        let peak = if factor == 1.0 { bytes } else { (bytes as f64 * factor).ceil() as u64 };
        stage.predicted_peak = peak;
        stage.breakdown = prediction.breakdown.map(|parts| scaled(parts, bytes, peak));
        let margin = self.margin.interval(prediction).map(|interval| interval.margin);
        stage.interval = margin.map(|margin| Interval::around(Bytes(peak), margin));
        stage.origin = prediction.origin;
    }

    fn check_fits(&self, plan: &Plan, candidate: &Candidate) -> Result<(), QuestionError> {
        let needed =
            |stage: &PlanStage| stage.interval.map_or(Bytes(stage.predicted_peak), |interval| interval.high);
        let too_small = plan.stages.iter().position(|stage| needed(stage).0 > stage.capacity);
        let Some(index) = too_small else { return Ok(()) };
        let stage = &plan.stages[index];
        let position = candidate.stages[index].devices.first().copied().unwrap_or_default();
        let (needed, capacity) = (needed(stage), Bytes(stage.capacity));
        Err(RecommendError::GivenDoesNotFit {
            partitioning: format!("{} with these memory actions", plan.partition()),
            position,
            device: self.fleet.names().get(position as usize).cloned().unwrap_or_default(),
            needed,
            capacity,
            missing: Bytes(needed.0.saturating_sub(capacity.0)),
        }
        .into())
    }
}

/// Stages as they will be trained.
fn settings(plan: &Plan) -> Vec<StageSetting> {
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

/// What a stage's actions move in an iteration, and how long its device waits for that.
fn offload(stage: usize, stages: &ActedStages, copied: Option<&Copied>) -> Offload {
    let own = u32::try_from(stage).unwrap_or(u32::MAX);
    let acted = &stages.acted[stage];
    let waited = |ways: [Way; 2]| {
        let of = copied.into_iter().flat_map(|copied| &copied.ways).filter(|of| ways.contains(&of.way));
        of.map(|of| of.waited.all()).sum()
    };
    let copies = acted.pools.iter().map(|pool| CopyCount {
        peer: pool.peer,
        out_bytes: pool.moved_bytes,
        in_bytes: pool.moved_bytes,
        waited_seconds: waited(match pool.peer {
            None => [Way::ToHost(own), Way::FromHost(own)],
            Some(to) => [Way::Between { from: own, to }, Way::Between { from: to, to: own }],
        }),
    });
    Offload {
        host_peak: Bytes(acted.host_peak()),
        hosted_peak: Bytes(stages.hosted[stage]),
        copies: copies.collect(),
    }
}

/// Whether any of a stage's blocks leave its device.
fn swaps(actions: &StageActions, block: Option<Block>) -> bool {
    actions.actions.iter().any(|action| match &action.deed {
        Deed::Swap(swap) => block.is_none_or(|block| swap.block == block),
        Deed::Recompute => false,
    })
}
