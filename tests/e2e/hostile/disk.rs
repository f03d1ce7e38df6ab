//! A disk that is full.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use loadmaster_tests::Planner;
use tempfile::TempDir;
use tonic::Streaming;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus};

/// Longest wait for news. Generous: a test that passes never comes near it.
const PATIENCE: Duration = Duration::from_secs(120);

async fn wait_for(watch: &mut Streaming<HealthCheckResponse>, status: ServingStatus) {
    loop {
        let news = tokio::time::timeout(PATIENCE, watch.message()).await;
        let news = news.unwrap_or_else(|_| panic!("health is not {status:?}"));
        if news.unwrap().expect("the stream goes on").status() == status {
            return;
        }
    }
}

/// Postgres's tables can grow no more while a file is there: the disk answers as a full one does.
#[tokio::test(flavor = "multi_thread")]
async fn health_says_that_a_full_disk_takes_nothing_and_when_it_does_again() {
    let folder = TempDir::new().unwrap();
    // The database runs as another user when the test runs as root.
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let source = folder.path().join("full.c");
    std::fs::write(&source, include_str!("full_disk.c")).unwrap();
    let library = folder.path().join("full.so");
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    assert!(compiled.unwrap().success());
    let full = folder.path().join("full");
    let preload = format!("LD_PRELOAD={}", library.display());
    let flag = format!("FULL_DISK={}", full.display());

    let planner = Planner::start_under(&["env", &preload, &flag], &[]);
    let mut health = HealthClient::new(planner.channel().await);
    let service = "loadmaster.v1.ClusterService".to_owned();
    let mut watch = health.watch(HealthCheckRequest { service }).await.unwrap().into_inner();
    wait_for(&mut watch, ServingStatus::Serving).await;
    std::fs::write(&full, "").unwrap();
    wait_for(&mut watch, ServingStatus::NotServing).await;
    // Whoever would start it again is told to leave it alone.
    let alive = health.check(HealthCheckRequest { service: "alive".to_owned() }).await.unwrap();
    assert_eq!(alive.into_inner().status(), ServingStatus::Serving);
    std::fs::remove_file(&full).unwrap();
    wait_for(&mut watch, ServingStatus::Serving).await;
}
