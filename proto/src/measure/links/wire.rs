//! What is measured of links, and what came of it.

use crate::cluster::{Link, LinkOrigin};
use crate::convert::{to_i32, to_i64, unsigned};
use crate::error::{Invalid, required};
use crate::measure::collectives::Collectives;
use crate::measure::links::{GroupLink, LinkMeasurement, LinkPoint, LinkWork, PairLink};
use crate::wire::v1;

impl From<&LinkWork> for v1::LinkWork {
    fn from(work: &LinkWork) -> Self {
        Self {
            devices: to_i32(work.devices),
            payload_bytes: work.payload_bytes.iter().copied().map(to_i64).collect(),
            repeats: to_i32(work.repeats),
        }
    }
}

impl TryFrom<v1::LinkWork> for LinkWork {
    type Error = Invalid;

    fn try_from(wire: v1::LinkWork) -> Result<Self, Invalid> {
        let payloads = wire.payload_bytes.into_iter().enumerate();
        Self {
            devices: unsigned("devices", wire.devices)?,
            payload_bytes: payloads
                .map(|(index, bytes)| unsigned(&format!("payload_bytes[{index}]"), bytes))
                .collect::<Result<_, _>>()?,
            repeats: unsigned("repeats", wire.repeats)?,
        }
        .checked()
    }
}

impl From<&LinkMeasurement> for v1::LinkMeasurement {
    fn from(measurement: &LinkMeasurement) -> Self {
        let transport = match measurement.transport {
            Collectives::Host => v1::LinkTransport::Host,
            Collectives::Nccl => v1::LinkTransport::Nccl,
        };
        Self {
            device_ids: measurement.device_ids.clone(),
            transport: transport.into(),
            pairs: measurement.pairs.iter().map(Into::into).collect(),
            groups: measurement.groups.iter().map(Into::into).collect(),
            environment: Some(measurement.environment.clone().into()),
        }
    }
}

impl TryFrom<v1::LinkMeasurement> for LinkMeasurement {
    type Error = Invalid;

    fn try_from(wire: v1::LinkMeasurement) -> Result<Self, Invalid> {
        let transport = match v1::LinkTransport::try_from(wire.transport) {
            Ok(v1::LinkTransport::Host) => Collectives::Host,
            Ok(v1::LinkTransport::Nccl) => Collectives::Nccl,
            Ok(v1::LinkTransport::Unspecified) | Err(_) => {
                return Err(Invalid::field("transport", "must be host or NCCL"));
            }
        };
        Self {
            device_ids: wire.device_ids,
            transport,
            pairs: each("pairs", wire.pairs)?,
            groups: each("groups", wire.groups)?,
            environment: required("environment", wire.environment)?
                .try_into()
                .map_err(|invalid: Invalid| invalid.under("environment"))?,
        }
        .checked()
    }
}

impl From<&PairLink> for v1::PairLink {
    fn from(pair: &PairLink) -> Self {
        Self {
            first: to_i32(pair.first),
            second: to_i32(pair.second),
            bytes_per_second: pair.link.bytes_per_second,
            latency_seconds: pair.link.latency_seconds,
            points: pair.points.iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<v1::PairLink> for PairLink {
    type Error = Invalid;

    fn try_from(wire: v1::PairLink) -> Result<Self, Invalid> {
        Ok(Self {
            first: unsigned("first", wire.first)?,
            second: unsigned("second", wire.second)?,
            link: link(wire.bytes_per_second, wire.latency_seconds),
            points: each("points", wire.points)?,
        })
    }
}

impl From<&GroupLink> for v1::GroupLink {
    fn from(group: &GroupLink) -> Self {
        Self {
            devices: group.devices.iter().copied().map(to_i32).collect(),
            bytes_per_second: group.link.bytes_per_second,
            latency_seconds: group.link.latency_seconds,
            points: group.points.iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<v1::GroupLink> for GroupLink {
    type Error = Invalid;

    fn try_from(wire: v1::GroupLink) -> Result<Self, Invalid> {
        let devices = wire.devices.into_iter().enumerate();
        Ok(Self {
            devices: devices
                .map(|(index, device)| unsigned(&format!("devices[{index}]"), device))
                .collect::<Result<_, _>>()?,
            link: link(wire.bytes_per_second, wire.latency_seconds),
            points: each("points", wire.points)?,
        })
    }
}

impl From<&LinkPoint> for v1::LinkPoint {
    fn from(point: &LinkPoint) -> Self {
        Self { payload_bytes: to_i64(point.payload_bytes), seconds: point.seconds }
    }
}

impl TryFrom<v1::LinkPoint> for LinkPoint {
    type Error = Invalid;

    fn try_from(wire: v1::LinkPoint) -> Result<Self, Invalid> {
        let payload_bytes = unsigned("payload_bytes", wire.payload_bytes)?;
        Ok(Self { payload_bytes, seconds: wire.seconds })
    }
}

fn link(bytes_per_second: f64, latency_seconds: f64) -> Link {
    Link { bytes_per_second, latency_seconds, origin: LinkOrigin::Measured }
}

fn each<W, T: TryFrom<W, Error = Invalid>>(field: &str, wires: Vec<W>) -> Result<Vec<T>, Invalid> {
    let each = wires.into_iter().enumerate();
    each.map(|(index, wire)| {
        wire.try_into().map_err(|invalid: Invalid| invalid.under(&format!("{field}[{index}]")))
    })
    .collect()
}
