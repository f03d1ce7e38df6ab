//! What a bent document is answered with: an error that names the key, or figures that can be.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use loadmaster::document::Import;
use loadmaster_predict::choose::PredictorKind;
use loadmaster_predict::choose::imported_profile::predictor;
use loadmaster_predict::forecast::{Forecast, forecast, settings};
use loadmaster_predict::{MOST_BYTES, Margin};
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::training::stage::Partitioning;
use loadmaster_samples::{Bent, bent, foreign, own};
use serde_json::{Value, json};

/// Three layers with CAPTURE's metrics, and stages that they could be derived from.
fn metrics() -> Value {
    let mut whole = foreign();
    let row = |isolated: u64, added: i64| json!([{"micro_batch_size": 2, "in_flight": 2, "degree": 1, "isolated_bytes": isolated, "added_bytes": added}]);
    whole["model"]["opaque"]["layers"] = json!([{"name": "a"}, {"name": "b"}, {"name": "c"}]);
    whole["layer_table"]["layers"] = json!([
        {"first_layer": 0, "last_layer": 0, "memory": row(10, 0)},
        {"first_layer": 1, "last_layer": 2, "memory": row(20, -5)}
    ]);
    whole
}

fn stages() -> Value {
    let mut whole = metrics();
    let stage = |first: usize, last: usize, peak: u64| {
        json!({"first_layer": first, "last_layer": last, "stage_index": 0, "stage_count": 1, "micro_batch_size": 2,
               "in_flight": 2, "peak_bytes": peak})
    };
    whole.as_object_mut().unwrap().remove("layer_table");
    whole["stages"] =
        json!([stage(0, 0, 10), stage(1, 1, 20), stage(2, 2, 30), stage(0, 1, 15), stage(0, 2, 24)]);
    whole
}

fn check(found: &Forecast, bent: &Bent) {
    for stage in &found.stages {
        let at = || format!("{} = {}: {:?}", bent.path, bent.value, stage.prediction);
        assert!(stage.prediction.bytes.0 <= 8 * MOST_BYTES, "{}", at());
        if let Some(seconds) = stage.prediction.seconds {
            for of in [seconds.forward, seconds.backward, seconds.step] {
                assert!(of.is_finite() && of >= 0.0, "{}", at());
            }
        }
        assert!(stage.prediction.margin.is_none_or(|margin| margin.is_finite() && margin >= 0.0), "{}", at());
    }
}

#[test]
fn what_is_predicted_from_a_bent_document_is_finite_and_not_negative() {
    let table: Value = serde_json::from_str(include_str!("../../deploy/profile/table.json")).unwrap();
    let mut answered = 0;
    for whole in [table, foreign(), metrics(), stages(), own()] {
        Import::check(&whole.to_string(), None).unwrap();
        for bent in bent(&whole) {
            let Ok(import) = Import::check(&bent.text, None) else { continue };
            let layers = import.document.model.layer_count();
            for kind in [
                None,
                Some(PredictorKind::Table),
                Some(PredictorKind::Capture),
                Some(PredictorKind::Component),
            ] {
                let Ok(predictor) = predictor(&import.document, &import.settings, kind) else { continue };
                for sizes in [vec![layers], vec![1; layers]] {
                    let partitioning = Partitioning::from_sizes(&sizes).unwrap();
                    let stages = settings(&import.settings.training, &partitioning);
                    let capacities = vec![Bytes(1 << 40); stages.len()];
                    let Ok(found) = forecast(&*predictor, &stages, &capacities, Margin::Known) else {
                        continue;
                    };
                    check(&found, &bent);
                    answered += 1;
                }
            }
        }
    }
    assert!(answered > 500, "{answered} answers");
}
