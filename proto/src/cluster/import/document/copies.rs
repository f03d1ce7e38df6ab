//! What a node's host does for memory optimizations and for trainings in chunks, as documents have it.
//!
//! ```yaml
//! host:
//!   memory: 512GiB                    # what blocks may take
//!   link: {bandwidth: 25GB/s, back: 26GB/s, latency: 5us}        # of each device; `back` unless it is the same
//!   links:
//!     - {device: 3, bandwidth: 12GB/s, duplex: half}             # of one; both directions at once are no faster
//!     - {device: 4, bandwidth: 12GB/s, both: 20GB/s, origin: measured}
//!   uplinks: [{devices: [0, 1], bandwidth: 25GB/s}]               # both together, in each direction
//!   updates:                          # parameters that the optimizer's step on the host updates
//!     - {step: adam-bf16, rate: 700M/s, together: 1.2G/s}         # for one device alone; for all that update at once
//! peers:                              # one-sided copies, where they are not as fast as the link of the pair
//!   - {a: 0, b: 1, bandwidth: 90GB/s}
//! ```

use serde::Deserialize;

use super::{Quantity, entries, priors, quantity, speed};
use crate::cluster::{CopyLink, HostLink, HostUpdate, Link, LinkOrigin, NodeCopies, PeerCopies, Uplink};
use crate::error::Invalid;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HostEntry {
    memory: Option<Quantity>,
    link: Option<CopyEntry>,
    #[serde(default)]
    links: Vec<DeviceCopiesEntry>,
    #[serde(default)]
    uplinks: Vec<UplinkEntry>,
    #[serde(default)]
    updates: Vec<UpdateEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct UpdateEntry {
    step: String,
    rate: Quantity,
    together: Option<Quantity>,
    origin: Option<LinkOrigin>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CopyEntry {
    bandwidth: Quantity,
    back: Option<Quantity>,
    both: Option<Quantity>,
    duplex: Option<Duplex>,
    latency: Option<Quantity>,
    origin: Option<LinkOrigin>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeviceCopiesEntry {
    device: u32,
    bandwidth: Quantity,
    back: Option<Quantity>,
    both: Option<Quantity>,
    duplex: Option<Duplex>,
    latency: Option<Quantity>,
    origin: Option<LinkOrigin>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct UplinkEntry {
    devices: Vec<u32>,
    bandwidth: Quantity,
    origin: Option<LinkOrigin>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PeerEntry {
    a: u32,
    b: u32,
    bandwidth: Quantity,
    back: Option<Quantity>,
    both: Option<Quantity>,
    duplex: Option<Duplex>,
    latency: Option<Quantity>,
    origin: Option<LinkOrigin>,
}

/// Whether a link carries both directions at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Duplex {
    Full,
    Half,
}

/// # Errors
/// Names the path below the node.
pub(super) fn copies_and_updates(
    host: Option<HostEntry>,
    peers: Vec<PeerEntry>,
) -> Result<(Option<NodeCopies>, Vec<HostUpdate>), Invalid> {
    let under_host = |invalid: Invalid| invalid.under("host");
    let mut copies = NodeCopies { peers: entries("peers", peers, peer)?, ..NodeCopies::default() };
    let mut known = Vec::new();
    if let Some(HostEntry { memory, link, links, uplinks, updates }) = host {
        let bytes = memory.map(|memory| super::bytes("memory", &memory)).transpose();
        copies.host_memory = bytes.map_err(under_host)?;
        let link = link.map(|entry| copy_link(entry).map_err(|invalid| invalid.under("link")));
        copies.host_link = link.transpose().map_err(under_host)?;
        copies.host_links = entries("links", links, of_device).map_err(under_host)?;
        copies.uplinks = entries("uplinks", uplinks, uplink).map_err(under_host)?;
        known = entries("updates", updates, update).map_err(under_host)?;
    }
    Ok((Some(copies).filter(|copies| !copies.is_empty()), known))
}

fn update(entry: UpdateEntry) -> Result<HostUpdate, Invalid> {
    let UpdateEntry { step, rate, together, origin } = entry;
    let parameters = |field: &str, quantity: &Quantity| match quantity {
        Quantity::Number(number) => Ok(*number),
        Quantity::Text(text) => {
            quantity::parameters_per_second(text).map_err(|why| Invalid::field(field, why))
        }
    };
    Ok(HostUpdate {
        step: step.parse().map_err(|unknown| invalid!("step", "{unknown}"))?,
        parameters_per_second: parameters("rate", &rate)?,
        together_per_second: together.map(|together| parameters("together", &together)).transpose()?,
        origin: origin.unwrap_or(LinkOrigin::Given),
    })
}

fn of_device(entry: DeviceCopiesEntry) -> Result<HostLink, Invalid> {
    let DeviceCopiesEntry { device, bandwidth, back, both, duplex, latency, origin } = entry;
    let link = copy_link(CopyEntry { bandwidth, back, both, duplex, latency, origin })?;
    Ok(HostLink { device, link })
}

fn peer(entry: PeerEntry) -> Result<PeerCopies, Invalid> {
    let PeerEntry { a, b, bandwidth, back, both, duplex, latency, origin } = entry;
    let link = copy_link(CopyEntry { bandwidth, back, both, duplex, latency, origin })?;
    Ok(PeerCopies { a, b, link })
}

fn copy_link(entry: CopyEntry) -> Result<CopyLink, Invalid> {
    let CopyEntry { bandwidth, back, both, duplex, latency, origin } = entry;
    let out = speed(&bandwidth, latency.as_ref(), origin, priors::unknown_gpus())?;
    let back = match back {
        Some(back) => Link { bytes_per_second: rate("back", &back)?, ..out },
        None => out,
    };
    let fastest = out.bytes_per_second.max(back.bytes_per_second);
    let both_bytes_per_second = match (both, duplex) {
        (Some(_), Some(_)) => {
            let why = "is set together with `both`, which also describes copies in both directions at once. Remove one of the \
                two";
            return Err(Invalid::field("duplex", why));
        }
        (Some(both), None) => Some(rate("both", &both)?),
        (None, Some(Duplex::Half)) => Some(fastest),
        (None, Some(Duplex::Full) | None) => None,
    };
    Ok(CopyLink { out, back, both_bytes_per_second })
}

fn uplink(entry: UplinkEntry) -> Result<Uplink, Invalid> {
    let UplinkEntry { devices, bandwidth, origin } = entry;
    let bytes_per_second = rate("bandwidth", &bandwidth)?;
    Ok(Uplink { devices, bytes_per_second, origin: origin.unwrap_or(LinkOrigin::Given) })
}

fn rate(field: &str, quantity: &Quantity) -> Result<f64, Invalid> {
    match quantity {
        Quantity::Number(number) => Ok(*number),
        Quantity::Text(text) => quantity::bytes_per_second(text).map_err(|why| Invalid::field(field, why)),
    }
}
