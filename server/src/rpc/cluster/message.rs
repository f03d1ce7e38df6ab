//! Clusters and link measurements as messages.

use loadmaster_proto::wire::{ToWire, v1};

use crate::rpc::limits::MAX_ANSWERED_LINKS;
use crate::rpc::messages::time;
use crate::store::records::{ClusterRecord, ClusterRow, LinkRecord};

/// A stored cluster, whole.
pub(super) fn cluster(record: &ClusterRecord) -> v1::Cluster {
    v1::Cluster {
        name: record.name.to_string(),
        etag: etag(&record.digest),
        create_time: Some(time(record.create_time)),
        update_time: Some(time(record.update_time)),
        ..(&record.cluster).into()
    }
}

/// A cluster in its basic view.
pub(super) fn basic(cluster: v1::Cluster) -> v1::Cluster {
    v1::Cluster { nodes: Vec::new(), domains: Vec::new(), ..cluster }
}

/// A cluster as lists show it: without nodes and domains, so that a page of them fits into a message.
pub(super) fn row(row: &ClusterRow) -> v1::Cluster {
    let count = |count: u32| i32::try_from(count).unwrap_or(i32::MAX);
    v1::Cluster {
        name: row.name.to_string(),
        kinds: row.summary.kinds.to_wire(),
        nodes: Vec::new(),
        tiers: row.summary.tiers.to_wire(),
        domains: Vec::new(),
        source: row.summary.source.to_wire(),
        warnings: loadmaster_proto::warning::sent(&row.summary.warnings),
        node_count: count(row.node_count),
        device_count: count(row.device_count),
        etag: etag(&row.digest),
        create_time: Some(time(row.create_time)),
        update_time: Some(time(row.update_time)),
        ..v1::Cluster::default()
    }
}

fn etag(digest: &str) -> String {
    format!("\"{digest}\"")
}

/// What was measured of one worker's links.
pub(super) fn link_measurement(record: &LinkRecord) -> v1::LinkMeasurement {
    v1::LinkMeasurement {
        name: format!("{}/linkMeasurements/{}", record.worker, record.run.id()),
        run: record.run.to_string(),
        worker: record.worker.to_string(),
        links: Some((&record.measurement).into()),
        create_time: Some(time(record.create_time)),
    }
}

/// What an operation measured; of very many workers the first ones, the list has them all.
pub(in crate::rpc) fn measured(records: &[LinkRecord]) -> v1::MeasureLinksResponse {
    let mut left = usize::try_from(MAX_ANSWERED_LINKS.0).unwrap_or(usize::MAX);
    let link_measurements = records.iter().map(link_measurement).take_while(|of| {
        let size = prost::Message::encoded_len(of);
        let fits = size <= left;
        left = left.saturating_sub(size);
        fits
    });
    v1::MeasureLinksResponse { link_measurements: link_measurements.collect() }
}
