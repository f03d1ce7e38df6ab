//! Processes of a custom profiler that left its process group.
//!
//! Frameworks give each worker a session of its own (torchrun does), so killing the group would leave them on the devices. They
//! are found as descendants of the command while it lives, and later by the variable that names the run, which they inherit.
//! After the death of a daemon, the next one in the same work folder finds and ends them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use tokio::time::{Instant, sleep};
use tracing::{error, warn};

use crate::process::kernel;

/// Between two looks at processes that are ending.
const LOOK: Duration = Duration::from_millis(20);
/// Looks at most for what a dead daemon left: what does not end until then, no one can end.
const LOOKS_AT_LEFT: u32 = 50;
/// Looks after which a process that shows no variables at all is taken to have none.
const BLANK_LOOKS: u32 = 10;
/// How often to complain about one that does not end.
const COMPLAIN: Duration = Duration::from_secs(30);

/// The processes of a command wherever they went. Dropping it kills them.
#[derive(Debug)]
pub(super) struct Descendants {
    /// What the environment of each of them has: `NAME=value`.
    mark: Vec<u8>,
    /// Those that were killed, until they were waited for.
    killed: BTreeSet<u32>,
}

/// Processes that have not ended, by their parent.
type Children = BTreeMap<u32, Vec<u32>>;

impl Descendants {
    /// The processes that have this variable, whose value no other command has.
    pub(super) fn new(variable: &str, value: &Path) -> Self {
        let mark = [variable.as_bytes(), b"=", value.as_os_str().as_encoded_bytes()].concat();
        Self { mark, killed: BTreeSet::new() }
    }

    /// Kills all of them but `leader`, which has not been waited for and so still has its number, where there
    /// is one. Returns whether any was left.
    pub(super) fn kill(&mut self, leader: Option<u32>) -> bool {
        let children = living();
        let marked = children.values().flatten().copied().filter(|&pid| self.is_marked(pid));
        let found = with_descendants(&children, leader.into_iter().chain(marked).collect());
        let mut any = false;
        for pid in found.into_iter().filter(|&pid| Some(pid) != leader) {
            match kill(pid_of(pid), Signal::SIGKILL) {
                Ok(()) => {
                    any = true;
                    self.killed.insert(pid);
                }
                Err(Errno::ESRCH) => {}
                Err(why) => warn!(pid, "cannot kill a process of a custom profiler: {why}"),
            }
        }
        any
    }

    /// Waits until none is left. Only after the command itself was waited for.
    pub(super) async fn gone(&mut self) {
        let mut complain_at = Instant::now() + COMPLAIN;
        let mut blank_looks = 0;
        loop {
            let any = self.kill(None);
            // The daemon adopts orphans, so nothing else waits for them. One whose parent is still ending is not
            // the daemon's child yet.
            self.killed.retain(|&pid| match waitpid(pid_of(pid), Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) => true,
                Ok(_) => false,
                Err(_) => any,
            });
            if !any && self.killed.is_empty() {
                // While the kernel starts another program in a process, that shows no variables for a moment.
                if blank_looks >= BLANK_LOOKS || !any_blank_orphan() {
                    return;
                }
                blank_looks += 1;
            }
            if Instant::now() >= complain_at {
                complain_at += COMPLAIN;
                error!(
                    "a killed process of a custom profiler does not end, so the run's devices stay in use"
                );
            }
            sleep(LOOK).await;
        }
    }

    fn is_marked(&self, pid: u32) -> bool {
        any_variable(pid, |variable| variable == self.mark)
    }
}

/// Kills the processes that commands of a dead daemon left: those whose variable names something in its folder. The kernel ends
/// the command with its daemon, and what that has started goes on training.
pub(super) fn kill_left(variable: &str, folder: &Path) {
    let start = [variable.as_bytes(), b"=", folder.as_os_str().as_encoded_bytes(), b"/"].concat();
    // Each look may find what the one before it had started meanwhile.
    for _ in 0..LOOKS_AT_LEFT {
        let all: Vec<u32> = living().into_values().flatten().collect();
        let left = all.into_iter().filter(|&pid| any_variable(pid, |variable| variable.starts_with(&start)));
        let killed = left.filter(|&pid| match kill(pid_of(pid), Signal::SIGKILL) {
            Ok(()) => true,
            Err(why) => {
                warn!(pid, "cannot kill a process that an earlier worker left running: {why}");
                false
            }
        });
        let killed = killed.inspect(|pid| warn!(pid, "killed a process that an earlier worker left running"));
        if killed.count() == 0 {
            return;
        }
        std::thread::sleep(LOOK);
    }
}

/// Whether a process has such a variable, `NAME=value`.
fn any_variable(pid: u32, is_it: impl Fn(&[u8]) -> bool) -> bool {
    // An error says that it is another user's, or gone.
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|&byte| byte == 0).any(is_it)
}

impl Drop for Descendants {
    fn drop(&mut self) {
        self.kill(None);
    }
}

fn pid_of(pid: u32) -> Pid {
    Pid::from_raw(pid.cast_signed())
}

/// Whether a process without a living parent of its own, as those are whose framework has ended, shows no variables.
fn any_blank_orphan() -> bool {
    const INIT: u32 = 1;
    let children = living();
    let orphans = [INIT, std::process::id()].into_iter().filter_map(|parent| children.get(&parent)).flatten();
    orphans.into_iter().any(|pid| fs::read(format!("/proc/{pid}/environ")).is_ok_and(|all| all.is_empty()))
}

/// All processes that have not ended.
fn living() -> Children {
    let mut children = Children::new();
    for (pid, process) in kernel::processes() {
        if !process.has_ended {
            children.entry(process.parent).or_default().push(pid);
        }
    }
    children
}

/// `roots` and whatever they started, directly or not.
fn with_descendants(children: &Children, roots: BTreeSet<u32>) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    let mut waiting: Vec<u32> = roots.into_iter().collect();
    while let Some(pid) = waiting.pop() {
        if found.insert(pid) {
            waiting.extend(children.get(&pid).into_iter().flatten());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pins that only what ran in the folder is ended, in whatever session.
    #[test]
    fn what_a_dead_daemon_left_is_ended() {
        let start = |folder: &str| {
            let mut command = std::process::Command::new("setsid");
            command.args(["sleep", "600"]).env("LEFT", format!("{folder}/r1/run.json"));
            command.spawn().unwrap()
        };
        let id = std::process::id();
        let (dead, living) = (format!("/dead-{id}"), format!("/dead-{id}-not"));
        let [mut left, mut other] = [&dead, &living].map(|folder| start(folder));
        let is_there = |pid: u32| any_variable(pid, |variable| variable.starts_with(b"LEFT="));
        // Until the program has begun, and with it its variables.
        while ![left.id(), other.id()].into_iter().all(is_there) {
            std::thread::sleep(LOOK);
        }
        kill_left("LEFT", Path::new(&dead));
        let ended = left.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended), Some(9));
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    fn descendants_are_found_through_any_number_of_generations() {
        let children = Children::from([(1, vec![2, 5]), (2, vec![3]), (3, vec![4]), (5, vec![6])]);
        assert_eq!(with_descendants(&children, [2].into()), [2, 3, 4].into());
        assert_eq!(with_descendants(&children, [3, 6].into()), [3, 4, 6].into());
        assert_eq!(with_descendants(&children, BTreeSet::new()), BTreeSet::new());
    }
}
