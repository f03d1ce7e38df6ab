//! The node's name, cores and memory.

use std::fs;

use loadmaster_proto::name::{WorkerName, is_valid_id};

/// The host name, or `localhost` where it cannot be read.
pub(crate) fn host_name() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname")
        .map(|name| name.trim().to_owned())
        .ok()
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "localhost".to_owned())
}

/// A worker id made of a host name: lower case, all else dashes, cut to 63 characters.
pub(crate) fn worker_id(host: &str) -> String {
    let dashed: String = host
        .chars()
        .map(|c| c.to_ascii_lowercase())
        .map(|c| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '-' })
        .take(63)
        .collect();
    let id = dashed.trim_matches('-');
    if is_valid_id(id) { id.to_owned() } else { "worker".to_owned() }
}

/// The default name of the worker on this host.
pub(crate) fn default_worker_name() -> Option<WorkerName> {
    WorkerName::from_id(worker_id(&host_name())).ok()
}

/// Cores that this process may use, cgroup limits included.
pub(crate) fn cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(u32::MAX))
}

/// Bytes of memory that this process may use: the host's, or less where a cgroup says so.
pub(crate) fn memory_bytes() -> Option<u64> {
    let host = fs::read_to_string("/proc/meminfo").ok().and_then(|text| mem_total(&text));
    let limits = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let cgroup = limits.iter().filter_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok()).min();
    [host, cgroup].into_iter().flatten().min()
}

/// `MemTotal` of `/proc/meminfo`, in bytes.
fn mem_total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_name_becomes_a_valid_id() {
        for (host, id) in [
            ("node7", "node7"),
            ("GPU-Node_07.cluster.example", "gpu-node-07-cluster-example"),
            ("-x-", "x"),
            ("", "worker"),
            ("日本", "worker"),
        ] {
            assert_eq!(worker_id(host), id);
        }
        assert!(is_valid_id(&worker_id(&"a.".repeat(60))));
    }

    #[test]
    fn meminfo_is_in_kib() {
        assert_eq!(mem_total("MemFree: 1 kB\nMemTotal:       2048 kB\n"), Some(2 << 20));
        assert_eq!(mem_total("nonsense"), None);
    }
}
