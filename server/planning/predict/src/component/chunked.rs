//! A model that is trained in chunks: what the device of each replica, or of each shard of one, holds besides them (PatrickStar).
//!
//! Every step is played as with memory actions, but that every layer is a run of its own, nothing is updated on the device, and
//! the gradients of a layer are in its chunk when the last backward pass that adds to them is over. Both ends of a tied weight
//! deliver for themselves, so neither finds a gradient of the other: each plays its own passages. An embedding whose table is on
//! the host makes no gradient of it. What micro-batches keep on the host leaves and comes as with memory actions, too.

use loadmaster_proto::chunks::stage::Chunks;
use loadmaster_proto::measure::tape::LayerTape;
use loadmaster_proto::training::StaticBytes;
use loadmaster_proto::training::actions::StageActions;

use super::host_table::without_table;
use super::library::ShardTapes;
use super::memory_optimizations::player::Gradients;
use super::memory_optimizations::resident_state::ResidentState;
use super::memory_optimizations::shard::{Scene, ShardMemory};
use super::replay::different_shards;
use super::stage::ReplayStage;
use super::{Component, margin};
use crate::pools::in_places;
use crate::{MOST_BYTES, Moments, Pool, PredictionError, StageSetting, StepBytes};

impl Component {
    pub(super) fn in_chunks(
        &self,
        setting: &StageSetting,
        chunks: &Chunks,
        actions: &StageActions,
    ) -> Result<Moments, PredictionError> {
        let key = self.key(setting)?;
        PredictionError::check_whole(&setting.stage, self.contents.len())?;
        let tapes = self.tapes(key)?;
        self.check_saved(setting, actions, &tapes)?;
        let played = self.played(setting)?;
        // Replicas do the same, and exchange parts of payloads where they are; shards may differ.
        let shards = different_shards(key.tensor_degree, &tapes);
        let stored = ResidentState {
            whole: StaticBytes { buffers: played.fixed.buffers, ..StaticBytes::default() },
            ..ResidentState::default()
        };
        let steps = &chunks.steps;
        let absences = actions.absences(steps);
        let play_shard = |shard: &[&ShardTapes], tape: fn(&ShardTapes) -> &LayerTape| -> ShardMemory {
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
                absences: &absences,
                actions,
                synchronisation: 0,
                gradients: Gradients::Delivered(&chunks.uses),
            }
            .play()
        };
        let play = |tape: fn(&ShardTapes) -> &LayerTape| -> Vec<ShardMemory> {
            shards.iter().map(|(_, shard)| play_shard(shard, tape)).collect()
        };
        let fullest_of = |played: &[ShardMemory]| -> Vec<StepBytes> {
            played.iter().map(|of| of.curve.clone()).reduce(fullest).unwrap_or_default()
        };
        let acted = play(|shard| &shard.tape);
        let curve = fullest_of(&acted);
        let of = |step: &StepBytes| step.most.total();
        let upper = match played.most {
            None => curve.iter().map(of).collect(),
            Some(_) => {
                let most = fullest_of(&play(|shard| &shard.most));
                most.iter().map(|step| of(step).saturating_add(played.unseen).min(MOST_BYTES)).collect()
            }
        };
        let margin = margin::margin(played.origin, played.is_aligned, self.largest_error);
        // All take as much of the host as the shard that needs most.
        let with_pool = acted.into_iter().map(|shard| {
            let pools = in_places(&shard.away, steps.all().len()).into_iter();
            (pools.into_iter().find(|pool| pool.peer.is_none()), shard.away)
        });
        let bytes = |pool: &Option<Pool>| pool.as_ref().map_or(0, |pool| pool.peak);
        let (pool, away) =
            with_pool.max_by_key(|(pool, _)| bytes(pool)).unwrap_or_else(|| (None, Vec::new()));
        Ok(Moments { curve, upper, margin: Some(margin), origin: played.origin, away, pool })
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
