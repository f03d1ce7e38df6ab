//! Link measurements: exchanges between the devices of a worker, and the rates derived from them.
//!
//! Such a run trains nothing. One run per worker is queued, which no other worker may claim (`only_worker_id`). Its ranks
//! exchange tensors of several sizes over the transports of training: each pair of devices back and forth, one pair at a time,
//! and then groups of 2, 4, 8, … devices in all-reduces. A straight line through the medians over the sizes gives bandwidth and
//! latency; the points are stored.
//!
//! Then devices copy as memory optimizations do ([`copies`]). Rates of simultaneous copies (both directions, shared uplinks) come
//! from the largest payload, which noise disturbs least. At last the host runs optimizer steps as trainings in chunks do
//! ([`updates`]), for each rank alone and for all at once. A device alone has no exchange, but the rest.

pub mod copies;
pub mod updates;
mod wire;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::choice;
use crate::cluster::{Link, LinkOrigin};
use crate::error::{Invalid, in_range};
use crate::measure::environment::Environment;
use crate::wire::v1;
use copies::CopyMeasurement;
use updates::DeviceUpdates;

/// What to exchange.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkWork {
    /// Devices, all of one worker.
    pub devices: u32,
    /// Sizes of the tensors, bytes, ascending.
    pub payload_bytes: Vec<u64>,
    /// Timed exchanges of each size, after one that is not timed.
    pub repeats: u32,
}

impl LinkWork {
    /// Most devices: the pairs are measured one after the other.
    pub const MAX_DEVICES: u32 = 64;
    /// Smallest payload, bytes.
    pub const MIN_PAYLOAD_BYTES: u64 = 1 << 10;
    /// Largest payload, bytes.
    pub const MAX_PAYLOAD_BYTES: u64 = 1 << 30;
    /// Most payloads.
    pub const MAX_PAYLOADS: usize = 16;
    /// Most timed exchanges of each size.
    pub const MAX_REPEATS: u32 = 100;
    /// From what latency decides to what bandwidth decides.
    const PAYLOADS: [u64; 6] = [4 << 10, 64 << 10, 512 << 10, 4 << 20, 16 << 20, 64 << 20];
    const REPEATS: u32 = 9;

    /// What suits devices of at least this capacity: a payload and its copy take a quarter of it at most.
    pub fn standard(devices: u32, capacity: u64) -> Self {
        let fits = |&payload: &u64| payload <= (capacity / 8).max(Self::PAYLOADS[1]);
        Self {
            devices,
            payload_bytes: Self::PAYLOADS.into_iter().filter(fits).collect(),
            repeats: Self::REPEATS,
        }
    }

    /// Checks the numbers. A line needs two sizes.
    ///
    /// # Errors
    /// Names the field that is out of range.
    pub fn checked(self) -> Result<Self, Invalid> {
        in_range("devices", self.devices, 1..=Self::MAX_DEVICES)?;
        in_range("repeats", self.repeats, 1..=Self::MAX_REPEATS)?;
        in_range("payload_bytes", self.payload_bytes.len(), 2..=Self::MAX_PAYLOADS)?;
        let mut last = 0;
        for (index, &bytes) in self.payload_bytes.iter().enumerate() {
            let path = format!("payload_bytes[{index}]");
            in_range(&path, bytes, Self::MIN_PAYLOAD_BYTES..=Self::MAX_PAYLOAD_BYTES)?;
            // Tensors are of scalars of 4 bytes.
            if bytes <= last || !bytes.is_multiple_of(4) {
                return Err(invalid!(path, "{bytes} is not valid. Use a multiple of 4 above {last}"));
            }
            last = bytes;
        }
        Ok(self)
    }

    /// The groups that all-reduce: the first 2, 4, 8, … devices, and all; none of one alone.
    pub fn groups(&self) -> Vec<u32> {
        if self.devices < 2 {
            return Vec::new();
        }
        let mut sizes: Vec<u32> =
            (1..).map(|power| 1_u32 << power).take_while(|&size| size < self.devices).collect();
        sizes.push(self.devices);
        sizes
    }

    /// The pairs of devices, in the order in which they exchange.
    pub fn pairs(&self) -> impl Iterator<Item = (u32, u32)> {
        let devices = self.devices;
        (0..devices).flat_map(move |first| (first + 1..devices).map(move |second| (first, second)))
    }
}

/// Seconds of one exchange at one size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkPoint {
    /// Bytes of the tensor.
    pub payload_bytes: u64,
    /// Median seconds of the timed exchanges.
    pub seconds: f64,
}

/// One way between two devices: half of a round trip.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PairLink {
    /// Index of the earlier device.
    pub first: u32,
    /// Index of the later device.
    pub second: u32,
    /// Read from the points.
    pub link: Link,
    /// What was measured, by ascending payload.
    pub points: Vec<LinkPoint>,
}

impl PairLink {
    /// From what was measured, by ascending payload.
    ///
    /// # Errors
    /// When the points give no possible link.
    pub fn new(first: u32, second: u32, points: Vec<LinkPoint>) -> Result<Self, Invalid> {
        Ok(Self { first, second, link: link(&points, 1.0)?, points })
    }
}

/// All-reduce over several devices.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupLink {
    /// Indices of the devices, ascending.
    pub devices: Vec<u32>,
    /// The link that a ring over the devices would have: each of n sends 2 (n − 1) / n of the payload.
    pub link: Link,
    /// What was measured, by ascending payload.
    pub points: Vec<LinkPoint>,
}

impl GroupLink {
    /// From what was measured, by ascending payload.
    ///
    /// # Errors
    /// When the points give no possible link.
    pub fn new(devices: Vec<u32>, points: Vec<LinkPoint>) -> Result<Self, Invalid> {
        let link = link(&points, Self::ring_share(devices.len()))?;
        Ok(Self { devices, link, points })
    }

    /// The share of the payload that each of n devices sends in a ring: 2 (n − 1) / n.
    pub fn ring_share(devices: usize) -> f64 {
        let devices = devices.max(1) as f64;
        2.0 * (devices - 1.0) / devices
    }
}

/// What one rank of a run that measures links has found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RankLinks {
    /// Which rank.
    pub index: u32,
    /// Id of its device.
    pub device_id: String,
    /// How it exchanged: NCCL that is not there gives way to the host.
    pub transport: Collectives,
    /// The pairs whose earlier member it is.
    pub pairs: Vec<PairLink>,
    /// The groups, from the first rank alone.
    pub groups: Vec<GroupLink>,
    /// Its software and device.
    pub environment: Environment,
    /// Its own copies, and those of the pairs whose earlier member it is; none of ranks that cannot copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies: Option<CopyMeasurement>,
    /// What the host updates for it; none of ranks that did not measure it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updates: Option<DeviceUpdates>,
}

/// What a run of this kind yields. Indices of devices count `device_ids`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkMeasurement {
    /// The worker's devices that took part.
    pub device_ids: Vec<String>,
    /// How they exchanged.
    pub transport: Collectives,
    /// Every pair of devices, each once.
    pub pairs: Vec<PairLink>,
    /// By ascending number of devices.
    pub groups: Vec<GroupLink>,
    /// Software and devices.
    pub environment: Environment,
    /// How fast memory optimizations copy; none of workers that did not measure it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies: Option<CopyMeasurement>,
    /// How fast the host updates parameters for each device; empty of workers that did not measure it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub updates: Vec<DeviceUpdates>,
}

impl LinkMeasurement {
    /// Longest id of a device.
    const MAX_DEVICE_ID: usize = 128;

    /// What the ranks of a run have found, put together in their order.
    ///
    /// # Errors
    /// When something is missing, there twice, or not possible.
    pub fn of_ranks(ranks: Vec<RankLinks>) -> Result<Self, Invalid> {
        let mut whole = Self {
            device_ids: Vec::with_capacity(ranks.len()),
            transport: ranks.first().map_or(Collectives::Host, |rank| rank.transport),
            pairs: Vec::new(),
            groups: Vec::new(),
            environment: ranks.first().map(|rank| rank.environment.clone()).unwrap_or_default(),
            copies: ranks.iter().all(|rank| rank.copies.is_some()).then(CopyMeasurement::default),
            updates: Vec::new(),
        };
        let have_updated = ranks.iter().all(|rank| rank.updates.is_some());
        for (index, rank) in (0..).zip(ranks) {
            in_range("index", rank.index, index..=index)?;
            whole.device_ids.push(rank.device_id);
            whole.pairs.extend(rank.pairs);
            whole.groups.extend(rank.groups);
            if let (Some(all), Some(own)) = (&mut whole.copies, rank.copies) {
                all.devices.extend(own.devices);
                all.pairs.extend(own.pairs);
            }
            whole.updates.extend(rank.updates.filter(|_| have_updated));
        }
        whole.checked()
    }

    /// Checks that all is there and possible.
    ///
    /// # Errors
    /// Names the field that is missing or wrong.
    pub fn checked(self) -> Result<Self, Invalid> {
        let devices = u32::try_from(self.device_ids.len()).unwrap_or(u32::MAX);
        in_range("device_ids", devices, 1..=LinkWork::MAX_DEVICES)?;
        let mut ids = BTreeSet::new();
        for (index, id) in self.device_ids.iter().enumerate() {
            if id.is_empty() || id.len() > Self::MAX_DEVICE_ID || !ids.insert(id) {
                let why = format!(
                    "{id:?} is not a valid id: it is empty, longer than {} bytes, or listed twice",
                    Self::MAX_DEVICE_ID
                );
                return Err(Invalid::field(format!("device_ids[{index}]"), why));
            }
        }
        let every: Vec<(u32, u32)> =
            LinkWork { devices, payload_bytes: Vec::new(), repeats: 1 }.pairs().collect();
        let mut pairs: Vec<(u32, u32)> = self.pairs.iter().map(|pair| (pair.first, pair.second)).collect();
        pairs.sort_unstable();
        if pairs != every {
            let why = format!("{} pairs are listed. List each of {} pairs once", pairs.len(), every.len());
            return Err(Invalid::field("pairs", why));
        }
        for (index, pair) in self.pairs.iter().enumerate() {
            check(&pair.link, &pair.points).map_err(|invalid| invalid.under(&format!("pairs[{index}]")))?;
        }
        let fewest = usize::from(devices > 1);
        in_range("groups", self.groups.len(), fewest..=fewest * LinkWork::MAX_DEVICES as usize)?;
        if devices == 1 && self.copies.is_none() && self.updates.is_empty() {
            return Err(Invalid::field(
                "copies",
                "are missing. A single device has no links to other devices, only copies to and from CPU memory. \
                 Measure these copies, or request at least two devices",
            ));
        }
        for (index, group) in self.groups.iter().enumerate() {
            let path = format!("groups[{index}]");
            let ascends = group.devices.windows(2).all(|pair| pair[0] < pair[1]);
            if group.devices.len() < 2 || !ascends || group.devices.last() >= Some(&devices) {
                let why = format!(
                    "{:?} is not a valid group of ranks. Use at least two of the {devices} ranks, in ascending order",
                    group.devices
                );
                return Err(Invalid::field(format!("{path}.devices"), why));
            }
            check(&group.link, &group.points).map_err(|invalid| invalid.under(&path))?;
        }
        if let Some(copies) = &self.copies {
            copies.check(devices).map_err(|invalid| invalid.under("copies"))?;
        }
        if !self.updates.is_empty() {
            updates::check(&self.updates, devices)?;
        }
        Ok(self)
    }
}

fn check(link: &Link, points: &[LinkPoint]) -> Result<(), Invalid> {
    link.check()?;
    in_range("points", points.len(), 2..=LinkWork::MAX_PAYLOADS)?;
    let mut last = 0;
    for (index, point) in points.iter().enumerate() {
        let path = format!("points[{index}]");
        let invalid = |invalid: Invalid| invalid.under(&path);
        in_range("payload_bytes", point.payload_bytes, last + 1..=LinkWork::MAX_PAYLOAD_BYTES)
            .map_err(invalid)?;
        in_range("seconds", point.seconds, f64::MIN_POSITIVE..=MAX_SECONDS).map_err(invalid)?;
        last = point.payload_bytes;
    }
    Ok(())
}

#[cfg(test)]
mod tests;

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
    Collectives = v1::LinkTransport, else "is not a transport between ranks. Use host (through CPU memory) or NCCL" {
        Host,
        Nccl,
    }
}

/// Longest exchange that is believed, seconds.
const MAX_SECONDS: f64 = 3_600.0;

/// The link of seconds = latency + share · payload / bandwidth: the line with the least squares of the
/// *relative* residuals, so that the smallest payloads, which show the latency, count as much as the largest.
///
/// Where noise makes that line fall, or meet a payload of nothing below zero, the link has no latency and
/// the bandwidth that explains the points best.
///
/// # Errors
/// When there are no points, or their seconds are not possible.
fn link(points: &[LinkPoint], share: f64) -> Result<Link, Invalid> {
    let mut sums = Sums::default();
    for point in points {
        if !(point.seconds > 0.0 && point.seconds <= MAX_SECONDS) {
            let why = format!("has {} seconds. Use a value above 0 and at most {MAX_SECONDS}", point.seconds);
            return Err(Invalid::field("points", why));
        }
        sums.add(share * point.payload_bytes as f64, point.seconds);
    }
    let (latency_seconds, seconds_per_byte) = sums.line().unwrap_or_else(|| (0.0, sums.through_origin()));
    let bytes_per_second = (1.0 / seconds_per_byte).min(Link::MAX_BYTES_PER_SECOND);
    let link = Link { bytes_per_second, latency_seconds, origin: LinkOrigin::Measured };
    link.check()?;
    Ok(link)
}

/// Sums of weighted least squares; a point weighs 1 / seconds².
#[derive(Debug, Default)]
struct Sums {
    weights: f64,
    bytes: f64,
    squares: f64,
    seconds: f64,
    products: f64,
}

impl Sums {
    fn add(&mut self, bytes: f64, seconds: f64) {
        let weight = 1.0 / (seconds * seconds);
        self.weights += weight;
        self.bytes += weight * bytes;
        self.squares += weight * bytes * bytes;
        self.seconds += weight * seconds;
        self.products += weight * bytes * seconds;
    }

    /// Latency and seconds per byte, where both are possible.
    fn line(&self) -> Option<(f64, f64)> {
        let determinant = self.weights * self.squares - self.bytes * self.bytes;
        let slope = (self.weights * self.products - self.bytes * self.seconds) / determinant;
        let latency = (self.seconds * self.squares - self.bytes * self.products) / determinant;
        let is_possible = slope.is_finite() && slope > 0.0 && latency.is_finite() && latency >= 0.0;
        is_possible.then_some((latency, slope))
    }

    fn through_origin(&self) -> f64 {
        self.products / self.squares
    }
}
