//! A model that is trained in chunks: what the device of each replica holds besides them (PatrickStar).
//!
//! Every step is played as with memory actions, but that every layer is a run of its own, nothing is updated on the device, and
//! the gradients of a layer are in its chunk when the last backward pass that adds to them is over. Both ends of a tied weight
//! deliver for themselves, so neither finds a gradient of the other: each plays its own passages. An embedding whose table is on
//! the host makes no gradient of it. What micro-batches keep on the host leaves and comes as with memory actions, too.

use loadmaster_proto::chunks::stage::Chunks;
use loadmaster_proto::measure::tape::LayerTape;
use loadmaster_proto::training::StaticBytes;
use loadmaster_proto::training::actions::StageActions;
use loadmaster_proto::training::stage::StageConfig;

use super::acted::moved::pools;
use super::acted::player::Gradients;
use super::acted::shard::{ActedShard, Scene};
use super::acted::stored::Stored;
use super::host_table::without_table;
use super::library::ShardTapes;
use super::replay::different_shards;
use super::stage::ReplayStage;
use super::{Component, margin};
use crate::predict::{MOST_BYTES, Moments, PredictionError, StageSetting, StepBytes};

impl Component {
    pub(super) fn in_chunks(
        &self,
        setting: &StageSetting,
        chunks: &Chunks,
        actions: &StageActions,
    ) -> Result<Moments, PredictionError> {
        let key = self.key(setting)?;
        self.check_whole(setting)?;
        let tapes = self.tapes(key)?;
        self.check_saved(setting, actions, &tapes)?;
        let played = self.played(setting)?;
        // A replica is one device, and exchanges parts of payloads where they are.
        let shards = different_shards(1, &tapes);
        let stored = Stored {
            whole: StaticBytes { buffers: played.fixed.buffers, ..StaticBytes::default() },
            ..Stored::default()
        };
        let steps = &chunks.steps;
        let absences = actions.absences(steps);
        let play = |tape: fn(&ShardTapes) -> &LayerTape| -> ActedShard {
            let mut tapes: Vec<&LayerTape> =
                shards.iter().flat_map(|(_, shards)| shards).map(|shard| tape(shard)).collect();
            let first = chunks.table.zip(tapes.first()).map(|(table, tape)| {
                let scalar = self.training.precision.gradient_bytes();
                without_table(tape, table.rows.saturating_mul(table.width).saturating_mul(scalar))
            });
            if let (Some(without), Some(first)) = (&first, tapes.first_mut()) {
                *first = without;
            }
            let stage = ReplayStage {
                runs: (0..steps.slots()).map(|slot| steps.runs(slot).to_vec()).collect(),
                ..self.replay_stage(key, &tapes, None)
            };
            Scene {
                stage: &stage,
                stored: stored.clone(),
                overhead: played.overhead,
                steps,
                absences: &absences,
                actions,
                synchronisation: 0,
                gradients: Gradients::Delivered(&chunks.uses),
            }
            .play()
        };
        let ActedShard { curve, away, .. } = play(|shard| &shard.tape);
        let of = |step: &StepBytes| step.most.total();
        let upper = match played.most {
            None => curve.iter().map(of).collect(),
            Some(_) => {
                let most = play(|shard| &shard.most).curve;
                most.iter().map(|step| of(step).saturating_add(played.unseen).min(MOST_BYTES)).collect()
            }
        };
        let margin = margin::margin(played.origin, played.is_aligned, self.largest_error);
        let pool = pools(&away, steps.all().len()).into_iter().find(|pool| pool.peer.is_none());
        Ok(Moments { curve, upper, margin: Some(margin), origin: played.origin, away, pool })
    }

    fn check_whole(&self, setting: &StageSetting) -> Result<(), PredictionError> {
        let StageConfig { first_layer: first, last_layer: last, data_degree: _, tensor_degree } =
            setting.stage;
        let layers = self.contents.len();
        if first == 0 && last + 1 == layers && tensor_degree == 1 {
            return Ok(());
        }
        Err(PredictionError::PartInChunks { first, last, layers, tensor_degree })
    }
}
