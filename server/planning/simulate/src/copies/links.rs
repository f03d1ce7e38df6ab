//! What copies go over.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A direction of a link: one lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Way {
    /// From a device to its host's memory.
    ToHost(u32),
    /// Back from there.
    FromHost(u32),
    /// From one device to another on the same node.
    Between {
        /// The sender.
        from: u32,
        /// The receiver.
        to: u32,
    },
}

/// How fast a way is when nothing else is copied.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// At least 1.
    pub bytes_per_second: f64,
    /// Seconds of each copy before its first byte.
    pub latency_seconds: f64,
    /// How much of a CPU core a copy at this speed takes, where slots share [`Cores`]: less than 1 where it is paced.
    pub core_share: f64,
}

/// Ways whose copies together are no faster than this.
#[derive(Debug, Clone, PartialEq)]
pub struct Shared {
    /// The ways, each once.
    pub ways: Vec<Way>,
    /// All of them together. At least 1.
    pub bytes_per_second: f64,
}

/// The CPU cores of a node whose slots are devices.
#[derive(Debug, Clone, PartialEq)]
pub struct Cores {
    /// The slots that compute on them, each device as often as it stands for several that do the same. A step takes one core
    /// of each, and a copy the [`Rate::core_share`] of its way; it is the device's own whose block it is.
    pub devices: Vec<u32>,
    /// How many there are, counted in what a step takes.
    pub cores: f64,
    /// How many times as long as alone a step takes while steps keep all of them busy, at least 1. With fewer it is less, in
    /// proportion to how many there are besides.
    pub contention_slowdown: f64,
    /// By how many seconds each step becomes longer for a byte that one of the devices copies beside it.
    pub slowdown_seconds_per_byte: f64,
}

/// Over which ways an edge's activations, or their gradients, go, which copies use, too.
#[derive(Debug, Clone, PartialEq)]
pub struct Route {
    /// The edge, an index in [`CopyPipeline::edges`](super::CopyPipeline::edges).
    pub edge: u32,
    /// Which of its directions.
    pub is_backward: bool,
    /// What it takes of each while it transfers: copies have the rest.
    pub bytes_per_second: f64,
    /// The ways.
    pub ways: Vec<Way>,
}

/// All links that copies may use, and what they share.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Links {
    /// How fast each way is alone.
    pub ways: BTreeMap<Way, Rate>,
    /// Uplinks, and links that are not full duplex.
    pub shared: Vec<Shared>,
    /// Nodes of CPU slots.
    pub cores: Vec<Cores>,
    /// Where activations meet copies.
    pub routes: Vec<Route>,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ToHost(device) => write!(f, "from device {device} to its host"),
            Self::FromHost(device) => write!(f, "from its host to device {device}"),
            Self::Between { from, to } => write!(f, "from device {from} to device {to}"),
        }
    }
}

impl Rate {
    /// Of copies that keep a core busy where there are [`Cores`].
    pub fn new(bytes_per_second: f64, latency_seconds: f64) -> Self {
        Self { bytes_per_second, latency_seconds, core_share: 1.0 }
    }
}

impl Links {
    /// Adds a device's host link, full duplex.
    #[must_use]
    pub fn host(mut self, device: u32, out: Rate, back: Rate) -> Self {
        self.ways.insert(Way::ToHost(device), out);
        self.ways.insert(Way::FromHost(device), back);
        self
    }

    /// Adds the way from one device to another.
    #[must_use]
    pub fn peer(mut self, from: u32, to: u32, rate: Rate) -> Self {
        self.ways.insert(Way::Between { from, to }, rate);
        self
    }

    /// The same ways with nothing shared. Where each is asked for by one device alone, no simulation over the links
    /// themselves is faster than over these: sharing only adds seconds to copies and steps.
    #[must_use]
    pub fn alone(&self) -> Self {
        Self { ways: self.ways.clone(), ..Self::default() }
    }

    /// Has ways share a rate, as far as they are used and it slows them down together.
    pub fn share(&mut self, ways: Vec<Way>, bytes_per_second: f64, used: &BTreeSet<Way>) {
        let ways: Vec<Way> =
            ways.into_iter().filter(|way| used.contains(way) && self.ways.contains_key(way)).collect();
        let together: f64 =
            ways.iter().filter_map(|way| self.ways.get(way)).map(|rate| rate.bytes_per_second).sum();
        if together > bytes_per_second {
            self.shared.push(Shared { ways, bytes_per_second });
        }
    }

    /// Both directions of a device's host link together are no faster than this.
    #[must_use]
    pub fn half_duplex(mut self, device: u32, bytes_per_second: f64) -> Self {
        self.shared.push(Shared { ways: vec![Way::ToHost(device), Way::FromHost(device)], bytes_per_second });
        self
    }

    /// The host links of these devices together are no faster than this in each direction (a PCIe switch).
    #[must_use]
    pub fn uplink(mut self, devices: &[u32], bytes_per_second: f64) -> Self {
        for way in [Way::ToHost, Way::FromHost] {
            self.shared.push(Shared { ways: devices.iter().map(|&of| way(of)).collect(), bytes_per_second });
        }
        self
    }
}
