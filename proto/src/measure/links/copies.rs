//! How fast memory optimizations copy: between a device and the host's memory, and into the memory of another device.
//!
//! What is timed is what a rank's mover does: one side copies, the other one takes no part. Each way alone, both at once,
//! and one way while all devices of the worker do the same.

use serde::{Deserialize, Serialize};

use super::{LinkPoint, LinkWork, check};
use crate::cluster::{CopyLink, Link};
use crate::error::Invalid;

/// Copies one way, or of both ways together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CopyWay {
    /// Read from the points.
    pub link: Link,
    /// What was measured, by ascending payload.
    pub points: Vec<LinkPoint>,
}

impl CopyWay {
    /// From what was measured, by ascending payload, of so many payloads at once.
    ///
    /// # Errors
    /// When the points give no possible link.
    pub fn new(points: Vec<LinkPoint>, at_once: u32) -> Result<Self, Invalid> {
        Ok(Self { link: super::link(&points, f64::from(at_once))?, points })
    }

    /// Bytes per second with the largest payload, of so many at once. Of all that is read from the points this is what a busy
    /// machine disturbs least.
    fn reached(&self, at_once: u32) -> f64 {
        let reached = |point: &LinkPoint| f64::from(at_once) * point.payload_bytes as f64 / point.seconds;
        let [least, most] = [Link::MIN_BYTES_PER_SECOND, Link::MAX_BYTES_PER_SECOND];
        self.points.last().map_or(least, reached).clamp(least, most)
    }

    fn check(&self) -> Result<(), Invalid> {
        check(&self.link, &self.points)
    }
}

/// Copies between a device and one place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CopySpeeds {
    /// To the place, alone.
    pub out: CopyWay,
    /// From it, alone.
    pub back: CopyWay,
    /// Both at once, together; none where devices cannot be told to do both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub both: Option<CopyWay>,
}

impl CopySpeeds {
    /// From this share of the sum of both ways on they are taken not to slow each other down.
    const FREE: f64 = 0.9;

    /// As clusters describe it: full duplex, unless both ways at once were clearly slower than each alone.
    pub fn link(&self) -> CopyLink {
        let sum = self.out.reached(1) + self.back.reached(1);
        let both = self.both.as_ref().map(|both| both.reached(2)).filter(|&both| both < Self::FREE * sum);
        CopyLink { out: self.out.link, back: self.back.link, both_bytes_per_second: both }
    }

    fn check(&self) -> Result<(), Invalid> {
        self.out.check().map_err(|invalid| invalid.under("out"))?;
        self.back.check().map_err(|invalid| invalid.under("back"))?;
        self.both.as_ref().map_or(Ok(()), |both| both.check().map_err(|invalid| invalid.under("both")))
    }
}

/// Copies of one device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceCopies {
    /// Index of the device.
    pub device: u32,
    /// To the host's memory and back.
    pub host: CopySpeeds,
    /// To the host's memory while all devices copy there.
    pub all_out: CopyWay,
    /// From the host's memory while all devices copy from there.
    pub all_back: CopyWay,
    /// Into the next device's memory, the last one's into the first one's, while all devices do; none where devices cannot
    /// copy into others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all_next: Option<CopyWay>,
}

/// Copies of the earlier one of two devices into the memory of the later one, and from there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PairCopies {
    /// Index of the earlier device: it copies.
    pub first: u32,
    /// Index of the later device, whose memory it is.
    pub second: u32,
    /// How fast.
    pub copies: CopySpeeds,
}

/// Copies of some devices.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CopyMeasurement {
    /// Each device, in order.
    pub devices: Vec<DeviceCopies>,
    /// Each pair, in order; none where devices cannot copy into others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pairs: Vec<PairCopies>,
}

impl CopyMeasurement {
    /// From this share of the sum of all alone on devices are taken not to slow each other down.
    const FREE: f64 = CopySpeeds::FREE;

    /// Checks that all is there for so many devices, and possible.
    pub(super) fn check(&self, devices: u32) -> Result<(), Invalid> {
        if !self.devices.iter().map(|of| of.device).eq(0..devices) {
            let why = format!(
                "has {} entries, which do not match the {devices} ranks. List each rank once, in order",
                self.devices.len()
            );
            return Err(Invalid::field("devices", why));
        }
        for (index, of) in self.devices.iter().enumerate() {
            let under =
                |invalid: Invalid, name: &str| invalid.under(name).under(&format!("devices[{index}]"));
            let ways = [
                ("all_out", Some(&of.all_out)),
                ("all_back", Some(&of.all_back)),
                ("all_next", of.all_next.as_ref()),
            ];
            of.host.check().map_err(|invalid| under(invalid, "host"))?;
            for (name, way) in ways {
                way.map_or(Ok(()), CopyWay::check).map_err(|invalid| under(invalid, name))?;
            }
        }
        let every = LinkWork { devices, payload_bytes: Vec::new(), repeats: 1 };
        let is_each = self.pairs.iter().map(|pair| (pair.first, pair.second)).eq(every.pairs());
        if !self.pairs.is_empty() && !is_each {
            let why = format!(
                "has {} pairs, which do not match the pairs of the {devices} devices. List each pair once, in order, \
                 or list no pairs",
                self.pairs.len()
            );
            return Err(Invalid::field("pairs", why));
        }
        for (index, pair) in self.pairs.iter().enumerate() {
            pair.copies
                .check()
                .map_err(|invalid| invalid.under("copies").under(&format!("pairs[{index}]")))?;
        }
        Ok(())
    }

    /// Checks that no payload is larger than this.
    ///
    /// # Errors
    /// Names the list of points.
    pub fn check_payloads(&self, largest: u64) -> Result<(), Invalid> {
        let known = |path: String, way: &CopyWay| {
            let is_small = way.points.iter().all(|point| point.payload_bytes <= largest);
            let why = format!("has a payload above {largest} bytes, the largest requested size. Remove it");
            if is_small { Ok(()) } else { Err(Invalid::field(format!("{path}.points"), why)) }
        };
        let speeds = |path: &str, of: &CopySpeeds| {
            let ways = [("out", Some(&of.out)), ("back", Some(&of.back)), ("both", of.both.as_ref())];
            let mut ways = ways.into_iter().filter_map(|(name, way)| Some((name, way?)));
            ways.try_for_each(|(name, way)| known(format!("{path}.{name}"), way))
        };
        for (index, of) in self.devices.iter().enumerate() {
            let path = format!("devices[{index}]");
            speeds(&format!("{path}.host"), &of.host)?;
            known(format!("{path}.all_out"), &of.all_out)?;
            known(format!("{path}.all_back"), &of.all_back)?;
            of.all_next.as_ref().map_or(Ok(()), |way| known(format!("{path}.all_next"), way))?;
        }
        for (index, pair) in self.pairs.iter().enumerate() {
            speeds(&format!("pairs[{index}].copies"), &pair.copies)?;
        }
        Ok(())
    }

    /// Bytes per second, in each direction, of what some devices have together to the host; none where they do not slow each
    /// other down.
    pub fn shared_by(&self, devices: &[u32]) -> Option<f64> {
        let those = || self.devices.iter().filter(|of| devices.contains(&of.device));
        let sum =
            |rate: fn(&DeviceCopies) -> &CopyWay| -> f64 { those().map(|of| rate(of).reached(1)).sum() };
        let ways = [
            (sum(|of| &of.all_out), sum(|of| &of.host.out)),
            (sum(|of| &of.all_back), sum(|of| &of.host.back)),
        ];
        let slowed = ways.into_iter().filter(|(all, alone)| *all < Self::FREE * alone);
        let least = slowed.map(|(all, _)| all).reduce(f64::min).filter(|_| those().count() > 1);
        least.map(|least| least.min(Link::MAX_BYTES_PER_SECOND))
    }
}

impl LinkWork {
    /// Payloads of copies: a line needs two.
    const COPIED: usize = 2;
    /// Largest payload of copies where smaller ones tell as much.
    const LARGEST_COPIED: u64 = 16 << 20;
    /// Seconds that a copy at a given pace takes at most: many are timed.
    const PACED_SECONDS: f64 = 0.02;

    /// Sizes of copies that are no faster than this, bytes, ascending: the largest two up to 16 MiB, or two that end soon at
    /// their pace.
    pub fn copied_bytes(&self, bytes_per_second: Option<f64>) -> Vec<u64> {
        let small = self.payload_bytes.partition_point(|&bytes| bytes <= Self::LARGEST_COPIED);
        let end = small.max(Self::COPIED).min(self.payload_bytes.len());
        let usual = self.payload_bytes.get(end.saturating_sub(Self::COPIED)..end).unwrap_or_default();
        let largest = usual.last().copied().unwrap_or_default();
        // Tensors are of scalars of 4 bytes.
        let soon = bytes_per_second.map_or(u64::MAX, |pace| (pace * Self::PACED_SECONDS) as u64 / 16 * 4);
        if soon.saturating_mul(4) >= largest {
            return usual.to_vec();
        }
        let least = soon.max(4);
        vec![least, 4 * least]
    }
}
