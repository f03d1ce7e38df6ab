//! What the kernel says: whether its out-of-memory killer was at work, and whose child a process is.

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

/// The parent of a process, and whether the process has ended and only waits for that parent.
pub(crate) fn parent_of(pid: u32) -> Option<(u32, bool)> {
    parent_in(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The text of `/proc/PID/stat`.
fn parent_in(stat: &str) -> Option<(u32, bool)> {
    // State and parent follow the parenthesised name, which may hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let ended = matches!(fields.next()?, "Z" | "X");
    Some((fields.next()?.parse().ok()?, ended))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_are_read_whatever_a_process_calls_itself() {
        assert_eq!(parent_in("7 (a) b) S 3 7 7 0"), Some((3, false)));
        assert_eq!(parent_in("7 (sh) Z 3 7 7 0"), Some((3, true)));
        assert_eq!(parent_in(""), None);
    }

    #[test]
    fn the_counter_is_found_among_others() {
        assert_eq!(parse("nr_free_pages 1\noom_kill 7\noom_kill_x 9\n"), Some(7));
        assert_eq!(parse("nr_free_pages 1\n"), None);
    }
}
