//! Clusters as users meet them: read from files, discovered from real workers, measured, shown.

use std::path::{Path, PathBuf};

use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::create_cluster_request::Subject;
use loadmaster_tests::{Planner, SMALL_GPT2, Worker, WorkerOptions, call, cli, json, profile};
use tonic::Code;
use tonic_types::StatusExt;

const KIND: [&str; 4] = ["--device-kind", "NVIDIA H100 80GB HBM3", "--device-memory", "80GiB"];

/// Of a worker whose link to its host is as slow as this.
const PACED: &str = "--host-memory 1GiB --cpu-links host=400MB/s";

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

fn fixture(name: &str) -> String {
    file("proto/src/cluster/import/fixtures").join(name).display().to_string()
}

fn import<'a>(path: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut line = vec!["cluster", "import", path];
    line.extend(KIND);
    line.extend(more);
    line
}

/// The example is a cluster under a name of the user's choice; the same again is no second one, and another one
/// under its name is refused.
#[test]
fn a_cluster_written_by_hand_is_stored_once_and_shown() {
    let planner = Planner::start();
    let example = file("deploy/clusters/two-kinds.yaml").display().to_string();
    let stored = json(&planner, &["cluster", "import", &example, "--id", "prod"]);
    assert_eq!((&stored["name"], &stored["deviceCount"]), (&"clusters/prod".into(), &80.into()), "{stored}");
    assert_eq!(json(&planner, &["cluster", "import", &example, "--id", "prod"]), stored);
    assert_eq!(json(&planner, &["cluster", "show", "prod"]), stored);
    let kind =
        ["--nodes", "n[1-2]", "--devices-per-node", "8", "--network-bandwidth", "400Gb/s", "--id", "prod"];
    let mut create = vec!["cluster", "create"];
    create.extend(KIND);
    create.extend(kind);
    let taken = cli(&planner, &create);
    assert!(taken.code == 2 && taken.stderr.contains("clusters/prod already exists"), "{taken:?}");
    create.truncate(create.len() - 2);
    let derived = json(&planner, &create);
    assert_eq!(derived["nodes"][1]["network"]["origin"], "SPEED_ORIGIN_GIVEN", "{derived}");
    assert_eq!(derived["nodes"][1]["link"]["origin"], "SPEED_ORIGIN_ASSUMED");
    assert_eq!(json(&planner, &create)["name"], derived["name"], "the name follows from the content");

    let listed = json(&planner, &["cluster", "list"]);
    let clusters = listed["clusters"].as_array().unwrap();
    assert_eq!(clusters.len(), 2);
    assert!(clusters.iter().all(|cluster| cluster["nodes"].as_array().is_some_and(Vec::is_empty)));
    let shown = cli(&planner, &["cluster", "show", "prod"]).stdout;
    for part in [
        "8 × NVIDIA H100 80GB HBM3",
        "NV12 228m",
        "rack rack-1: h01 .. h08 (8 nodes)",
        "12.5 GB/s, 12 µs, given",
    ] {
        assert!(shown.contains(part), "{part} is missing:\n{shown}");
    }
}

/// A cluster that was stored wrong is corrected under its name, or deleted, and its id can be used again.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_updated_and_deleted() {
    let planner = Planner::start();
    let example = file("deploy/clusters/two-kinds.yaml").display().to_string();
    let equal = ["--nodes", "n[1-2]", "--devices-per-node", "8"];
    let line = |verb: &[&'static str]| [verb, &KIND[..], &equal[..]].concat();
    let first = json(&planner, &line(&["cluster", "create", "--id", "prod"]));
    let taken = cli(&planner, &["cluster", "import", &example, "--id", "prod"]);
    assert!(taken.code == 2 && taken.stderr.contains("Update it"), "the remedy is named: {taken:?}");
    let shown = json(&planner, &["cluster", "update", "prod", "-f", &example, "--dry-run"]);
    assert_eq!((&shown["name"], &shown["deviceCount"]), (&"clusters/prod".into(), &80.into()), "{shown}");
    assert_eq!(json(&planner, &["cluster", "show", "prod"]), first, "a dry run changes nothing");
    let etag = first["etag"].as_str().unwrap();
    let changed = json(&planner, &["cluster", "update", "prod", "--file", &example, "--etag", etag]);
    assert_eq!((&changed["deviceCount"], &changed["createTime"]), (&80.into(), &first["createTime"]));
    assert_eq!(json(&planner, &["cluster", "show", "prod"]), changed);
    let late = cli(&planner, &[&line(&["cluster", "update", "prod"])[..], &["--etag", etag]].concat());
    assert!(late.code != 0 && late.stderr.contains("ETAG_MISMATCH"), "{late:?}");
    let missing = cli(&planner, &["cluster", "update", "prod", "--nodes", "n1"]);
    assert!(missing.code == 2 && missing.stderr.contains("--devices-per-node"), "{missing:?}");

    // Over the wire, one field of it.
    let channel = planner.channel().await;
    let kind = v1::DeviceKind {
        name: KIND[1].to_owned(),
        memory_bytes: 80 << 30,
        hourly_price: Some(2.5),
        ..v1::DeviceKind::default()
    };
    let cluster =
        v1::Cluster { name: "clusters/prod".to_owned(), kinds: vec![kind], ..v1::Cluster::default() };
    let request = v1::UpdateClusterRequest { cluster: Some(cluster), ..v1::UpdateClusterRequest::default() };
    let refused = call(&channel, request.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "its other kind has devices: {refused}");
    json(&planner, &line(&["cluster", "update", "prod"]));
    let priced = call(&channel, request).await.unwrap();
    assert_eq!((priced.node_count, priced.kinds[0].hourly_price), (2, Some(2.5)));
    let update_mask = Some(prost_types::FieldMask { paths: vec!["warnings".to_owned()] });
    let cluster = Some(v1::Cluster { name: "clusters/prod".to_owned(), ..v1::Cluster::default() });
    let request = v1::UpdateClusterRequest { cluster, update_mask, ..v1::UpdateClusterRequest::default() };
    let refused = call(&channel, request).await.unwrap_err();
    assert_eq!(refused.get_details_bad_request().unwrap().field_violations[0].field, "update_mask");

    let deleted = cli(&planner, &["cluster", "delete", "prod"]);
    assert!(deleted.code == 0 && deleted.stderr.contains("clusters/prod is deleted"), "{deleted:?}");
    assert_eq!(cli(&planner, &["cluster", "delete", "prod"]).code, 3);
    assert_eq!(json(&planner, &["cluster", "import", &example, "--id", "prod"])["deviceCount"], 80);
}

/// Every kind of file that schedulers and NVIDIA's tools write is recognised and read.
#[test]
fn files_of_schedulers_and_tools_are_read() {
    let planner = Planner::start();
    for (name, more, source, nodes, devices) in [
        ("topograph.json", ["--devices-per-node", "4"].as_slice(), "TOPOGRAPH", 4, 16),
        ("nccl-h100.xml", &["--nodes", "h[1-3]"], "NCCL", 3, 9),
        ("topology.conf", &["--devices-per-node", "8"], "SLURM", 9, 72),
        ("topology.yaml", &["--devices-per-node", "8"], "SLURM", 4, 32),
        ("nvidia-smi.txt", &[], "NVIDIA_SMI", 1, 4),
    ] {
        let path = fixture(name);
        let mut line = import(&path, more);
        line.push("--dry-run");
        let read = json(&planner, &line);
        assert_eq!(read["source"], format!("CLUSTER_SOURCE_{source}"), "{name}");
        assert_eq!((&read["nodeCount"], &read["deviceCount"]), (&nodes.into(), &devices.into()), "{name}");
    }
    assert_eq!(json(&planner, &["cluster", "list"])["clusters"].as_array().map_or(0, Vec::len), 0);
    let path = fixture("nccl-h100.xml");
    let warned = json(&planner, &import(&path, &[]));
    assert!(warned["warnings"][0]["message"].as_str().unwrap().contains("has no NVLink"), "{warned}");
}

/// What is wrong is named by its place, with what would be right, and by exit code 2.
#[test]
fn what_is_missing_or_wrong_is_named() {
    let planner = Planner::start();
    let conf = fixture("topology.conf");
    let missing = cli(&planner, &import(&conf, &[]));
    assert!(missing.code == 2 && missing.stderr.contains("--devices-per-node"), "{missing:?}");
    let folder = tempfile::tempdir().unwrap();
    let bent = folder.path().join("bent.yaml");
    let example = std::fs::read_to_string(file("deploy/clusters/two-kinds.yaml")).unwrap();
    for (from, to, field, why) in [
        ("bandwidth: 371GB/s", "bandwidth: -371GB/s", "nodes[0].link.bandwidth", "is out of range. Use 1 to"),
        ("nodes: \"a[01-04]\"", "nodes: \"a[01-05]\"", "domains[2].nodes[4]", "is not a node"),
        ("name: hall", "name: hall, parent: rack-1", "domains[0].parent", "cycle: hall in rack-1 in hall"),
        ("{a: 2, b: 3,", "{a: 1, b: 0,", "links[1].bandwidth", "Use the slower values for both directions"),
    ] {
        assert!(example.contains(from), "{from}");
        std::fs::write(&bent, example.replacen(from, to, 1)).unwrap();
        let refused = cli(&planner, &["cluster", "import", bent.to_str().unwrap()]);
        assert_eq!(refused.code, 2, "{to}: {refused:?}");
        assert!(refused.stderr.contains(field) && refused.stderr.contains(why), "{to}: {}", refused.stderr);
    }
}

/// Workers with CPU slots are a cluster: assumed links before they are measured, measured ones after, and what memory
/// actions copy over.
#[test]
fn workers_are_discovered_and_their_links_measured() {
    let planner = Planner::start();
    let nobody = cli(&planner, &["cluster", "discover"]);
    assert!(nobody.code == 1 && nobody.stderr.contains("no worker is connected"), "{nobody:?}");
    let options = WorkerOptions { name: "one".to_owned(), ..WorkerOptions::slots("3x512MiB").with(PACED) };
    let _one = Worker::start(&planner, &options);

    let before = json(&planner, &["cluster", "discover", "--dry-run"]);
    let [node] = before["nodes"].as_array().unwrap().as_slice() else { panic!("{before}") };
    assert_eq!(node["devices"][2]["slot"], "workers/one/cpu2");
    assert_eq!(
        (&node["link"]["origin"], &node["linkClass"]),
        (&"SPEED_ORIGIN_ASSUMED".into(), &"LINK_CLASS_SYS".into())
    );
    assert_eq!(before["kinds"][0]["usableMemoryBytes"], (512_u64 << 20).to_string());

    let measured = json(&planner, &["cluster", "measure"]);
    let [links] = measured["linkMeasurements"].as_array().unwrap().as_slice() else { panic!("{measured}") };
    assert_eq!(links["worker"], "workers/one");
    let pairs = links["links"]["pairs"].as_array().unwrap();
    assert_eq!(pairs.len(), 3);
    assert!(pairs.iter().all(|pair| pair["bytesPerSecond"].as_f64().unwrap() > 0.0), "{pairs:?}");
    assert_eq!(json(&planner, &["cluster", "links"])["linkMeasurements"], measured["linkMeasurements"]);

    let after = json(&planner, &["cluster", "discover", "--id", "lab", "--network-bandwidth", "100Gb/s"]);
    let node = &after["nodes"][0];
    assert_eq!(node["network"]["origin"], "SPEED_ORIGIN_GIVEN");
    // What slots add up may be slower than what one sends: the first two are a group, and all three.
    let groups = links["links"]["groups"].as_array().unwrap();
    assert_eq!(groups.len(), 2, "{groups:?}");
    let rate = |of: &serde_json::Value| of["bytesPerSecond"].as_f64().unwrap();
    for (place, (link, pair)) in node["deviceLinks"].as_array().unwrap().iter().zip(pairs).enumerate() {
        assert_eq!(link["speed"]["origin"], "SPEED_ORIGIN_MEASURED", "{after}");
        let group = &groups[if place == 0 { 0 } else { 1 }];
        assert_eq!(rate(&link["speed"]), rate(pair).min(rate(group)), "{after}");
    }
    // Copies were measured beside the links, and the cluster says how they go: of each device, and of each pair.
    let copies = &links["links"]["copyMeasurement"];
    let described = &node["copyLinks"];
    assert_eq!(described["hostMemoryBytes"], (1_u64 << 30).to_string());
    for (device, link) in described["hostLinks"].as_array().unwrap().iter().enumerate() {
        let host = &copies["devices"][device]["host"];
        assert_eq!(link["link"]["out"]["bytesPerSecond"], host["out"]["bytesPerSecond"], "{after}");
        assert_eq!(link["link"]["back"]["origin"], "SPEED_ORIGIN_MEASURED");
        // Slots are paced: no link is faster, whatever the machine does.
        assert!(host["out"]["points"].as_array().unwrap().iter().all(|point| {
            let bytes: f64 = point["payloadBytes"].as_str().unwrap().parse().unwrap();
            bytes / point["seconds"].as_f64().unwrap() <= 1.001 * 400e6
        }));
    }
    assert_eq!(
        (described["hostLinks"].as_array().unwrap().len(), described["peers"].as_array().unwrap().len()),
        (3, 3)
    );
    let shown = cli(&planner, &["cluster", "show", "lab"]).stdout;
    for part in [
        "m measured",
        "copies of memory optimizations",
        "device 1 – host",
        "host memory for blocks: 1.00 GiB",
    ] {
        assert!(shown.contains(part), "{part} is missing:\n{shown}");
    }
    let listed = cli(&planner, &["cluster", "links"]).stdout;
    assert!(listed.contains("cpu0 – host") && listed.contains("both ways at once"), "{listed}");

    let unknown = cli(&planner, &["cluster", "measure", "--workers", "nobody"]);
    assert_eq!(unknown.code, 3, "{unknown:?}");
    let many = cli(&planner, &["cluster", "measure", "--workers", "one", "--device-count", "4"]);
    assert!(many.code == 2 && many.stderr.contains("fewer than 4 devices"), "{many:?}");
}

/// A worker with one device has a link to its host, and a host that updates parameters: plans in chunks on it need both.
#[test]
fn a_device_alone_is_measured_with_its_host() {
    let planner = Planner::start();
    let _worker = Worker::start(&planner, &WorkerOptions::slots("1x512MiB").with(PACED));
    let none = cli(&planner, &["cluster", "measure", "--device-count", "2"]);
    assert!(none.code == 1 && none.stderr.contains("enough devices"), "{none:?}");

    let measured = json(&planner, &["cluster", "measure"]);
    let measurement = &measured["linkMeasurements"][0]["links"];
    assert!(measurement["pairs"].as_array().unwrap().is_empty(), "{measured}");
    let host = &measurement["copyMeasurement"]["devices"][0]["host"];
    assert!(measurement["copyMeasurement"]["devices"][0].get("allNext").is_none(), "{measured}");
    let cluster = json(&planner, &["cluster", "discover", "--id", "alone"]);
    let node = &cluster["nodes"][0];
    let link = &node["copyLinks"]["hostLinks"][0]["link"];
    for way in ["out", "back"] {
        assert_eq!(link[way]["origin"], "SPEED_ORIGIN_MEASURED", "{cluster}");
        assert_eq!(link[way]["bytesPerSecond"], host[way]["bytesPerSecond"], "{cluster}");
    }
    assert!(!node["cpuOptimizerSpeeds"].as_array().unwrap().is_empty(), "{cluster}");

    profile(&planner, SMALL_GPT2, "--id bare --micro-batch-size 2 --micro-batches 1 --optimizer adam");
    let ask = "--memory-mode chunks --host-memory 256MiB --cluster alone output.skip_comparisons=true";
    let plan = json(&planner, &format!("plan recommend --profile bare {ask}"));
    let links = plan["iteration"]["linkSpeedOrigin"].as_str().unwrap();
    assert!(links.contains("M parameters/s (cluster, measured)"), "{links}");
    let listed = cli(&planner, &["cluster", "links"]).stdout;
    assert!(listed.contains("cpu0 – host") && listed.contains("adam-fp32"), "{listed}");
}

/// A retried call has the first answer, and a request id is for one request.
#[tokio::test(flavor = "multi_thread")]
async fn a_retried_call_creates_nothing_new() {
    let planner = Planner::start();
    let channel = planner.channel().await;
    let example = std::fs::read_to_string(file("deploy/clusters/two-kinds.yaml")).unwrap();
    let request = |document: &str| v1::CreateClusterRequest {
        subject: Some(Subject::File(v1::ClusterFile { document: document.to_owned(), ..Default::default() })),
        request_id: "7f3c0a52-0000-4000-8000-000000000001".to_owned(),
        ..Default::default()
    };
    let first = call(&channel, request(&example)).await.unwrap();
    assert_eq!(call(&channel, request(&example)).await.unwrap(), first);
    let other = call(&channel, request(&example.replace("400Gb/s", "200Gb/s"))).await.unwrap_err();
    assert_eq!(other.code(), Code::InvalidArgument);
    assert_eq!(other.get_details_bad_request().unwrap().field_violations[0].field, "request_id");
    // Labels are in no order, and each call writes them in its own.
    let described = |labels: i32| {
        let device = v1::ClusterDevice { kind: "gpu".to_owned(), ..Default::default() };
        let node = v1::ClusterNode {
            name: "node".to_owned(),
            labels: (0..labels).map(|label| (format!("label{label}"), "a".to_owned())).collect(),
            devices: vec![device],
            link: Some(v1::LinkSpeed { bytes_per_second: 1e11, ..Default::default() }),
            ..Default::default()
        };
        let kind = v1::DeviceKind { name: "gpu".to_owned(), memory_bytes: 1 << 30, ..Default::default() };
        let cluster = v1::Cluster { kinds: vec![kind], nodes: vec![node], ..Default::default() };
        v1::CreateClusterRequest {
            subject: Some(Subject::Cluster(cluster)),
            request_id: "7f3c0a52-0000-4000-8000-000000000002".to_owned(),
            ..Default::default()
        }
    };
    let first = call(&channel, described(16)).await.unwrap();
    for _ in 0..4 {
        assert_eq!(call(&channel, described(16)).await.unwrap(), first);
    }
    assert_eq!(call(&channel, described(15)).await.unwrap_err().code(), Code::InvalidArgument);
    let nothing = call(&channel, v1::CreateClusterRequest::default()).await.unwrap_err();
    assert_eq!(nothing.get_details_bad_request().unwrap().field_violations[0].field, "cluster");
}

/// Slurm's first example without its top switch: 8 nodes in two islands of 4. No plan has stages on both, the answer says so, and what
/// needs more than one island is refused with its name.
#[test]
fn no_plan_spans_switches_without_a_common_switch() {
    let planner = Planner::start();
    let topology = file("proto/tests/user_files/21-islands/topology.conf").display().to_string();
    let kind =
        ["--devices-per-node", "1", "--device-kind", "cpu", "--device-memory", "1GiB", "--id", "islands"];
    let imported = json(&planner, &[&["cluster", "import", &topology][..], &kind].concat());
    assert!(
        imported["warnings"][0]["message"]
            .as_str()
            .is_some_and(|warning| warning.contains("s4, s5 have no common switch"))
    );

    let bytes = serde_json::json!([{"micro_batch_size": 1, "tensor_degree": 1, "parameter_bytes": 4 << 20,
        "activation_bytes": 65_536, "transient_bytes": 65_536, "input_bytes": 4_096, "output_bytes": 4_096}]);
    let times = serde_json::json!([{"micro_batch_size": 1, "tensor_degree": 1, "forward_seconds": 0.1,
        "backward_seconds": 0.2, "update_seconds": 0.01}]);
    let layers: Vec<_> = (0..8).map(|layer| serde_json::json!({"name": format!("layer {layer}")})).collect();
    let rows = serde_json::json!([{"first_layer": 0, "last_layer": 7, "bytes": bytes, "times": times}]);
    let table = serde_json::json!({
        "format": "loadmaster.profile/1",
        "provenance": {"source": "made up for a test", "tool": "by hand", "device_kind": "cpu", "ledger": "reserved"},
        "model": {"opaque": {"name": "chain", "layers": layers}},
        "training": {"precision": "fp32", "optimizer": "adamw", "schedule": "one_f_one_b", "micro_batch_size": 1,
            "micro_batches": 16, "recompute": "none", "seed": 0},
        "layer_table": {"times_without_collectives": true, "layers": rows}
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("table.json");
    std::fs::write(&path, table.to_string()).unwrap();
    let recommend = [
        "plan",
        "recommend",
        "--profile",
        path.to_str().unwrap(),
        "--cluster",
        "islands",
        "--objective",
        "min-iteration-time",
        "--tensor-parallel-sizes",
        "1",
        "--data-parallel-sizes",
        "1",
    ];
    let plan = json(&planner, &recommend);
    assert_eq!(plan["stages"].as_array().map(Vec::len), Some(4), "{plan}");
    let told = loadmaster_tests::warnings(&plan);
    assert!(
        told.iter().any(|warning| warning.contains("The plan uses the island s4, with 4 of 8 devices")),
        "{told:?}"
    );
    let refused = cli(&planner, &[&recommend[..], &["--pipeline-parallel-sizes", "8.."]].concat());
    assert_ne!(refused.code, 0);
    assert!(refused.stderr.contains("islands s4, s5"), "{}", refused.stderr);
}
