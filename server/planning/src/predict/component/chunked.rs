//! A model that is trained in chunks: what the device of each replica, or of each shard of one, holds besides them (PatrickStar).
//!
//! Every step is played as with memory actions, but that every layer is a run of its own, nothing is updated on the device, and
//! the gradients of a layer are in its chunk when the last backward pass that adds to them is over. Both ends of a tied weight
//! deliver for themselves, so neither finds a gradient of the other: each plays its own passages. An embedding whose table is on
//! the host makes no gradient of it.

use loadmaster_proto::chunks::stage::Chunks;
use loadmaster_proto::measure::tape::LayerTape;
use loadmaster_proto::training::StaticBytes;
use loadmaster_proto::training::actions::StageActions;
use loadmaster_proto::training::stage::StageConfig;

use super::acted::player::Gradients;
use super::acted::shard::Scene;
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
    ) -> Result<Moments, PredictionError> {
        let key = self.key(setting)?;
        self.check_whole(setting)?;
        let tapes = self.tapes(key)?;
        let played = self.played(setting)?;
        // Replicas do the same, and exchange parts of payloads where they are; shards may differ.
        let shards = different_shards(key.tensor_degree, &tapes);
        let stored = Stored {
            whole: StaticBytes { buffers: played.fixed.buffers, ..StaticBytes::default() },
            ..Stored::default()
        };
        let steps = &chunks.steps;
        let play_shard = |shard: &[&ShardTapes], tape: fn(&ShardTapes) -> &LayerTape| -> Vec<StepBytes> {
            let mut tapes: Vec<&LayerTape> = shard.iter().map(|of| tape(of)).collect();
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
                absences: &[],
                actions: &StageActions::default(),
                synchronisation: 0,
                gradients: Gradients::Delivered(&chunks.uses),
            }
            .play()
            .curve
        };
        let play = |tape: fn(&ShardTapes) -> &LayerTape| -> Vec<StepBytes> {
            let curves = shards.iter().map(|(_, shard)| play_shard(shard, tape));
            curves.reduce(fullest).unwrap_or_default()
        };
        let curve = play(|shard| &shard.tape);
        let of = |step: &StepBytes| step.most.total();
        let upper = match played.most {
            None => curve.iter().map(of).collect(),
            Some(_) => {
                let most = play(|shard| &shard.most);
                most.iter().map(|step| of(step).saturating_add(played.unseen).min(MOST_BYTES)).collect()
            }
        };
        let margin = margin::margin(played.origin, played.is_aligned, self.largest_error);
        Ok(Moments { curve, upper, margin: Some(margin), origin: played.origin })
    }

    fn check_whole(&self, setting: &StageSetting) -> Result<(), PredictionError> {
        let StageConfig { first_layer: first, last_layer: last, .. } = setting.stage;
        let layers = self.contents.len();
        if first == 0 && last + 1 == layers {
            return Ok(());
        }
        Err(PredictionError::PartInChunks { first, last, layers })
    }
}

/// Of each step the bytes of the shard that needs most.
fn fullest(one: Vec<StepBytes>, other: Vec<StepBytes>) -> Vec<StepBytes> {
    let fuller = |(one, other): (StepBytes, StepBytes)| StepBytes {
        at_boundary: one.at_boundary.max(other.at_boundary),
        most: if other.most.total() > one.most.total() { other.most } else { one.most },
    };
    one.into_iter().zip(other).map(fuller).collect()
}
