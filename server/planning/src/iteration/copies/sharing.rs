//! How far copies and steps come whose speed changes.

use super::Cores;
use super::fair::{Flow, MaxMin, Want, level};
use super::lanes::{Parceled, What};
use super::walk::Walk;

/// Lanes and cores that change each other's speed, and what is at work on them.
#[derive(Debug, Default)]
pub(super) struct Component {
    jobs: Vec<Job>,
    /// Counts changes of speed: an end that was foretold before one is void.
    generation: u64,
}

/// What is used again from one change of speeds to the next.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    fair: MaxMin,
    left: Vec<f64>,
    /// By job of a component.
    speeds: Vec<f64>,
    /// Of the jobs of a node: which they are, and what of its cores they want.
    who: Vec<usize>,
    wants: Vec<Want>,
    over: Vec<Job>,
}

/// What is at work.
#[derive(Debug, Clone, Copy)]
struct Job {
    work: Work,
    began: f64,
    /// What was left to do at a moment, at which speed it is done since, and when that ends.
    left: f64,
    since: f64,
    speed: f64,
    end: f64,
}

#[derive(Debug, Clone, Copy)]
enum Work {
    /// A copy before its first byte.
    Latency(Parceled),
    /// A copy: bytes.
    Copy(Parceled),
    /// A step of a CPU slot: seconds of a core.
    Step { device: u32, node: u32 },
}

impl Job {
    fn new(work: Work, left: f64, now: f64) -> Self {
        // Of no speed yet: its component says how fast.
        Self { work, began: now, left, since: now, speed: 0.0, end: f64::INFINITY }
    }

    fn goes_at(&mut self, speed: f64, now: f64) {
        if speed != self.speed {
            self.left = (self.left - (now - self.since) * self.speed).max(0.0);
            (self.since, self.speed) = (now, speed);
            self.end = if speed > 0.0 { now + self.left / speed } else { f64::INFINITY };
        }
    }
}

impl Walk<'_> {
    /// The earliest jobs of a component are done.
    pub(super) fn done(&mut self, component: u32, generation: u64, now: f64) {
        let of = &mut self.components[component as usize];
        if of.generation != generation {
            return;
        }
        let mut over = std::mem::take(&mut self.scratch.over);
        over.extend(of.jobs.extract_if(.., |job| job.end <= now));
        for job in over.drain(..) {
            match job.work {
                Work::Latency(copy) => {
                    let next = Job { began: job.began, ..Job::new(Work::Copy(copy), copy.bytes as f64, now) };
                    self.components[component as usize].jobs.push(next);
                }
                Work::Copy(copy) => {
                    self.trips[copy.trip as usize].pending[usize::from(copy.is_back)] -= 1;
                    self.ends(&copy, job.began, now);
                    self.awake.push(copy.device);
                    let lane = &mut self.lanes[copy.way as usize];
                    lane.is_taken = false;
                    if let Some(next) = lane.queue.pop_front() {
                        self.begin_copy(next, now);
                    }
                }
                Work::Step { device, .. } => {
                    self.end_step(device as usize, job.began, now);
                    self.awake.push(device);
                }
            }
        }
        self.scratch.over = over;
        self.share(component, now);
    }

    /// A boundary asks for a copy.
    pub(super) fn asked_for(&mut self, copy: Parceled, now: f64) {
        let lane = &mut self.lanes[copy.way as usize];
        if lane.is_taken {
            lane.queue.push_back(copy);
            return;
        }
        self.begin_copy(copy, now);
        if let Some(component) = self.tables.ways[copy.way as usize].component {
            self.share(component, now);
        }
    }

    fn begin_copy(&mut self, copy: Parceled, now: f64) {
        let way = &self.tables.ways[copy.way as usize];
        let Some(component) = way.component else { return };
        self.lanes[copy.way as usize].is_taken = true;
        let job = if way.latency_seconds > 0.0 {
            Job::new(Work::Latency(copy), way.latency_seconds, now)
        } else {
            Job::new(Work::Copy(copy), copy.bytes as f64, now)
        };
        self.components[component as usize].jobs.push(job);
    }

    /// A CPU slot begins its step.
    pub(super) fn begin_step(&mut self, device: u32, now: f64) {
        let Some((node, component)) = self.tables.devices[device as usize].node else { return };
        let steps = &self.tables.of.devices[device as usize].steps;
        let Some(step) = steps.get(self.devices[device as usize].step) else { return };
        let job = Job::new(Work::Step { device, node }, step.seconds, now);
        self.components[component as usize].jobs.push(job);
        self.share(component, now);
    }

    /// Activations begin or end to go over a route.
    pub(super) fn transit(&mut self, route: u32, begins: bool, now: f64) {
        let over = &mut self.transits[route as usize];
        *over = if begins { *over + 1 } else { over.saturating_sub(1) };
        let of = |&way: &u32| self.tables.ways[way as usize].component;
        let mut touched: Vec<u32> = self.tables.route_ways[route as usize].iter().filter_map(of).collect();
        touched.sort_unstable();
        touched.dedup();
        touched.into_iter().for_each(|component| self.share(component, now));
    }

    /// Seconds until each job is done, at its speed of now.
    pub(super) fn seconds_left(&self, now: f64) -> impl Iterator<Item = f64> + '_ {
        let jobs = self.components.iter().flat_map(|component| &component.jobs);
        jobs.map(move |job| (job.end - now).min(f64::MAX))
    }

    /// Sets the speeds of all jobs of a component anew, and foretells when the next one is done.
    fn share(&mut self, component: u32, now: f64) {
        let mut scratch = std::mem::take(&mut self.scratch);
        self.set_speeds(component, &mut scratch);
        let of = &mut self.components[component as usize];
        of.generation += 1;
        let generation = of.generation;
        let mut next = f64::INFINITY;
        for (job, &speed) in of.jobs.iter_mut().zip(&scratch.speeds) {
            job.goes_at(speed, now);
            next = next.min(job.end);
        }
        self.scratch = scratch;
        if next < f64::INFINITY {
            self.happens_at(next, 0, What::Done { component, generation });
        }
    }

    fn set_speeds(&self, component: u32, scratch: &mut Scratch) {
        let tables = self.tables;
        let jobs = &self.components[component as usize].jobs;
        let Scratch { fair, left, speeds, .. } = scratch;
        left.resize(tables.groups.len(), 0.0);
        let mut flows = Vec::with_capacity(jobs.len());
        for job in jobs {
            let Work::Copy(copy) = job.work else { continue };
            let way = &tables.ways[copy.way as usize];
            for &group in &way.groups {
                let is_in = |way: &u32| tables.ways[*way as usize].groups.contains(&group);
                left[group as usize] =
                    tables.groups[group as usize] - self.taken(|ways| ways.iter().any(is_in));
            }
            let most = (way.bytes_per_second - self.taken(|ways| ways.contains(&copy.way))).max(0.0);
            flows.push(Flow { most, groups: &way.groups });
        }
        fair.share(&flows, left);
        let mut rates = fair.rates.iter();
        speeds.clear();
        speeds.extend(jobs.iter().map(|job| match job.work {
            Work::Copy(_) => rates.next().copied().unwrap_or(0.0),
            Work::Latency(_) | Work::Step { .. } => 1.0,
        }));
        for &node in &tables.nodes[component as usize] {
            self.share_cores(node, jobs, scratch);
        }
    }

    /// What activations take of the ways for which this holds.
    fn taken(&self, of: impl Fn(&[u32]) -> bool) -> f64 {
        let mut taken = 0.0;
        let routes = self.tables.of.links.routes.iter().zip(&self.tables.route_ways);
        for (&over, (route, ways)) in self.transits.iter().zip(routes) {
            if over > 0 && of(ways) {
                taken += f64::from(over) * route.bytes_per_second;
            }
        }
        taken
    }

    /// Slows down what is at work on the cores of a node.
    fn share_cores(&self, node: u32, jobs: &[Job], scratch: &mut Scratch) {
        let tables = self.tables;
        let Scratch { speeds, who, wants, .. } = scratch;
        who.clear();
        wants.clear();
        let is_here = |device: u32| tables.devices[device as usize].node.is_some_and(|(of, _)| of == node);
        for (index, job) in jobs.iter().enumerate() {
            let want = match job.work {
                Work::Step { node: of, .. } if of == node => 1.0,
                Work::Copy(copy) if is_here(copy.device) => {
                    let way = &tables.ways[copy.way as usize];
                    way.core_share * speeds[index] / way.bytes_per_second
                }
                _ => continue,
            };
            let (Work::Step { device, .. }
            | Work::Latency(Parceled { device, .. })
            | Work::Copy(Parceled { device, .. })) = job.work;
            who.push(index);
            wants.push(Want { of_slot: want, slots: tables.devices[device as usize].slots });
        }
        let Cores { cores, crowded_ratio, .. } = tables.of.links.cores[node as usize];
        let level = level(wants, cores);
        let is_step = |index: usize| matches!(jobs[index].work, Work::Step { .. });
        let computing = who.iter().zip(wants.iter()).filter(|(index, _)| is_step(**index));
        let crowded = crowded(computing.map(|(_, want)| want.slots).sum(), cores, crowded_ratio);
        for (&index, &want) in who.iter().zip(wants.iter()) {
            if want.of_slot > level {
                speeds[index] *= level / want.of_slot;
            }
            if is_step(index) {
                speeds[index] /= crowded;
            }
        }
    }
}

/// How many times as long as alone each of so many steps takes on these cores while all of them compute.
pub(super) fn crowded(steps: f64, cores: f64, ratio: f64) -> f64 {
    let others = (steps.min(cores) - 1.0).max(0.0);
    if others > 0.0 { 1.0 + (ratio - 1.0) * others / (cores - 1.0) } else { 1.0 }
}
