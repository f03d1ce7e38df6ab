//! By which rule parameters come to the device and leave it.

use crate::choice;
use crate::chunks::paging::Eviction;
use crate::wire::v1;

/// What a plan's visits may be made by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ResidencyRule {
    /// Where there is no room the payload leaves whose next use is farthest.
    Belady,
    /// The one whose last use is longest ago.
    Lru,
    /// The one that came first.
    Fifo,
    /// None: all parameters are there from the first step to the last (ZeRO-Offload).
    Static,
}

choice! {
    ResidencyRule = v1::ResidencyRule {
        Belady = "belady",
        Lru = "lru",
        Fifo = "fifo",
        Static = "static",
    }
}

impl ResidencyRule {
    /// Who leaves when there is no room; none where there always is.
    pub fn eviction(self) -> Option<Eviction> {
        match self {
            Self::Belady => Some(Eviction::Belady),
            Self::Lru => Some(Eviction::Lru),
            Self::Fifo => Some(Eviction::Fifo),
            Self::Static => None,
        }
    }
}
