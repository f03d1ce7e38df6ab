//! Profile documents whose figures were made up.

use loadmaster_proto::profile::document::FORMAT;
use loadmaster_proto::training::{Optimizer, Schedule, TrainingSpec};
use loadmaster_samples::training;
use serde_json::{Value, json};

/// Adam as most people start it.
pub const ADAM: Optimizer =
    Optimizer::Adam { learning_rate: 1e-3, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0 };

/// Who says so, with which tool, of which kind of device, in which ledger.
pub type Provenance<'a> = [&'a str; 4];

/// A document of a model that is known by its layers' names and parameters, and by a table whose rows are exact and contain
/// what shards exchange.
pub fn table_document(
    [source, tool, device_kind, ledger]: Provenance<'_>,
    (name, layers): (&str, impl Iterator<Item = (String, u64)>),
    training: &TrainingSpec,
    rows: &[Value],
) -> Value {
    let layer = |(name, parameters): (String, u64)| json!({"name": name, "parameter_count": parameters});
    json!({
        "format": FORMAT,
        "provenance": {"source": source, "tool": tool, "device_kind": device_kind, "ledger": ledger},
        "model": {"opaque": {"name": name, "layers": layers.map(layer).collect::<Vec<_>>()}},
        "training": training,
        "layer_table": {"ledger": ledger, "times_without_collectives": false, "margin": 0.0, "layers": rows},
    })
}

/// What a layer takes at one setting.
#[derive(Debug, Clone, Copy)]
pub struct TableRow {
    /// Samples of a pass, and shards of the layer.
    pub at: (u32, u32),
    /// Seconds forward and backward.
    pub seconds: [f64; 2],
    pub update_seconds: Option<f64>,
    pub parameter_bytes: u64,
    pub activation_bytes: u64,
    /// Of its input and its output.
    pub edges: [u64; 2],
}

/// The rows of a layer, as a document has them.
pub fn layer_rows(layer: usize, rows: &[TableRow]) -> Value {
    let times = rows.iter().map(|TableRow { at: (samples, shards), seconds, update_seconds, .. }| {
        json!({"micro_batch_size": samples, "tensor_degree": shards, "forward_seconds": seconds[0],
               "backward_seconds": seconds[1], "update_seconds": update_seconds})
    });
    let bytes = rows.iter().map(|row| {
        let ((samples, shards), [input, output]) = (row.at, row.edges);
        json!({"micro_batch_size": samples, "tensor_degree": shards, "parameter_bytes": row.parameter_bytes,
               "activation_bytes": row.activation_bytes, "transient_bytes": 0, "input_bytes": input,
               "output_bytes": output})
    });
    let (times, bytes): (Vec<Value>, Vec<Value>) = (times.collect(), bytes.collect());
    json!({"first_layer": layer, "last_layer": layer, "times": times, "bytes": bytes})
}

/// A chain of layers with these rows of a table: on GPUs, in fp32, with SGD, 1F1B over 8 micro-batches of 4 samples.
pub fn chain(layers: usize, rows: &[Value]) -> Value {
    let provenance = ["made up for a test", "by hand", "gpu", "reserved"];
    let names = (0..layers).map(|layer| (format!("layer {layer}"), 1_000_000));
    let training = TrainingSpec { seed: 0, ..training(Schedule::OneFOneB, 4, 8) };
    table_document(provenance, (&format!("chain of {layers}"), names), &training, rows)
}

/// A chain of a light layer, equal blocks and a heavy layer on a kind of device, at these numbers of samples and tensor degrees
/// 1, 2 and 4: times and bytes follow A + B/n, and are linear in the samples.
pub fn uneven_chain(blocks: usize, device_kind: &str, sizes: [u64; 2]) -> Value {
    let rows = |first: usize, last: usize, seconds: f64, parameters: u64, activation: u64| {
        let settings = [1_u64, 2, 4].into_iter().flat_map(|degree| sizes.map(|size| (degree, size)));
        let (mut times, mut bytes) = (Vec::new(), Vec::new());
        for (degree, size) in settings {
            let share = 0.2 + 0.8 / degree as f64;
            times.push(json!({
                "micro_batch_size": size, "tensor_degree": degree, "update_seconds": 1e-4 / degree as f64,
                "forward_seconds": seconds * share * size as f64,
                "backward_seconds": 2.0 * seconds * share * size as f64,
            }));
            bytes.push(json!({
                "micro_batch_size": size, "tensor_degree": degree, "parameter_bytes": parameters / degree,
                "activation_bytes": (activation as f64 * share) as u64 * size,
                "input_bytes": 65_536 * size, "output_bytes": 65_536 * size,
            }));
        }
        json!({"first_layer": first, "last_layer": last, "times": times, "bytes": bytes})
    };
    let rows = [
        rows(0, 0, 1e-4, 4 << 20, 1 << 20),
        rows(1, blocks, 1e-3, 8 << 20, 12 << 20),
        rows(blocks + 1, blocks + 1, 2e-3, 16 << 20, 24 << 20),
    ];
    let mut document = chain(blocks + 2, &rows);
    document["provenance"]["device_kind"] = json!(device_kind);
    document
}
