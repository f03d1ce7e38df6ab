//! A model that is trained in chunks: what the device of each replica, or of each shard of one, holds besides them (PatrickStar).
//!
//! Every step is played as with memory optimizations, with three differences. Every layer is a run of its own. Nothing
//! is updated on the device. The gradients of a layer are in its chunk when the last backward pass that adds to them
//! is over.
//!
//! Both ends of a tied weight deliver for themselves, so neither finds a gradient of the other: each plays its
//! own passages. An embedding whose table is on the host makes no gradient of it. What micro-batches keep on the
//! host leaves and comes as with memory optimizations, too.
//!
//! An embedding whose embedding table is on the host: rows come instead of being looked up, and no gradient of the
//! table is made. The rows are what a lookup makes, and live as long; of what the layer recorded the gradient of the
//! table alone is missing. What else kernels of a GPU took to make it still counts: then a little less is needed
//! than is said. The layer's tokens live until its backward pass as well, but are nothing that autograd saves: they
//! do not leave.

use loadmaster_proto::chunks::stage::Chunks;
use loadmaster_proto::measure::trace::{LayerTrace, Passage, Slot, block_of};
use loadmaster_proto::training::StaticBytes;
use loadmaster_proto::training::actions::StageActions;

use super::library::ShardTraces;
use super::memory_optimizations::player::Gradients;
use super::memory_optimizations::resident_state::ResidentState;
use super::memory_optimizations::shard::{Scene, ShardMemory};
use super::replay::different_shards;
use super::stage::ReplayStage;
use super::tied_weights::counterpart;
use super::{Component, margin};
use crate::memory_optimizations::in_places;
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
        let traces = self.traces(key)?;
        self.check_saved(setting, actions, &traces)?;
        let played = self.played(setting)?;
        // Replicas do the same, and exchange parts of payloads where they are; shards may differ.
        let shards = different_shards(key.tensor_degree, &traces);
        let stored = ResidentState {
            whole: StaticBytes { buffers: played.fixed.buffers, ..StaticBytes::default() },
            ..ResidentState::default()
        };
        let steps = &chunks.steps;
        let absences = actions.absences(steps);
        let play_shard = |shard: &[&ShardTraces], trace: fn(&ShardTraces) -> &LayerTrace| -> ShardMemory {
            let mut traces: Vec<&LayerTrace> = shard.iter().map(|of| trace(of)).collect();
            let first = chunks.table.zip(traces.first()).map(|(table, trace)| {
                let scalar = self.training.precision.gradient_bytes();
                without_table(trace, table.rows.saturating_mul(table.width).saturating_mul(scalar))
            });
            if let (Some(without), Some(first)) = (&first, traces.first_mut()) {
                *first = without;
            }
            let stage = ReplayStage {
                runs: (0..steps.slots()).map(|slot| steps.runs(slot).to_vec()).collect(),
                ..self.replay_stage(key, 0, &traces, None)
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
        let play = |trace: fn(&ShardTraces) -> &LayerTrace| -> Vec<ShardMemory> {
            shards.iter().map(|(_, shard)| play_shard(shard, trace)).collect()
        };
        let fullest_of = |played: &[ShardMemory]| -> Vec<StepBytes> {
            played.iter().map(|of| of.curve.clone()).reduce(fullest).unwrap_or_default()
        };
        let acted = play(|shard| &shard.trace);
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

/// The allocation trace of an embedding without the gradient of its table, of so many bytes.
fn without_table(trace: &LayerTrace, bytes: u64) -> LayerTrace {
    let LayerTrace { first, later, .. } = trace;
    // Rows are taken first, so their gradients are found last.
    let created = first.left().into_iter().rev().find(|&block| first.blocks.get(block) == Some(&bytes));
    let Some(created) = created else { return trace.clone() };
    let of_later = counterpart(first, later, created);
    LayerTrace {
        first: without(first, created),
        later: of_later.map_or_else(|| later.clone(), |block| without(later, block)),
        ..trace.clone()
    }
}

/// A passage in whose backward pass a block is never made, and in which autograd does not save what the layer takes.
fn without(passage: &Passage, block: usize) -> Passage {
    let mut passage = passage.clone();
    passage.slots[Slot::Backward as usize].retain(|&event| block_of(event).0 != block);
    passage.saved.retain(|saved| !passage.inputs.contains(saved));
    passage
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::measure::trace::{Event, TraceStep};

    use super::*;

    /// Blocks: gradient of the output, of positions, of the table, and one of a later pass.
    #[test]
    fn the_gradient_of_the_table_is_gone_and_nothing_else() {
        let passage = |backward: &[Event]| Passage {
            blocks: vec![10, 70, 500],
            inputs: vec![0],
            slots: [vec![], vec![], vec![], vec![1], backward.to_vec(), vec![]],
            ..Passage::default()
        };
        let trace = |first: &[Event], later: &[Event]| LayerTrace {
            layer: 0,
            content: "embedding".to_owned(),
            first: passage(first),
            later: passage(later),
            without_graph: Passage::default(),
            untrained_input: None,
            step: TraceStep::default(),
            has_saved: false,
            overhead: 0,
        };
        let whole = trace(&[2, 3, -1], &[2, -2, 3, -3, -1]);
        assert_eq!(without_table(&whole, 500), trace(&[2, -1], &[2, -2, -1]));
        assert_eq!(without_table(&whole, 501), whole, "nothing of that size is made");
        // What it takes is not saved, what is at other places is.
        let saving = |saved: &[u32]| {
            let mut trace = trace(&[2, 3, -1], &[2, -2, 3, -3, -1]);
            trace.first.saved = saved.to_vec();
            without_table(&trace, 500).first.saved
        };
        assert_eq!(saving(&[0, 1]), [1]);
    }
}
