//! Bytes over links.

use loadmaster_proto::cluster::Link;

/// Seconds until `bytes` that one device sends have arrived at another: `v / b` and the latency (AMP, 3.3).
pub fn point_to_point(bytes: f64, link: Link) -> f64 {
    bytes / link.bytes_per_second + link.latency_seconds
}

/// Seconds of a ring all-reduce of `bytes` over `workers` devices whose slowest link is `link`:
/// `2 (n − 1) M / (n B)`, and a latency for each of the ring's `2 (n − 1)` turns (AMP, 3.3). A ring of one has
/// nothing to send.
pub fn all_reduce(bytes: f64, workers: u32, link: Link) -> f64 {
    let turns = 2.0 * f64::from(workers.saturating_sub(1));
    turns * (bytes / (f64::from(workers.max(1)) * link.bytes_per_second) + link.latency_seconds)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use loadmaster_proto::cluster::LinkOrigin;

    fn link(bytes_per_second: f64, latency_seconds: f64) -> Link {
        Link { bytes_per_second, latency_seconds, origin: LinkOrigin::Given }
    }

    /// By hand: 600 bytes over 4 devices at 100 bytes a second are 6 turns of 150 bytes.
    #[test]
    fn a_ring_takes_2_n_minus_1_turns_of_an_nth() {
        assert_eq!(all_reduce(600.0, 4, link(100.0, 0.0)), 9.0);
        assert_eq!(all_reduce(600.0, 4, link(100.0, 0.5)), 12.0);
        assert_eq!(all_reduce(600.0, 2, link(100.0, 0.0)), 6.0);
        assert_eq!(
            (all_reduce(600.0, 1, link(100.0, 9.0)), all_reduce(600.0, 0, link(1.0, 9.0))),
            (0.0, 0.0)
        );
        assert_eq!(point_to_point(600.0, link(100.0, 0.25)), 6.25);
    }

    proptest! {
        /// More devices, more bytes or a slower link never take less; however many devices, each byte
        /// crosses the link less than twice.
        #[test]
        fn a_ring_grows_with_devices_and_stays_below_twice_the_bytes(
            bytes in 0.0..1e12_f64, workers in 1_u32..2_000, bandwidth in 1.0..1e12_f64, latency in 0.0..1.0_f64,
        ) {
            let seconds = all_reduce(bytes, workers, link(bandwidth, latency));
            prop_assert!(seconds <= all_reduce(bytes, workers + 1, link(bandwidth, latency)));
            prop_assert!(seconds <= all_reduce(bytes * 2.0, workers, link(bandwidth, latency)));
            prop_assert!(seconds <= all_reduce(bytes, workers, link(bandwidth / 2.0, latency)));
            prop_assert!(all_reduce(bytes, workers, link(bandwidth, 0.0)) <= 2.0 * bytes / bandwidth);
        }
    }
}
