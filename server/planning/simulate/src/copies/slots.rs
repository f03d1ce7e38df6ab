//! CPU slots on the cores of their host, counted in slots: as many compute at once as have a core for each of their threads.

use std::collections::BTreeSet;

use loadmaster_proto::measure::host::{CopiedByte, Host};

use super::jobs::crowded;
use super::{Cores, Links, Way};

/// Bytes that one core of a server copies in a second, if it was not measured.
pub const CORE_COPIES: f64 = 5e9;

/// The cores of a host, and what uses them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SlotCores {
    /// How many slots compute at once, each with cores of its own; one in any case.
    pub slots: f64,
    /// Threads of each: a copy has one.
    pub threads: f64,
    /// How many times as long as alone each takes while that many compute, at least 1: they share caches and memory.
    pub contention_slowdown: f64,
    /// What a copied byte costs.
    pub copies: CopiedByte,
}

impl SlotCores {
    /// Those of a host that slots were profiled on.
    pub fn of(host: Host) -> Self {
        let threads = f64::from(host.threads.max(1));
        let (slots, ratio) = ((f64::from(host.cores) / threads).max(1.0), host.contention_slowdown);
        let copies = host.copies.unwrap_or_else(|| assumed(slots, threads, ratio));
        Self { slots, threads, contention_slowdown: ratio, copies }
    }

    /// Those of so many slots, of a thread each, that slow no one down.
    pub fn plain(slots: f64) -> Self {
        Self { slots, threads: 1.0, contention_slowdown: 1.0, copies: assumed(slots, 1.0, 1.0) }
    }

    /// How many times as long so many slots take that do the same at the same time.
    pub fn slower(self, slots: u32) -> f64 {
        let slots = f64::from(slots);
        (slots / self.slots).max(1.0) * crowded(slots, self.slots, self.contention_slowdown)
    }

    /// What of a slot's cores a copy at this pace takes: where the pace is less than what a core copies, its thread sleeps
    /// meanwhile.
    pub fn share(self, bytes_per_second: f64) -> f64 {
        (bytes_per_second * self.copies.core_seconds).min(1.0) / self.threads
    }

    /// Has these devices share the cores, each named as often as it stands for a slot, with the copies that may go over `used`
    /// ways. Where there are enough cores for all of it at once, and none slows another down, nothing is shared.
    pub fn share_among(self, devices: Vec<u32>, used: impl IntoIterator<Item = Way>, links: &mut Links) {
        let slots = |device: u32| devices.iter().filter(|&&own| own == device).count();
        let used: BTreeSet<Way> = used.into_iter().collect();
        let (mut most, mut copies) = (devices.len() as f64, false);
        for (way, rate) in &mut links.ways {
            let (from, to) = way.ends();
            // Whose block it is copies it: of two peers that may be either.
            let own = [from, to].into_iter().flatten().map(slots).max().unwrap_or(0);
            if own > 0 {
                rate.core_share = self.share(rate.bytes_per_second);
                copies |= used.contains(way);
                most += if used.contains(way) { own as f64 * rate.core_share } else { 0.0 };
            }
        }
        let (contention_slowdown, slowdown_seconds_per_byte) =
            (self.contention_slowdown, self.copies.slowdown_seconds);
        let slows_down =
            contention_slowdown > 1.0 && devices.len() > 1 || slowdown_seconds_per_byte > 0.0 && copies;
        if most > self.slots || slows_down {
            links.cores.push(Cores {
                devices,
                cores: self.slots,
                contention_slowdown,
                slowdown_seconds_per_byte,
            });
        }
    }
}

/// What a copied byte costs if it was not measured: a core that copies is as good as one that computes at keeping
/// others waiting.
fn assumed(slots: f64, threads: f64, contention_slowdown: f64) -> CopiedByte {
    let each = if slots > 1.0 { (contention_slowdown - 1.0) / (slots - 1.0) } else { 0.0 };
    CopiedByte { core_seconds: 1.0 / CORE_COPIES, slowdown_seconds: each / threads / CORE_COPIES }
}

#[cfg(test)]
mod tests {
    use super::super::Rate;
    use super::*;

    /// Slots of several threads need as many cores each, and one computes however few there are.
    #[test]
    fn as_many_slots_compute_at_once_as_have_cores_for_their_threads() {
        let slots = |cores, threads| {
            SlotCores::of(Host { cores, threads, contention_slowdown: 1.0, copies: None }).slots
        };
        assert_eq!([slots(2, 1), slots(8, 4), slots(2, 4)], [2.0, 2.0, 1.0]);
        let of_two = SlotCores::of(Host { cores: 4, threads: 2, contention_slowdown: 1.0, copies: None });
        assert_eq!([of_two.share(1e9), of_two.share(1e11)], [0.1, 0.5], "a copy has one thread of two");
    }

    /// Whatever slots have to do alike takes as long as on cores that go round them, a moment for each of as many as there is room
    /// for.
    #[test]
    fn slots_that_do_the_same_take_as_long_as_in_turns() {
        for cores in 1..=5_u32 {
            for threads in 1..=3_u32 {
                for slots in 1..=9_u32 {
                    let at_once = (cores / threads).max(1) as usize;
                    // Moments that each has left, and who is served next.
                    let (mut left, mut next, mut moments) = (vec![600_u32; slots as usize], 0, 0_u32);
                    while left.iter().any(|left| *left > 0) {
                        for _ in 0..at_once.min(left.len()) {
                            left[next] = left[next].saturating_sub(1);
                            next = (next + 1) % left.len();
                        }
                        moments += 1;
                    }
                    let of = SlotCores::plain(at_once as f64);
                    let told = 600.0 * of.slower(slots);
                    assert!(
                        (told - f64::from(moments)).abs() <= 1.0,
                        "{slots} on {cores}: {told}, not {moments}"
                    );
                    // Cores that are no whole slots are some help.
                    let shared =
                        SlotCores::of(Host { cores, threads, contention_slowdown: 1.0, copies: None })
                            .slower(slots);
                    assert!((1.0..=of.slower(slots)).contains(&shared));
                }
            }
        }
    }

    /// Those that have cores of their own slow each other down; more of them do so no further, but take turns.
    #[test]
    fn slots_with_cores_of_their_own_slow_each_other_down() {
        let of = SlotCores::of(Host { cores: 3, threads: 1, contention_slowdown: 1.5, copies: None });
        assert_eq!([of.slower(1), of.slower(2), of.slower(3), of.slower(6)], [1.0, 1.25, 1.5, 3.0]);
        assert_eq!(
            SlotCores::of(Host { cores: 1, threads: 2, contention_slowdown: 1.5, copies: None }).slower(3),
            3.0
        );
    }

    /// Cores are shared where steps and copies together may want more than there are, and nowhere else.
    #[test]
    fn what_can_never_be_short_is_not_shared() {
        let cores = |devices: &[u32], used: &[Way], contention_slowdown: f64| {
            let rate = Rate::new(1e9, 0.0);
            let hosts = |links: Links, &device: &u32| links.host(device, rate, rate);
            let mut links = devices.iter().fold(Links::default(), hosts);
            let of = SlotCores {
                contention_slowdown,
                copies: assumed(2.3, 1.0, contention_slowdown),
                ..SlotCores::plain(2.3)
            };
            of.share_among(devices.to_vec(), used.iter().copied(), &mut links);
            assert!(links.ways.values().all(|rate| rate.core_share == 0.2));
            links.cores
        };
        assert_eq!(cores(&[0, 1], &[Way::ToHost(0)], 1.0), []);
        let both = [Way::ToHost(0), Way::FromHost(1)];
        let shared = |contention_slowdown: f64| {
            let slowdown_seconds_per_byte = (contention_slowdown - 1.0) / (2.3 - 1.0) / CORE_COPIES;
            [Cores { devices: vec![0, 1], cores: 2.3, contention_slowdown, slowdown_seconds_per_byte }]
        };
        assert_eq!(cores(&[0, 1], &both, 1.0), shared(1.0));
        assert_eq!(cores(&[0, 1, 1], &[], 1.0).len(), 1, "a stage of two slots");
        assert_eq!(cores(&[0, 1], &[], 1.5), shared(1.5), "each slows the other down");
        assert_eq!(cores(&[1, 0], &[Way::ToHost(0)], 1.5).len(), 1, "whatever is copied");
        assert_eq!(cores(&[0], &[], 1.5), [], "nobody else is there");
        assert_eq!(cores(&[0], &[Way::ToHost(0)], 1.5).len(), 1, "copies are");
    }
}
