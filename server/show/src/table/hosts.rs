//! What a training takes of its hosts' memory in all: what `--host-memory` has to allow.

use std::collections::BTreeMap;

use loadmaster_proto::wire::v1::{ChunkTraffic, StageMemoryOptimizations};

use crate::text::{bytes, plain};

/// Bytes that a device takes of its host: for blocks that are there, and for chunks.
pub(super) fn of_device(actions: Option<&StageMemoryOptimizations>, chunks: Option<&ChunkTraffic>) -> i64 {
    let blocks = actions.map_or(0, |of| of.host_pool_bytes);
    blocks.saturating_add(chunks.map_or(0, |of| of.host_bytes))
}

/// A line about the host that gives most, where devices with these bytes are on these nodes; nothing where none takes any.
pub(super) fn most<'a>(devices: impl IntoIterator<Item = (&'a str, i64)>) -> String {
    let mut taken: BTreeMap<&str, i64> = BTreeMap::new();
    for (node, bytes) in devices {
        let sum = taken.entry(node).or_default();
        *sum = sum.saturating_add(bytes);
    }
    let most = taken.iter().filter(|(_, sum)| **sum > 0).max_by_key(|(_, sum)| **sum);
    let Some((node, sum)) = most else { return String::new() };
    let whose = match taken.len() {
        1 => "for all devices together".to_owned(),
        _ => format!("for all devices of {} together; no other node needs more", plain(node)),
    };
    format!("CPU memory  {} {whose}\n", bytes(*sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each device has its own part, and the host that gives most is told.
    #[test]
    fn devices_of_a_host_add_up() {
        let actions =
            StageMemoryOptimizations { host_pool_bytes: 3 << 20, ..StageMemoryOptimizations::default() };
        let run = ChunkTraffic { host_bytes: 5 << 20, ..ChunkTraffic::default() };
        let each = of_device(Some(&actions), Some(&run));
        assert_eq!(each, 8 << 20);
        assert_eq!(most([("", each), ("", each)]), "CPU memory  16.00 MiB for all devices together\n");
        let several = most([("a", each), ("b", each), ("b", 1 << 20)]);
        assert_eq!(several, "CPU memory  9.00 MiB for all devices of b together; no other node needs more\n");
        assert_eq!(most([("a", of_device(None, None))]), "");
    }
}
