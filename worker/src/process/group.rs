//! The process group of a run: killed as a whole, and waited for until nobody of it is left.

use std::time::Duration;

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;
use tokio::time::{Instant, sleep};
use tracing::error;

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
pub(crate) struct Group(pub(crate) Pid);

impl Group {
    /// Kills every process of it.
    pub(crate) fn kill(&self) {
        if self.has_members() {
            // An error says that they died meanwhile.
            let _ = killpg(self.0, Signal::SIGKILL);
        }
    }

    /// Whether a child of the daemon is in it that was not reaped yet. While there is one, the
    /// group's number cannot belong to anybody else.
    fn has_members(&self) -> bool {
        let peek = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        waitid(Id::PGid(self.0), peek) != Err(Errno::ECHILD)
    }

    /// Waits until no process of it is left. Only after all ranks were waited for: this reaps.
    pub(crate) async fn gone(&self) {
        let mut complain_at = Instant::now() + COMPLAIN;
        while self.has_members() {
            let ended = waitpid(Pid::from_raw(-self.0.as_raw()), Some(WaitPidFlag::WNOHANG));
            if !matches!(ended, Ok(WaitStatus::StillAlive) | Err(_)) {
                continue;
            }
            self.kill();
            if Instant::now() >= complain_at {
                complain_at += COMPLAIN;
                error!(
                    process.group = self.0.as_raw(),
                    "a killed process does not end; its devices stay taken"
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
