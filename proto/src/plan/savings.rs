//! By what a stage holds less.

use serde::{Deserialize, Serialize};

use crate::bytes::Bytes;
use crate::message;
use crate::wire::v1;

/// Bytes that each device of a stage need not hold at once, by what is done instead (MPress, Table IV): a block counts once for
/// every micro-batch in flight that has one of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SavedBytes {
    /// What is computed again, less the inputs of these layers.
    pub recompute: Bytes,
    /// What is on the host.
    pub host: Bytes,
    /// What is on devices of other stages.
    pub peers: Bytes,
}

message! {
    SavedBytes <=> v1::SavedBytes {
        recompute = recompute_bytes,
        host = host_bytes,
        peers = peer_bytes,
    }
}

impl SavedBytes {
    /// All together.
    #[must_use]
    pub fn all(self) -> Bytes {
        Bytes(self.recompute.0.saturating_add(self.host.0).saturating_add(self.peers.0))
    }

    /// Parts of the whole: on the host, computed again, on peers; all 0 where nothing is saved.
    #[must_use]
    pub fn parts(self) -> [f64; 3] {
        [self.host, self.recompute, self.peers].map(|bytes| bytes.0 as f64 / self.all().0.max(1) as f64)
    }

    /// With those of another stage.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        let sum = |own: Bytes, other: Bytes| Bytes(own.0.saturating_add(other.0));
        Self {
            recompute: sum(self.recompute, other.recompute),
            host: sum(self.host, other.host),
            peers: sum(self.peers, other.peers),
        }
    }
}
