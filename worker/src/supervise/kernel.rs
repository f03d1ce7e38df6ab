//! Whether the kernel's out-of-memory killer was at work.

/// Processes that it has killed since the node started, where the kernel says so.
pub(super) fn out_of_memory_kills() -> Option<u64> {
    parse(&std::fs::read_to_string("/proc/vmstat").ok()?)
}

fn parse(vmstat: &str) -> Option<u64> {
    vmstat.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

/// Makes the kernel prefer this process to the daemon when it needs memory. Best effort.
pub(super) fn prefer_to_kill(pid: u32) {
    let _ = std::fs::write(format!("/proc/{pid}/oom_score_adj"), "500");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_is_found_among_others() {
        assert_eq!(parse("nr_free_pages 1\noom_kill 7\noom_kill_x 9\n"), Some(7));
        assert_eq!(parse("nr_free_pages 1\n"), None);
    }
}
