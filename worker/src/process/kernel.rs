//! What the kernel says: whether its out-of-memory killer was at work, and of a process whose child it is and
//! how long it has computed.

use std::collections::BTreeMap;

/// Processes that it has killed since the node started, where the kernel says so.
pub(crate) fn out_of_memory_kills() -> Option<u64> {
    parse(&std::fs::read_to_string("/proc/vmstat").ok()?)
}

fn parse(vmstat: &str) -> Option<u64> {
    vmstat.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

/// Makes the kernel prefer this process to the daemon when it needs memory. Best effort.
pub(crate) fn prefer_to_kill(pid: u32) {
    let _ = std::fs::write(format!("/proc/{pid}/oom_score_adj"), "500");
}

/// A process at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    /// Whose child it is.
    pub(crate) parent: u32,
    /// It has ended and only waits for its parent.
    pub(crate) has_ended: bool,
    /// CPU time of it and of the children that it has waited for, in ticks of `/proc`.
    pub(crate) cpu_ticks: u64,
}

/// A process, if it is there.
pub(crate) fn process(pid: u32) -> Option<Process> {
    process_in(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// All processes, by their numbers.
pub(crate) fn processes() -> BTreeMap<u32, Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| Some((pid, process(pid)?))).collect()
}

/// The text of `/proc/PID/stat`.
fn process_in(stat: &str) -> Option<Process> {
    // State and parent follow the parenthesised name, which may hold anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = fields.get(11..15).unwrap_or_default().iter().filter_map(|ticks| ticks.parse::<u64>().ok());
    Some(Process {
        parent: fields.get(1)?.parse().ok()?,
        has_ended: matches!(*fields.first()?, "Z" | "X"),
        cpu_ticks: ticks.fold(0, u64::saturating_add),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_are_read_whatever_a_process_calls_itself() {
        let of = |stat| process_in(stat).map(|process| (process.parent, process.has_ended));
        assert_eq!(of("7 (a) b) S 3 7 7 0"), Some((3, false)));
        assert_eq!(of("7 (sh) Z 3 7 7 0"), Some((3, true)));
        assert_eq!(of(""), None);
    }

    /// User and system time, of the process and of the children that it has waited for, and nothing around them.
    #[test]
    fn cpu_time_is_read_with_that_of_children() {
        let stat = "7 (a) b) S 3 7 7 0 -1 4194304 900 901 902 903 10 200 3000 40000 20 0 1 0 99";
        assert_eq!(process_in(stat).unwrap().cpu_ticks, 43_210);
        assert!(process(std::process::id()).is_some() && processes().contains_key(&std::process::id()));
    }

    #[test]
    fn the_counter_is_found_among_others() {
        assert_eq!(parse("nr_free_pages 1\noom_kill 7\noom_kill_x 9\n"), Some(7));
        assert_eq!(parse("nr_free_pages 1\n"), None);
    }
}
