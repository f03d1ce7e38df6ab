//! Profile documents whose figures were made up.

use serde_json::{Value, json};

/// A chain of layers with these rows of a table: on GPUs, in fp32, with SGD, 1F1B over 8 micro-batches of 4 samples.
pub fn chain(layers: usize, rows: &[Value]) -> Value {
    let name = |layer: usize| json!({"name": format!("layer {layer}"), "parameter_count": 1_000_000});
    json!({
        "format": "loadmaster.profile/1",
        "provenance": {"source": "made up for a test", "tool": "by hand", "device_kind": "gpu", "ledger": "reserved"},
        "model": {"opaque": {
            "name": format!("chain of {layers}"), "layers": (0..layers).map(name).collect::<Vec<_>>()
        }},
        "training": {
            "precision": "fp32", "optimizer": {"kind": "sgd", "learning_rate": 0.01, "momentum": 0.9,
            "weight_decay": 0.0}, "schedule": "one_f_one_b", "micro_batch_size": 4, "micro_batches": 8,
            "recompute": "none", "seed": 0
        },
        "layer_table": {"ledger": "reserved", "times_without_collectives": false, "margin": 0.0, "layers": rows},
    })
}
