//! Workers that have nothing to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::planner_message::Message as FromPlanner;
use loadmaster_proto::wire::v1::worker_message::Message as ToPlanner;
use loadmaster_proto::wire::v1::worker_service_client::WorkerServiceClient;
use loadmaster_tests::hello;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;

/// Connected workers; they leave when this is dropped.
pub(crate) struct Workers {
    heartbeats: Arc<AtomicU32>,
    lost: Arc<AtomicU32>,
    heartbeat: Duration,
    _tasks: JoinSet<()>,
}

/// Connects so many workers of four CPU slots, one after the other.
pub(crate) async fn connect(address: &str, count: u32) -> Result<Workers> {
    let (heartbeats, lost) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let mut tasks = JoinSet::new();
    let mut heartbeat = Duration::ZERO;
    for index in 0..count {
        let (to_planner, to_send) = mpsc::channel(4);
        to_planner.send(message(ToPlanner::Hello(hello(&format!("idle{index}"), 4)))).await?;
        let channel = Endpoint::from_shared(address.to_owned())?.connect().await?;
        let mut incoming =
            WorkerServiceClient::new(channel).connect(ReceiverStream::new(to_send)).await?.into_inner();
        let first = incoming.message().await?.and_then(|first| first.message);
        let Some(FromPlanner::Welcome(welcome)) = first else { anyhow::bail!("no welcome: {first:?}") };
        heartbeat = Duration::try_from_secs_f64(welcome.heartbeat_seconds).context("no heartbeat")?;
        let (sent, lost) = (Arc::clone(&heartbeats), Arc::clone(&lost));
        tasks.spawn(async move {
            let mut ticks = tokio::time::interval(heartbeat);
            loop {
                tokio::select! {
                    _ = ticks.tick() => {
                        let beat = ToPlanner::Heartbeat(v1::Heartbeat::default());
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

impl Workers {
    /// Heartbeats that were sent so far.
    pub(crate) fn heartbeats(&self) -> u32 {
        self.heartbeats.load(Ordering::Relaxed)
    }

    /// Time between two heartbeats of a worker.
    pub(crate) fn heartbeat_seconds(&self) -> f64 {
        self.heartbeat.as_secs_f64()
    }

    /// All must be connected still, or nothing was measured.
    pub(crate) fn check(&self) -> Result<()> {
        let lost = self.lost.load(Ordering::Relaxed);
        ensure!(lost == 0, "{lost} workers lost their connection");
        Ok(())
    }
}

fn message(message: ToPlanner) -> v1::WorkerMessage {
    v1::WorkerMessage { message: Some(message) }
}
