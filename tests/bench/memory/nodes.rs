//! The paper's servers.

use loadmaster_planning::actions::NodeDevices;
use loadmaster_proto::cluster::{CopyLink, Link, LinkOrigin};

use crate::memory::models::{STAGES, System};

/// A server of the paper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Server {
    /// 8 V100 of 32 GB, a hybrid cube mesh, 768 GB.
    Dgx1,
    /// What the paper calls DGX-2: 8 A100 of 40 GB on a switch, 948 GB.
    Dgx2,
}

/// `NVLinks` between the devices of a DGX-1.
pub(crate) const CUBE_MESH: [[u32; STAGES]; STAGES] = [
    [0, 1, 2, 1, 0, 0, 0, 2],
    [1, 0, 1, 2, 0, 0, 2, 0],
    [2, 1, 0, 2, 0, 1, 0, 0],
    [1, 2, 2, 0, 1, 0, 0, 0],
    [0, 0, 0, 1, 0, 2, 2, 1],
    [0, 0, 1, 0, 2, 0, 1, 2],
    [0, 2, 0, 0, 2, 1, 0, 1],
    [2, 0, 0, 0, 1, 2, 1, 0],
];

/// One `NVLink` of a V100, as t5's ratio has it: four of them are 7.6 times as fast as the host.
pub(crate) const NVLINK: f64 = 23e9;
/// To the host, and between devices without `NVLink`: PCIe 3 with 16 lanes.
pub(crate) const HOST: f64 = 12e9;
/// Of a copy between two A100: an eighth part of what a device sends, so that copies to all others go side by side.
const SWITCHED: f64 = 34e9;
/// Seconds before a copy begins.
const LATENCY: f64 = 10e-6;
/// Bytes of a device that the driver's context has.
const CONTEXT: f64 = 0.5;

impl Server {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Dgx1 => "8 x 32 GB, cube mesh",
            Self::Dgx2 => "8 x 40 GB, switch",
        }
    }

    /// Its devices.
    pub(crate) fn node(self) -> NodeDevices {
        let link =
            |bytes_per_second| Link { bytes_per_second, latency_seconds: LATENCY, origin: LinkOrigin::Given };
        let pair = |from: usize, to: usize| match (self, CUBE_MESH[from][to]) {
            (Self::Dgx2, _) => SWITCHED,
            (Self::Dgx1, 0) => HOST,
            (Self::Dgx1, links) => f64::from(links) * NVLINK,
        };
        let (gib, host_bytes) = match self {
            Self::Dgx1 => (32.0, 768_000_000_000),
            Self::Dgx2 => (40.0, 948_000_000_000),
        };
        let capacity = ((gib - CONTEXT) * f64::from(1 << 30)) as u64;
        let row = |from: usize| (0..STAGES).map(|to| (from != to).then(|| link(pair(from, to)))).collect();
        NodeDevices {
            capacity: vec![capacity; STAGES],
            host: vec![CopyLink::full_duplex(link(HOST)); STAGES],
            pairs: (0..STAGES).map(row).collect(),
            host_bytes,
            hosts: Vec::new(),
            shared: Vec::new(),
            cores: None,
        }
    }

    /// What a device computes in a second of what a system trains.
    pub(crate) fn flops(self, system: System) -> f64 {
        match (self, system) {
            (Self::Dgx1, System::PipeDream) => 10e12,
            (Self::Dgx2, System::PipeDream) => 15e12,
            (Self::Dgx1, System::Dapple) => 40e12,
            (Self::Dgx2, System::Dapple) => 100e12,
        }
    }
}
