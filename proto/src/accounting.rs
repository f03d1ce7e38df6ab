//! Which account a byte count was read from.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::choice;
use crate::choice::Choice;
use crate::error::Invalid;
use crate::wire::v1;

/// The account that a byte count was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Accounting {
    /// Bytes of live tensors.
    #[default]
    Allocated,
    /// Bytes that the allocator holds.
    Reserved,
    /// Bytes in use as the driver sees them.
    Device,
    /// Bytes in the pool of the host that memory optimizations fill.
    Host,
}

impl Accounting {
    /// The same, of bytes of a device.
    ///
    /// # Errors
    /// It is the host's.
    pub fn of_device(self) -> Result<Self, Invalid> {
        match self {
            Self::Host => Err(Invalid::field(
                "",
                "host is the accounting of CPU memory, not of device memory. Use allocated, reserved or device",
            )),
            Self::Allocated | Self::Reserved | Self::Device => Ok(self),
        }
    }
}

/// Reads one of a device from a document.
///
/// # Errors
/// It is none, or the host's.
pub fn of_device<'de, D: Deserializer<'de>>(document: D) -> Result<Accounting, D::Error> {
    let word = String::deserialize(document)?;
    let ledger = Accounting::parse(&word).ok().and_then(|ledger| ledger.of_device().ok());
    ledger.ok_or_else(|| D::Error::unknown_variant(&word, &["allocated", "reserved", "device"]))
}

/// The same, where a document may leave it out.
///
/// # Errors
/// As [`of_device`].
pub fn perhaps_of_device<'de, D: Deserializer<'de>>(document: D) -> Result<Option<Accounting>, D::Error> {
    #[derive(Deserialize)]
    struct Named(#[serde(deserialize_with = "of_device")] Accounting);
    Ok(Option::<Named>::deserialize(document)?.map(|Named(ledger)| ledger))
}

choice! {
    Accounting = v1::MemoryAccounting, else "is not a memory accounting. Use allocated, reserved, device or host" {
        Allocated, Reserved, Device, Host,
    }
}
