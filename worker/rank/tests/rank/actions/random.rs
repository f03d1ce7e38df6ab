//! Random stages and random actions on them, the same for the same seed.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::measure::rank::RankSpec;
use loadmaster_proto::measure::run::SoloStage;
use loadmaster_proto::model::Model;
use loadmaster_proto::training::actions::{
    Action, Block, Destination, Optimization, PeerPool, StageActions, Stripe, Swap,
};
use loadmaster_proto::training::sharding::StateSharding;
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

    /// Stages of a model, each of so many replicas of so many shards.
    pub(crate) fn partitioning(
        &mut self,
        model: &Model,
        stages: usize,
        (data_degree, tensor_degree): (u32, u32),
    ) -> Partitioning {
        let layers = model.layers().len();
        let mut configs = Vec::new();
        let mut first_layer = 0;
        for left in (0..stages).rev() {
            let most = layers - first_layer - left;
            let count = if left == 0 { most } else { 1 + self.below(most.min(layers / stages + 1)) };
            let last_layer = first_layer + count - 1;
            let shards = data_degree > 1 && self.below(2) == 0;
            configs.push(StageConfig {
                data_degree,
                tensor_degree,
                sharding: if shards { StateSharding::Optimizer } else { StateSharding::None },
                ..StageConfig::single(first_layer, last_layer)
            });
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

    /// Actions of any kind for all ranks of a run, with room for all of it.
    pub(crate) fn act(&mut self, specs: &mut [RankSpec]) {
        let stages = specs[0].position.stage_count;
        let room = Bytes(1 << 27);
        let mut all: Vec<StageActions> = Vec::new();
        for stage in 0..stages {
            let spec = specs.iter().find(|spec| spec.position.stage_index == stage).unwrap();
            let mut actions = StageActions {
                actions: if self.below(2) == 0 { self.recomputed(spec) } else { Vec::new() },
                host_pool: room,
                peer_pools: Vec::new(),
            };
            self.swapped(spec, &mut actions);
            all.push(actions);
        }
        for (donor, actions) in all.clone().iter().enumerate() {
            for action in &actions.actions {
                let Optimization::Swap(Swap { to: Destination::Peers(stripes), .. }) = &action.optimization
                else {
                    continue;
                };
                for stripe in stripes {
                    let peer_pools = &mut all[stripe.stage as usize].peer_pools;
                    if peer_pools.iter().all(|peer_pools| peer_pools.stage as usize != donor) {
                        peer_pools.push(PeerPool { stage: donor as u32, bytes: room });
                        peer_pools.sort_by_key(|peer_pools| peer_pools.stage);
                    }
                }
            }
        }
        for spec in specs {
            spec.actions = all[spec.position.stage_index as usize].clone();
        }
    }

    fn swapped(&mut self, spec: &RankSpec, actions: &mut StageActions) {
        let SoloStage { stage, stage_count, stage_index } = spec.position;
        let in_flight = Self::in_flight(spec);
        let last = spec.model.layers().len() - 1;
        // What every update makes anew stays, and micro-batches that never flush are alike.
        let is_endless = spec.training.schedule.updates_always();
        let blocks: &[Block] = match (is_endless, in_flight) {
            (false, _) => {
                &[Block::Activations, Block::Inputs, Block::Weights, Block::Gradients, Block::Optimizer]
            }
            (true, 1) => &[Block::Activations, Block::Inputs, Block::Optimizer],
            (true, _) => &[Block::Activations, Block::Inputs, Block::Versions, Block::Optimizer],
        };
        for &block in blocks {
            if self.below(3) == 0 {
                continue;
            }
            for layer in stage.layers() {
                let is_tied = spec.model.has_tied_head() && (layer == 0 || layer == last);
                if self.below(4) == 0 || is_tied && matches!(block, Block::Weights | Block::Gradients) {
                    continue;
                }
                let mut slots: Vec<u32> = (0..in_flight)
                    .filter(|&slot| {
                        let runs = actions.runs(stage.layers(), spec.training.recompute, slot);
                        let run = runs.iter().find(|run| run.layers.contains(&layer)).unwrap();
                        match block {
                            Block::Activations => !run.is_recomputed,
                            Block::Inputs => run.is_recomputed && *run.layers.start() == layer,
                            _ => true,
                        }
                    })
                    .collect();
                if slots.is_empty() {
                    continue;
                }
                if !block.is_of_micro_batch() || is_endless {
                    slots.clear();
                } else if self.below(2) == 0 {
                    slots.retain(|_| self.below(3) > 0);
                    if slots.is_empty() {
                        continue;
                    }
                }
                let others: Vec<u32> = (0..stage_count).filter(|&other| other != stage_index).collect();
                let to = if others.is_empty() || self.below(2) == 0 {
                    Destination::Host
                } else if others.len() == 1 || self.below(2) == 0 {
                    Destination::Peers(vec![Stripe { stage: self.of(&others), share: Stripe::WHOLE }])
                } else {
                    let share = 1 + self.below(9_998) as u32;
                    let stripes = [(others[0], share), (others[1], Stripe::WHOLE - share)];
                    Destination::Peers(stripes.map(|(stage, share)| Stripe { stage, share }).to_vec())
                };
                let [release_after, fetch_before] = [0; 2].map(|_: u32| {
                    let most = self.of(&[1, 3, 8]);
                    self.below(most) as u32
                });
                let swap = Swap { block, to, release_after, fetch_before };
                let optimization = Optimization::Swap(swap);
                actions.actions.push(Action { first_layer: layer, last_layer: layer, slots, optimization });
            }
        }
    }

    /// Runs to recompute, apart or next to each other, for all slots or for some.
    pub(crate) fn recomputed(&mut self, spec: &RankSpec) -> Vec<Action> {
        let stage = spec.position.stage;
        let in_flight = Self::in_flight(spec);
        let mut actions = Vec::new();
        let is_alike = spec.training.schedule.updates_always();
        let halves = if !is_alike && in_flight > 1 && self.below(2) == 0 { 2 } else { 1 };
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
                        optimization: Optimization::Recompute,
                    });
                }
                layer = last_layer + 1;
            }
        }
        actions
    }
}
