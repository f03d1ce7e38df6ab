//! The process group of a run: killed as a whole, and waited for until no one of it is left.

use std::io;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};
use tracing::error;

use super::kernel;
use super::spawn::spawn;

/// Between two looks at a group that is ending.
const LOOK: Duration = Duration::from_millis(10);
/// How often to complain about a group that does not end.
const COMPLAIN: Duration = Duration::from_secs(30);

/// Makes orphans of ranks children of the daemon, so that [`Group::gone`] can see and reap them.
pub(crate) fn adopt_orphans() -> anyhow::Result<()> {
    Ok(prctl::set_child_subreaper(true)?)
}

/// The processes of a run, whatever they started themselves included. Dropping it kills them.
#[derive(Debug)]
pub(crate) struct Group {
    /// The first process, whose number is the group's.
    leader: Option<Pid>,
    /// What the kernel had killed before.
    kills_before: Option<u64>,
}

impl Group {
    /// A group without a process.
    pub(crate) fn new() -> Self {
        Self { leader: None, kills_before: kernel::out_of_memory_kills() }
    }

    /// Starts a process in it; an error names the program. The first one must not have been waited for: when it
    /// was, there is no group left to join.
    pub(crate) fn start(&mut self, command: Command) -> io::Result<Child> {
        let program = command.as_std().get_program().to_string_lossy().into_owned();
        let child = spawn(command, self.leader)
            .map_err(|error| io::Error::new(error.kind(), format!("{program}: {error}")))?;
        if let Some(pid) = child.id() {
            kernel::prefer_to_kill(pid);
            self.leader.get_or_insert_with(|| Pid::from_raw(pid.cast_signed()));
        }
        Ok(child)
    }

    /// Whether the kernel's out-of-memory killer was at work meanwhile.
    pub(crate) fn kernel_killed(&self) -> bool {
        kernel::out_of_memory_kills() > self.kills_before
    }

    /// Kills every process of it.
    pub(crate) fn kill(&self) {
        if let Some(leader) = self.leader
            && has_members(leader)
        {
            // An error says that they died meanwhile.
            let _ = killpg(leader, Signal::SIGKILL);
        }
    }

    /// Waits until no process of it is left. Only after all that were started in it were waited for: this reaps.
    pub(crate) async fn gone(&self) {
        let Some(leader) = self.leader else { return };
        let mut complain_at = Instant::now() + COMPLAIN;
        while has_members(leader) {
            let ended = waitpid(Pid::from_raw(-leader.as_raw()), Some(WaitPidFlag::WNOHANG));
            if !matches!(ended, Ok(WaitStatus::StillAlive) | Err(_)) {
                continue;
            }
            self.kill();
            if Instant::now() >= complain_at {
                complain_at += COMPLAIN;
                error!(
                    process.group = leader.as_raw(),
                    "a killed process of a run does not end, so the run's devices stay in use"
                );
            }
            sleep(LOOK).await;
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Whether a child of the daemon is in the group that was not reaped yet. While there is one, the group's number
/// cannot belong to anybody else.
fn has_members(leader: Pid) -> bool {
    let peek = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    waitid(Id::PGid(leader), peek) != Err(Errno::ECHILD)
}
