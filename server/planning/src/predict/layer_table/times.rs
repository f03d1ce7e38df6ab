//! How long the passes of a stage take, from the layers of a table.

use loadmaster_proto::training::RecomputePolicy;
use loadmaster_proto::training::stage::StageConfig;

use super::TablePredictor;
use crate::predict::{Share, StageSeconds, StageSetting};

/// Seconds on one device of a stage, collectives between stages and replicas not included; none where a layer
/// has no times.
pub(super) fn seconds(table: &TablePredictor, setting: &StageSetting) -> Option<StageSeconds> {
    let StageConfig { first_layer, last_layer, .. } = setting.stage;
    let levels = table.levels(Share::of(setting));
    let mut seconds = StageSeconds::default();
    for level in levels.get(first_layer..=last_layer)? {
        let (own, _) = level.as_ref()?.seconds?;
        let again = if setting.training.recompute == RecomputePolicy::None { 0.0 } else { own.forward };
        seconds.forward += own.forward;
        seconds.backward += own.backward + again;
        seconds.step += own.step;
    }
    Some(seconds)
}
