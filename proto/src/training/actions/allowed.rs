//! Which memory actions a request leaves to be chosen.

use serde::{Deserialize, Serialize};

use super::Block;
use crate::bytes::Bytes;
use crate::choice;
use crate::wire::v1;

/// A way to hold less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// Computing layers again.
    Recompute,
    /// Having blocks in the memory of the host.
    Host,
    /// Having blocks on devices of other stages.
    Peer,
}

choice! {
    Way = v1::MemoryWay {
        Recompute = "recompute",
        Host = "host",
        Peer = "peer",
    }
}

/// What may be chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowed {
    /// Ways to hold less.
    pub ways: Vec<Way>,
    /// Which blocks may be away.
    pub blocks: Vec<Block>,
    /// Memory of each host that blocks may take.
    pub host_memory: Bytes,
    /// Blocks below this size stay: a copy has a price however little it moves.
    pub smallest_block: Bytes,
}

impl Default for Allowed {
    /// All ways, but no memory of hosts; the blocks that no pass but their own layer's uses.
    fn default() -> Self {
        Self {
            ways: Way::ALL.to_vec(),
            blocks: vec![Block::Activations, Block::Gradients, Block::Optimizer],
            host_memory: Bytes(0),
            smallest_block: Bytes(0),
        }
    }
}
