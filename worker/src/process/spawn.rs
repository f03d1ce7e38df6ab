//! Children that cannot outlive the daemon. The only file with `unsafe` code.

use std::io;

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getpid, getppid};
use tokio::process::{Child, Command};

/// Starts `command` in process group `group`, or in a new one that it leads. The kernel kills the
/// child when the daemon dies, however it dies.
///
/// The kernel means the *thread* that started the child. The daemon's runtime has one thread, the
/// main one, so that thread lives as long as the daemon.
pub(crate) fn spawn(mut command: Command, group: Option<Pid>) -> io::Result<Child> {
    let daemon = getpid();
    // What the service manager is told, the daemon tells.
    for variable in ["NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC"] {
        command.env_remove(variable);
    }
    command.kill_on_drop(true).process_group(group.map_or(0, Pid::as_raw));
    // SAFETY: runs between fork and exec, where only async-signal-safe calls are allowed. It makes
    // two system calls (prctl, getppid), takes no lock and allocates nothing: an `io::Error` made of
    // an errno is a number.
    unsafe {
        command.pre_exec(move || {
            prctl::set_pdeathsig(Signal::SIGKILL)?;
            // The daemon died before the line above: no one would send the signal any more.
            if getppid() == daemon { Ok(()) } else { Err(Errno::ESRCH.into()) }
        });
    }
    command.spawn()
}
