//! Bad input gets an error that names it, and leaves the planner as it was.

use std::process::Command;

use loadmaster_proto::wire::worker_v1::session_service_client::SessionServiceClient;
use loadmaster_proto::wire::{v1, worker_v1};
use loadmaster_tests::{
    CommandLine, Planner, Program, TINY_GPT2, Worker, WorkerOptions, binary, call, cli, hello, json, raw_call,
};
use tempfile::TempDir;
use tonic::Code;
use tonic_types::StatusExt;

/// The profile of a tiny model with one flag replaced.
fn profile_with(flag: &str, value: &str) -> String {
    let fixed =
        "profile run --profiling-mode per-stage --device-count 3 --micro-batch-size 2 --micro-batches 2";
    let line = format!("{fixed} {TINY_GPT2}");
    let mut words = line.words();
    match words.iter().position(|word| *word == flag) {
        Some(position) => words[position + 1] = value,
        None => words.extend([flag, value]),
    }
    words.join(" ")
}

#[test]
fn requests_that_are_not_valid_name_the_option_and_the_remedy() {
    let planner = Planner::start();
    let _worker = Worker::start(&planner, &WorkerOptions::default());
    let cases = [
        ("--model", "resnet9000", "resnet9000"),
        ("--blocks", "0", "blocks"),
        ("--blocks", "-3", "blocks"),
        ("--heads", "5", "heads"),
        ("--device-count", "7", "more than the model's 6 layers"),
        ("--device-count", "0", "device-count"),
        ("--parallel-sizes", "2", "--parallelism"),
        ("--parallelism", "sideways", "data"),
        ("--micro-batch-size", "0", "micro"),
        ("--micro-batches", "0", "micro"),
        ("--global-batch-size", "5", "multiple of --micro-batch-size"),
        ("--dropout", "1.5", "dropout"),
        ("--profile-micro-batch-sizes", "2,2", "different"),
        ("--id", "Not_An_Id", "a-z"),
    ];
    for (flag, value, expected) in cases {
        let mut line = profile_with(flag, value);
        if flag == "--global-batch-size" {
            // Another way to say --micro-batches, so it replaces that flag.
            line = line.replace(" --micro-batches 2", "");
        }
        let output = cli(&planner, &line);
        assert_eq!(output.code, 2, "{flag} {value}: {}{}", output.stdout, output.stderr);
        assert!(output.stderr.contains(expected), "{flag} {value}: {}", output.stderr);
    }
    assert_eq!(
        json(&planner, &["run", "list"])["runs"].as_array().map_or(0, Vec::len),
        0,
        "nothing was queued"
    );
}

#[test]
fn what_is_not_there_and_what_is_not_ready_have_their_own_exit_codes() {
    let planner = Planner::start();
    assert_eq!(cli(&planner, &["plan", "show", "plans/nothing"]).code, 3);
    assert_eq!(cli(&planner, &["plan", "recommend", "--profile", "nothing", "--devices", "1x1GiB"]).code, 3);
    let no_worker = profile_with("--blocks", "3");
    let output = cli(&planner, &no_worker);
    assert_eq!(output.code, 1);
    assert!(output.stderr.contains("loadmaster-worker"), "{}", output.stderr);

    let unmeasured = format!("{no_worker} --device-kind cpu --id waiting --no-wait");
    assert_eq!(cli(&planner, &unmeasured).code, 0);
    let output = cli(&planner, &["plan", "recommend", "--profile", "waiting", "--devices", "3x1GiB"]);
    assert_eq!(output.code, 6, "{}", output.stderr);
}

#[test]
fn a_device_too_small_for_a_layer_names_the_layer_and_the_missing_bytes() {
    let planner = Planner::start();
    let _worker = Worker::start(&planner, &WorkerOptions::default());
    assert_eq!(json(&planner, &profile_with("--id", "small"))["state"], "COMPLETE");
    let output = cli(&planner, &["plan", "recommend", "--profile", "small", "--devices", "3x16KiB"]);
    assert_eq!(output.code, 5, "{}", output.stderr);
    assert!(output.stderr.contains("layer"), "{}", output.stderr);
    assert!(output.stderr.contains("iB"), "says how many bytes are missing: {}", output.stderr);
    let output = cli(&planner, &["plan", "recommend", "--profile", "small", "--devices", "7x1GiB"]);
    assert_eq!(output.code, 5, "{}", output.stderr);
    assert!(output.stderr.contains("at most 6 stages can use all 7 devices"), "{}", output.stderr);
    assert!(output.stderr.contains("--allow-idle-devices"), "{}", output.stderr);
}

fn serve(folder: &TempDir, arguments: &[&str]) -> Program {
    let mut command = Command::new(binary("loadmaster"));
    command.arg("serve").args(arguments).env_remove("DATABASE_URL");
    Program::start("planner", command, folder.path().join("planner.log"))
}

#[test]
fn a_wrong_database_url_is_named_without_its_password() {
    let folder = TempDir::new().unwrap();
    for url in ["postgres://user:hunter2@127.0.0.1:1/none", "not a url hunter2"] {
        let mut planner = serve(&folder, &["--listen", "127.0.0.1:0", "--database-url", url]);
        let status = planner.wait();
        assert_eq!(status.code(), Some(1), "{}", planner.output());
        assert!(planner.output().to_lowercase().contains("database"), "{}", planner.output());
        assert!(!planner.output().contains("hunter2"), "{}", planner.output());
    }
}

#[test]
fn a_taken_port_is_named() {
    let folder = TempDir::new().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let data = folder.path().join("data");
    let mut planner = serve(&folder, &["--listen", &address, "--data-dir", data.to_str().unwrap()]);
    assert_eq!(planner.wait().code(), Some(1));
    assert!(planner.output().contains(&address), "{}", planner.output());
    assert!(planner.output().contains("--listen"), "{}", planner.output());
}

/// A worker that cannot use its rank program ends at once and says why.
fn refused_worker(options: &WorkerOptions, environment: Option<(&str, &str)>) -> String {
    let folder = TempDir::new().unwrap();
    let mut command = Command::new(binary("loadmaster-worker"));
    command.args(["--server", "http://127.0.0.1:9", "--cpu-slots", "1x1GiB", "--name", "refused"]);
    command.arg("--rank").arg(&options.rank).arg("--work-dir").arg(folder.path().join("w"));
    command.envs(environment);
    let mut program = Program::start("worker", command, folder.path().join("worker.log"));
    let status = program.wait();
    assert!(!status.success(), "{}", program.output());
    program.output()
}

/// The loader's own failure: a rank that names a library which nobody has.
#[test]
fn a_missing_libtorch_is_named_with_the_remedy() {
    use std::os::unix::fs::PermissionsExt;
    let folder = TempDir::new().unwrap();
    let mut rank = std::fs::read(binary("loadmaster-rank")).unwrap();
    let name = b"libtorch_cpu.so\0";
    let position = rank.windows(name.len()).position(|window| window == name).expect("links libtorch");
    rank[position..position + name.len()].copy_from_slice(b"libtorch_gon.so\0");
    let path = folder.path().join("loadmaster-rank");
    std::fs::write(&path, rank).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();

    let output = refused_worker(&WorkerOptions { rank: path, ..WorkerOptions::default() }, None);
    assert!(output.contains("libtorch"), "{output}");
    assert!(output.contains(loadmaster_proto::LIBTORCH_VERSION), "{output}");
    let missing = WorkerOptions { rank: folder.path().join("nothing"), ..WorkerOptions::default() };
    let output = refused_worker(&missing, None);
    assert!(output.contains("nothing") && output.contains("--rank"), "{output}");
}

/// A library that says it is another version is refused before any training.
#[test]
fn a_libtorch_of_another_version_is_named() {
    let folder = TempDir::new().unwrap();
    let source = folder.path().join("version.c");
    // 2.9.1 in libtorch's own encoding: one byte each for major, minor and patch, from the top.
    std::fs::write(&source, "unsigned long aoti_torch_abi_version(void) { return 0x0209010000000000UL; }\n")
        .unwrap();
    let library = folder.path().join("version.so");
    let status =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status().unwrap();
    assert!(status.success());
    let preload = ("LD_PRELOAD", library.to_str().unwrap());
    let output = refused_worker(&WorkerOptions::default(), Some(preload));
    assert!(output.contains("2.9.1") && output.contains(loadmaster_proto::LIBTORCH_VERSION), "{output}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_of_another_protocol_version_is_refused_for_good() {
    let planner = Planner::start();
    let hello = worker_v1::Hello {
        protocol_version: loadmaster_proto::WORKER_PROTOCOL_VERSION + 1,
        ..hello("stranger", 0)
    };
    let first = worker_v1::WorkerMessage { message: Some(worker_v1::worker_message::Message::Hello(hello)) };
    let mut client = SessionServiceClient::new(planner.channel().await);
    let status = client.connect(tokio_stream::iter([first])).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert_eq!(status.get_details_error_info().unwrap().reason, "PROTOCOL_VERSION_UNSUPPORTED");
    assert_eq!(json(&planner, &["worker", "list"])["workers"].as_array().map_or(0, Vec::len), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_does_not_introduce_itself_is_refused() {
    let planner = Planner::start();
    let heartbeat = worker_v1::worker_message::Message::Heartbeat(worker_v1::Heartbeat::default());
    let first = worker_v1::WorkerMessage { message: Some(heartbeat) };
    let mut client = SessionServiceClient::new(planner.channel().await);
    let status = client.connect(tokio_stream::iter([first])).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("hello"), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_oversized_message_is_refused_and_the_planner_goes_on() {
    let planner = Planner::start();
    let channel = planner.channel().await;
    let long = "x".repeat(5 << 20);
    let status = call(&channel, v1::GetModelRequest { name: long, ..Default::default() }).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    assert!(status.message().len() < 8_192, "an error is never as long as what caused it");
    let name = "x".repeat(17 << 20);
    let status = call(&channel, v1::GetModelRequest { name, ..Default::default() }).await.unwrap_err();
    assert!(matches!(status.code(), Code::ResourceExhausted), "{status}");
    assert!(status.message().contains("more than the limit of 16777216"), "{status}");
    call(&channel, v1::ListModelsRequest::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_truncated_message_is_refused_and_the_planner_goes_on() {
    let planner = Planner::start();
    let channel = planner.channel().await;
    // Field 1, length 100, but only three bytes of it.
    let truncated = vec![0x0a, 100, b'm', b'o', b'd'];
    let path = "/loadmaster.v1.ModelService/GetModel";
    let status = raw_call(&channel, path, tonic::Request::new(truncated)).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    call(&channel, v1::ListModelsRequest::default()).await.unwrap();
}

#[test]
fn leases_that_would_run_out_between_heartbeats_are_refused() {
    let folder = TempDir::new().unwrap();
    let mut planner =
        serve(&folder, &["--listen", "127.0.0.1:0", "--lease-duration", "2s", "--heartbeat-interval", "1s"]);
    assert_eq!(planner.wait().code(), Some(2));
    assert!(planner.output().contains("third"), "{}", planner.output());
}
