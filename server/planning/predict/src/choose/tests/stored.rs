//! Which predictor is chosen, and what it is given.

use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::measure::chunked::ChunkRun;
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::measure::run::{ProfilingMode, Work};
use loadmaster_proto::model::Model;
use loadmaster_proto::model::zoo::{Gpt2, Zoo};
use loadmaster_proto::profile::ProfileSettings;
use loadmaster_proto::training::Schedule;
use loadmaster_proto::training::stage::StageConfig;

use super::super::stored_profile::predictor;
use super::super::{AnyPredictor, Evidence, NoPredictor, PredictorKind, Profiled};
use crate::StageSetting;
use crate::profiling::runs::Layout;
use crate::tests::{measurement, settings, training};

fn model() -> Model {
    Zoo::Gpt2(Gpt2 { blocks: 12, ..Gpt2::default() }).build().unwrap()
}

/// A measurement of layers `first..=last` whose peak is a hundred bytes a layer and ten a sample.
fn evidence(first: usize, last: usize, micro_batch_size: u32, held_out: bool) -> Evidence {
    let layers = (last + 1 - first) as u64;
    let measurement = Measurement {
        micro_batch_size,
        in_flight: 4,
        peak_allocated: Bytes(100 * layers + 10 * u64::from(micro_batch_size)),
        step_seconds: 0.1,
        ..measurement(StageConfig::single(first, last))
    };
    Evidence {
        name: format!("runs/{first}-{last}-{micro_batch_size}/measurements/0-0"),
        measurement,
        held_out,
    }
}

/// What the profiling `stages` measures of the model.
fn measured(settings: &ProfileSettings, model: &Model) -> Vec<Evidence> {
    let runs = Layout::new(settings, model).unwrap().runs;
    let solo = runs.iter().map(|run| match &run.strategy.work {
        Work::Solo(solo) => (solo.stage, run.strategy.training.micro_batch_size),
        Work::Partitioning(_) => panic!("the campaign `stages` makes solo runs"),
    });
    solo.map(|(stage, size)| evidence(stage.first_layer, stage.last_layer, size, false)).collect()
}

fn ask(predictor: &AnyPredictor, first: usize, last: usize, size: u32) -> (u64, Vec<String>) {
    let setting = StageSetting {
        stage: StageConfig::single(first, last),
        stage_index: 0,
        stage_count: 1,
        training: training(Schedule::Gpipe, size, 4),
    };
    (predictor.stage(&setting).unwrap().bytes.0, predictor.sources(&setting))
}

/// A profile of stages is answered by CAPTURE's rule, equal stages standing for each other, and names
/// the runs that were made, never a stand-in.
#[test]
fn a_profile_of_stages_is_answered_by_capture() {
    let model = model();
    let settings = settings(ProfilingMode::PerStage, training(Schedule::Gpipe, 8, 4), Some(4));
    let evidence = measured(&settings, &model);
    let profiled = Profiled { settings: &settings, model: &model, evidence: &evidence };
    let predictor = predictor(profiled, None).unwrap();
    assert_eq!((predictor.name(), predictor.layers()), ("capture/1", model.layers().len()));
    let (bytes, sources) = ask(&predictor, 5, 8, 8);
    assert_eq!(bytes, 4 * 100 + 80);
    assert!(!sources.is_empty());
    assert!(sources.iter().all(|source| evidence.iter().any(|of| &of.name == source)), "{sources:?}");
}

/// What was held out teaches nothing and makes the margin.
#[test]
fn held_out_stages_make_the_margin() {
    let model = model();
    let settings = settings(ProfilingMode::PerStage, training(Schedule::Gpipe, 8, 4), Some(4));
    let mut evidence_of = measured(&settings, &model);
    let margin = |evidence: &[Evidence]| {
        let profiled = Profiled { settings: &settings, model: &model, evidence };
        let setting = StageSetting {
            stage: StageConfig::single(0, 3),
            stage_index: 0,
            stage_count: 1,
            training: settings.training,
        };
        predictor(profiled, Some(PredictorKind::Capture)).unwrap().stage(&setting).unwrap().margin
    };
    assert_eq!(margin(&evidence_of), None);
    evidence_of.push(evidence(2, 11, 4, true));
    assert_eq!(margin(&evidence_of), Some(0.0), "it was predicted exactly");
}

/// A rank in chunks holds other peaks than a plain stage of its layers: whatever they are, nothing follows from them.
#[test]
fn what_was_trained_in_chunks_is_no_evidence() {
    let model = model();
    let settings = settings(ProfilingMode::PerStage, training(Schedule::Gpipe, 8, 4), Some(4));
    let plain = measured(&settings, &model);
    let in_chunks = |held_out| {
        let of = evidence(0, model.layers().len() - 1, 8, held_out);
        let chunks = Some(Box::new(ChunkRun::default()));
        let measurement = Measurement {
            chunks,
            peak_allocated: Bytes(1),
            peak_ledger: Accounting::Reserved,
            ..of.measurement
        };
        Evidence { measurement, ..of }
    };
    let both = [&plain[..], &[in_chunks(true), in_chunks(false)]].concat();
    let answers = |evidence: &[Evidence]| {
        let profiled = Profiled { settings: &settings, model: &model, evidence };
        let predictor = predictor(profiled, None).unwrap();
        let last = model.layers().len() - 1;
        let stages = [(0, 3), (5, 8), (0, last)];
        let told = stages.map(|(first, last)| {
            let setting = StageSetting {
                stage: StageConfig::single(first, last),
                stage_index: 0,
                stage_count: 1,
                training: settings.training,
            };
            predictor.stage(&setting).unwrap()
        });
        (predictor.name(), format!("{told:?}"), stages.map(|(first, last)| ask(&predictor, first, last, 8)))
    };
    assert_eq!(answers(&both), answers(&plain));
}

/// A predictor that the profile has nothing for is refused, with the profiling that measures it.
#[test]
fn a_predictor_without_its_measurements_is_refused_with_a_remedy() {
    let model = model();
    let stages = settings(ProfilingMode::PerStage, training(Schedule::Gpipe, 8, 4), Some(4));
    let evidence_of = measured(&stages, &model);
    let lacks = |settings: &ProfileSettings, evidence: &[Evidence], kind| {
        let profiled = Profiled { settings, model: &model, evidence };
        match predictor(profiled, Some(kind)) {
            Err(NoPredictor::Lacks(why)) => why,
            other => panic!("{:?}", other.map(|predictor| predictor.name())),
        }
    };
    assert!(lacks(&stages, &evidence_of, PredictorKind::Component).contains("PROFILING_MODE_PER_LAYER"));
    assert!(lacks(&stages, &evidence_of, PredictorKind::Table).contains("imported"));
    let minimal = settings(ProfilingMode::PerLayer, training(Schedule::Gpipe, 8, 4), None);
    assert!(lacks(&minimal, &[], PredictorKind::Capture).contains("PROFILING_MODE_PER_STAGE"));
    let mut mixed = evidence_of;
    mixed[0].measurement.peak_ledger = Accounting::Reserved;
    assert!(lacks(&stages, &mixed, PredictorKind::Capture).contains("different memory accountings"));
}
