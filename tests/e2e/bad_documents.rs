//! Hostile documents over the wire: each is refused by name, takes little memory, and nobody else notices.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::create_cluster_request::Subject;
use loadmaster_tests::{Planner, call, cli, json, peak_resident_bytes};
use serde_json::{Value, json as value};
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_types::StatusExt;

/// Size of a hostile document: what a client may send, halved.
const SIZE: usize = 8 << 20;
/// Most memory that a planner may take besides what it took before, while eight clients send it hostile documents.
const MOST_MEMORY: u64 = 640 << 20;

/// One document for an importer.
#[derive(Debug, Clone)]
enum Hostile {
    Cluster(String),
    Layers(String),
    HuggingFace(String),
    Profile(String),
}

impl Hostile {
    async fn send(&self, channel: &Channel) -> Result<(), Status> {
        match self.clone() {
            Self::Cluster(document) => cluster(channel, document).await,
            Self::Layers(document) => {
                model(channel, v1::model_source::Source::LayerList(v1::LayerList { document })).await
            }
            Self::HuggingFace(config) => {
                let source = v1::HuggingFaceConfig { config, ..Default::default() };
                model(channel, v1::model_source::Source::HuggingFace(source)).await
            }
            Self::Profile(document) => import(channel, document).await,
        }
    }
}

async fn cluster(channel: &Channel, document: String) -> Result<(), Status> {
    let options = v1::ClusterImportOptions {
        device_kind: "gpu".to_owned(),
        memory_bytes: 1 << 30,
        devices_per_node: 1,
        ..v1::ClusterImportOptions::default()
    };
    let file = v1::ClusterFile { document, format: 0, options: Some(options) };
    let request = v1::CreateClusterRequest { subject: Some(Subject::File(file)), ..Default::default() };
    call(channel, request).await.map(drop)
}

async fn model(channel: &Channel, source: v1::model_source::Source) -> Result<(), Status> {
    let source = Some(v1::ModelSource { source: Some(source) });
    let request = v1::CreateModelRequest { source, validate_only: false };
    call(channel, request).await.map(drop)
}

async fn import(channel: &Channel, document: String) -> Result<(), Status> {
    let request = v1::ImportProfileRequest { document, ..Default::default() };
    call(channel, request).await.map(drop)
}

/// Sends until it is this document's turn.
async fn answer(channel: &Channel, hostile: &Hostile) -> Status {
    loop {
        let status = hostile.send(channel).await.expect_err("a hostile document is refused");
        if status.code() != Code::ResourceExhausted {
            return status;
        }
        // No room to receive it, or no turn to read it.
        assert!(
            ["TOO_MANY_IMPORTS", "TOO_MANY_REQUEST_BYTES"].contains(&reason(&status).as_str()),
            "{status}"
        );
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
}

fn reason(status: &Status) -> String {
    status.get_details_error_info().map(|info| info.reason).unwrap_or_default()
}

fn field(status: &Status) -> String {
    let request = status.get_details_bad_request();
    request.and_then(|of| of.field_violations.into_iter().next()).map(|of| of.field).unwrap_or_default()
}

/// `unit` again and again.
fn much(unit: &str) -> String {
    unit.repeat(SIZE / unit.len())
}

/// Documents that stand for much memory, and some that are just within the limits.
fn explosions() -> Vec<Hostile> {
    let relu = |values: usize| {
        let layer = format!("{{\"name\": \"a\", \"kind\": \"relu\", \"more\": [{}0]}}", "0,".repeat(values));
        let known = format!("{{\"family\": \"a\", \"input\": {{}}, \"layers\": [{layer}]}}");
        format!("{{\"format\": \"loadmaster.profile/1\", \"model\": {{\"known\": {known}}}}}")
    };
    let attributes: String = (0..600_000).map(|index| format!(" a{index}=\"\"")).collect();
    vec![
        Hostile::Cluster(format!("topology: [{}]", much("a,"))),
        Hostile::Cluster(format!("topology:\n{}", much("- - a\n"))),
        Hostile::Cluster(format!("{{\"instances\": [{}{{}}]}}", much("{\"\":{}},"))),
        Hostile::Cluster(format!("<system{attributes}/>")),
        Hostile::Cluster(format!("<system>{}</system>", much("<a/>"))),
        Hostile::Layers(format!("layers: [{}]", much("{a: b},").split_at(3 << 20).0)),
        Hostile::HuggingFace(format!("{{\"model_type\": [{}0]}}", much("0,").split_at(3 << 20).0)),
        Hostile::Profile(format!("{{\"model\": {{\"known\": [{}0]}}}}", much("{},"))),
        Hostile::Profile(relu(3_900_000)),
        Hostile::Cluster(format!("topology: [{}a]", "a,".repeat(590_000))),
        Hostile::Cluster(format!("{{\"instances\": [{}{{}}]}}", "{\"\":0},".repeat(190_000))),
    ]
}

/// Eight of them at once ended the planner.
#[tokio::test(flavor = "multi_thread")]
async fn documents_that_explode_are_refused_within_bounded_memory_while_others_are_answered() {
    let mut planner = Planner::start();
    let channel = planner.channel().await;
    let pid = planner.program().pid();
    let before = peak_resident_bytes(pid);
    let is_over = Arc::new(AtomicBool::new(false));
    let other = {
        let (channel, is_over) = (planner.channel().await, Arc::clone(&is_over));
        tokio::spawn(async move {
            let mut answered = 0_u32;
            while !is_over.load(Ordering::Relaxed) {
                call(&channel, v1::ListModelsRequest::default()).await.expect("others are answered");
                answered += 1;
            }
            answered
        })
    };
    let calls: Vec<_> = explosions()
        .into_iter()
        .map(|hostile| {
            let channel = channel.clone();
            tokio::spawn(async move { answer(&channel, &hostile).await })
        })
        .collect();
    for call in calls {
        let status = call.await.expect("a call ends");
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        assert_eq!(reason(&status), "INVALID_FIELD", "{status}");
        assert!(!field(&status).is_empty(), "{status}");
    }
    is_over.store(true, Ordering::Relaxed);
    assert!(other.await.expect("others are answered") > 0);
    let taken = peak_resident_bytes(pid) - before;
    println!("the planner took {} MiB besides its {} MiB", taken >> 20, before >> 20);
    assert!(taken < MOST_MEMORY, "{} MiB", taken >> 20);
}

/// A table of two layers.
fn table() -> Value {
    value!({
        "format": "loadmaster.profile/1",
        "provenance": {"source": "made up for a test", "tool": "by hand", "device_kind": "gpu", "ledger": "reserved"},
        "model": {"opaque": {"name": "chain", "layers": [
            {"name": "a", "parameter_count": 10}, {"name": "b", "parameter_count": 10}
        ]}},
        "training": {
            "precision": "fp32", "optimizer": {"kind": "sgd", "learning_rate": 0.001, "momentum": 0.9,
            "weight_decay": 0.0}, "schedule": "one_f_one_b",
            "micro_batch_size": 4, "micro_batches": 4, "recompute": "none", "seed": 0
        },
        "layer_table": {"times_without_collectives": false, "layers": [{
            "first_layer": 0, "last_layer": 1,
            "bytes": [{"micro_batch_size": 4, "tensor_degree": 1, "parameter_bytes": 4096,
                       "activation_bytes": 65_536, "input_bytes": 4_096, "output_bytes": 4_096}],
            "times": [{"micro_batch_size": 4, "tensor_degree": 1, "forward_seconds": 0.1,
                       "backward_seconds": 0.2, "update_seconds": 0.01}]
        }]}
    })
}

fn bent(pointer: &str, to: Value) -> String {
    let mut document = table();
    *document.pointer_mut(pointer).expect("the table has this key") = to;
    document.to_string()
}

/// What was taken before, or answered as a failure of the store.
#[tokio::test(flavor = "multi_thread")]
async fn nonsense_in_a_profile_document_is_refused_by_its_key() {
    let planner = Planner::start();
    let channel = planner.channel().await;
    import(&channel, table().to_string()).await.expect("the table is one");
    let rows = "/layer_table/layers/0";
    for (pointer, to, key) in [
        ("/provenance/device_kind", value!("gpu\u{0}"), "document.provenance.device_kind"),
        ("/provenance/device_kind", value!("a/b"), "document.provenance.device_kind"),
        ("/model/opaque/layers/0/name", value!("a\u{0}"), "document.model.opaque.layers[0].name"),
        ("/model/opaque/layers/0/name", value!("a\u{1b}[2J"), "document.model.opaque.layers[0].name"),
        ("/model/opaque/name", value!("a/b"), "document.model.opaque.name"),
        (
            "/model/opaque/layers/1/parameter_count",
            value!(u64::MAX),
            "document.model.opaque.layers[1].parameter_count",
        ),
        ("/training/micro_batch_size", value!(0), "document.training.micro_batch_size"),
        (
            &format!("{rows}/bytes/0/parameter_bytes"),
            value!(u64::MAX),
            "document.layer_table.layers[0].bytes[0].parameter_bytes",
        ),
        (
            &format!("{rows}/times/0/forward_seconds"),
            value!(1e308),
            "document.layer_table.layers[0].times[0].forward_seconds",
        ),
        (
            &format!("{rows}/times/0/micro_batch_size"),
            value!(0),
            "document.layer_table.layers[0].times[0].micro_batch_size",
        ),
        ("/layer_table/layers/0", value!({"first_layer": 0, "last_layer": 1}), "document.layer_table.layers"),
    ] {
        let status = import(&channel, bent(pointer, to)).await.expect_err(pointer);
        assert_eq!((status.code(), field(&status).as_str()), (Code::InvalidArgument, key), "{status}");
    }
    let status = import(&channel, String::new()).await.expect_err("an empty document");
    assert_eq!((status.code(), field(&status).as_str()), (Code::InvalidArgument, "document"), "{status}");
    // Planning calls that bring a document along read it in the same way.
    let request = v1::PredictPlanRequest {
        problem: Some(v1::Problem {
            profile_document: bent("/model/opaque/name", value!("a\u{0}")),
            ..Default::default()
        }),
        subject: Some(v1::predict_plan_request::Subject::Stage(v1::SoloStage::default())),
        ..Default::default()
    };
    let status = call(&channel, request).await.expect_err("a NUL");
    assert_eq!(field(&status), "profile_document.model.opaque.name", "{status}");
}

/// The largest numbers that are taken are still numbers in every answer.
#[test]
fn answers_from_the_largest_numbers_are_finite() {
    let planner = Planner::start();
    let folder = tempfile::tempdir().expect("a folder can be made");
    let mut document = table();
    let rows = &mut document["layer_table"]["layers"][0];
    for key in ["parameter_bytes", "activation_bytes", "input_bytes", "output_bytes"] {
        rows["bytes"][0][key] = value!(1_u64 << 48);
    }
    for key in ["forward_seconds", "backward_seconds", "update_seconds"] {
        rows["times"][0][key] = value!(1e6);
    }
    document["training"]["micro_batches"] = value!(10_000);
    let file = folder.path().join("largest.json");
    std::fs::write(&file, document.to_string()).expect("a file can be written");
    let file = file.to_str().expect("a path is text");
    let predicted = json(&planner, &["plan", "predict", "--profile", file, "--pipeline-layout", "1-1"]);
    let text = predicted.to_string();
    assert!(!text.contains("Infinity") && !text.contains("NaN") && !text.contains("\"-"), "{text}");
    let output = cli(&planner, &["plan", "recommend", "--profile", file, "--devices", "2x1GiB"]);
    assert_eq!(output.code, 5, "nothing holds it: {}{}", output.stdout, output.stderr);
    assert!(!output.stderr.contains("inf "), "{}", output.stderr);
}

/// One number for each of ten thousand million devices would be 80 GB.
#[tokio::test(flavor = "multi_thread")]
async fn a_partitioning_of_more_devices_than_there_are_is_refused() {
    let mut planner = Planner::start();
    let channel = planner.channel().await;
    let stage = |first_layer: i32, last_layer: i32| v1::StageConfig {
        first_layer,
        last_layer,
        data_parallel_size: 16_384,
        tensor_parallel_size: 64,
        ..Default::default()
    };
    let partitioning = v1::PipelineLayout { stages: vec![stage(0, 0), stage(1, 1)] };
    let request = v1::PredictPlanRequest {
        problem: Some(v1::Problem { profile_document: table().to_string(), ..Default::default() }),
        subject: Some(v1::predict_plan_request::Subject::PipelineLayout(partitioning)),
        device_capacity_bytes: 1 << 30,
        ..Default::default()
    };
    let status = call(&channel, request).await.expect_err("too many devices");
    assert_eq!(field(&status), "pipeline_layout.stages.devices", "{status}");
    assert!(planner.program().is_running());
}

/// Two bytes of a message would be a quarter of a kilobyte each.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_millions_of_empty_parts_is_refused_before_it_is_decoded() {
    let mut planner = Planner::start();
    let channel = planner.channel().await;
    let pid = planner.program().pid();
    let before = peak_resident_bytes(pid);
    let cluster = v1::Cluster { nodes: vec![v1::ClusterNode::default(); 2_000_000], ..Default::default() };
    let request = v1::CreateClusterRequest { subject: Some(Subject::Cluster(cluster)), ..Default::default() };
    let status = call(&channel, request).await.expect_err("far too many nodes");
    assert_eq!(status.code(), Code::OutOfRange, "{status}");
    let taken = peak_resident_bytes(pid) - before;
    assert!(taken < 128 << 20, "{} MiB", taken >> 20);
}

/// Names that no database stores, and positions that no row has.
#[tokio::test(flavor = "multi_thread")]
async fn names_and_page_tokens_that_cannot_be_stored_never_reach_the_database() {
    let planner = Planner::start();
    let channel = planner.channel().await;
    let cluster = |node: &str, kind: &str| {
        let text = value!({
            "format": "loadmaster.cluster/1", "kinds": [{"name": kind, "memory": "1GiB"}],
            "nodes": [{"name": node, "kind": kind, "devices": 1}]
        });
        Hostile::Cluster(text.to_string())
    };
    let layers = |family: &str, name: &str| {
        let layers = value!([{"name": name, "kind": "relu"}]);
        let text = value!({"family": family, "input": {"kind": "vector", "size": 4}, "layers": layers});
        Hostile::Layers(text.to_string())
    };
    cluster("a", "b").send(&channel).await.expect("a cluster");
    layers("a", "b").send(&channel).await.expect("a model");
    for wrong in ["a\u{0}", "a\u{7}", "a/b", ""] {
        for (hostile, key) in [
            (cluster(wrong, "b"), "file.document.nodes[0].name"),
            (cluster("a", wrong), "file.document.kinds[0].name"),
            (layers(wrong, "b"), "source.layer_list.document.family"),
            (layers("a", wrong), "source.layer_list.document.layers[0].name"),
        ] {
            let status = hostile.send(&channel).await.expect_err("a name that cannot be stored");
            assert_eq!(
                (status.code(), field(&status).as_str()),
                (Code::InvalidArgument, key),
                "{wrong:?}: {status}"
            );
        }
    }
    // As a client gets it, with another time in it.
    layers("other", "b").send(&channel).await.expect("a second model");
    let request = v1::ListModelsRequest { page_size: 1, ..Default::default() };
    let token = call(&channel, request).await.expect("a page").next_page_token;
    assert!(!token.is_empty());
    for (time, id) in [("-009000-01-01T00:00:00Z", "a"), ("2026-01-01T00:00:00Z", "a\u{0}")] {
        let request = v1::ListModelsRequest { page_token: forged(&token, time, id), ..Default::default() };
        let status = call(&channel, request).await.expect_err("a forged token");
        assert_eq!(
            (status.code(), field(&status).as_str()),
            (Code::InvalidArgument, "page_token"),
            "{status}"
        );
    }
}

/// The same token with another position.
fn forged(token: &str, time: &str, id: &str) -> String {
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let text = URL_SAFE_NO_PAD.decode(token).expect("a token is base64");
    let mut content: Value = serde_json::from_slice(&text).expect("of JSON");
    content["after"] = value!({"time": time, "id": id});
    URL_SAFE_NO_PAD.encode(content.to_string())
}
