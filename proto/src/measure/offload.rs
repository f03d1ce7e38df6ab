//! What memory actions moved in a run.

use serde::{Deserialize, Serialize};

use crate::bytes::Bytes;
use crate::cluster::Link;
use crate::error::{Invalid, in_range};
use crate::message;
use crate::wire::v1;

/// What memory actions moved in a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Offload {
    /// Highest bytes in the pool of the host.
    pub host_peak: Bytes,
    /// Highest bytes that other stages had on this device; the pools for them count whole in the device's own peak.
    pub hosted_peak: Bytes,
    /// Its copies, by where they go, the host first.
    pub copies: Vec<CopyCount>,
}

/// Copies between a device and one other place in one iteration.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct CopyCount {
    /// The stage on whose device blocks were; none for the host.
    pub peer: Option<u32>,
    /// Bytes that left the device.
    pub out_bytes: u64,
    /// Bytes that came back.
    pub in_bytes: u64,
    /// Seconds in which the device waited for these copies: the median over the measured iterations.
    pub waited_seconds: f64,
}

message! { Offload <=> v1::Offload { host_peak = host_peak_bytes, hosted_peak = hosted_peak_bytes, copies } }

message! { CopyCount <=> v1::CopyCount { peer, out_bytes, in_bytes, waited_seconds } check checked }

fn checked(copies: CopyCount) -> Result<CopyCount, Invalid> {
    in_range("waited_seconds", copies.waited_seconds, 0.0..=f64::MAX)?;
    Ok(copies)
}

/// How fast the copies of a CPU slot may be, bytes per second, so that it shows a server's trade-offs; as fast as they
/// can where none.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CopyPace {
    /// To and from the host, each way.
    pub host: Option<f64>,
    /// To and from each peer, each way.
    pub peer: Option<f64>,
}

message! {
    CopyPace <=> v1::CopyPace { host = host_bytes_per_second, peer = peer_bytes_per_second } check possible
}

fn possible(pace: CopyPace) -> Result<CopyPace, Invalid> {
    for (field, rate) in [("host_bytes_per_second", pace.host), ("peer_bytes_per_second", pace.peer)] {
        if let Some(rate) = rate {
            in_range(field, rate, CopyPace::SLOWEST..=CopyPace::FASTEST)?;
        }
    }
    Ok(pace)
}

impl CopyPace {
    /// Slowest pace, bytes per second: a copy must end before its rank counts as hanging.
    pub const SLOWEST: f64 = 1e3;
    /// Fastest pace, bytes per second.
    pub const FASTEST: f64 = Link::MAX_BYTES_PER_SECOND;

    /// Whether nothing is slower than it can be.
    pub fn is_free(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_that_cannot_be_is_refused_by_its_link() {
        let paces = |host, peer| v1::CopyPace { host_bytes_per_second: host, peer_bytes_per_second: peer };
        assert!(CopyPace::try_from(paces(None, None)).unwrap().is_free());
        let pace = CopyPace::try_from(paces(None, Some(8e9))).unwrap();
        assert_eq!(pace, CopyPace { host: None, peer: Some(8e9) });
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let refused = CopyPace::try_from(paces(Some(wrong), None)).unwrap_err();
            assert_eq!(refused.violations()[0].field, "host_bytes_per_second");
            let refused = CopyPace::try_from(paces(Some(1e9), Some(wrong))).unwrap_err();
            assert_eq!(refused.violations()[0].field, "peer_bytes_per_second");
        }
    }
}
