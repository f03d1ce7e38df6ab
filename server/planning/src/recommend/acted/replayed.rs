//! Actions that a replay finds to fit.
//!
//! Whoever chooses adds blocks up, and a replay sees what they share and what an allocator rounds: what is missing is
//! left free, and asked for again.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::training::actions::{StageActions, Way};

use super::asked::Asked;
use super::choose::{Choice, Chooser};
use crate::actions::{PlanError, fastest, paper};
use crate::predict::ActedStages;
use crate::recommend::answer::{QuestionError, RecommendError};
use crate::recommend::plan::Writer;
use crate::search::Stop;

/// How often whoever chooses is asked.
const ROUNDS: u32 = 24;

impl Writer<'_> {
    /// Actions that a replay finds to fit.
    pub(super) fn actions(
        &self,
        asked: &Asked<'_>,
        choice: Choice<'_>,
        stop: &Stop,
    ) -> Result<Vec<StageActions>, QuestionError> {
        match self.replayed(asked, choice, stop) {
            Err(QuestionError::Recommend(error @ RecommendError::NoPlan { .. }))
                if choice.chooser == Chooser::Fastest =>
            {
                self.extreme(asked, choice.allowed).ok_or_else(|| error.into())
            }
            other => other,
        }
    }

    /// Those that whoever chooses comes to.
    fn replayed(
        &self,
        asked: &Asked<'_>,
        choice: Choice<'_>,
        stop: &Stop,
    ) -> Result<Vec<StageActions>, QuestionError> {
        let allowed = choice.allowed;
        let node = asked.node_within(allowed);
        let mut reserve = vec![0_u64; asked.stages.len()];
        let mut lacks: Option<(usize, u64)> = None;
        for _ in 0..ROUNDS {
            let question = asked.question(&node, &reserve, allowed, stop);
            let found = match choice.chooser {
                Chooser::Fastest => fastest::plan(&question, asked.known()).map(|plan| plan.actions),
                Chooser::Mpress => paper::plan(&question).map(|plan| plan.actions),
            };
            let found = match found {
                Ok(found) => found,
                Err(PlanError::NoRoom { stage, missing }) => {
                    // What a replay found to be missing is missing as well.
                    let (stage, missing) = lacks.unwrap_or((stage, missing));
                    return Err(self.no_room(asked, choice, stage, missing));
                }
                Err(PlanError::Stopped) => return Err(RecommendError::Stopped.into()),
                Err(error) => return Err(Invalid::field("partitioning", error.to_string()).into()),
            };
            // Pools are as large as the replay finds them.
            let chosen: Vec<StageActions> = found
                .into_iter()
                .map(|of| StageActions { actions: of.actions, ..StageActions::default() })
                .collect();
            let model = self.chain.model.as_ref();
            let stages = ActedStages::of(&*self.chain.predictor, model, &asked.settings, &chosen)?;
            lacks = None;
            for (index, reserve) in reserve.iter_mut().enumerate() {
                let needed = stages.prediction(index).map_or(0, |of| self.needed(&of).0);
                let capacity = asked.node.capacity.get(index).copied().unwrap_or(0);
                let missing = needed.saturating_sub(capacity);
                if missing > 0 {
                    *reserve = reserve.saturating_add(missing);
                    lacks = lacks.or(Some((index, missing)));
                }
            }
            let at_host: u64 = stages.acted.iter().map(|of| of.host_peak()).fold(0, u64::saturating_add);
            if lacks.is_none() && at_host <= allowed.host_memory.0 {
                return Ok(chosen);
            }
        }
        let (stage, missing) = lacks.unwrap_or((0, 0));
        Err(self.no_room(asked, choice, stage, missing))
    }

    fn no_room(&self, asked: &Asked<'_>, choice: Choice<'_>, stage: usize, missing: u64) -> QuestionError {
        let allowed = choice.allowed;
        let ways: Vec<&str> = allowed.ways.iter().map(|way| way.as_str()).collect();
        let config =
            asked.settings.get(stage).map(|of| of.stage).map_or_else(String::new, |of| of.to_string());
        let host = if allowed.ways.contains(&Way::Host) && allowed.host_memory.0 == 0 {
            " (no host memory may be taken: allow some with `--host-memory`)"
        } else {
            ""
        };
        let by = if choice.chooser == Chooser::Mpress { " by MPress's planner" } else { "" };
        let blocks: Vec<&str> = allowed.blocks.iter().map(|block| block.as_str()).collect();
        let why = format!(
            "stage {stage} ({config}) lacks {}{by} with {}{host} over {}: allow more ways, more host memory or more blocks, or \
             cut the model into more stages",
            Bytes(missing),
            ways.join(", "),
            blocks.join(", "),
        );
        let device = asked.candidate.stages.get(stage).and_then(|of| of.devices.first().copied());
        let name = device.and_then(|device| self.fleet.names().get(device as usize).cloned());
        RecommendError::no_actions(why, Bytes(missing), name.unwrap_or_default()).into()
    }
}
