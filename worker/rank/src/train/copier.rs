//! What stands for the copies of memory actions while a stage is timed: a thread that carries bytes from one part of the host's
//! memory to another at the pace of the slot's copies, as `actions/lane.rs` does.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use loadmaster_proto::measure::host::CopyCost;

use super::contention::core_clock;
use crate::actions::pace::Pace;

/// Bytes that are carried in turn: more than caches have, as blocks are that were away.
const BYTES: usize = 32 << 20;

/// Copies until it is told to end, no faster than this. Says so when it has gone through its memory for the first time, and copied
/// something since: on a busy machine a short stage may be over before this thread is on again. What it comes to is that of the
/// copies alone, not of what they are beside; none where no time has passed.
pub(super) fn copies(
    bytes_per_second: Option<f64>,
    begun: impl FnOnce(),
    ended: &AtomicBool,
) -> Option<CopyCost> {
    let (from, mut to) = (vec![1_u8; BYTES], vec![2_u8; BYTES]);
    to.copy_from_slice(&from);
    let (begin, core) = (Instant::now(), core_clock());
    let (mut pace, mut at, mut copied) = (Pace::begin(bytes_per_second), 0, 0.0);
    let mut copy = || {
        let end = (at + pace.next()).min(BYTES);
        to[at..end].copy_from_slice(&from[at..end]);
        std::hint::black_box(&mut to);
        copied += (end - at) as f64;
        pace.goes_on(end - at);
        at = end % BYTES;
    };
    copy();
    begun();
    while !ended.load(Ordering::Relaxed) {
        copy();
    }
    let (taken, core) = (begin.elapsed().as_secs_f64(), core_clock() - core);
    CopyCost::of(copied, core, taken)
}
