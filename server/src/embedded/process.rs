//! The server process: started so that it ends with us, watched for answers, and stopped without harm to its data.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::{Pid, getpid, getppid};
use sqlx::{Connection, PgConnection};
use tokio::sync::{oneshot, watch};

use super::error::EmbeddedError;
use super::launch;

/// How long each way of stopping has: fast shutdown (writes a checkpoint), immediate shutdown (the
/// next start replays the log), and the end of the process.
const STOP: [(Signal, Duration); 3] = [
    (Signal::SIGINT, Duration::from_secs(30)),
    (Signal::SIGQUIT, Duration::from_secs(5)),
    (Signal::SIGKILL, Duration::from_secs(5)),
];
/// How long a drop waits for a fast shutdown.
const STOP_ON_DROP: Duration = Duration::from_secs(5);

/// A running server.
#[derive(Debug)]
pub(super) struct Server {
    pid: Pid,
    /// False once the process was reaped: from then on its id may be another's.
    alive: Arc<Mutex<bool>>,
    exited: watch::Receiver<Option<String>>,
}

impl Server {
    /// Starts the program on a thread that lives as long as the server: the kernel sends the
    /// parent-death signal when the *thread* ends that started it.
    pub(super) async fn start(mut command: Command) -> Result<Self, EmbeddedError> {
        // Ctrl-C in a terminal reaches all of its process group: the planner must drain first.
        command.process_group(0);
        // A killed planner cannot stop its server; this is a fast shutdown.
        end_with_parent(&mut command, Signal::SIGINT);

        let program = command.get_program().to_owned();
        let (started, start) = oneshot::channel();
        let (ended, exited) = watch::channel(None);
        let alive = Arc::new(Mutex::new(true));
        let keeper = Keeper { alive: Arc::clone(&alive), ended };
        std::thread::Builder::new()
            .name("postgres-keeper".to_owned())
            .spawn(move || match command.spawn() {
                Ok(child) => {
                    // The caller may have gone; then its server is unwanted.
                    if started.send(Ok(child.id())).is_err() {
                        signal(child_pid(&child), Signal::SIGINT);
                    }
                    keeper.keep(child);
                }
                Err(error) => drop(started.send(Err(error))),
            })
            .map_err(|error| EmbeddedError::Internal(format!("cannot start a thread: {error}")))?;
        match start.await {
            Ok(Ok(pid)) => Ok(Self { pid: Pid::from_raw(pid.cast_signed()), alive, exited }),
            Ok(Err(source)) => Err(EmbeddedError::Io { what: "start", path: program.into(), source }),
            Err(_) => Err(EmbeddedError::Internal("the thread that runs Postgres ended early".to_owned())),
        }
    }

    /// How it ended, if it did.
    pub(super) fn ended(&self) -> Option<String> {
        self.exited.borrow().clone()
    }

    /// Waits until it has ended, and says how.
    pub(super) async fn end(&mut self) -> String {
        match self.exited.wait_for(Option::is_some).await {
            Ok(status) => status.clone().unwrap_or_default(),
            Err(_) => "its exit status is unknown".to_owned(),
        }
    }

    /// Stops it, the gentlest way that works.
    pub(super) async fn stop(&mut self) {
        for (how, limit) in STOP {
            self.signal(how);
            if tokio::time::timeout(limit, self.exited.wait_for(Option::is_some)).await.is_ok() {
                return;
            }
            tracing::warn!(
                process.pid = self.pid.as_raw(),
                signal = how.as_str(),
                waited_ms = limit.as_millis(),
                "embedded PostgreSQL does not stop after a signal"
            );
        }
    }

    /// Ends it, whatever it does, and says how it ended: a frozen one hears nothing gentler. What was committed is in
    /// its log.
    pub(super) async fn kill(&mut self) -> String {
        self.signal(Signal::SIGKILL);
        self.end().await
    }

    fn signal(&self, how: Signal) {
        let alive = self.alive.lock().unwrap_or_else(PoisonError::into_inner);
        if *alive {
            signal(self.pid, how);
        }
    }
}

/// Best effort, for panics and early returns; a server that takes longer goes on stopping by itself.
impl Drop for Server {
    fn drop(&mut self) {
        if self.ended().is_some() {
            return;
        }
        self.signal(Signal::SIGINT);
        let step = Duration::from_millis(10);
        let mut waited = Duration::ZERO;
        while self.ended().is_none() && waited < STOP_ON_DROP {
            std::thread::sleep(step);
            waited += step;
        }
    }
}

/// Waits for the process.
struct Keeper {
    alive: Arc<Mutex<bool>>,
    ended: watch::Sender<Option<String>>,
}

impl Keeper {
    fn keep(self, mut child: Child) {
        let pid = child_pid(&child);
        // Wait without reaping, so that the id stays its own until no one signals it any more.
        while waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) == Err(nix::Error::EINTR) {}
        *self.alive.lock().unwrap_or_else(PoisonError::into_inner) = false;
        let how =
            child.wait().map_or_else(|error| error.to_string(), |status: ExitStatus| status.to_string());
        self.ended.send_replace(Some(how));
    }
}

fn child_pid(child: &Child) -> Pid {
    Pid::from_raw(child.id().cast_signed())
}

/// A process that is gone needs no signal.
pub(super) fn signal(pid: Pid, how: Signal) {
    if let Err(error) = kill(pid, how) {
        tracing::debug!(process.pid = pid.as_raw(), %error, "signal not delivered");
    }
}

/// Has the kernel send `how` to the program when the thread that starts it ends.
pub(super) fn end_with_parent(command: &mut Command, how: Signal) {
    let parent = getpid();
    let set = move || {
        prctl::set_pdeathsig(how)?;
        // The parent may have died before the call.
        if getppid() == parent { Ok(()) } else { Err(io::ErrorKind::Interrupted.into()) }
    };
    // SAFETY: runs between fork and exec, where only async-signal-safe calls are allowed: prctl and
    // getppid are plain system calls, and nothing here allocates or locks. It runs after the change
    // of user, which would clear the signal.
    unsafe {
        command.pre_exec(set);
    }
}

/// Takes settings for other Postgres servers out of the environment.
pub(super) fn forget_settings(command: &mut Command) {
    for (key, _) in std::env::vars_os() {
        if key.to_str().is_some_and(|key| key.starts_with("PG")) {
            command.env_remove(key);
        }
    }
    // What the service manager is told, this planner tells.
    for variable in ["NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC"] {
        command.env_remove(variable);
    }
    command.env("LC_ALL", "C.UTF-8");
}

/// So many looks in a row find no answer before a server counts as frozen.
const LOOKS: u32 = 6;

/// Returns once the server has answered no one for this long. Whatever it says is an answer, a refusal too.
pub(super) async fn frozen(socket_folder: &Path, patience: Duration) {
    let step = patience / LOOKS;
    let mut silent = 0;
    while silent < LOOKS {
        // A connection of its own: those of the pool wait for their turn.
        match tokio::time::timeout(step, look(socket_folder)).await {
            Ok(_) => {
                silent = 0;
                tokio::time::sleep(step).await;
            }
            Err(_) => silent += 1,
        }
    }
}

async fn look(socket_folder: &Path) -> sqlx::Result<()> {
    let mut connection = PgConnection::connect_with(&launch::options(socket_folder)).await?;
    connection.ping().await?;
    connection.close().await
}
