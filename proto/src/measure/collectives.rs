//! How ranks exchange what they add up.

use serde::{Deserialize, Serialize};

use crate::choice;
use crate::wire::v1;

/// How the ranks of a stage exchange what they add up or put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Collectives {
    /// Over sockets, through the host's memory.
    Host,
    /// With NCCL: the run's devices are all different GPUs.
    Nccl,
}

choice! {
    Collectives = v1::LinkTransport, else "must be host or NCCL" {
        Host = "host",
        Nccl = "nccl",
    }
}
