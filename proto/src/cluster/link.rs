//! How fast devices exchange bytes.

use serde::{Deserialize, Serialize};

use crate::choice;
use crate::error::Invalid;
use crate::wire::v1;

/// Where a link's speed comes from, the most trustworthy first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkOrigin {
    /// Measured between these devices.
    Measured,
    /// A user wrote it down.
    Given,
    /// What links of this class usually do.
    Assumed,
}

choice! { LinkOrigin = v1::SpeedOrigin { Measured, Given, Assumed } }

/// How fast devices exchange bytes, one way.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// Bytes per second, above 0.
    pub bytes_per_second: f64,
    /// Seconds before the first byte arrives.
    pub latency_seconds: f64,
    /// Where the two come from.
    pub origin: LinkOrigin,
}

impl Link {
    /// Fastest link that is believed, bytes per second.
    pub const MAX_BYTES_PER_SECOND: f64 = 1e15;
    /// Slowest link that is believed: the fields of a wire message hold whole bytes per second.
    pub const MIN_BYTES_PER_SECOND: f64 = 1.0;
    /// Longest latency that is believed, seconds.
    pub const MAX_LATENCY_SECONDS: f64 = 100.0;

    /// The worse of both in every respect.
    #[must_use]
    pub fn slower(self, other: Self) -> Self {
        Self {
            bytes_per_second: self.bytes_per_second.min(other.bytes_per_second),
            latency_seconds: self.latency_seconds.max(other.latency_seconds),
            origin: self.origin.max(other.origin),
        }
    }

    /// The better of both in every respect.
    #[must_use]
    pub fn faster(self, other: Self) -> Self {
        Self {
            bytes_per_second: self.bytes_per_second.max(other.bytes_per_second),
            latency_seconds: self.latency_seconds.min(other.latency_seconds),
            origin: self.origin.max(other.origin),
        }
    }

    /// Checks that both numbers are possible.
    ///
    /// # Errors
    /// Names `bandwidth` or `latency`: zero, negative, not finite, or beyond belief.
    pub fn check(&self) -> Result<(), Invalid> {
        let Self { bytes_per_second, latency_seconds, origin: _ } = *self;
        if !(Self::MIN_BYTES_PER_SECOND..=Self::MAX_BYTES_PER_SECOND).contains(&bytes_per_second) {
            let most = Self::MAX_BYTES_PER_SECOND;
            let why = format!("{bytes_per_second} bytes per second is out of range. Use 1 to {most:e}");
            return Err(Invalid::field("bandwidth", why));
        }
        if !(0.0..=Self::MAX_LATENCY_SECONDS).contains(&latency_seconds) {
            let why =
                format!("{latency_seconds} s is out of range. Use 0 to {} s", Self::MAX_LATENCY_SECONDS);
            return Err(Invalid::field("latency", why));
        }
        Ok(())
    }
}

/// What connects two devices of a node, as `nvidia-smi topo`, NCCL and RCCL name it, the nearest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkClass {
    /// `NV#`: NVLink, directly or through NVSwitches.
    NvLink,
    /// `C2C`: NVLink between the chips of one package.
    ChipToChip,
    /// `XGMI`: Infinity Fabric between AMD's devices.
    Xgmi,
    /// `PIX`: at most one PCIe bridge.
    PcieBridge,
    /// `PXB`: several PCIe bridges, no host bridge.
    PcieBridges,
    /// `PHB`: a PCIe host bridge, normally the processor's.
    HostBridge,
    /// `NODE`: host bridges within a NUMA node.
    NumaNode,
    /// `SYS`: the interconnect between NUMA nodes; and between CPU slots, the host's memory.
    System,
}

// As `nvidia-smi topo` writes it; `NV` without the number of links.
choice! {
    LinkClass = v1::LinkClass {
        NvLink = "NV" as Nvlink,
        ChipToChip = "C2C" as C2c,
        Xgmi = "XGMI" as Xgmi,
        PcieBridge = "PIX" as Pix,
        PcieBridges = "PXB" as Pxb,
        HostBridge = "PHB" as Phb,
        NumaNode = "NODE" as Node,
        System = "SYS" as Sys,
    }
}

impl LinkClass {
    /// From what `nvidia-smi topo` writes, `NV18` with the number of links in it.
    pub fn parse(text: &str) -> Option<(Self, u32)> {
        if let Some(count) = text.strip_prefix("NV") {
            return count.parse().ok().filter(|&count| count > 0).map(|count| (Self::NvLink, count));
        }
        Self::ALL.into_iter().find(|class| class.as_str() == text).map(|class| (class, 1))
    }
}
