//! A stretch of what was simulated, as if it were all.

use std::ops::Range;

use super::outcome::{Copied, DeviceTimes, TimedWait, Waited, WayTimes};

/// What happens from a moment on for so long, with trips by other names. Returns, by device, which of its steps these are.
pub(super) fn cut(
    copied: Copied,
    from: f64,
    seconds: f64,
    named: impl Fn(u32, u32) -> u32,
) -> (Copied, Vec<Range<usize>>) {
    let until = from + seconds;
    let within = |start: f64, end: f64| {
        let (start, end) = (start.max(from), end.min(until));
        (start < end).then_some((start - from, end - from))
    };
    let mut waits = Vec::with_capacity(copied.waits.len());
    for wait in copied.waits {
        if let Some((start, end)) = within(wait.start, wait.end) {
            waits.push(TimedWait { start, end, trip: named(wait.device, wait.trip), ..wait });
        }
    }
    let mut kept = Vec::with_capacity(copied.devices.len());
    let mut devices = Vec::with_capacity(copied.devices.len());
    for (device, times) in (0_u32..).zip(copied.devices) {
        // Steps come in order; those that take no time belong to what is around them.
        let begin = times.steps.partition_point(|step| step.1 <= from);
        let end = times.steps.partition_point(|step| step.0 < until).max(begin);
        let of_range = times.steps.get(begin..end).unwrap_or_default();
        let steps: Vec<(f64, f64)> =
            of_range.iter().map(|&(start, end)| (start.max(from) - from, end.min(until) - from)).collect();
        let mut waited = Waited::default();
        for wait in waits.iter().filter(|wait| wait.device == device) {
            waited.add(wait.is_back, wait.end - wait.start);
        }
        let busy = steps.iter().map(|(start, end)| end - start).sum();
        kept.push(begin..end);
        devices.push(DeviceTimes { end: seconds, busy, waited, steps });
    }
    let mut copies = Vec::with_capacity(copied.copies.len());
    for mut copy in copied.copies {
        if copy.end <= from || copy.start >= until {
            continue;
        }
        copy.trip = named(copy.device, copy.trip);
        (copy.asked, copy.start, copy.end) = (copy.asked - from, copy.start - from, copy.end - from);
        copies.push(copy);
    }
    let of_way = |way: WayTimes| {
        let own = copies.iter().filter(|copy| copy.way == way.way);
        let mut waited = Waited::default();
        waits
            .iter()
            .filter(|wait| wait.way == way.way)
            .for_each(|wait| waited.add(wait.is_back, wait.end - wait.start));
        WayTimes {
            way: way.way,
            copies: own.clone().count() as u64,
            busy: own.map(|copy| copy.end.min(seconds) - copy.start.max(0.0)).sum(),
            waited,
            // Of as much of all copies as is within.
            bytes: scaled(way.bytes, way.copies, copies.iter().filter(|copy| copy.way == way.way).count()),
        }
    };
    let ways = copied.ways.into_iter().map(of_way).collect();
    let copied =
        Copied { iteration_seconds: seconds, iterations: 1, is_steady: true, devices, ways, copies, waits };
    (copied, kept)
}

/// Bytes of some of so many copies, in proportion.
fn scaled(bytes: u64, copies: u64, some: usize) -> u64 {
    let bytes = u128::from(bytes) * some as u128 / u128::from(copies.max(1));
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
