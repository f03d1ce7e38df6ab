//! Names that ssh or a shell would take for options or commands, on every way into the planner.

use loadmaster_proto::cluster::import::{ClusterFormat, ImportOptions, import};
use loadmaster_proto::wire::v1::create_cluster_request::Subject;
use loadmaster_proto::wire::worker_v1::session_service_client::SessionServiceClient;
use loadmaster_proto::wire::worker_v1::worker_message::Message as FromWorker;
use loadmaster_proto::wire::{v1, worker_v1};
use loadmaster_tests::{Output, Planner, call, cli, hello, json};
use tonic::Status;
use tonic_types::StatusExt;

/// What DeepSpeed would hand to ssh, which would hand it to a shell.
const HOSTILE: [&str; 6] =
    ["-oProxyCommand=touch${IFS}x", "$(touch x)", "`touch x`", "a;touch x", "a..b", "n\u{202e}a"];

const NODES: &str = "format: loadmaster.cluster/1
kinds: [{name: cpu, memory: 1GiB}]
nodes: [{name: good, kind: cpu, devices: 1}]";

fn field(status: &Status) -> String {
    let details = status.get_details_bad_request().unwrap_or_else(|| panic!("it names a field: {status}"));
    details.field_violations[0].field.clone()
}

/// Neither a worker, nor a message, nor a file, nor the nodes of a placement bring a name that is no host, and none is listed.
#[tokio::test(flavor = "multi_thread")]
async fn no_way_in_takes_a_node_that_is_no_host() {
    let planner = Planner::start();
    let channel = planner.channel().await;
    let good = import(ClusterFormat::Loadmaster, NODES, &ImportOptions::default()).unwrap();
    for name in HOSTILE {
        let mut hello = hello("polite", 1);
        hello.host = name.to_owned();
        let first = worker_v1::WorkerMessage { message: Some(FromWorker::Hello(hello)) };
        let mut worker = SessionServiceClient::new(channel.clone());
        let refused = match worker.connect(tokio_stream::iter([first])).await {
            Ok(answers) => answers.into_inner().message().await.unwrap_err(),
            Err(status) => status,
        };
        assert_eq!(field(&refused), "hello.host", "{name:?}: {refused}");

        let mut cluster = v1::Cluster::from(&good);
        cluster.nodes[0].name = name.to_owned();
        let quoted = serde_json::to_string(name).unwrap();
        let file = v1::ClusterFile { document: NODES.replace("good", &quoted), ..v1::ClusterFile::default() };
        for subject in [Subject::Cluster(cluster), Subject::File(file)] {
            let request = v1::CreateClusterRequest { subject: Some(subject), ..Default::default() };
            let refused = call(&channel, request).await.unwrap_err();
            assert!(field(&refused).ends_with("nodes[0].name"), "{name:?}: {refused}");
        }

        let nodes = format!("--nodes={name}");
        // What no text may contain is told before what is no host name.
        let is_told = |output: &Output| {
            let why =
                ["host name", "line separator characters"].iter().any(|why| output.stderr.contains(why));
            output.code == 2 && why
        };
        let create = [
            "cluster",
            "create",
            "--device-kind",
            "cpu",
            "--device-memory",
            "1GiB",
            "--devices-per-node",
            "1",
        ];
        let created = cli(&planner, &[&create[..], &[&nodes]].concat());
        assert!(is_told(&created), "{name:?}: {created:?}");
        let bound = cli(&planner, &["plan", "place", "0123456789abcdef", &nodes]);
        assert!(is_told(&bound), "{name:?}: {bound:?}");
    }
    for (list, rows) in [("worker", "workers"), ("cluster", "clusters")] {
        let listed = json(&planner, &[list, "list"]);
        assert!(listed[rows].as_array().is_none_or(Vec::is_empty), "{listed}");
    }
}
