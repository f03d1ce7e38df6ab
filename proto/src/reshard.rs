//! Which rank sends what to whom where two stages of different parallelism meet.
//!
//! What crosses an edge has one axis along which it may be split: the samples of a micro-batch for
//! activations and their gradients, the vocabulary for the gradient of a weight that first and last
//! stage share. Each side either holds all of it on every rank or a slice on each.

use std::ops::Range;

use crate::shard::Shard;
use crate::stage::{Parallelism, StageConfig};

/// How the ranks of a stage hold a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holding {
    /// Every rank holds all rows.
    Whole {
        /// Ranks.
        ranks: u32,
    },
    /// Each rank holds a slice of the rows, in order, as even as possible.
    Split {
        /// Ranks.
        ranks: u32,
    },
}

impl Holding {
    /// How a stage holds the samples of what enters or leaves it.
    pub fn of_samples(stage: &StageConfig) -> Self {
        match stage.parallelism {
            Parallelism::Data => Self::Split { ranks: stage.degree },
            Parallelism::None | Parallelism::Tensor => Self::Whole { ranks: stage.degree },
        }
    }

    /// Its ranks.
    pub fn ranks(self) -> u32 {
        match self {
            Self::Whole { ranks } | Self::Split { ranks } => ranks,
        }
    }

    /// The rows that a rank holds of `extent`.
    pub fn rows(self, rank: u32, extent: i64) -> Range<i64> {
        match self {
            Self::Whole { .. } => 0..extent,
            Self::Split { ranks } => Shard { index: rank, degree: ranks }.range(extent),
        }
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
/// Where all senders hold everything, each receiver is served by its share of them: one sender serves
/// several receivers or several senders share one receiver, so all send about the same.
pub fn transfers(extent: i64, from: Holding, to: Holding) -> Vec<Transfer> {
    let mut transfers = Vec::new();
    for receiver in 0..to.ranks() {
        let wanted = to.rows(receiver, extent);
        match from {
            Holding::Split { ranks } => {
                transfers.extend((0..ranks).map(|sender| {
                    let held = from.rows(sender, extent);
                    let rows = wanted.start.max(held.start)..wanted.end.min(held.end);
                    Transfer { from: sender, to: receiver, rows }
                }));
            }
            Holding::Whole { ranks } => {
                let first = share(receiver, ranks, to.ranks());
                let servers = share(receiver + 1, ranks, to.ranks()).saturating_sub(first).max(1);
                transfers.extend((0..servers).map(|server| {
                    let part = Shard { index: server, degree: servers }.range(wanted.end - wanted.start);
                    let rows = wanted.start + part.start..wanted.start + part.end;
                    Transfer { from: first + server, to: receiver, rows }
                }));
            }
        }
    }
    transfers.retain(|transfer| !transfer.rows.is_empty());
    transfers
}

/// `receiver · senders / receivers`, rounded down.
fn share(receiver: u32, senders: u32, receivers: u32) -> u32 {
    let wide = u64::from(receiver) * u64::from(senders) / u64::from(receivers.max(1));
    u32::try_from(wide).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn holding() -> impl Strategy<Value = Holding> {
        (any::<bool>(), 0_u32..=6).prop_map(|(whole, power)| {
            let ranks = 1 << power;
            if whole { Holding::Whole { ranks } } else { Holding::Split { ranks } }
        })
    }

    proptest! {
        /// Every receiver gets every row that it is to hold once and in order, and nobody sends what it
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

        /// Ranks that all hold everything share the work: none sends more than twice its part.
        #[test]
        fn sending_is_spread_over_replicas(senders in 0_u32..=5, receivers in 0_u32..=5) {
            let (senders, receivers) = (1 << senders, 1 << receivers);
            let extent = 64;
            let transfers = transfers(
                extent, Holding::Whole { ranks: senders }, Holding::Whole { ranks: receivers },
            );
            let total = extent * i64::from(receivers);
            for sender in 0..senders {
                let sent: i64 = transfers
                    .iter()
                    .filter(|transfer| transfer.from == sender)
                    .map(|transfer| transfer.rows.end - transfer.rows.start)
                    .sum();
                prop_assert_eq!(sent, total / i64::from(senders));
            }
        }
    }

    #[test]
    fn what_was_split_in_two_is_split_in_four_or_joined() {
        let [two, four, one] =
            [Holding::Split { ranks: 2 }, Holding::Split { ranks: 4 }, Holding::Whole { ranks: 1 }];
        let rows = |from, to| -> Vec<(u32, u32, Range<i64>)> {
            transfers(8, from, to).into_iter().map(|t| (t.from, t.to, t.rows)).collect()
        };
        assert_eq!(rows(two, four), [(0, 0, 0..2), (0, 1, 2..4), (1, 2, 4..6), (1, 3, 6..8)]);
        assert_eq!(rows(four, one), [(0, 0, 0..2), (1, 0, 2..4), (2, 0, 4..6), (3, 0, 6..8)]);
        assert_eq!(rows(Holding::Whole { ranks: 2 }, one), [(0, 0, 0..4), (1, 0, 4..8)]);
    }
}
