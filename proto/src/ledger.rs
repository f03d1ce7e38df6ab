//! Which account a byte count was read from.

use serde::{Deserialize, Serialize};

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
}

impl Ledger {
    /// Its name in messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allocated => "allocated",
            Self::Reserved => "reserved",
            Self::Device => "device",
        }
    }
}
