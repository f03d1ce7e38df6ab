//! Profile documents that have everything.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::measure::environment::{DeviceSample, Environment};
use loadmaster_proto::measure::measurement::{LayerTimes, Measurement};
use loadmaster_proto::measure::trace::{LayerTrace, Passage, TraceStep};
use loadmaster_proto::model::zoo::{Gpt2, Zoo};
use loadmaster_proto::profile::document::FORMAT;
use loadmaster_proto::training::stage::StageConfig;
use serde_json::{Map, Value, json};

use crate::measurement::measurement;

/// Settings with this update rule.
fn training(optimizer: &str) -> Value {
    let mut rule = match optimizer {
        "sgd" => json!({"momentum": 0.9}),
        _ => json!({"beta1": 0.9, "beta2": 0.95, "epsilon": 1e-8}),
    };
    rule["kind"] = json!(optimizer);
    rule["learning_rate"] = json!(0.001);
    rule["weight_decay"] = json!(0.0);
    json!({"precision": "fp32", "optimizer": rule, "schedule": "gpipe", "micro_batch_size": 2,
           "micro_batches": 2, "recompute": "none", "seed": 0})
}

/// A document of a model with these parts.
pub fn document(model: Value, optimizer: &str, parts: Value) -> Value {
    let mut document = json!({
        "format": FORMAT,
        "provenance": {"source": "a test", "tool": "hand", "device_kind": "cpu", "ledger": "reserved"},
        "model": model,
        "training": training(optimizer),
    });
    let parts: Map<String, Value> = parts.as_object().unwrap().clone();
    document.as_object_mut().unwrap().extend(parts);
    document
}

/// Another tool's: stages and a table.
pub fn foreign() -> Value {
    document(
        json!({"opaque": {"name": "two", "layers": [{"name": "first"}, {"name": "second"}]}}),
        "sgd",
        json!({
            "stages": [{"first_layer": 0, "last_layer": 1, "stage_index": 0, "stage_count": 1,
                        "micro_batch_size": 2, "in_flight": 1, "peak_bytes": 10, "parallelism": "none",
                        "schedule": "gpipe", "recompute": "none", "ledger": "device"}],
            "layer_table": {"ledger": "device", "layers": [{
                "first_layer": 0, "last_layer": 1,
                "times": [{"micro_batch_size": 1, "tensor_degree": 1, "forward_seconds": 1.0,
                           "backward_seconds": 1.0}],
                "bytes": [{"micro_batch_size": 1, "tensor_degree": 1}],
                "memory": [{"micro_batch_size": 1, "in_flight": 1, "parallelism": "none", "degree": 1}]
            }]}
        }),
    )
}

/// Loadmaster's own: a measurement with everything.
pub fn own() -> Value {
    let model = Zoo::Gpt2(Gpt2 { blocks: 1, ..Gpt2::default() }).build().unwrap();
    let passage = || Passage {
        blocks: vec![1, 1],
        communication: vec![0],
        inputs: vec![0],
        outputs: vec![1],
        output_gradients: vec![1],
        input_gradients: vec![0],
        saved: vec![1],
        slots: [vec![1], vec![2], vec![], vec![], vec![], vec![]],
    };
    let trace = LayerTrace {
        layer: 0,
        content: "c".to_owned(),
        first: passage(),
        later: passage(),
        without_graph: passage(),
        untrained_input: Some(Box::new([passage(), passage()])),
        step: TraceStep { blocks: vec![1], communication: vec![0], exchange: vec![1, -1], update: vec![] },
        has_saved: true,
        overhead: 1,
    };
    let environment = Environment {
        before: Some(DeviceSample::default()),
        after: Some(DeviceSample::default()),
        ..Environment::default()
    };
    let measurement = Measurement {
        micro_batch_size: 2,
        peak_allocated: Bytes(10),
        peak_reserved: Some(Bytes(12)),
        capacity: Bytes(100),
        step_seconds: 0.5,
        layers: vec![LayerTimes { layer: 0, ..LayerTimes::default() }],
        trace: Some(Box::new(trace)),
        environment,
        ..measurement(StageConfig::single(0, 0))
    };
    let settings = json!({
        "name": "profiles/p", "model": format!("models/{}", model.id()), "training": training("adamw"),
        "profiling_mode": "per_layer", "devices": null, "scenarios": [{"parallelism": "none", "degree": 1}],
        "scale_by_pipeline": false, "micro_batch_sizes": [2], "command": "c", "device_kind": "cpu",
        "iterations": 1, "min_capacity": 0, "deadline_seconds": 600, "fresh": false
    });
    document(
        json!({"known": serde_json::to_value(&model).unwrap()}),
        "adamw",
        json!({"settings": settings, "measurements": [{
            "run": "runs/r", "held_out": false, "measurement": serde_json::to_value(&measurement).unwrap()
        }]}),
    )
}
