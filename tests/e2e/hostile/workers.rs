//! Workers whose machines went silent.

use loadmaster_tests::{Planner, Worker, WorkerOptions, wait_until};
use nix::sys::signal::Signal;

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
