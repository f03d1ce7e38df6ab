//! What memory optimizations moved in a run.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::bytes::Bytes;
use crate::cluster::{Link, quantity};
use crate::error::{Invalid, in_range};
use crate::message;
use crate::wire::v1;

/// What memory optimizations moved in a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Offload {
    /// Highest bytes in the pool of the host.
    pub host_peak: Bytes,
    /// Highest bytes that other stages had on this device; the pools for them count whole in the device's own peak.
    pub peer_pool_peak: Bytes,
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

message! { Offload <=> v1::OffloadTraffic { host_peak = host_peak_bytes, peer_pool_peak = peer_pool_peak_bytes, copies = copy_traffic } }

message! { CopyCount <=> v1::CopyTraffic { peer, out_bytes = sent_bytes, in_bytes = received_bytes, waited_seconds } check checked }

fn checked(copies: CopyCount) -> Result<CopyCount, Invalid> {
    in_range("waited_seconds", copies.waited_seconds, 0.0..=f64::MAX)?;
    Ok(copies)
}

/// How fast copies are, bytes per second. Of a CPU slot: how fast they may be, so that it shows a server's trade-offs.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CopyPace {
    /// To and from the host, each way; none where nothing is said.
    pub host: Option<f64>,
    /// To and from each peer, each way; none where nothing is said.
    pub peer: Option<f64>,
}

message! {
    CopyPace <=> v1::CopyBandwidth { host = host_bytes_per_second, peer = peer_bytes_per_second } check possible
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

/// `host=1GB/s,peer=8GB/s`, or one of the two.
impl FromStr for CopyPace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut pace = Self::default();
        for part in text.split(',') {
            let hint = "use host=RATE, peer=RATE or both, for example host=1GB/s,peer=8GB/s";
            let (link, rate) =
                part.split_once('=').ok_or_else(|| format!("{part:?} is not a copy rate: {hint}"))?;
            let given = match link.trim() {
                "host" => &mut pace.host,
                "peer" => &mut pace.peer,
                other => return Err(format!("{other:?} is not a kind of link: {hint}")),
            };
            let rate = quantity::bytes_per_second(rate)?;
            if !(Self::SLOWEST..=Self::FASTEST).contains(&rate) {
                let [least, most] = [Self::SLOWEST, Self::FASTEST].map(quantity::show_bytes_per_second);
                return Err(format!("{part:?} is out of range. Use {least} to {most} (bytes per second)"));
            }
            if given.replace(rate).is_some() {
                return Err(format!("has {} twice. Set it once", link.trim()));
            }
        }
        Ok(pace)
    }
}

impl fmt::Display for CopyPace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let links = [("host", self.host), ("peer", self.peer)];
        let said = links.into_iter().filter_map(|(link, rate)| Some((link, rate?)));
        for (position, (link, rate)) in said.enumerate() {
            let comma = if position == 0 { "" } else { ", " };
            write!(f, "{comma}{link} {}", quantity::show_bytes_per_second(rate))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_named_each_once_with_their_rate() {
        let pace = |host, peer| Ok(CopyPace { host, peer });
        assert_eq!("host=1GB/s,peer=8GB/s".parse(), pace(Some(1e9), Some(8e9)));
        assert_eq!(" peer = 1.5GiB/s".parse(), pace(None, Some(1.5 * 1024.0 * 1024.0 * 1024.0)));
        assert_eq!("host=250MB/s".parse(), pace(Some(250e6), None));
        for (wrong, why) in [
            ("", "is not a copy rate"),
            ("1GB/s", "is not a copy rate"),
            ("host=1GB/s,", "is not a copy rate"),
            ("disk=1GB/s", "\"disk\" is not a kind of link"),
            ("host=1GB/s,host=2GB/s", "has host twice"),
            ("host=", "is not a bandwidth"),
            ("host=fast", "is not a bandwidth"),
            ("host=0", "Use 1 kB/s to"),
            ("peer=-8GB/s", "Use 1 kB/s to"),
            ("peer=9999TB/s", "Use 1 kB/s to"),
        ] {
            let error = wrong.parse::<CopyPace>().unwrap_err();
            assert!(error.contains(why), "{wrong:?}: {error}");
        }
    }

    #[test]
    fn a_pace_that_cannot_be_is_refused_by_its_link() {
        let paces =
            |host, peer| v1::CopyBandwidth { host_bytes_per_second: host, peer_bytes_per_second: peer };
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
