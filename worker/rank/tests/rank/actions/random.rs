//! Random stages and random actions on them, the same for the same seed.

use loadmaster_proto::measure::rank::RankSpec;
use loadmaster_proto::model::Model;
use loadmaster_proto::training::actions::{Action, Deed};
use loadmaster_proto::training::stage::{Partitioning, StageConfig};
use loadmaster_rank::random::mix;

/// Random numbers.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    /// From 0 to `bound - 1`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = mix(self.0.wrapping_add(0x9e37_79b9_7f4a_7c15));
        ((self.0 >> 33) % bound.max(1) as u64) as usize
    }

    pub(crate) fn of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())].clone()
    }

    /// Stages of a model, each of `degree` replicas.
    pub(crate) fn partitioning(&mut self, model: &Model, stages: usize, degree: u32) -> Partitioning {
        let layers = model.layers().len();
        let mut configs = Vec::new();
        let mut first_layer = 0;
        for left in (0..stages).rev() {
            let most = layers - first_layer - left;
            let count = if left == 0 { most } else { 1 + self.below(most.min(layers / stages + 1)) };
            let last_layer = first_layer + count - 1;
            configs.push(StageConfig { data_degree: degree, ..StageConfig::single(first_layer, last_layer) });
            first_layer += count;
        }
        Partitioning::new(configs).unwrap()
    }

    /// Micro-batches in flight of a rank's stage.
    pub(crate) fn in_flight(spec: &RankSpec) -> u32 {
        let position = spec.position;
        let schedule = spec.training.schedule;
        schedule.in_flight(position.stage_count, position.stage_index, spec.training.micro_batches)
    }

    /// Runs to compute again, apart or next to each other, for all slots or for some.
    pub(crate) fn recomputed(&mut self, spec: &RankSpec) -> Vec<Action> {
        let stage = spec.position.stage;
        let in_flight = Self::in_flight(spec);
        let mut actions = Vec::new();
        let halves = if in_flight > 1 && self.below(2) == 0 { 2 } else { 1 };
        for half in 0..halves {
            let slots: Vec<u32> = if halves == 1 {
                Vec::new()
            } else {
                (0..in_flight).filter(|slot| slot % 2 == half).collect()
            };
            let mut layer = stage.first_layer;
            while layer <= stage.last_layer {
                let last_layer = (layer + self.below(3)).min(stage.last_layer);
                if self.below(2) == 0 {
                    actions.push(Action {
                        first_layer: layer,
                        last_layer,
                        slots: slots.clone(),
                        deed: Deed::Recompute,
                    });
                }
                layer = last_layer + 1;
            }
        }
        actions
    }
}
