//! From whom a rank gets what crosses the edges of its stage, and to whom it gives it. Pure.

use std::ops::Range;

use loadmaster_proto::measure::run::SoloStage;
use loadmaster_proto::model::Model;
use loadmaster_proto::training::reshard::{Holding, transfers};
use loadmaster_proto::training::stage::{Partitioning, StageConfig};

use super::Crossing;
use crate::peers::Address;

/// Rows that go from or to another rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Route {
    /// The other rank.
    pub(super) peer: Address,
    /// Rows of the whole tensor.
    pub(super) rows: Range<i64>,
}

/// The routes of one kind of crossing for one rank.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Routes {
    /// Where it comes from, in order of the rows.
    pub(super) incoming: Vec<Route>,
    /// Where it goes.
    pub(super) outgoing: Vec<Route>,
    /// The rows that this rank holds.
    pub(super) held: Range<i64>,
}

/// A rank in its pipeline.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) model: &'a Model,
    pub(crate) partitioning: &'a Partitioning,
    pub(crate) position: SoloStage,
    pub(crate) shard: u32,
    pub(crate) micro_batch_size: u32,
}

impl Place<'_> {
    /// The routes of a kind of crossing.
    pub(super) fn routes(&self, crossing: Crossing) -> Routes {
        let index = self.position.stage_index;
        let previous = index.checked_sub(1);
        let next = Some(index + 1).filter(|&next| next < self.position.stage_count);
        let extent = i64::from(self.micro_batch_size);
        let samples = |stage: &StageConfig| Some((Holding::of_samples(stage), extent));
        match crossing {
            Crossing::Activation => self.between(previous, next, samples),
            Crossing::Gradient => self.between(next, previous, samples),
            Crossing::TiedGradient => {
                let last = self.position.stage_count - 1;
                let other = match index {
                    _ if last == 0 => None,
                    0 => Some(last),
                    index if index == last => Some(0),
                    _ => None,
                };
                self.between(other, other, |stage| self.model.shared_weight_holding(stage))
            }
        }
    }

    /// Routes from stage `source` and to stage `target`, where each stage holds rows as `holding` says.
    fn between(
        &self,
        source: Option<u32>,
        target: Option<u32>,
        holding: impl Fn(&StageConfig) -> Option<(Holding, i64)>,
    ) -> Routes {
        let Some((own, extent)) = holding(&self.position.stage) else { return Routes::default() };
        let of = |stage: Option<u32>| {
            let index = stage?;
            let config = self.partitioning.stages().get(usize::try_from(index).ok()?)?;
            Some((index, holding(config)?.0))
        };
        let mut routes = Routes { held: own.rows(self.shard, extent), ..Routes::default() };
        if let Some((stage, theirs)) = of(source) {
            routes.incoming = transfers(extent, theirs, own)
                .into_iter()
                .filter(|transfer| transfer.to == self.shard)
                .map(|transfer| Route { peer: Address { stage, shard: transfer.from }, rows: transfer.rows })
                .collect();
        }
        if let Some((stage, theirs)) = of(target) {
            routes.outgoing = transfers(extent, own, theirs)
                .into_iter()
                .filter(|transfer| transfer.from == self.shard)
                .map(|transfer| Route { peer: Address { stage, shard: transfer.to }, rows: transfer.rows })
                .collect();
        }
        routes
    }
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::model::zoo::{Gpt2, Zoo};

    use super::*;

    fn partitioning(stages: &[(usize, u32, u32)]) -> Partitioning {
        let mut first_layer = 0;
        let stages = stages
            .iter()
            .map(|&(layers, data_degree, tensor_degree)| {
                let last_layer = first_layer + layers - 1;
                let stage = StageConfig {
                    data_degree,
                    tensor_degree,
                    ..StageConfig::single(first_layer, last_layer)
                };
                first_layer += layers;
                stage
            })
            .collect();
        Partitioning::new(stages).unwrap()
    }

    /// What one rank expects from another is what that one sends to it, for every crossing and pair.
    #[test]
    fn both_ends_of_every_route_agree() {
        let gpt = Gpt2 {
            blocks: 2,
            hidden_size: 16,
            heads: 4,
            sequence_length: 8,
            positions: 8,
            vocabulary_size: 50,
            untied_head: false,
            dropout: 0.0,
        };
        let model = Zoo::Gpt2(gpt).build().unwrap();
        for stages in [
            [(1, 1, 1), (2, 2, 1), (2, 1, 4)],
            [(1, 1, 4), (2, 4, 1), (2, 1, 1)],
            [(2, 8, 1), (2, 2, 1), (1, 1, 2)],
            [(1, 1, 2), (3, 1, 4), (1, 4, 1)],
            [(1, 2, 2), (3, 2, 4), (1, 4, 2)],
            [(1, 4, 1), (3, 2, 2), (1, 1, 4)],
            [(1, 2, 4), (3, 1, 1), (1, 8, 2)],
        ] {
            let partitioning = partitioning(&stages);
            let place = |stage: u32, shard: u32| Place {
                model: &model,
                partitioning: &partitioning,
                position: SoloStage {
                    stage: partitioning.stages()[stage as usize],
                    stage_count: 3,
                    stage_index: stage,
                },
                shard,
                micro_batch_size: 8,
            };
            let ranks: Vec<Address> = (0..3)
                .flat_map(|stage| {
                    (0..partitioning.stages()[stage as usize].devices())
                        .map(move |shard| Address { stage, shard })
                })
                .collect();
            for crossing in [Crossing::Activation, Crossing::Gradient, Crossing::TiedGradient] {
                let routes = |rank: Address| place(rank.stage, rank.shard).routes(crossing);
                for &receiver in &ranks {
                    let incoming = routes(receiver).incoming;
                    let rows: Vec<i64> = incoming.iter().flat_map(|route| route.rows.clone()).collect();
                    if !incoming.is_empty() {
                        assert_eq!(rows, routes(receiver).held.collect::<Vec<i64>>());
                    }
                    for &sender in &ranks {
                        let expected: Vec<Range<i64>> = incoming
                            .iter()
                            .filter(|route| route.peer == sender)
                            .map(|route| route.rows.clone())
                            .collect();
                        let sent: Vec<Range<i64>> = routes(sender)
                            .outgoing
                            .into_iter()
                            .filter(|route| route.peer == receiver)
                            .map(|route| route.rows)
                            .collect();
                        assert_eq!(expected, sent, "{crossing:?} {sender} to {receiver} in {partitioning}");
                    }
                }
            }
        }
    }
}
