//! Small, sound values of the domain's types, which tests change where they look: whatever has many fields is written
//! out here and nowhere else.
//!
//! Not a feature of `loadmaster-proto`: with it on for the tests alone, everything would be built twice.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

mod bent;
mod cut_transformer;
mod document;
mod measurement;
mod plan;
mod run;
mod tabled;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::chunks::residency::Payload;
use loadmaster_proto::chunks::residency::intervals::ResidencyInterval;
use loadmaster_proto::chunks::stage::{ChunkResidency, ChunkedStage};
use loadmaster_proto::cluster::device::{Backend, CPU_KIND, Device};
use loadmaster_proto::training::boundaries::BoundaryInterval;
use proptest::prelude::ProptestConfig;
use serde_json::Value;

pub use bent::{Bent, bent};
pub use cut_transformer::{CutTransformer, Degrees, DescribedTransformer};
pub use document::{document, foreign, own};
pub use measurement::{linear_measurement, measurement, plan_request, settings, training};
pub use plan::{plan, plan_stage};
pub use run::run;
pub use tabled::TabledGpt2;

/// As many cases as `PROPTEST_CASES` says, or this many.
pub fn cases(usually: u32) -> ProptestConfig {
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => ProptestConfig::default(),
        None => ProptestConfig::with_cases(usually),
    }
}

/// Small chunks that come when they are needed, in so much memory of the host.
pub fn chunked(host_memory: u64) -> ChunkedStage {
    ChunkedStage { staging: 2, ..ChunkedStage::on_demand(1 << 20, Bytes(host_memory)) }
}

/// The same in so many intervals, of whatever chunks.
pub fn visiting(host_memory: u64, intervals: usize) -> ChunkedStage {
    let interval = |chunk| ResidencyInterval {
        payload: Payload { chunk, is_gradients: false },
        at: BoundaryInterval { fetched: 1_000, needed: 1_001, leaves: 1_002, freed: 1_003 },
    };
    ChunkedStage {
        residency: ChunkResidency::Planned((0..intervals).map(interval).collect()),
        ..chunked(host_memory)
    }
}

/// `NVLinks` between the devices of a DGX-1.
pub const CUBE_MESH: [[u32; 8]; 8] = [
    [0, 1, 2, 1, 0, 0, 0, 2],
    [1, 0, 1, 2, 0, 0, 2, 0],
    [2, 1, 0, 2, 0, 1, 0, 0],
    [1, 2, 2, 0, 1, 0, 0, 0],
    [0, 0, 0, 1, 0, 2, 2, 1],
    [0, 0, 1, 0, 2, 0, 1, 2],
    [0, 2, 0, 0, 2, 1, 0, 1],
    [2, 0, 0, 0, 1, 2, 1, 0],
];

/// A CPU slot of a GiB.
pub fn cpu_slot(ordinal: u32) -> Device {
    Device {
        id: format!("cpu{ordinal}"),
        backend: Backend::Cpu,
        kind: CPU_KIND.to_owned(),
        capacity: Bytes(1 << 30),
        physical: Bytes(1 << 30),
        uuid: String::new(),
        ordinal,
        driver_version: String::new(),
        pci_bus_id: String::new(),
    }
}

/// Most differences that are shown.
const SHOWN: usize = 20;

/// The differences of two JSON texts, one on each line; both texts where they are not JSON.
pub fn differences(kept: &str, now: &str) -> String {
    let (Ok(old), Ok(new)) = (serde_json::from_str(kept), serde_json::from_str(now)) else {
        return format!("  kept {kept}\n  now  {now}\n");
    };
    let mut found = Vec::new();
    walk("", &old, &new, &mut found);
    if found.is_empty() {
        // Content ids are made of the text, so the order of fields matters too.
        return format!("  the fields are equal and their order is not:\n  kept {kept}\n  now  {now}\n");
    }
    let more = found.len().saturating_sub(SHOWN);
    found.truncate(SHOWN);
    if more > 0 {
        found.push(format!("  and {more} more\n"));
    }
    found.concat()
}

fn walk(path: &str, old: &Value, new: &Value, found: &mut Vec<String>) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let gone = old.keys().filter(|key| !new.contains_key(*key));
            found.extend(gone.map(|key| format!("  {path}.{key}: kept {}, now missing\n", short(&old[key]))));
            for (key, value) in new {
                match old.get(key) {
                    Some(before) => walk(&format!("{path}.{key}"), before, value, found),
                    None => found.push(format!("  {path}.{key}: not kept, now {}\n", short(value))),
                }
            }
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            for (index, (old, new)) in old.iter().zip(new).enumerate() {
                walk(&format!("{path}[{index}]"), old, new, found);
            }
        }
        (old, new) if old == new => {}
        (old, new) => found.push(format!("  {path}: kept {}, now {}\n", short(old), short(new))),
    }
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(200) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
