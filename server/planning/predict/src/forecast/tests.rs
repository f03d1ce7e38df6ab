//! Promises of a forecast.

use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::profile::document::ProfileDocument;
use loadmaster_proto::training::Schedule;
use loadmaster_proto::training::stage::StageConfig;
use loadmaster_proto::warning::{Warning, WarningCode};

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::Origin;
use crate::layer_table::TablePredictor;
use crate::tests::training;

/// Every layer needs 100 bytes on one device, less on several; known to 10 % on one device alone.
struct Hundreds;

impl Predictor for Hundreds {
    fn name(&self) -> &'static str {
        "hundreds/1"
    }

    fn layers(&self) -> usize {
        6
    }

    fn stage(&self, setting: &StageSetting) -> Result<Prediction, PredictionError> {
        let stage = setting.stage;
        if stage.last_layer >= 6 {
            return Err(PredictionError::NoSuchStage { first: 0, last: stage.last_layer, layers: 6 });
        }
        Ok(Prediction {
            bytes: Bytes(100 * stage.layer_count() as u64 / u64::from(stage.devices())),
            breakdown: None,
            seconds: None,
            margin: (stage.devices() == 1).then_some(0.1),
            seconds_margin: None,
            predictor: self.name(),
            origin: if stage.devices() == 1 { Origin::Profiled } else { Origin::Extrapolated },
        })
    }

    fn sources(&self, setting: &StageSetting) -> Vec<String> {
        setting.stage.layers().map(|layer| format!("runs/{}/measurements/0", layer / 2)).collect()
    }

    fn warnings(&self, _setting: &StageSetting) -> Vec<Warning> {
        vec![WarningCode::Extrapolated.says("of hundreds")]
    }
}

fn stages(sizes: &[usize]) -> Vec<StageSetting> {
    settings(&training(Schedule::Gpipe, 8, 4), &Partitioning::from_sizes(sizes).unwrap())
}

fn asked(sizes: &[usize], capacities: &[u64], margin: Margin) -> Forecast {
    let capacities: Vec<Bytes> = capacities.iter().copied().map(Bytes).collect();
    forecast(&Hundreds, &stages(sizes), &capacities, margin).unwrap()
}

/// The verdict of a pipeline is that of its worst stage, and the device named is the first that has it.
#[test]
fn the_worst_stage_decides_and_its_first_device_is_named() {
    let of = |capacities: &[u64]| {
        let forecast = asked(&[2, 2, 2], capacities, Margin::Known);
        (forecast.verdict(), forecast.first_too_small())
    };
    assert_eq!(of(&[220, 220, 220]), (Verdict::Fits, None));
    assert_eq!(of(&[220, 219, 200]), (Verdict::FitsWithoutMargin, Some(1)));
    assert_eq!(of(&[219, 199, 198]), (Verdict::DoesNotFit, Some(1)));
    assert_eq!(of(&[]), (Verdict::NotAsked, None));
}

/// Slack is what is left of the capacity at the upper end, negative where bytes are lacking.
#[test]
fn slack_is_counted_at_the_upper_end() {
    let slack = |capacity, margin| asked(&[6], &[capacity], margin).stages[0].slack();
    assert_eq!(slack(1_000, Margin::Known), Some(340));
    assert_eq!(slack(650, Margin::Known), Some(-10));
    assert_eq!(slack(650, Margin::Share(0.0)), Some(50));
    assert_eq!(asked(&[6], &[], Margin::Known).stages[0].slack(), None);
}

/// A stage of degree n takes n devices, and the smallest of them must hold the largest share.
#[test]
fn a_parallel_stage_takes_as_many_devices_as_its_degree() {
    let mut stages = stages(&[2, 4]);
    stages[1].stage = StageConfig { tensor_degree: 2, ..stages[1].stage };
    assert_eq!(devices(&stages), 3);
    let capacities = [Bytes(500), Bytes(500), Bytes(100)];
    let forecast = forecast(&Hundreds, &stages, &capacities, Margin::Known).unwrap();
    assert_eq!((forecast.stages[1].first_device, forecast.first_too_small()), (1, Some(2)));
    let smallest = forecast.stages[1].smallest;
    assert_eq!(smallest, Some(SmallestDevice { index: 2, capacity: Bytes(100) }));
    assert_eq!(
        super::forecast(&Hundreds, &stages, &capacities[..2], Margin::Known).unwrap_err(),
        ForecastError::DeviceCount { needed: 3, given: 2 }
    );
}

/// Where no margin is known, "fits" would promise too much, and the answer says why it does not.
#[test]
fn an_unknown_margin_is_told_and_never_fits() {
    let mut stages = stages(&[6]);
    stages[0].stage = StageConfig { data_degree: 2, ..stages[0].stage };
    let plenty = [Bytes(1 << 40); 2];
    let known = forecast(&Hundreds, &stages, &plenty, Margin::Known).unwrap();
    assert_eq!(known.verdict(), Verdict::Uncertain);
    assert!(
        known.warnings.iter().any(|warning| warning.message.contains("safety margin is not known")),
        "{known:?}"
    );
    let chosen = forecast(&Hundreds, &stages, &plenty, Margin::Share(0.2)).unwrap();
    assert_eq!(chosen.verdict(), Verdict::Fits);
    assert!(chosen.warnings.iter().any(|warning| warning.message.contains("20.0 %")), "{chosen:?}");
}

/// Sources and warnings are reported once, however many stages share them.
#[test]
fn sources_and_warnings_are_told_once() {
    let forecast = asked(&[1, 2, 3], &[], Margin::Known);
    assert_eq!(forecast.sources, [0, 1, 2].map(|run| format!("runs/{run}/measurements/0")));
    assert_eq!(forecast.warnings.iter().filter(|warning| warning.message == "of hundreds").count(), 1);
}

/// A gap in the profile is the error, not a wrong number.
#[test]
fn a_stage_that_cannot_be_predicted_is_the_error() {
    let error = forecast(&Hundreds, &stages(&[6, 1]), &[], Margin::Known).unwrap_err();
    assert!(matches!(error, ForecastError::Prediction(PredictionError::NoSuchStage { .. })));
}

/// Devices without a driver have no context, stages without company no communicators, and a memory accounting that
/// shows something does not exclude it.
#[test]
fn what_is_excluded_depends_on_ledger_device_and_communication() {
    let names = |ledger, kind: &str, communicates| -> Vec<&str> {
        excluded(ledger, kind, communicates).iter().map(|excluded| excluded.what).collect()
    };
    let gpu = "NVIDIA H200";
    let on_cpu = names(Accounting::Allocated, "cpu", true);
    assert!(!on_cpu.iter().any(|what| what.contains("CUDA") || what.contains("NCCL")));
    assert!(names(Accounting::Allocated, gpu, true).contains(&"NCCL communicators"));
    assert!(!names(Accounting::Allocated, gpu, false).contains(&"NCCL communicators"));
    let fragmentation = |ledger| names(ledger, gpu, true).iter().any(|what| what.contains("fragmentation"));
    assert!(fragmentation(Accounting::Allocated) && !fragmentation(Accounting::Reserved));
    assert_eq!(names(Accounting::Device, gpu, true), ["other processes on the device"]);
    for Excluded { typical, .. } in excluded(Accounting::Allocated, gpu, true) {
        assert!(typical.is_none_or(|(low, high)| low <= high));
    }
}

/// A table of six equal layers in a memory accounting, with its constant and its margin where it states them.
fn table(ledger: &str, overhead: Option<u64>, margin: Option<f64>) -> TablePredictor {
    let layers: Vec<_> = (0..6).map(|layer| json!({"name": format!("layer {layer}")})).collect();
    let row = json!({"micro_batch_size": 1, "tensor_degree": 1, "parameter_bytes": 400, "activation_bytes": 40,
                     "transient_bytes": 40, "input_bytes": 4, "output_bytes": 4});
    let mut rows = json!({"layers": [{"first_layer": 0, "last_layer": 5, "bytes": [row]}]});
    overhead.into_iter().for_each(|bytes| rows["overhead_bytes"] = json!(bytes));
    margin.into_iter().for_each(|share| rows["margin"] = json!(share));
    let document = json!({
        "format": "loadmaster.profile/1",
        "provenance": {"source": "a test", "tool": "hand", "device_kind": "gpu", "ledger": ledger},
        "model": {"opaque": {"name": "chain", "layers": layers}},
        "layer_table": rows
    });
    TablePredictor::new(&ProfileDocument::parse(&document.to_string()).unwrap()).unwrap()
}

proptest! {
    /// Whatever predicts, in whatever memory accounting and with whatever margin: what is said to fit has the upper
    /// end of its interval within the device, what has no interval is uncertain and says why, and nothing else says
    /// that nothing fits.
    #[test]
    fn verdict_interval_and_warnings_agree(
        ledger in prop::sample::select(vec!["allocated", "reserved", "device"]),
        overhead in prop::option::of(0_u64..1_000),
        stated in prop::option::of(0.0..0.5_f64),
        asked in prop::option::of(0.0..0.5_f64),
        room in 0.5..2.5_f64,
        replicas in 1_u32..=2,
        is_table in any::<bool>(),
    ) {
        let margin = asked.map_or(Margin::Known, Margin::Share);
        let table = table(ledger, overhead, stated);
        let predictor: &dyn Predictor = if is_table { &table } else { &Hundreds };
        let replicas = if is_table { 1 } else { replicas };
        let mut stages = settings(&training(Schedule::Gpipe, 2, 4), &Partitioning::from_sizes(&[3, 3]).unwrap());
        stages.iter_mut().for_each(|setting| setting.stage.data_degree = replicas);
        let bare = forecast(predictor, &stages, &[], margin).unwrap();
        prop_assert_eq!(bare.verdict(), Verdict::NotAsked);
        let bytes = bare.stages[0].prediction.bytes.0;
        let capacity = Bytes((bytes as f64 * room) as u64);
        let found = forecast(predictor, &stages, &vec![capacity; devices(&stages)], margin).unwrap();
        let has_constant = !is_table || ledger != "device" || overhead.is_some();
        // `Hundreds` has no margin of replicas; a table has one in any case.
        let share = asked.or_else(|| match (is_table, replicas) {
            (true, _) => Some(stated.unwrap_or(0.1)),
            (false, 1) => Some(0.1),
            (false, _) => None,
        });
        let largest = found.stages.iter().map(|stage| stage.prediction.bytes.0).max().unwrap();
        let high = share.filter(|_| has_constant).map(|share| largest + (largest as f64 * share).ceil() as u64);
        let expected = match high {
            _ if largest > capacity.0 => Verdict::DoesNotFit,
            None => Verdict::Uncertain,
            Some(high) if high > capacity.0 => Verdict::FitsWithoutMargin,
            Some(_) => Verdict::Fits,
        };
        prop_assert_eq!(found.verdict(), expected);
        prop_assert!(found.stages.iter().all(|stage| stage.interval.is_some() == high.is_some()));
        let is_warned = found.warnings.iter().any(|warning| warning.message.contains("no plan is reported to fit"));
        prop_assert_eq!(is_warned, high.is_none());
    }
}
