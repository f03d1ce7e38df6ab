//! A stage that never flushes and computes layers again: all its micro-batches are alike, so that kinds of passes tell.

use loadmaster_proto::training::actions::{Deed, StageActions};

use super::super::Component;
use super::super::replay::different_shards;
use super::{in_stage, seconds};
use crate::predict::{Acted, PredictionError, StageSetting};

impl Component {
    /// # Errors
    /// Actions that move blocks, or are of some slots alone: nobody does these without a flush.
    pub(super) fn endless(
        &self,
        setting: &StageSetting,
        actions: &StageActions,
    ) -> Result<Acted, PredictionError> {
        let schedule = setting.training.schedule;
        if actions.actions.iter().any(|action| action.deed != Deed::Recompute || !action.slots.is_empty()) {
            return Err(PredictionError::NoEndlessActions { schedule });
        }
        let key = self.key(setting)?;
        let tapes = self.tapes(key)?;
        let steps = self.steps(setting, actions);
        let played = self.played(setting)?;
        let shards = different_shards(key.tensor_degree, &tapes);
        let runs = [in_stage(&steps, 0, setting)];
        let bytes = self.passes(key, &shards, &runs, |shard| &shard.tape);
        let most = played.most.map(|_| self.passes(key, &shards, &runs, |shard| &shard.most));
        let prediction = self.prediction(setting, &played, (bytes, most), seconds(&tapes, &steps, setting));
        Ok(Acted::new(prediction, steps, Vec::new(), Vec::new(), Vec::new()))
    }
}
