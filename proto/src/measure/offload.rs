//! What memory actions moved in a run.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::bytes::Bytes;
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

message! {
    CopyPace <=> v1::CopyPace { host = host_bytes_per_second, peer = peer_bytes_per_second } check CopyPace::checked
}

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

impl CopyPace {
    /// The fastest copies that anything is said to have.
    pub const MAX: f64 = 1e15;

    fn checked(self) -> Result<Self, Invalid> {
        for (field, rate) in [("host_bytes_per_second", self.host), ("peer_bytes_per_second", self.peer)] {
            rate.map_or(Ok(1.0), |rate| in_range(field, rate, 1.0..=Self::MAX))?;
        }
        Ok(self)
    }

    /// Whether nothing is said.
    pub fn is_free(&self) -> bool {
        *self == Self::default()
    }
}

/// What is no pace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no pace of copies: write host=RATE, peer=RATE or both with a comma between, for example host=1GB/s,peer=8GiB/s"
)]
pub struct ParseCopyPaceError(String);

impl FromStr for CopyPace {
    type Err = ParseCopyPaceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseCopyPaceError(text.to_owned());
        let mut pace = Self::default();
        for part in text.split(',') {
            let (link, rate) = part.split_once('=').ok_or_else(wrong)?;
            let of_link = match link.trim() {
                "host" => &mut pace.host,
                "peer" => &mut pace.peer,
                _ => return Err(wrong()),
            };
            if of_link.replace(rate_of(rate).ok_or_else(wrong)?).is_some() {
                return Err(wrong());
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
            write!(f, "{}{link}={:.2}GB/s", if position == 0 { "" } else { "," }, rate / 1e9)?;
        }
        Ok(())
    }
}

/// Bytes per second: decimal units as makers of links write them, or binary ones.
fn rate_of(text: &str) -> Option<f64> {
    const UNITS: [(&str, f64); 8] = [
        ("KiB", 1024.0),
        ("MiB", 1_048_576.0),
        ("GiB", 1_073_741_824.0),
        ("TiB", 1_099_511_627_776.0),
        ("KB", 1e3),
        ("MB", 1e6),
        ("GB", 1e9),
        ("TB", 1e12),
    ];
    let text = text.trim().strip_suffix("/s")?;
    let (number, unit) = UNITS
        .into_iter()
        .find_map(|(unit, size)| Some((text.strip_suffix(unit)?, size)))
        .or_else(|| Some((text.strip_suffix('B')?, 1.0)))?;
    let rate = number.trim().parse::<f64>().ok()? * unit;
    (1.0..=CopyPace::MAX).contains(&rate).then_some(rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_is_read_with_its_units() {
        let pace = |text: &str| text.parse::<CopyPace>().map(|pace| (pace.host, pace.peer));
        assert_eq!(pace("host=1GB/s,peer=8GB/s"), Ok((Some(1e9), Some(8e9))));
        assert_eq!(pace("peer=1.5MiB/s"), Ok((None, Some(1_572_864.0))));
        assert_eq!(pace("host=100B/s"), Ok((Some(100.0), None)));
        for wrong in [
            "",
            "host",
            "host=1GB",
            "host=0GB/s",
            "host=-1GB/s",
            "link=1GB/s",
            "host=1B/s,host=2B/s",
            "host=nanGB/s",
        ] {
            assert!(pace(wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            "host=1GB/s,peer=8GB/s".parse::<CopyPace>().unwrap().to_string(),
            "host=1.00GB/s,peer=8.00GB/s"
        );
    }
}
