//! A stretch of what was simulated, as if it were all.

use std::collections::BTreeMap;
use std::ops::Range;

use super::Way;
use super::outcome::{Copied, DeviceTimes, TimedCopy, TimedWait, WaitSeconds, WayTimes};

/// What happens from a moment on for so long, with trips by other names; ways carry what arrives meanwhile, of which `bytes`
/// tells how much a copy is. Returns, by device, which of its steps these are.
pub(super) fn cut(
    copied: Copied,
    from: f64,
    seconds: f64,
    named: impl Fn(u32, u32) -> u32,
    bytes: impl Fn(&TimedCopy) -> u64,
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
        let mut waited = WaitSeconds::default();
        for wait in waits.iter().filter(|wait| wait.device == device) {
            waited.add(wait.is_back, wait.end - wait.start);
        }
        let busy = steps.iter().map(|(start, end)| end - start).sum();
        kept.push(begin..end);
        devices.push(DeviceTimes { end: seconds, busy, waited, steps });
    }
    let mut copies = Vec::with_capacity(copied.copies.len());
    let mut arrived: BTreeMap<Way, (u64, u64)> = BTreeMap::new();
    for mut copy in copied.copies {
        if copy.end <= from || copy.start >= until {
            continue;
        }
        if copy.end <= until {
            let (count, sum) = arrived.entry(copy.way).or_default();
            (*count, *sum) = (*count + 1, sum.saturating_add(bytes(&copy)));
        }
        copy.trip = named(copy.device, copy.trip);
        (copy.asked, copy.start, copy.end) = (copy.asked - from, copy.start - from, copy.end - from);
        copies.push(copy);
    }
    let of_way = |way: WayTimes| {
        let own = copies.iter().filter(|copy| copy.way == way.way);
        let mut waited = WaitSeconds::default();
        waits
            .iter()
            .filter(|wait| wait.way == way.way)
            .for_each(|wait| waited.add(wait.is_back, wait.end - wait.start));
        let (count, bytes) = arrived.get(&way.way).copied().unwrap_or_default();
        WayTimes {
            way: way.way,
            copies: count,
            bytes,
            busy: own.map(|copy| copy.end.min(seconds) - copy.start.max(0.0)).sum(),
            waited,
        }
    };
    let ways = copied.ways.into_iter().map(of_way).collect();
    let copied =
        Copied { iteration_seconds: seconds, iterations: 1, is_steady: true, devices, ways, copies, waits };
    (copied, kept)
}
