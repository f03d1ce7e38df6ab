//! What is measured of links, and what came of it, as messages.

use crate::cluster::{Link, LinkOrigin};
use crate::error::Invalid;
use crate::measure::links::copies::{CopyMeasurement, CopySpeeds, CopyWay, DeviceCopies, PairCopies};
use crate::measure::links::updates::{DeviceUpdates, TimedUpdate};
use crate::measure::links::{GroupLink, LinkMeasurement, LinkPoint, LinkWork, PairLink};
use crate::message;
use crate::wire::{ToWire, field, v1};

message! {
    LinkWork <=> v1::LinkWork { devices = device_count, payload_bytes, repeats = repeat_count } check LinkWork::checked
}

message! {
    LinkMeasurement <=> v1::MeasuredLinks {
        device_ids,
        transport,
        pairs,
        groups,
        environment: required,
        copies = copy_measurement,
        updates = device_updates,
    } check LinkMeasurement::checked
}

message! { DeviceUpdates <=> v1::DeviceUpdates { device, steps = timed_updates } }

message! {
    TimedUpdate <=> v1::TimedUpdate { step, parameters = parameter_count, alone_seconds, together_seconds }
}

message! { CopyMeasurement <=> v1::CopyMeasurement { devices, pairs } }

message! {
    DeviceCopies <=> v1::DeviceCopies {
        device,
        host: required,
        all_out: required,
        all_back: required,
        all_next,
    }
}

message! { PairCopies <=> v1::PairCopies { first, second, copies = speeds: required } }

message! { CopySpeeds <=> v1::CopySpeeds { out: required, back: required, both } }

message! { CopyWay <=> v1::CopyWay }

impl From<&CopyWay> for v1::CopyWay {
    fn from(way: &CopyWay) -> Self {
        let CopyWay { link, points } = way;
        Self {
            bytes_per_second: link.bytes_per_second,
            latency_seconds: link.latency_seconds,
            points: points.to_wire(),
        }
    }
}

impl TryFrom<v1::CopyWay> for CopyWay {
    type Error = Invalid;

    fn try_from(wire: v1::CopyWay) -> Result<Self, Invalid> {
        Ok(Self {
            link: measured(wire.bytes_per_second, wire.latency_seconds),
            points: field("points", wire.points)?,
        })
    }
}

message! {
    LinkPoint <=> v1::LinkPoint { payload_bytes, seconds }
}

message! { PairLink <=> v1::PairLink }

impl From<&PairLink> for v1::PairLink {
    fn from(pair: &PairLink) -> Self {
        let PairLink { first, second, link, points } = pair;
        Self {
            first: first.to_wire(),
            second: second.to_wire(),
            bytes_per_second: link.bytes_per_second,
            latency_seconds: link.latency_seconds,
            points: points.to_wire(),
        }
    }
}

impl TryFrom<v1::PairLink> for PairLink {
    type Error = Invalid;

    fn try_from(wire: v1::PairLink) -> Result<Self, Invalid> {
        Ok(Self {
            first: field("first", wire.first)?,
            second: field("second", wire.second)?,
            link: measured(wire.bytes_per_second, wire.latency_seconds),
            points: field("points", wire.points)?,
        })
    }
}

message! { GroupLink <=> v1::GroupLink }

impl From<&GroupLink> for v1::GroupLink {
    fn from(group: &GroupLink) -> Self {
        let GroupLink { devices, link, points } = group;
        Self {
            device_indices: devices.to_wire(),
            bytes_per_second: link.bytes_per_second,
            latency_seconds: link.latency_seconds,
            points: points.to_wire(),
        }
    }
}

impl TryFrom<v1::GroupLink> for GroupLink {
    type Error = Invalid;

    fn try_from(wire: v1::GroupLink) -> Result<Self, Invalid> {
        Ok(Self {
            devices: field("device_indices", wire.device_indices)?,
            link: measured(wire.bytes_per_second, wire.latency_seconds),
            points: field("points", wire.points)?,
        })
    }
}

fn measured(bytes_per_second: f64, latency_seconds: f64) -> Link {
    Link { bytes_per_second, latency_seconds, origin: LinkOrigin::Measured }
}
