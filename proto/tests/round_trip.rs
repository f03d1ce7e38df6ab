//! What goes over the wire comes back the same, and what is broken comes back as an error.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::measure::environment::Environment;
use loadmaster_proto::measure::failure::{FailureKind, OutOfMemory, Phase, RunFailure};
use loadmaster_proto::measure::links::updates::{DeviceUpdates, TimedUpdate};
use loadmaster_proto::measure::links::{
    Collectives, GroupLink, LinkMeasurement, LinkPoint, LinkWork, PairLink,
};
use loadmaster_proto::measure::run::{RunSpec, SoloStage, Task, Work};
use loadmaster_proto::model::Model;
use loadmaster_proto::model::import::{HuggingFaceConfig, LayerList, ModelSource};
use loadmaster_proto::model::zoo::{AmoebaNet, Bert, Gpt2, Llama, TransGan, Vgg, Zoo};
use loadmaster_proto::training::stage::{Partitioning, StageConfig};
use loadmaster_proto::training::step_kind::StepKind;
use loadmaster_proto::training::strategy;
use loadmaster_proto::training::{Optimizer, Precision, RecomputePolicy, Schedule, TrainingSpec};
use loadmaster_proto::wire::v1;
use proptest::prelude::*;
use prost::Message;

fn training() -> TrainingSpec {
    TrainingSpec {
        precision: Precision::Bf16,
        optimizer: Optimizer::Adam {
            learning_rate: 0.5,
            beta1: 0.8,
            beta2: 0.9,
            epsilon: 1e-7,
            weight_decay: 0.01,
        },
        schedule: Schedule::OneFOneB,
        micro_batch_size: 3,
        micro_batches: 5,
        recompute: RecomputePolicy::Stage,
        seed: 7,
    }
}

fn models() -> Vec<Model> {
    let gpt2 = Gpt2 { blocks: 2, untied_head: true, ..Gpt2::default() };
    let zoo = [
        Zoo::Vgg11(Vgg::default()),
        Zoo::Gpt2(Gpt2::default()),
        Zoo::Gpt2(gpt2),
        Zoo::Bert(Bert::default()),
        Zoo::Llama(Llama { blocks: 2, key_value_heads: 4, ..Llama::default() }),
        Zoo::AmoebaNetD(AmoebaNet::default()),
        Zoo::TransGan(TransGan::default()),
    ];
    let imported = HuggingFaceConfig {
        config: r#"{"model_type": "qwen3", "attention_bias": true, "attention_dropout": 0.25}"#.to_owned(),
        sequence_length: Some(16),
        ..HuggingFaceConfig::default()
    };
    zoo.into_iter()
        .map(ModelSource::Zoo)
        .chain([ModelSource::HuggingFace(imported)])
        .map(|source| source.build().unwrap())
        .collect()
}

fn specs() -> Vec<RunSpec> {
    models()
        .into_iter()
        .flat_map(|model| {
            let layers = model.layers().len();
            let works = [
                Work::Partitioning(Partitioning::from_sizes(&[2, layers - 3, 1]).unwrap()),
                Work::Solo(SoloStage { stage: StageConfig::single(1, 3), stage_count: 4, stage_index: 2 }),
            ];
            works.map(|work| RunSpec {
                model: model.clone(),
                strategy: strategy::Strategy::plain(training(), work),
                iterations: 2,
                ..loadmaster_samples::run(1)
            })
        })
        .collect()
}

#[test]
fn every_kind_of_layer_and_work_survives_the_wire_and_json() {
    for spec in specs() {
        let bytes = v1::RunSpec::from(&spec).encode_to_vec();
        let wire = v1::RunSpec::decode(bytes.as_slice()).unwrap();
        assert_eq!(RunSpec::try_from(wire).unwrap(), spec);
        let json = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<RunSpec>(&json).unwrap(), spec);
    }
}

/// What measures links, and what came of it.
#[test]
fn links_survive_the_wire_and_json() {
    let work = LinkWork::standard(4, 1 << 30);
    let task = Task::Links(work.clone());
    let bytes = v1::RunSpec::from(&task).encode_to_vec();
    let wire = v1::RunSpec::decode(bytes.as_slice()).unwrap();
    assert_eq!(Task::try_from(wire.clone()).unwrap(), task);
    assert_eq!(RunSpec::try_from(wire).unwrap_err().violations()[0].field, "link_work");

    let points: Vec<LinkPoint> = work
        .payload_bytes
        .iter()
        .map(|&payload_bytes| LinkPoint { payload_bytes, seconds: 1e-6 + payload_bytes as f64 / 3e9 })
        .collect();
    let measurement = LinkMeasurement {
        device_ids: (0..4).map(|device| format!("gpu{device}")).collect(),
        transport: Collectives::Nccl,
        pairs: work.pairs().map(|(one, two)| PairLink::new(one, two, points.clone()).unwrap()).collect(),
        groups: work
            .groups()
            .into_iter()
            .map(|size| GroupLink::new((0..size).collect(), points.clone()).unwrap())
            .collect(),
        environment: Environment { device_kind: "NVIDIA H200".into(), ..Environment::default() },
        copies: None,
        updates: (0..4).map(updates_of).collect(),
    };
    let wire = v1::MeasuredLinks::from(&measurement);
    assert_eq!(LinkMeasurement::try_from(wire.clone()).unwrap(), measurement);
    let json = serde_json::to_string(&measurement).unwrap();
    assert_eq!(serde_json::from_str::<LinkMeasurement>(&json).unwrap(), measurement);

    let mut negative = wire;
    negative.pairs[1].bytes_per_second = -1.0;
    let invalid = LinkMeasurement::try_from(negative).unwrap_err();
    assert_eq!(invalid.violations()[0].field, "pairs[1].bandwidth");
}

fn updates_of(device: u32) -> DeviceUpdates {
    let timed = |step| TimedUpdate { step, parameters: 4 << 20, alone_seconds: 0.01, together_seconds: 0.03 };
    DeviceUpdates { device, steps: StepKind::ALL.map(timed).to_vec() }
}

/// A policy per stage, or one for all; and no more devices than a worker can have.
#[test]
fn what_no_worker_can_run_is_named() {
    let spec = specs().remove(0);
    let one =
        v1::RunSpec { stage_recompute_policies: vec![v1::RecomputePolicy::Layer.into()], ..(&spec).into() };
    assert_eq!(RunSpec::try_from(one).unwrap_err().violations()[0].field, "stage_recompute");
    let stage = StageConfig { data_degree: 2_048, ..StageConfig::single(1, 3) };
    let training = TrainingSpec { micro_batch_size: 2_048, ..spec.strategy.training };
    let work = Work::Solo(SoloStage { stage, stage_count: 1, stage_index: 0 });
    let too_many = RunSpec { strategy: strategy::Strategy::plain(training, work), ..spec };
    assert_eq!(too_many.checked().unwrap_err().violations()[0].field, "work");
}

/// Sources are stored and shown once more.
#[test]
fn sources_of_models_survive_the_wire_and_json() {
    let zoo = [
        Zoo::Vgg11(Vgg { classes: 7, ..Vgg::default() }),
        Zoo::Gpt2(Gpt2 { dropout: 0.0, ..Gpt2::default() }),
        Zoo::Bert(Bert { hidden_size: 1024, heads: 4, ..Bert::default() }),
        Zoo::Llama(Llama { tied_head: true, rotary_base: 5e5, ..Llama::default() }),
        Zoo::AmoebaNetD(AmoebaNet { filters: 544, ..AmoebaNet::default() }),
        Zoo::TransGan(TransGan { blocks: [1, 2, 3], ..TransGan::default() }),
    ];
    let list = LayerList { document: "family: mine".to_owned() };
    let config = |sequence_length| HuggingFaceConfig {
        config: "{}".to_owned(),
        sequence_length,
        ..Default::default()
    };
    let sources = zoo.into_iter().map(ModelSource::Zoo).chain([
        ModelSource::LayerList(list),
        ModelSource::HuggingFace(config(None)),
        ModelSource::HuggingFace(config(Some(9))),
    ]);
    for source in sources {
        let bytes = v1::ModelSource::from(&source).encode_to_vec();
        let wire = v1::ModelSource::decode(bytes.as_slice()).unwrap();
        assert_eq!(ModelSource::try_from(wire).unwrap(), source);
        let json = serde_json::to_string(&source).unwrap();
        assert_eq!(serde_json::from_str::<ModelSource>(&json).unwrap(), source);
    }
}

/// JSON of a model has no fields with default values, so that new fields change no content id.
#[test]
fn models_are_stored_without_defaults() {
    let json = r#"{"family":"gpt2","input":{"kind":"tokens","sequence_length":8,"vocabulary_size":50},
        "layers":[
            {"name":"embedding","kind":"token_embedding","vocabulary_size":50,"positions":8,
             "hidden_size":16,"dropout":0.1},
            {"name":"block.0","kind":"transformer_block","hidden_size":16,"heads":2,
             "feed_forward_size":64,"dropout":0.1},
            {"name":"norm","kind":"layer_norm","hidden_size":16},
            {"name":"head","kind":"language_model_head","hidden_size":16,"vocabulary_size":50,"tied":true}]}"#;
    let gpt2 = Gpt2 {
        blocks: 1,
        hidden_size: 16,
        heads: 2,
        sequence_length: 8,
        positions: 8,
        vocabulary_size: 50,
        ..Gpt2::default()
    };
    let built = Zoo::Gpt2(gpt2).build().unwrap();
    assert_eq!(serde_json::from_str::<Model>(json).unwrap(), built);
    let value: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!(serde_json::to_value(&built).unwrap(), value, "nothing is written that was not there");
}

#[test]
fn options_of_another_family_are_named() {
    use v1::zoo_model::Options;
    let options = Options::Bert(v1::BertOptions::default());
    let zoo = v1::ZooModel { family: "llama".to_owned(), options: Some(options) };
    let source = v1::ModelSource { source: Some(v1::model_source::Source::Zoo(zoo)) };
    assert_eq!(ModelSource::try_from(source).unwrap_err().violations()[0].field, "zoo.bert");
    let options = Options::Transgan(v1::TransGanOptions { blocks: vec![1, 2], ..Default::default() });
    let zoo = v1::ZooModel { family: "transgan".to_owned(), options: Some(options) };
    let source = v1::ModelSource { source: Some(v1::model_source::Source::Zoo(zoo)) };
    assert_eq!(ModelSource::try_from(source).unwrap_err().violations()[0].field, "zoo.transgan.blocks");
}

#[test]
fn failures_survive_the_wire() {
    let out_of_memory = OutOfMemory {
        asked: Bytes(5),
        held: Bytes(6),
        allowed: Bytes(7),
        ledger: Accounting::Reserved,
        phase: Phase::Backward,
        layer: Some(3),
    };
    let kinds = [
        FailureKind::OutOfMemory { out_of_memory },
        FailureKind::Crashed { signal: 11 },
        FailureKind::Hung,
        FailureKind::Exited { code: 3 },
        FailureKind::NotStarted,
        FailureKind::LeaseExpired,
        FailureKind::HandedBack,
    ];
    for kind in kinds {
        let failure = RunFailure { kind, message: "why".to_owned(), stage_index: Some(2) };
        assert_eq!(RunFailure::try_from(v1::RunFailure::from(&failure)).unwrap(), failure);
    }
}

#[test]
fn a_stage_beyond_the_model_and_a_chain_that_does_not_fit_are_named() {
    let spec = specs().remove(0);
    let mut wire = v1::RunSpec::from(&spec);
    wire.work = Some(v1::run_spec::Work::SoloStage(v1::SoloStage {
        stage: Some(StageConfig::single(0, 30).into()),
        stage_count: 4,
        stage_index: 0,
    }));
    let error = RunSpec::try_from(wire).unwrap_err();
    assert_eq!(error.violations()[0].field, "solo_stage.stage.last_layer");

    let mut wire = v1::RunSpec::from(&spec);
    wire.model.as_mut().unwrap().layers.remove(0);
    let error = RunSpec::try_from(wire).unwrap_err();
    assert!(error.violations()[0].field.starts_with("model.layers["), "{error}");

    let mut wire = v1::RunSpec::from(&spec);
    wire.model.as_mut().unwrap().layers.clear();
    assert_eq!(RunSpec::try_from(wire).unwrap_err().violations()[0].field, "model.layers");
}

proptest! {
    /// A truncated or bent message is an error or another message, which comes back the same.
    #[test]
    fn broken_bytes_are_refused_or_mean_something(cut in 0_usize..4_000, flip in 0_usize..4_000, bit in 0_u8..8) {
        let mut bytes = v1::RunSpec::from(&specs()[1]).encode_to_vec();
        let position = flip % bytes.len();
        bytes[position] ^= 1 << bit;
        bytes.truncate(bytes.len().saturating_sub(cut % bytes.len()));
        if let Ok(wire) = v1::RunSpec::decode(bytes.as_slice())
            && let Ok(spec) = RunSpec::try_from(wire)
        {
            prop_assert_eq!(RunSpec::try_from(v1::RunSpec::from(&spec)).unwrap(), spec);
        }
    }
}
