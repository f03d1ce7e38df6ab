//! What others notice, and what the planner takes meanwhile.

use std::time::{Duration, Instant};

use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::model_service_client::ModelServiceClient;
use loadmaster_tests::Planner;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

/// Another caller, with a connection of its own, asks for health and for something small again and again.
///
/// # Panics
/// When one of its calls fails.
pub(crate) async fn others_are_served(planner: &Planner, meanwhile: &str) {
    let channel = planner.channel().await;
    let mut health = HealthClient::new(channel.clone());
    let mut models = ModelServiceClient::new(channel);
    let mut worst = Duration::ZERO;
    for _ in 0..50 {
        let begin = Instant::now();
        let check = health.check(HealthCheckRequest::default()).await;
        check.unwrap_or_else(|status| panic!("health, {meanwhile}: {status}"));
        let listed = models.list_models(v1::ListModelsRequest { page_size: 1, ..Default::default() }).await;
        listed.unwrap_or_else(|status| panic!("a small call, {meanwhile}: {status}"));
        worst = worst.max(begin.elapsed());
    }
    eprintln!("{meanwhile}: health and a small call took {:.1} ms at most", worst.as_secs_f64() * 1e3);
}

/// Connections of a planner that are open on its side.
pub(crate) fn open_connections(planner: &Planner) -> usize {
    sockets(planner).into_iter().filter(|socket| socket.is_planners).count()
}

/// One end of an open connection.
pub(crate) struct Socket {
    pub(crate) is_planners: bool,
    /// The kernel asks from time to time whether the other end is there.
    pub(crate) is_kept_alive: bool,
}

/// Both ends of a planner's open connections, as far as they are on this machine.
pub(crate) fn sockets(planner: &Planner) -> Vec<Socket> {
    const ESTABLISHED: &str = "01";
    const KEEP_ALIVE_TIMER: &str = "02:";
    let port: u16 = planner.address().rsplit(':').next().unwrap().parse().unwrap();
    let planners = format!(":{port:04X}");
    let table = std::fs::read_to_string("/proc/net/tcp").expect("Linux has it");
    let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row.len() > 5 && row[3] == ESTABLISHED)
        .filter(|row| row[1].ends_with(&planners) || row[2].ends_with(&planners))
        .map(|row| Socket {
            is_planners: row[1].ends_with(&planners),
            is_kept_alive: row[5].starts_with(KEEP_ALIVE_TIMER),
        })
        .collect()
}
