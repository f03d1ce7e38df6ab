//! `make bench-idle`: what workers cost that have nothing to do.
//!
//! Starts a planner with its embedded Postgres, connects workers that say hello and send heartbeats and
//! nothing else, each on a connection of its own, and reads from `/proc` how long planner and database
//! computed meanwhile. Seconds of a processor mean something on a busy machine too; what a second takes does
//! not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use loadmaster_proto::wire::worker_v1;
use loadmaster_proto::wire::worker_v1::planner_message::Message as FromPlanner;
use loadmaster_proto::wire::worker_v1::session_service_client::SessionServiceClient;
use loadmaster_proto::wire::worker_v1::worker_message::Message as ToPlanner;
use loadmaster_tests::{Planner, hello, processor_seconds, processor_seconds_of_tree};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;

use crate::output::Output;
use crate::report::{Goal, Report};
use crate::table::percent;

/// Connects idle workers to a planner and prints which share of a core planner and database take.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    output: Output,
}

/// Idle workers.
const WORKERS: u32 = 500;
/// How long planner and database are looked at.
const WATCHED: Duration = Duration::from_secs(20);
/// Most that planner and database may take of a core.
const GOALS: [(&str, f64); 2] = [("planner, of a core", 0.05), ("database, of a core", 0.10)];

/// Measures both; whether neither takes more than its goal.
pub(crate) async fn run(options: &Options) -> Result<bool> {
    let mut report = Report::new("idle", &options.output, false)?;
    let mut planner = Planner::start_with(&[]);
    let workers = connect(planner.address(), WORKERS).await?;
    // Whatever follows from the hellos is over by then.
    tokio::time::sleep(Duration::from_secs(5)).await;

    let (pid, postmaster) = (planner.program().pid(), planner.postmaster().context("no Postgres runs")?);
    let taken = || [processor_seconds(pid), processor_seconds_of_tree(postmaster)];
    let (before, start, heartbeats) = (taken(), Instant::now(), workers.heartbeats.load(Ordering::Relaxed));
    tokio::time::sleep(WATCHED).await;
    let after = taken();
    let passed = start.elapsed().as_secs_f64();
    // All must be connected still, or nothing was measured.
    let lost = workers.lost.load(Ordering::Relaxed);
    ensure!(lost == 0, "{lost} workers lost their connection");

    report.print(format!(
        "{WORKERS} idle workers, a heartbeat every {} s, {:.1} heartbeats per second, looked at for {passed:.1} s",
        workers.heartbeat.as_secs_f64(),
        f64::from(workers.heartbeats.load(Ordering::Relaxed) - heartbeats) / passed
    ));
    let shares = [0, 1].map(|which| (after[which] - before[which]) / passed);
    let goals = GOALS.iter().zip(shares);
    report.judge(goals.map(|((what, most), share)| Goal::at_most(*what, *most, Some(share), percent)));
    report.finish()
}

/// Connected workers; they leave when this is dropped.
struct Workers {
    heartbeats: Arc<AtomicU32>,
    lost: Arc<AtomicU32>,
    /// Between two heartbeats of a worker.
    heartbeat: Duration,
    _tasks: JoinSet<()>,
}

/// Connects so many workers of four CPU slots, one after the other.
async fn connect(address: &str, count: u32) -> Result<Workers> {
    let (heartbeats, lost) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let mut tasks = JoinSet::new();
    let mut heartbeat = Duration::ZERO;
    for index in 0..count {
        let (to_planner, to_send) = mpsc::channel(4);
        to_planner.send(message(ToPlanner::Hello(hello(&format!("idle{index}"), 4)))).await?;
        let channel = Endpoint::from_shared(address.to_owned())?.connect().await?;
        let mut incoming =
            SessionServiceClient::new(channel).connect(ReceiverStream::new(to_send)).await?.into_inner();
        let first = incoming.message().await?.and_then(|first| first.message);
        let Some(FromPlanner::Welcome(welcome)) = first else { anyhow::bail!("no welcome: {first:?}") };
        heartbeat = Duration::try_from_secs_f64(welcome.heartbeat_seconds).context("no heartbeat")?;
        let (sent, lost) = (Arc::clone(&heartbeats), Arc::clone(&lost));
        tasks.spawn(async move {
            let mut ticks = tokio::time::interval(heartbeat);
            loop {
                tokio::select! {
                    _ = ticks.tick() => {
                        let beat = ToPlanner::Heartbeat(worker_v1::Heartbeat::default());
                        if to_planner.send(message(beat)).await.is_err() {
                            break;
                        }
                        sent.fetch_add(1, Ordering::Relaxed);
                    }
                    heard = incoming.message() => if !matches!(heard, Ok(Some(_))) { break },
                }
            }
            lost.fetch_add(1, Ordering::Relaxed);
        });
    }
    Ok(Workers { heartbeats, lost, heartbeat, _tasks: tasks })
}

fn message(message: ToPlanner) -> worker_v1::WorkerMessage {
    worker_v1::WorkerMessage { message: Some(message) }
}
