//! What the kernel says of processes, in `/proc`.

use nix::unistd::{Pid, SysconfVar, sysconf};

/// What `/proc/PID/stat` says of a process that has not ended, or was not reaped.
struct Stat {
    has_ended: bool,
    parent: Pid,
    /// Of the process itself, clock ticks.
    own: u64,
    /// Of its children that have ended and were waited for, clock ticks.
    ended_children: u64,
}

fn stat(pid: Pid) -> Option<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything.
    let fields: Vec<&str> = text.rsplit(')').next()?.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(Stat {
        has_ended: *fields.first()? == "Z",
        parent: Pid::from_raw(i32::try_from(number(1)?).ok()?),
        own: number(11)? + number(12)?,
        ended_children: number(13)? + number(14)?,
    })
}

fn all() -> impl Iterator<Item = (Pid, Stat)> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid::from_raw));
    pids.filter_map(|pid| Some((pid, stat(pid)?)))
}

/// Whether a process lives; one that ended does not, also while nobody has reaped it.
pub fn is_alive(pid: Pid) -> bool {
    stat(pid).is_some_and(|stat| !stat.has_ended)
}

/// Process ids of the living children of `parent`.
pub fn children(parent: Pid) -> Vec<Pid> {
    all().filter(|(_, stat)| stat.parent == parent && !stat.has_ended).map(|(pid, _)| pid).collect()
}

fn in_seconds(ticks: u64) -> f64 {
    let per_second = sysconf(SysconfVar::CLK_TCK).ok().flatten().expect("the clock has ticks");
    ticks as f64 / per_second as f64
}

/// Seconds of processor time that a process took so far.
///
/// # Panics
/// When it is gone.
pub fn processor_seconds(pid: Pid) -> f64 {
    in_seconds(stat(pid).expect("the process lives").own)
}

/// Seconds of processor time that a process and its children took so far, those that ended meanwhile too.
///
/// # Panics
/// When the process is gone.
pub fn processor_seconds_of_tree(root: Pid) -> f64 {
    let stat = stat(root).expect("the process lives");
    // One that is waited for just now is missed: its seconds have become its parent's.
    let children = all().filter(|(_, of)| of.parent == root).map(|(_, of)| of.own);
    in_seconds(stat.own + stat.ended_children + children.sum::<u64>())
}

/// Memory that a process has, in bytes.
///
/// # Panics
/// When it is gone.
pub fn resident_bytes(pid: Pid) -> u64 {
    status_bytes(pid, "VmRSS:")
}

/// The most memory that a process ever had, in bytes.
///
/// # Panics
/// When it is gone.
pub fn peak_resident_bytes(pid: Pid) -> u64 {
    status_bytes(pid, "VmHWM:")
}

fn status_bytes(pid: Pid, key: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process lives");
    let line = status.lines().find_map(|line| line.strip_prefix(key)).expect("Linux says so");
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kibibytes << 10
}
