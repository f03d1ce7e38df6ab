//! Which share of what is saved is whose (Table IV).

use loadmaster_proto::training::actions::{Block, Deed, Destination};

use super::{Decided, Question};

/// Bytes that devices need not hold at once, by what is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Shares {
    /// On the host.
    pub host: u64,
    /// Computed again.
    pub recompute: u64,
    /// On other devices.
    pub peers: u64,
}

impl Shares {
    pub(super) fn of(question: &Question<'_>, decided: &Decided) -> Self {
        let mut shares = Self::default();
        for (stage, deeds) in decided.deeds.iter().enumerate() {
            let Some(blocks) = question.stages.get(stage) else { continue };
            let in_flight = u64::from(question.in_flight(stage));
            for (&(layer, block), deed) in deeds {
                let each = if block.is_of_micro_batch() { in_flight } else { 1 };
                let bytes = blocks.bytes(layer, block).saturating_mul(each);
                match deed {
                    Deed::Recompute => {
                        let left = blocks.bytes(layer, Block::Inputs).saturating_mul(each);
                        shares.recompute += bytes.saturating_sub(left);
                    }
                    Deed::Swap(swap) if swap.to == Destination::Host => shares.host += bytes,
                    Deed::Swap(_) => shares.peers += bytes,
                }
            }
        }
        shares
    }

    /// All together.
    pub fn all(self) -> u64 {
        self.host + self.recompute + self.peers
    }

    /// Parts of the whole: host, recomputed, peers; all 0 where nothing is saved.
    pub fn parts(self) -> [f64; 3] {
        [self.host, self.recompute, self.peers].map(|bytes| bytes as f64 / self.all().max(1) as f64)
    }
}
