//! Workers whose machines went silent, and workers that say too much.

use loadmaster_proto::wire::worker_v1::session_service_client::SessionServiceClient;
use loadmaster_proto::wire::worker_v1::worker_message::Message as ToPlanner;
use loadmaster_proto::wire::{v1, worker_v1};
use loadmaster_tests::{Planner, Worker, WorkerOptions, hello, wait_until};
use nix::sys::signal::Signal;
use tokio_stream::wrappers::ReceiverStream;

use super::meter::Others;
use super::raw::{Peer, framed};

/// Connections of a planner that are open on its side.
fn open_connections(planner: &Planner) -> usize {
    sockets(planner).into_iter().filter(|socket| socket.is_planners).count()
}

/// One end of an open connection.
struct Socket {
    is_planners: bool,
    /// The kernel asks from time to time whether the other end is there.
    is_kept_alive: bool,
}

/// Both ends of a planner's open connections, as far as they are on this machine.
fn sockets(planner: &Planner) -> Vec<Socket> {
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

/// Neither end of a worker's connection waits for ever for a machine that was switched off.
#[test]
fn both_ends_of_a_workers_connection_ask_whether_the_other_is_there() {
    let planner = Planner::start();
    let _worker = Worker::start(&planner, &WorkerOptions::default());
    // Other timers take the place of this one while something is being sent.
    wait_until("both sockets are kept alive", || {
        let sockets = sockets(&planner);
        (sockets.len() == 2 && sockets.iter().all(|socket| socket.is_kept_alive)).then_some(())
    });
}

/// A stopped process keeps its connection open and says nothing; its machine answers for it.
#[test]
fn a_peer_that_was_stopped_is_disconnected() {
    let planner = Planner::start();
    let mut worker = Worker::start(&planner, &WorkerOptions::default());
    wait_until("the worker is the only one connected", || (open_connections(&planner) == 1).then_some(()));
    worker.program().signal(Signal::SIGSTOP);
    wait_until("the planner ends its connection", || (open_connections(&planner) == 0).then_some(()));
    worker.program().signal(Signal::SIGCONT);
    wait_until("the worker comes back", || (open_connections(&planner) == 1).then_some(()));
}

/// Failures with texts of a megabyte that look like lines of the log, and reports of runs that nobody has.
#[tokio::test(flavor = "multi_thread")]
async fn reports_of_a_worker_neither_fill_nor_forge_the_log() {
    const REPORTS: usize = 200;
    let mut planner = Planner::start();
    let others = Others::of(&planner);
    let (outgoing, to_send) = tokio::sync::mpsc::channel(4);
    let say = async |message| outgoing.send(worker_v1::WorkerMessage { message: Some(message) }).await;
    say(ToPlanner::Hello(hello("loud", 1))).await.unwrap();
    let mut workers = SessionServiceClient::new(planner.channel().await);
    let mut heard = workers.connect(ReceiverStream::new(to_send)).await.unwrap().into_inner();
    let acknowledged = tokio::spawn(async move {
        let mut acknowledged = 0;
        while let Ok(Some(message)) = heard.message().await {
            let is_one =
                matches!(message.message, Some(worker_v1::planner_message::Message::Acknowledged(_)));
            acknowledged += usize::from(is_one);
            if acknowledged == REPORTS {
                return;
            }
        }
        panic!("the stream ended after {acknowledged} reports");
    });
    let forged = "\n2026-01-01T00:00:00.000000Z ERROR forged: everything is lost\n";
    for number in 0..REPORTS {
        let failure = v1::RunFailure {
            kind: v1::run_failure::Kind::Exited.into(),
            message: forged.repeat((1 << 20) / forged.len()),
            ..v1::RunFailure::default()
        };
        let run = format!("runs/r{number}");
        let failed = worker_v1::RunFailed { run, lease_token: 1, failure: Some(failure), seconds: 1.0 };
        say(ToPlanner::Failed(failed)).await.unwrap();
    }
    acknowledged.await.unwrap();
    others.were_served("a worker reports failures of a megabyte").await;
    let log = planner.program().output();
    assert!(log.contains("run failed"), "{log}");
    assert!(!log.lines().any(|line| line.starts_with("2026-01-01")), "a line is forged");
    assert!(log.len() < 1 << 20, "{} bytes", log.len());
}

/// A worker's stream whose last message cannot be read ends with an error, not as if all had been well.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_ends_with_a_malformed_message_ends_with_an_error() {
    let planner = Planner::start();
    let peer = Peer::connect(planner.address()).await;
    let greeting = worker_v1::worker_message::Message::Hello(hello("malformed", 1));
    let mut bytes = framed(&worker_v1::WorkerMessage { message: Some(greeting) });
    // A frame of three bytes that are no message: a field of a wire type that there is not.
    bytes.extend([0, 0, 0, 0, 3, 0xff, 0xff, 0xff]);
    let call =
        peer.open("/loadmaster.worker.v1.SessionService/Connect", &bytes, true).await.expect("a call begins");
    let (_, mut body) = call.begin().await.expect("the planner answers");
    while let Some(data) = body.data().await {
        let read = data.expect("the answer is not cut off").len();
        body.flow_control().release_capacity(read).expect("it was read");
    }
    let trailers = body.trailers().await.expect("the answer ends").expect("with a status");
    let status = trailers.get("grpc-status").and_then(|status| status.to_str().ok());
    assert!(status.is_some_and(|status| status != "0"), "{trailers:?}");
}
