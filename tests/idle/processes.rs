//! Seconds that processes have computed, from `/proc`.

use std::path::Path;

use anyhow::{Context, Result};
use nix::unistd::{Pid, SysconfVar, sysconf};

/// What `/proc/PID/stat` says of a process.
struct Stat {
    parent: i32,
    /// Of the process itself, clock ticks.
    own: u64,
    /// Of its children that have ended and were waited for, clock ticks.
    ended_children: u64,
}

fn stat(pid: Pid) -> Result<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in parentheses may hold anything.
    let fields: Vec<&str> = text.rsplit(')').next().context("no fields")?.split_whitespace().collect();
    let number = |index: usize| -> Result<u64> { Ok(fields.get(index).context("too few fields")?.parse()?) };
    Ok(Stat {
        parent: i32::try_from(number(1)?)?,
        own: number(11)? + number(12)?,
        ended_children: number(13)? + number(14)?,
    })
}

fn in_seconds(ticks: u64) -> Result<f64> {
    let per_second = sysconf(SysconfVar::CLK_TCK)?.context("the clock has no ticks")?;
    Ok(ticks as f64 / per_second as f64)
}

/// Seconds that a process computed itself.
pub(crate) fn seconds(pid: Pid) -> Result<f64> {
    in_seconds(stat(pid)?.own)
}

/// Seconds that a process and its children computed, those that ended meanwhile too.
pub(crate) fn seconds_of_tree(root: Pid) -> Result<f64> {
    let of_root = stat(root)?;
    let mut ticks = of_root.own + of_root.ended_children;
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // It may have ended by now: then the parent has its seconds.
        if let Ok(of) = stat(Pid::from_raw(pid))
            && of.parent == root.as_raw()
        {
            ticks += of.own;
        }
    }
    in_seconds(ticks)
}

/// The server process of the Postgres in a planner's data directory.
pub(crate) fn postmaster(data: &Path) -> Result<Pid> {
    let mut folders = vec![data.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)?.flatten() {
            let path = entry.path();
            if entry.file_name() == "postmaster.pid" {
                let text = std::fs::read_to_string(&path)?;
                let pid = text.lines().next().context("postmaster.pid is empty")?.trim().parse()?;
                return Ok(Pid::from_raw(pid));
            }
            if path.is_dir() && folders.len() < 100 {
                folders.push(path);
            }
        }
    }
    anyhow::bail!("no Postgres runs in {}", data.display())
}
