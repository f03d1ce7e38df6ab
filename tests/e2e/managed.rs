//! A service manager is told when a planner and a worker are ready, that they live, and that they stop (`sd_notify`).

use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use loadmaster_tests::{Planner, binary};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

/// Longest wait for a word.
const PATIENCE: Duration = Duration::from_secs(60);

struct Manager {
    socket: UnixDatagram,
    folder: TempDir,
}

impl Manager {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { socket, folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("notify")
    }

    /// All that is told until this is.
    fn hears(&self, wanted: &str) -> Vec<String> {
        let (begin, mut heard) = (Instant::now(), Vec::new());
        loop {
            let mut bytes = [0; 1_024];
            let length = self
                .socket
                .recv(&mut bytes)
                .unwrap_or_else(|error| panic!("no {wanted}: {error}; {heard:?}"));
            heard.extend(String::from_utf8_lossy(&bytes[..length]).lines().map(str::to_owned));
            if heard.iter().any(|line| line == wanted) {
                return heard;
            }
            assert!(begin.elapsed() < PATIENCE, "no {wanted}: {heard:?}");
        }
    }
}

#[test]
fn a_planner_says_that_it_is_ready_lives_and_stops() {
    let manager = Manager::new();
    let mut planner =
        Planner::start_under(&["env", &format!("NOTIFY_SOCKET={}", manager.path().display())], &[]);
    let heard = manager.hears("READY=1");
    // Its Postgres says nothing for it.
    assert_eq!(heard.iter().filter(|line| *line == "READY=1").count(), 1, "{heard:?}");
    assert!(heard.iter().all(|line| !line.starts_with("MAINPID")), "{heard:?}");
    let status = format!("STATUS=serving on {}", planner.address().trim_start_matches("http://"));
    assert!(heard.contains(&status), "{heard:?}");
    manager.hears("WATCHDOG=1");
    assert!(planner.program().stop().success());
    manager.hears("STOPPING=1");
}

#[test]
fn a_worker_says_whether_it_is_connected() {
    let manager = Manager::new();
    let mut planner = Planner::start();
    let mut worker = Command::new(binary("loadmaster-worker"))
        .args(["--server", planner.address(), "--cpu-slots", "1x64MiB", "--name", "managed"])
        .arg("--rank")
        .arg(binary("loadmaster-rank"))
        .env("NOTIFY_SOCKET", manager.path())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    manager.hears("READY=1");
    manager.hears("STATUS=connected");
    planner.kill();
    manager.hears("STATUS=the planner is not reachable; reconnecting");
    manager.hears("WATCHDOG=1");
    kill(Pid::from_raw(i32::try_from(worker.id()).unwrap()), Signal::SIGTERM).unwrap();
    manager.hears("STOPPING=1");
    assert!(worker.wait().unwrap().success());
}
