//! Which rank sends what to whom where two stages of different parallelism meet.
//!
//! What crosses an edge has one axis along which it may be split. The samples of a micro-batch for
//! activations and their gradients, the vocabulary for the gradient of a weight that first and last
//! stage share. A side cuts it into parts and holds each part on one rank or on several. The replicas of a
//! stage each have a part of the samples, all shards of a replica the same one.

use std::ops::Range;

use crate::model::Model;
use crate::training::shard::{Shard, is_split};
use crate::training::stage::StageConfig;

/// How the ranks of a stage hold a tensor: cut along its rows into parts, in order and as even as
/// possible, each of them on as many ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holding {
    /// Ranks, a multiple of `parts · stride`.
    ranks: u32,
    parts: u32,
    /// Neighbouring ranks that hold the same part, before the next part follows.
    stride: u32,
}

impl Holding {
    /// How a stage holds the samples of what enters or leaves it: split over the replicas, the same on all
    /// shards of each.
    pub fn of_samples(stage: &StageConfig) -> Self {
        Self::new(stage.devices(), stage.data_degree, stage.tensor_degree)
    }

    /// Split over the shards, the same on all replicas.
    pub fn split_over_shards(stage: &StageConfig) -> Self {
        Self::new(stage.devices(), stage.tensor_degree, 1)
    }

    /// All of it on each rank of the stage.
    pub fn whole(stage: &StageConfig) -> Self {
        Self::new(stage.devices(), 1, 1)
    }

    fn new(ranks: u32, parts: u32, stride: u32) -> Self {
        Self { ranks: ranks.max(1), parts: parts.max(1), stride: stride.max(1) }
    }

    /// Its ranks.
    pub fn ranks(self) -> u32 {
        self.ranks
    }

    /// The rows that a rank holds of `extent`.
    pub fn rows(self, rank: u32, extent: i64) -> Range<i64> {
        self.part_rows(rank / self.stride % self.parts, extent)
    }

    fn part_rows(self, part: u32, extent: i64) -> Range<i64> {
        Shard { index: part, degree: self.parts }.range(extent)
    }

    /// Ranks that hold the same part.
    fn copies(self) -> u32 {
        (self.ranks / self.parts).max(1)
    }

    /// One of the ranks that hold a part, by its number among them.
    fn holder(self, part: u32, copy: u32) -> u32 {
        copy / self.stride * self.stride * self.parts + part * self.stride + copy % self.stride
    }
}

/// Rows that one rank sends to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transfer {
    /// Rank of the sending stage.
    pub from: u32,
    /// Rank of the receiving stage.
    pub to: u32,
    /// Rows of the whole tensor. Never empty.
    pub rows: Range<i64>,
}

/// Who sends which of `extent` rows to whom, so that every receiver gets every row that it is to hold
/// exactly once. Sorted by receiver, then by row.
///
/// Where several senders hold a part, each receiver of it is served by its share of them: one sender
/// serves several receivers or several senders share one receiver, so all send about the same.
pub fn transfers(extent: i64, from: Holding, to: Holding) -> Vec<Transfer> {
    let mut transfers = Vec::new();
    for part in 0..from.parts {
        let held = from.part_rows(part, extent);
        let wanted = |receiver: u32| {
            let wanted = to.rows(receiver, extent);
            wanted.start.max(held.start)..wanted.end.min(held.end)
        };
        let receivers: Vec<(u32, Range<i64>)> =
            (0..to.ranks).map(|rank| (rank, wanted(rank))).filter(|(_, rows)| !rows.is_empty()).collect();
        let (count, copies) = (u32::try_from(receivers.len()).unwrap_or(u32::MAX), from.copies());
        for (position, (receiver, wanted)) in (0..).zip(receivers) {
            let first = share(position, copies, count);
            let servers = share(position + 1, copies, count).saturating_sub(first).max(1);
            transfers.extend((0..servers).map(|server| {
                let rows = Shard { index: server, degree: servers }.range(wanted.end - wanted.start);
                let rows = wanted.start + rows.start..wanted.start + rows.end;
                Transfer { from: from.holder(part, first + server), to: receiver, rows }
            }));
        }
    }
    transfers.retain(|transfer| !transfer.rows.is_empty());
    transfers.sort_by_key(|transfer| (transfer.to, transfer.rows.start));
    transfers
}

/// `receiver · senders / receivers`, rounded down.
fn share(receiver: u32, senders: u32, receivers: u32) -> u32 {
    let wide = u64::from(receiver) * u64::from(senders) / u64::from(receivers.max(1));
    u32::try_from(wide).unwrap_or(u32::MAX)
}

impl Model {
    /// How a stage holds the gradient of the weight that first and last layer share, split by its rows,
    /// and how many rows there are. None where nothing is shared.
    pub fn shared_weight_holding(&self, stage: &StageConfig) -> Option<(Holding, i64)> {
        let shared = self.layers().last()?.kind.shared_parameter()?;
        let rows = shared.shape.first().copied().unwrap_or_default();
        let holding = if is_split(rows, stage.tensor_degree) {
            Holding::split_over_shards(stage)
        } else {
            Holding::whole(stage)
        };
        Some((holding, rows))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn holding() -> impl Strategy<Value = Holding> {
        (1_u32..=6, 0_u32..=3, 0..3).prop_map(|(data_degree, power, way)| {
            let stage = stage(data_degree, 1 << power);
            [Holding::of_samples, Holding::split_over_shards, Holding::whole][way as usize](&stage)
        })
    }

    fn stage(data_degree: u32, tensor_degree: u32) -> StageConfig {
        StageConfig { data_degree, tensor_degree, ..StageConfig::single(0, 0) }
    }

    proptest! {
        /// Every receiver gets every row that it is to hold once and in order, and no one sends what it
        /// does not hold.
        #[test]
        fn every_row_arrives_once_from_somebody_who_has_it(
            extent in 1_i64..300, from in holding(), to in holding(),
        ) {
            let transfers = transfers(extent, from, to);
            for receiver in 0..to.ranks() {
                let got: Vec<i64> = transfers
                    .iter()
                    .filter(|transfer| transfer.to == receiver)
                    .flat_map(|transfer| transfer.rows.clone())
                    .collect();
                prop_assert_eq!(got, to.rows(receiver, extent).collect::<Vec<i64>>());
            }
            for transfer in transfers {
                prop_assert!(transfer.from < from.ranks() && transfer.to < to.ranks());
                let held = from.rows(transfer.from, extent);
                prop_assert!(held.start <= transfer.rows.start && transfer.rows.end <= held.end);
                prop_assert!(!transfer.rows.is_empty());
            }
        }

        /// Ranks that hold the same share the work: where their numbers divide each other, all send the same.
        #[test]
        fn sending_is_spread_over_equal_ranks(
            data in 0_u32..=2, senders in 0_u32..=4, receivers in 0_u32..=4,
        ) {
            let (from, to) = (stage(1 << data, 1 << senders), stage(1 << data, 1 << receivers));
            let extent = 256;
            let transfers = transfers(extent, Holding::of_samples(&from), Holding::of_samples(&to));
            let total = extent * i64::from(to.tensor_degree);
            for sender in 0..from.devices() {
                let sent: i64 = transfers
                    .iter()
                    .filter(|transfer| transfer.from == sender)
                    .map(|transfer| transfer.rows.end - transfer.rows.start)
                    .sum();
                prop_assert_eq!(sent, total / i64::from(from.devices()));
            }
        }
    }

    fn rows(extent: i64, from: Holding, to: Holding) -> Vec<(u32, u32, Range<i64>)> {
        transfers(extent, from, to).into_iter().map(|t| (t.from, t.to, t.rows)).collect()
    }

    #[test]
    fn what_was_split_in_two_is_split_in_four_or_joined() {
        let [two, four, one] = [2, 4, 1].map(|replicas| Holding::of_samples(&stage(replicas, 1)));
        assert_eq!(rows(8, two, four), [(0, 0, 0..2), (0, 1, 2..4), (1, 2, 4..6), (1, 3, 6..8)]);
        assert_eq!(rows(8, four, one), [(0, 0, 0..2), (1, 0, 2..4), (2, 0, 4..6), (3, 0, 6..8)]);
        assert_eq!(rows(8, Holding::of_samples(&stage(1, 2)), one), [(0, 0, 0..4), (1, 0, 4..8)]);
    }

    /// Between two stages of equal degrees every rank sends to its counterpart, as Megatron-LM does.
    #[test]
    fn equal_stages_send_straight_on() {
        let mixed = stage(2, 2);
        let samples = Holding::of_samples(&mixed);
        assert_eq!(rows(8, samples, samples), [(0, 0, 0..4), (1, 1, 0..4), (2, 2, 4..8), (3, 3, 4..8)]);
        let vocabulary = Holding::split_over_shards(&mixed);
        let straight = [(0, 0, 0..4), (1, 1, 4..8), (2, 2, 0..4), (3, 3, 4..8)];
        assert_eq!(rows(8, vocabulary, vocabulary), straight);
    }
}
