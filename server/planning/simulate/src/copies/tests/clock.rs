//! A clock that goes from moment to moment and looks at everything each time: no walking ahead, no ends foretold.

use std::collections::{BTreeMap, VecDeque};

use super::*;

/// What a device does next.
#[derive(Debug, Clone, Copy)]
enum Optimization {
    Ask(usize, bool),
    Wait(usize, bool),
    Take(Handover),
    Give(Handover),
    /// Seconds of a core.
    Work(f64),
    /// Seconds that it only stands by; whether they are those of a transfer that it sends.
    Stand(f64, Option<Handover>),
}

#[derive(Debug, Clone, Copy)]
struct Moving {
    device: usize,
    trip: usize,
    is_back: bool,
    latency: f64,
    bytes: f64,
}

/// Seconds of the last of so many iterations.
pub(super) fn clock(of: &CopyPipeline<'_>, iterations: u32) -> f64 {
    let mut lanes: BTreeMap<Way, VecDeque<Moving>> = BTreeMap::new();
    let mut away: Vec<Vec<[usize; 2]>> =
        of.devices.iter().map(|device| vec![[0; 2]; device.trips.len()]).collect();
    let (mut now, mut began) = (0.0, 0.0);
    for iteration in 0..iterations {
        began = now;
        let optimizations: Vec<Vec<Optimization>> =
            of.devices.iter().map(|device| optimizations(device, of, iteration > 0)).collect();
        let mut next = vec![0; optimizations.len()];
        let mut left = vec![f64::NAN; optimizations.len()];
        let mut arrived: Vec<Handover> = Vec::new();
        let mut sending: Vec<[VecDeque<(Handover, f64)>; 2]> =
            optimizations.iter().map(|_| Default::default()).collect();
        loop {
            // Of what is asked for at one moment, that of the first device comes first.
            let mut asked: Vec<(Way, Moving)> = Vec::new();
            loop {
                let (before, mut moved) = (next.clone(), false);
                for device in 0..optimizations.len() {
                    let Some(&optimization) = optimizations[device].get(next[device]) else { continue };
                    let is_over = match optimization {
                        Optimization::Ask(trip, is_back) => {
                            for parcel in
                                of.devices[device].trips[trip].parcels.iter().filter(|of| of.bytes > 0)
                            {
                                let own = device as u32;
                                let way =
                                    if is_back { parcel.place.back(own) } else { parcel.place.out(own) };
                                let latency = of.links.ways[&way].latency_seconds;
                                let bytes = parcel.bytes as f64;
                                asked.push((way, Moving { device, trip, is_back, latency, bytes }));
                                away[device][trip][usize::from(is_back)] += 1;
                            }
                            true
                        }
                        Optimization::Wait(trip, is_back) => away[device][trip][usize::from(is_back)] == 0,
                        Optimization::Take(handed) => arrived.contains(&handed),
                        Optimization::Give(handed) if of.overlap == Overlap::Nothing => {
                            arrived.push(handed);
                            true
                        }
                        Optimization::Give(handed) => {
                            sending[device][usize::from(handed.is_backward)]
                                .push_back((handed, crossing(of, handed)));
                            true
                        }
                        Optimization::Work(seconds) | Optimization::Stand(seconds, _) => {
                            if left[device].is_nan() {
                                left[device] = seconds;
                            }
                            let is_over = left[device] <= 0.0;
                            if is_over {
                                left[device] = f64::NAN;
                            }
                            is_over
                        }
                    };
                    next[device] += usize::from(is_over);
                }
                for lines in &mut sending {
                    for line in lines {
                        while line.front().is_some_and(|&(_, left)| left <= 0.0) {
                            arrived.extend(line.pop_front().map(|(handed, _)| handed));
                            moved = true;
                        }
                    }
                }
                for lane in lanes.values_mut() {
                    while let Some(&Moving { device, trip, is_back, .. }) =
                        lane.front().filter(|copy| copy.latency <= 0.0 && copy.bytes <= 0.0)
                    {
                        lane.pop_front();
                        moved = true;
                        away[device][trip][usize::from(is_back)] -= 1;
                    }
                }
                let settled = next == before && !moved;
                if settled {
                    break;
                }
            }
            asked.sort_by_key(|(_, copy)| copy.device);
            for (way, copy) in asked {
                lanes.entry(way).or_default().push_back(copy);
            }
            if next.iter().zip(&optimizations).all(|(&next, optimizations)| next == optimizations.len()) {
                break;
            }
            let doing: Vec<Option<Optimization>> = optimizations
                .iter()
                .zip(&next)
                .map(|(optimizations, &next)| optimizations.get(next).copied())
                .collect();
            let mut over: Vec<Handover> =
                sending.iter().flatten().filter_map(|line| Some(line.front()?.0)).collect();
            over.extend(doing.iter().filter_map(|optimization| match optimization {
                Some(Optimization::Stand(_, sent)) => *sent,
                _ => None,
            }));
            let (copying, working) = speeds(of, &lanes, &doing, &over);
            // To the end of whatever ends first.
            let mut step = f64::INFINITY;
            for (way, lane) in &lanes {
                let Some(copy) = lane.front() else { continue };
                step = step.min(if copy.latency > 0.0 { copy.latency } else { copy.bytes / copying[way] });
            }
            for (device, optimization) in doing.iter().enumerate() {
                match optimization {
                    Some(Optimization::Work(_)) => step = step.min(left[device] / working[device]),
                    Some(Optimization::Stand(..)) => step = step.min(left[device]),
                    _ => {}
                }
            }
            for line in sending.iter().flatten() {
                step = line.front().map_or(step, |&(_, left)| step.min(left));
            }
            assert!(step.is_finite(), "the clock stands still");
            let rest =
                |left: f64, done: f64| if left - done <= left.max(done) * 1e-12 { 0.0 } else { left - done };
            for (way, lane) in &mut lanes {
                let Some(copy) = lane.front_mut() else { continue };
                if copy.latency > 0.0 {
                    copy.latency = rest(copy.latency, step);
                } else {
                    copy.bytes = rest(copy.bytes, step * copying[way]);
                }
            }
            for (device, optimization) in doing.iter().enumerate() {
                match optimization {
                    Some(Optimization::Work(_)) => left[device] = rest(left[device], step * working[device]),
                    Some(Optimization::Stand(..)) => left[device] = rest(left[device], step),
                    _ => {}
                }
            }
            for line in sending.iter_mut().flatten() {
                if let Some((_, left)) = line.front_mut() {
                    *left = rest(*left, step);
                }
            }
            now += step;
        }
    }
    now - began
}

fn crossing(of: &CopyPipeline<'_>, handed: Handover) -> f64 {
    let edge = of.edges[handed.edge as usize];
    if handed.is_backward { edge.backward } else { edge.forward }
}

/// All that a device does in an iteration, one after another.
fn optimizations(device: &DeviceSteps, of: &CopyPipeline<'_>, has_before: bool) -> Vec<Optimization> {
    let count = device.steps.len();
    let mut optimizations = Vec::new();
    for (boundary, step) in device.steps.iter().enumerate() {
        let at = |when: fn(&Trip) -> usize| {
            let is_here =
                move |trip: &Trip| when(trip) == boundary || has_before && when(trip) == boundary + count;
            let all = device.trips.iter().enumerate();
            all.filter(move |(_, trip)| is_here(trip)).map(|(index, _)| index).collect::<Vec<_>>()
        };
        optimizations
            .extend(at(|trip| trip.at.leaves).into_iter().map(|trip| Optimization::Ask(trip, false)));
        optimizations
            .extend(at(|trip| trip.at.freed).into_iter().map(|trip| Optimization::Wait(trip, false)));
        let mut back = at(|trip| trip.at.fetched);
        back.sort_by_key(|&trip| device.trips[trip].at.needed - device.trips[trip].at.fetched);
        optimizations.extend(back.into_iter().map(|trip| Optimization::Ask(trip, true)));
        optimizations
            .extend(at(|trip| trip.at.needed).into_iter().map(|trip| Optimization::Wait(trip, true)));
        let blocks = of.overlap == Overlap::Nothing;
        if let Some(handed) = step.takes {
            optimizations.push(Optimization::Take(handed));
            optimizations.extend(blocks.then(|| Optimization::Stand(crossing(of, handed), None)));
        }
        optimizations.push(Optimization::Work(step.seconds));
        if let Some(handed) = step.gives {
            optimizations.push(Optimization::Give(handed));
            optimizations.extend(blocks.then(|| Optimization::Stand(crossing(of, handed), Some(handed))));
        }
    }
    optimizations
}

/// How fast each way copies and each device works at this moment.
fn speeds(
    of: &CopyPipeline<'_>,
    lanes: &BTreeMap<Way, VecDeque<Moving>>,
    doing: &[Option<Optimization>],
    over: &[Handover],
) -> (BTreeMap<Way, f64>, Vec<f64>) {
    let taken = |ways: &[Way]| -> f64 {
        let is_on = |route: &&Route| {
            over.iter().any(|handed| handed.edge == route.edge && handed.is_backward == route.is_backward)
                && route.ways.iter().any(|way| ways.contains(way))
        };
        of.links.routes.iter().filter(is_on).map(|route| route.bytes_per_second).sum()
    };
    let mut open: Vec<Way> = lanes
        .iter()
        .filter(|(_, lane)| lane.front().is_some_and(|copy| copy.latency <= 0.0))
        .map(|(&way, _)| way)
        .collect();
    let mut copying: BTreeMap<Way, f64> = BTreeMap::new();
    let groups: Vec<(&[Way], f64)> = of
        .links
        .shared
        .iter()
        .map(|shared| (&shared.ways[..], (shared.bytes_per_second - taken(&shared.ways)).max(0.0)))
        .collect();
    // One after another: the one that is held back most.
    while !open.is_empty() {
        let limit = |way: &Way| {
            let alone = (of.links.ways[way].bytes_per_second - taken(&[*way])).max(0.0);
            groups.iter().filter(|(ways, _)| ways.contains(way)).fold(alone, |limit, (ways, rate)| {
                let served: f64 = ways.iter().filter_map(|way| copying.get(way)).sum();
                let others = open.iter().filter(|way| ways.contains(way)).count();
                limit.min((rate - served).max(0.0) / others as f64)
            })
        };
        let limits: Vec<f64> = open.iter().map(limit).collect();
        let least = (0..open.len()).min_by(|&one, &other| limits[one].total_cmp(&limits[other])).unwrap();
        copying.insert(open.remove(least), limits[least]);
    }
    let mut working = vec![1.0; doing.len()];
    for node in &of.links.cores {
        let want = |way: &Way, speed: f64| {
            let rate = of.links.ways[way];
            rate.core_share * speed / rate.bytes_per_second
        };
        let slots = |device: usize| node.devices.iter().filter(|&&own| own == device as u32).count() as f64;
        let is_here = |device: usize| slots(device) > 0.0;
        let works = |device: usize| is_here(device) && matches!(doing[device], Some(Optimization::Work(_)));
        let workers: f64 = (0..doing.len()).filter(|&device| works(device)).map(slots).sum();
        let own: Vec<Way> =
            copying.keys().filter(|way| is_here(lanes[way].front().unwrap().device)).copied().collect();
        let wants = |level: f64| {
            let of_way =
                |way: &Way| slots(lanes[way].front().unwrap().device) * want(way, copying[way]).min(level);
            workers * level.min(1.0) + own.iter().map(of_way).sum::<f64>()
        };
        let (mut low, mut high) = (0.0, 1.0);
        if wants(1.0) <= node.cores {
            low = 1.0;
        }
        for _ in 0..80 {
            let middle = (low + high) / 2.0;
            if wants(middle) <= node.cores { low = middle } else { high = middle }
        }
        let mut bytes = 0.0;
        for way in own {
            let wanted = want(&way, copying[&way]);
            if wanted > low {
                *copying.get_mut(&way).unwrap() *= low / wanted;
            }
            bytes += copying[&way] * slots(lanes[&way].front().unwrap().device);
        }
        // Each worker besides is one of those that slow down, as long as there is a core for it, and so is each byte.
        let beside = workers.min(node.cores) - 1.0;
        let longer =
            if beside > 0.0 { (node.contention_slowdown - 1.0) * beside / (node.cores - 1.0) } else { 0.0 };
        let slow = low / (1.0 + longer + bytes * node.slowdown_seconds_per_byte);
        (0..doing.len()).filter(|&device| works(device)).for_each(|device| working[device] = slow);
    }
    (copying, working)
}
