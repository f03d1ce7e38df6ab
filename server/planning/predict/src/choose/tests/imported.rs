//! Pins which predictor a document has what it takes for, and what it says where it has not.

use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::measure::run::ProfilingMode;
use loadmaster_proto::name::{ModelName, ProfileName};
use loadmaster_proto::profile::ProfileSettings;
use loadmaster_proto::profile::document::{FORMAT, ProfileDocument};
use loadmaster_proto::training::TrainingSpec;
use loadmaster_proto::training::scenario::Scenario;
use loadmaster_proto::training::stage::StageConfig;
use serde_json::{Value, json};

use super::super::imported_profile::{layer_metrics, predictor};
use super::super::{AnyPredictor, NoPredictor, PredictorKind};
use crate::StageSetting;

/// Three opaque layers without numbers.
fn document(parts: &Value) -> ProfileDocument {
    let mut value = json!({
        "format": FORMAT,
        "provenance": {"source": "test", "tool": "test", "device_kind": "gpu", "ledger": "reserved"},
        "model": {"opaque": {"name": "three", "layers": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}},
        "training": {
            "precision": "fp32", "optimizer": {"kind": "sgd", "learning_rate": 0.1, "momentum": 0.0,
                                               "weight_decay": 0.0},
            "schedule": "gpipe", "micro_batch_size": 4, "micro_batches": 2, "recompute": "none", "seed": 0
        }
    });
    for (key, part) in parts.as_object().unwrap() {
        value[key] = part.clone();
    }
    ProfileDocument::parse(&value.to_string()).unwrap()
}

fn settings(training: TrainingSpec) -> ProfileSettings {
    ProfileSettings {
        name: ProfileName::from_id("p").unwrap(),
        model: ModelName::from_id("m").unwrap(),
        training,
        profiling_mode: ProfilingMode::Imported,
        devices: None,
        scenarios: vec![Scenario::SINGLE],
        scale_by_pipeline: false,
        micro_batch_sizes: vec![4],
        command: None,
        device_kind: "gpu".to_owned(),
        iterations: 1,
        min_capacity: 0,
        deadline_seconds: 1,
        fresh: false,
        reuse_contended: false,
        host_memory: None,
    }
}

fn made(parts: &Value, kind: Option<PredictorKind>) -> Result<AnyPredictor, NoPredictor> {
    let document = document(parts);
    predictor(&document, &settings(document.training.unwrap()), kind)
}

fn lacks(parts: &Value, kind: Option<PredictorKind>) -> String {
    match made(parts, kind) {
        Ok(predictor) => panic!("it has {}", predictor.name()),
        Err(why) => why.to_string(),
    }
}

fn bytes(predictor: &AnyPredictor, parts: &Value, first: usize, last: usize) -> u64 {
    let setting = StageSetting {
        stage: StageConfig::single(first, last),
        stage_index: 0,
        stage_count: 1,
        training: document(parts).training.unwrap(),
    };
    predictor.stage(&setting).unwrap().bytes.0
}

fn stage(first: usize, last: usize, peak: u64) -> Value {
    json!({"first_layer": first, "last_layer": last, "stage_index": 0, "stage_count": 1,
           "micro_batch_size": 4, "in_flight": 2, "peak_bytes": peak})
}

/// Isolated memory 10, 20, 30; added memory 5 and 7.
fn listed() -> Value {
    let row = |isolated: u64, added: Option<i64>| {
        json!([{"micro_batch_size": 4, "in_flight": 2, "degree": 1, "isolated_bytes": isolated,
                "added_bytes": added}])
    };
    json!({"layer_table": {"layers": [
        {"first_layer": 0, "last_layer": 0, "memory": row(10, None)},
        {"first_layer": 1, "last_layer": 1, "memory": row(20, Some(5))},
        {"first_layer": 2, "last_layer": 2, "memory": row(30, Some(7))}
    ]}})
}

#[test]
fn listed_metrics_are_added_up_in_their_own_ledger() {
    let capture = made(&listed(), None).unwrap();
    assert_eq!((capture.name(), capture.ledger()), ("capture/1", Accounting::Reserved));
    assert_eq!(bytes(&capture, &listed(), 0, 2), 10 + 5 + 7);
    assert_eq!(bytes(&capture, &listed(), 1, 2), 20 + 7);
}

/// Pins that peaks of real stages of any tool are enough for CAPTURE's rule.
#[test]
fn metrics_follow_from_measured_stages() {
    let stages = json!({"stages": [
        stage(0, 0, 10), stage(1, 1, 20), stage(2, 2, 30), stage(0, 1, 15), stage(0, 2, 24)
    ]});
    let capture = made(&stages, Some(PredictorKind::Capture)).unwrap();
    assert_eq!(bytes(&capture, &stages, 0, 2), 24);
    assert_eq!(bytes(&capture, &stages, 1, 2), 20 + 9);
    let mut mixed = stages;
    mixed["stages"][4]["ledger"] = json!("allocated");
    assert!(lacks(&mixed, None).contains("different memory accountings"));
    let mut other = json!({"stages": [stage(0, 0, 10)]});
    other["stages"][0]["schedule"] = json!("one_f_one_b");
    assert!(lacks(&other, Some(PredictorKind::Capture)).contains("with the schedule and recompute policy"));
}

/// Pins that a table of times alone is an answer to no question about memory, and that the text says which
/// rows would be one.
#[test]
fn what_a_document_lacks_is_named() {
    let times = json!({"layer_table": {"layers": [{"first_layer": 0, "last_layer": 2, "times": [
        {"micro_batch_size": 4, "tensor_degree": 1, "forward_seconds": 1.0, "backward_seconds": 2.0}
    ]}]}});
    let text = lacks(&times, None);
    assert!(text.contains("`memory` rows") && text.contains("`bytes` rows"), "{text}");
    assert!(lacks(&times, Some(PredictorKind::Table)).contains("`bytes` rows"));
    assert!(lacks(&listed(), Some(PredictorKind::Component)).contains("Loadmaster's own measurements"));
    assert!(lacks(&listed(), Some(PredictorKind::Table)).contains("`bytes` rows"));
}

/// A few lines must not stand for more metrics than a planner has memory for.
#[test]
fn far_too_many_metrics_are_refused() {
    let names: Vec<Value> = (0..2_001).map(|layer| json!({"name": format!("layer{layer}")})).collect();
    let rows: Vec<Value> = (1..=100)
        .map(|size| json!({"micro_batch_size": size, "in_flight": 1, "degree": 1, "isolated_bytes": 1}))
        .collect();
    let parts = json!({
        "model": {"opaque": {"name": "long", "layers": names}},
        "layer_table": {"layers": [{"first_layer": 0, "last_layer": 2_000, "memory": rows}]}
    });
    assert!(lacks(&parts, Some(PredictorKind::Capture)).contains("at most 200000"));
    assert!(layer_metrics(&document(&parts)).0.is_empty());
}

#[test]
fn a_table_with_bytes_is_the_default_and_capture_can_be_asked_for() {
    let mut both = listed();
    for rows in both["layer_table"]["layers"].as_array_mut().unwrap() {
        rows["bytes"] = json!([{"micro_batch_size": 1, "tensor_degree": 1, "parameter_bytes": 100,
                                "activation_bytes": 10, "input_bytes": 4, "output_bytes": 4}]);
    }
    assert_eq!(made(&both, None).unwrap().name(), "table/2");
    assert_eq!(made(&both, Some(PredictorKind::Capture)).unwrap().name(), "capture/1");
}
