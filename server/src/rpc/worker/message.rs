//! Workers as messages.

use loadmaster_proto::wire::{ToWire, v1};

use crate::rpc::messages::{count, time};
use crate::store::records::WorkerRecord;

/// A worker as lists show it: links are as many as pairs of devices.
pub(super) fn in_list(record: &WorkerRecord) -> v1::Worker {
    v1::Worker { links: Vec::new(), ..worker(record) }
}

pub(super) fn worker(record: &WorkerRecord) -> v1::Worker {
    v1::Worker {
        name: record.name.to_string(),
        state: record.state.to_wire(),
        devices: record.devices.iter().map(Into::into).collect(),
        version: record.version.clone(),
        libtorch_version: record.libtorch_version.clone(),
        host: record.host.clone(),
        create_time: Some(time(record.create_time)),
        heartbeat_time: Some(time(record.heartbeat_time)),
        runs: record.runs.iter().map(ToString::to_string).collect(),
        commands: record.commands.iter().map(ToString::to_string).collect(),
        links: record.links.iter().map(Into::into).collect(),
        cores: count(record.cores),
        threads: count(record.threads),
        host_memory_bytes: record.host_memory.to_wire(),
        copy_pace: Some(record.copy_pace).filter(|pace| !pace.is_free()).map(Into::into),
    }
}
