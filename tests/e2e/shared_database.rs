//! Planners on a Postgres that somebody else runs: migrated on purpose, shared by several of them.

use std::process::Command;

use loadmaster::embedded::EmbeddedPostgres;
use loadmaster_tests::{Planner, TINY_GPT2, Worker, WorkerOptions, binary, cli, json, profile};
use tempfile::TempDir;

fn loadmaster(verb: &str, url: &str) -> std::process::Output {
    let mut command = Command::new(binary("loadmaster"));
    command.arg(verb).args(["--database-url", url]);
    if verb == "serve" {
        command.args(["--listen", "127.0.0.1:0"]);
    }
    command.output().expect("the program can be started")
}

#[tokio::test(flavor = "multi_thread")]
async fn two_planners_share_a_migrated_database_and_its_queue() {
    let folder = TempDir::new().unwrap();
    let postgres = EmbeddedPostgres::start(&folder.path().join("postgres")).await.unwrap();
    let url = postgres.url();

    let refused = loadmaster("serve", &url);
    assert_eq!(refused.status.code(), Some(1));
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(message.contains("loadmaster migrate"), "{message}");
    for attempt in ["the first time", "again"] {
        let migrated = loadmaster("migrate", &url);
        assert!(migrated.status.success(), "{attempt}: {}", String::from_utf8_lossy(&migrated.stderr));
    }

    let arguments = ["--database-url", &url, "--lease-duration", "3s", "--heartbeat-interval", "0.5s"];
    let mut asked = Planner::start_with(&arguments);
    let working = Planner::start_with(&arguments);
    let _worker = Worker::start(&working, &WorkerOptions::default());

    // Asked of one planner, leased by the other one's worker, answered by both.
    profile(&asked, TINY_GPT2, "--id shared --device-count 2 --micro-batch-size 2 --micro-batches 2");
    let recommend = ["plan", "recommend", "--profile", "shared", "--devices", "2x1GiB"];
    let plan = json(&asked, &recommend)["name"].clone();
    assert_eq!(json(&working, &recommend)["name"], plan);

    // The database outlives a planner that did not start it.
    assert!(asked.program().stop().success());
    assert_eq!(cli(&working, &["plan", "show", plan.as_str().unwrap()]).code, 0);
    drop(working);
    postgres.stop().await;
}
