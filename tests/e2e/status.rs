//! The planner about itself: its versions, limits and features, its status, and the changes of its collections.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use loadmaster_proto::reason::Reason;
use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::history_service_client::HistoryServiceClient;
use loadmaster_tests::{Planner, Worker, WorkerOptions, binary, call, cli, json};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tonic::{Code, Request, Streaming};
use tonic_types::StatusExt;

const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
async fn the_planner_returns_its_versions_limits_and_features() {
    let planner = Planner::start();
    let info = call(&planner.channel().await, v1::GetServerInfoRequest {}).await.unwrap();
    assert_eq!((info.version.as_str(), info.api_version.as_str()), (env!("CARGO_PKG_VERSION"), "v1"));
    assert_eq!(info.database(), v1::server_info::Database::Embedded);
    assert!(info.start_time.is_some());
    for feature in ["embedded-database", "reflection"] {
        assert!(info.features.iter().any(|known| known == feature), "{:?}", info.features);
    }
    let limits = info.limits.unwrap();
    assert_eq!((limits.message_bytes, limits.max_page_size), (16 << 20, 1_000));
    assert_eq!(limits.call_deadline.unwrap().seconds, 60);
    assert_eq!(info.predictors.len(), 3);
}

#[test]
fn status_and_version_report_the_planner() {
    let planner = Planner::start();
    let _worker = Worker::start(&planner, &WorkerOptions::default());
    let status = json(&planner, &["status"]);
    assert_eq!(status["workers"][0]["state"], "ALIVE");
    assert_eq!(status["server"]["database"], "EMBEDDED");
    assert_eq!(
        (&status["operations"], &status["failures"]),
        (&serde_json::json!([]), &serde_json::json!([]))
    );
    let text = cli(&planner, &["status"]);
    assert_eq!(text.code, 0, "{}", text.stderr);
    assert!(text.stdout.contains("Operations in progress"), "{}", text.stdout);
    assert!(text.stdout.lines().all(|line| line.chars().count() <= 80), "{}", text.stdout);

    assert_eq!(json(&planner, &["version"])["server"]["apiVersion"], "v1");
    let nowhere = ["version", "--address", "127.0.0.1:1"];
    let alone = cli(&planner, &nowhere);
    assert_eq!(alone.code, 0, "{}", alone.stderr);
    assert!(alone.stdout.contains("none responds at http://127.0.0.1:1"), "{}", alone.stdout);
    assert_ne!(cli(&planner, &["status", "--address", "127.0.0.1:1"]).code, 0);
}

async fn next(stream: &mut Streaming<v1::WatchChangesResponse>) -> v1::WatchChangesResponse {
    let message = tokio::time::timeout(PATIENCE, stream.message()).await.expect("a message in time");
    message.unwrap().expect("the stream goes on")
}

/// One message per collection at once, then one for what changed; and no more streams than a connection may have.
#[tokio::test(flavor = "multi_thread")]
async fn changes_of_collections_are_streamed() {
    let mut planner = Planner::start();
    let mut history = HistoryServiceClient::new(planner.channel().await);
    let all = v1::WatchChangesRequest::default();
    let mut stream = history.watch_changes(all.clone()).await.unwrap().into_inner();
    let mut numbers = std::collections::BTreeMap::new();
    while numbers.len() < 7 {
        let message = next(&mut stream).await;
        assert_eq!(numbers.insert(message.collection.clone(), message.change_number), None, "{message:?}");
    }
    let workers = v1::WatchChangesRequest { collections: vec!["workers".to_owned()] };
    let mut of_workers = history.watch_changes(workers).await.unwrap().into_inner();
    assert_eq!(next(&mut of_workers).await.change_number, numbers["workers"]);
    let worker = Worker::start(&planner, &WorkerOptions::default());
    let changed = next(&mut of_workers).await;
    assert!(changed.change_number > numbers["workers"], "{changed:?}");
    drop(worker);

    let mut others = Vec::new();
    for _ in 0..2 {
        others.push(history.watch_changes(all.clone()).await.unwrap());
    }
    let refused = history.watch_changes(all.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(refused.get_details_error_info().unwrap().reason, Reason::TooManyStreams.as_str());
    drop(others);
    let unknown = v1::WatchChangesRequest { collections: vec!["trains".to_owned()] };
    assert_eq!(history.watch_changes(unknown).await.unwrap_err().code(), Code::InvalidArgument);

    // The deadline of the caller ends a stream, and so does the end of the planner.
    let mut limited = Request::new(all);
    limited.set_timeout(Duration::from_secs(1));
    let mut limited =
        HistoryServiceClient::new(planner.channel().await).watch_changes(limited).await.unwrap().into_inner();
    let ended = tokio::time::timeout(PATIENCE, async { while let Ok(Some(_)) = limited.message().await {} });
    ended.await.expect("the stream ends at its deadline");
    planner.program().signal(Signal::SIGTERM);
    let ended = tokio::time::timeout(PATIENCE, async {
        loop {
            match stream.message().await {
                Ok(Some(_)) => {}
                Ok(None) => break None,
                Err(status) => break Some(status),
            }
        }
    });
    let status = ended.await.expect("the stream ends with the planner").expect("an error");
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(planner.program().wait().success());
}

/// `history watch` prints a line for each change of its collections, and ends with Ctrl-C.
#[test]
fn changes_are_printed_until_ctrl_c() {
    let planner = Planner::start();
    let mut watch = Command::new(binary("loadmaster"))
        .args("history watch --collections workers -o json".split(' '))
        .env("LOADMASTER_ADDRESS", planner.address())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let (send, lines) = mpsc::channel();
    let stdout = BufReader::new(watch.stdout.take().expect("it is piped"));
    std::thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
    let next = || {
        let line = lines.recv_timeout(PATIENCE).expect("a line in time");
        let change: serde_json::Value = serde_json::from_str(&line).expect("each line is JSON");
        assert_eq!(change["collection"], "workers");
        change["changeNumber"].as_str().and_then(|number| number.parse::<i64>().ok()).expect("a number")
    };
    let first = next();
    let _worker = Worker::start(&planner, &WorkerOptions::default());
    assert!(next() > first);
    kill(Pid::from_raw(watch.id().cast_signed()), Signal::SIGINT).expect("it runs");
    assert_eq!(watch.wait().expect("it ends").code(), Some(130));
    let unknown = cli(&planner, &["history", "watch", "--collections", "trains"]);
    assert!(unknown.code == 2 && unknown.stderr.contains("trains"), "{unknown:?}");
}
