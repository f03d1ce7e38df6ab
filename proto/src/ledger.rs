//! Which account a byte count was read from.

use serde::{Deserialize, Serialize};

use crate::choice;
use crate::wire::v1;

/// The account that a byte count was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ledger {
    /// Bytes of live tensors.
    #[default]
    Allocated,
    /// Bytes that the allocator holds.
    Reserved,
    /// Bytes in use as the driver sees them.
    Device,
    /// Bytes in the pool of the host that memory actions fill.
    Host,
}

choice! {
    Ledger = v1::Ledger, else "must be one of the four ledgers" {
        Allocated = "allocated",
        Reserved = "reserved",
        Device = "device",
        Host = "host",
    }
}
