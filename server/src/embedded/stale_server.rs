//! What a killed planner leaves behind: perhaps a server, which is stopped, and its pid file.
//!
//! Only called with the data directory's lock held, so no living planner uses the server. It is
//! stopped rather than taken over: a server whose parent is gone would outlive us as well.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::error::{EmbeddedError, io_error};
use super::process::signal;
use crate::safe_files::Folder;

const PID_FILE: &str = "postmaster.pid";
const STEP: Duration = Duration::from_millis(20);
/// How long each way of stopping has; the first is what the kernel sent already.
const STOP: [(Signal, Duration); 3] = [
    (Signal::SIGINT, Duration::from_secs(30)),
    (Signal::SIGQUIT, Duration::from_secs(5)),
    (Signal::SIGKILL, Duration::from_secs(5)),
];
/// How long orphaned backends may take to notice that their postmaster is gone.
const ORPHANS: Duration = Duration::from_secs(10);

pub(super) async fn clear(cluster: &Path) -> Result<(), EmbeddedError> {
    let pid_file = cluster.join(PID_FILE);
    let Some(pid) = read_pid(&pid_file) else { return Ok(()) };
    if is_postmaster(pid, cluster) {
        tracing::warn!(process.pid = pid.as_raw(), "stopping the PostgreSQL server of an earlier planner");
        stop(pid, cluster).await?;
    }
    // Backends of a killed postmaster end by themselves; before that, a second server on the same files
    // would be a catastrophe.
    let mut waited = Duration::ZERO;
    while let Some(orphan) = processes(cluster).next() {
        if waited >= ORPHANS {
            return Err(EmbeddedError::Leftover { pid: orphan.as_raw() });
        }
        tokio::time::sleep(STEP).await;
        waited += STEP;
    }
    // Postgres itself clears a file whose process is gone, but not one whose process id belongs to
    // another process of the same user by now.
    if read_pid(&pid_file).is_some_and(|pid| kill(pid, None).is_ok()) {
        let removed = Folder::open(cluster).and_then(|folder| folder.remove(PID_FILE));
        removed.map_err(io_error("remove", &pid_file))?;
    }
    Ok(())
}

async fn stop(pid: Pid, cluster: &Path) -> Result<(), EmbeddedError> {
    for (how, limit) in STOP {
        signal(pid, how);
        let mut waited = Duration::ZERO;
        while waited < limit {
            if !is_postmaster(pid, cluster) {
                return Ok(());
            }
            tokio::time::sleep(STEP).await;
            waited += STEP;
        }
    }
    Err(EmbeddedError::Leftover { pid: pid.as_raw() })
}

/// The first line of `postmaster.pid`.
fn read_pid(pid_file: &Path) -> Option<Pid> {
    let text = fs::read_to_string(pid_file).ok()?;
    // A server in stand-alone mode writes its id negated.
    let pid: i32 = text.lines().next()?.trim().parse().ok()?;
    Some(Pid::from_raw(pid.abs()))
}

/// Whether the process is a server that was started on this cluster. Ids are reused, so the
/// number alone proves nothing; a zombie has no command line and is no server any more.
fn is_postmaster(pid: Pid, cluster: &Path) -> bool {
    let Ok(line) = fs::read(format!("/proc/{pid}/cmdline")) else { return false };
    let mut words = line.split(|&byte| byte == 0).map(|word| PathBuf::from(os_string(word)));
    let program =
        words.next().is_some_and(|program| program.file_name().is_some_and(|name| name == "postgres"));
    program && words.any(|word| word == cluster)
}

/// Ends the backends of a postmaster that was killed because it was frozen: they may be frozen too, and then do not
/// notice.
pub(super) fn kill_orphans(cluster: &Path) {
    for orphan in processes(cluster) {
        let name = fs::read_to_string(format!("/proc/{orphan}/comm")).unwrap_or_default();
        // Not the shell of a user who is in that folder.
        if name.trim_end() == "postgres" {
            signal(orphan, Signal::SIGKILL);
        }
    }
}

/// Processes that have the cluster as their folder: without a postmaster, its backends. What cannot be looked at is
/// another user's and cannot have it.
fn processes(cluster: &Path) -> impl Iterator<Item = Pid> {
    fs::read_dir("/proc").into_iter().flatten().filter_map(move |entry| {
        let entry = entry.ok()?;
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let folder = fs::read_link(entry.path().join("cwd")).ok()?;
        (folder == cluster).then(|| Pid::from_raw(pid))
    })
}

fn os_string(bytes: &[u8]) -> &std::ffi::OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_pid_file_with_the_id_of_another_process_is_removed() {
        let cluster = tempfile::tempdir().unwrap();
        let pid_file = cluster.path().join("postmaster.pid");
        fs::write(&pid_file, format!("{}\n/data\n", std::process::id())).unwrap();
        clear(cluster.path()).await.unwrap();
        assert!(!pid_file.exists(), "this process lives and is no server");
    }

    #[tokio::test]
    async fn no_pid_file_is_nothing_to_do() {
        clear(tempfile::tempdir().unwrap().path()).await.unwrap();
    }
}
