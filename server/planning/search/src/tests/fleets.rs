//! Parts of fleets that tests are made of.

use loadmaster_proto::bytes::Bytes;

use crate::{Fleet, FleetNode, Kind, Link, LinkOrigin};

/// A link of so many bytes a second.
pub(crate) fn link(speed: u32) -> Link {
    Link { bytes_per_second: f64::from(speed), latency_seconds: 0.0, origin: LinkOrigin::Given }
}

/// A node of so many devices of a kind, whose links inside and outside are as fast.
pub(crate) fn node(name: String, (kind, devices): (usize, u32), (inside, outside): (u32, u32)) -> FleetNode {
    FleetNode {
        name,
        kind,
        devices,
        whole: devices,
        inside: link(inside),
        outside: link(outside),
        one_transfer: None,
        domains: Vec::new(),
        unlike: None,
    }
}

/// A kind without a price, whose devices allow so many bytes.
pub(crate) fn kind(name: String, bytes: u64) -> Kind {
    Kind { name, capacity: Bytes(bytes), hourly_price: None }
}

/// A fleet that may grow, without tiers.
pub(crate) fn fleet(kinds: Vec<Kind>, nodes: Vec<FleetNode>) -> Fleet {
    Fleet { kinds, nodes, tiers: Vec::new(), is_one_node: false, may_grow: true }
}
