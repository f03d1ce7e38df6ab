//! Speeds of copies and steps that share links, cores or memory bandwidth.
//!
//! On a node of CPU slots, each step takes longer while other slots compute, by the measured contention factor of its host. The
//! whole factor applies where as many other slots compute as there are cores, and a part of it where fewer do. Each byte copied
//! on the node adds its measured seconds to the step beside it.

use super::Cores;
use super::event_loop::CopyEventLoop;
use super::jobs::{Job, Phase, Slowed, Work, crowded};
use super::lanes::{Event, ParcelCopy, What};
use super::max_min_fair::{Flow, MaxMin, level};
use super::tables::Tables;

/// Lanes and cores that change each other's speed, and what is at work on them.
#[derive(Debug)]
pub(super) struct Component<'t> {
    jobs: Vec<Job<'t>>,
    /// When the next of them is done; infinite while speeds are to be set anew.
    next: f64,
    /// Whether they are, because what is at work is not what it was.
    is_changed: bool,
    /// Whether that is so of copies which share rates with others.
    are_copies_changed: bool,
    /// Whether activations leave ways more or less than they did.
    is_left_changed: bool,
}

impl Default for Component<'_> {
    fn default() -> Self {
        Self {
            jobs: Vec::new(),
            next: f64::INFINITY,
            is_changed: false,
            are_copies_changed: false,
            is_left_changed: false,
        }
    }
}

/// What is used once more from one change of speeds to the next.
#[derive(Debug, Default)]
pub(super) struct Scratch<'t> {
    fair: MaxMin,
    flows: Vec<Flow<'t>>,
    left: Vec<f64>,
}

/// What activations take, in bytes a second.
#[derive(Debug)]
pub(super) struct Taken {
    of_ways: Vec<f64>,
    of_groups: Vec<f64>,
}

impl Taken {
    /// What they leave of a way.
    fn left_of(&self, tables: &Tables<'_>, way: u32) -> f64 {
        (tables.ways[way as usize].bytes_per_second - self.of_ways[way as usize]).max(0.0)
    }

    /// Nothing, of so many ways and so many groups of them.
    pub(super) fn nothing(ways: usize, groups: usize) -> Self {
        Self { of_ways: vec![0.0; ways], of_groups: vec![0.0; groups] }
    }
}

impl<'t> CopyEventLoop<'t> {
    /// Has the next happen of what is asked for or at work; whether there was anything.
    pub(super) fn happen_next(&mut self) -> bool {
        self.happen_next_before(f64::INFINITY)
    }

    /// The same of what happens before a moment.
    pub(super) fn happen_next_before(&mut self, end: f64) -> bool {
        let asked = self.events.peek().map_or(f64::INFINITY, Event::at);
        // Whatever else happens at the same moment changes speeds once more: they are set once it is over.
        if self.changed_at < asked {
            self.share_all();
        }
        let (done, component) = self.next_done;
        if done.min(asked) >= end {
            return false;
        }
        // What ends comes before what begins at the same moment.
        if done <= asked {
            self.done(component, done);
            return true;
        }
        let event = self.events.pop();
        let is_any = event.is_some();
        if let Some(event) = event {
            self.happen(event);
        }
        is_any
    }

    /// The earliest jobs of a component are done.
    fn done(&mut self, component: u32, now: f64) {
        // What begins meanwhile comes behind what is at work.
        let (mut at, mut until) = (0, self.components[component as usize].jobs.len());
        while at < until {
            let jobs = &mut self.components[component as usize].jobs;
            if jobs[at].end > now {
                at += 1;
                continue;
            }
            until -= 1;
            let Job { work, began, .. } = jobs[at];
            jobs.remove(at);
            match work {
                Work::Latency(copy) => self.copies(component, copy, began, now),
                Work::Copy(copy) => {
                    let (of, device, way) = self.tables.parcel(copy);
                    self.trips[of.trip as usize].pending[usize::from(copy.is_back)] -= 1;
                    self.ends(copy, (of.trip, way), began, now);
                    self.awake.push(device);
                    let lane = &mut self.lanes[way as usize];
                    lane.is_taken = false;
                    if let Some(next) = lane.queue.pop_front() {
                        self.begin_copy(next, way, now);
                    }
                    self.changes(component, self.tables.ways[way as usize].shares(), now);
                }
                Work::Step { device } => {
                    self.end_step(device as usize, began, now);
                    self.awake.push(device);
                    self.changes(component, false, now);
                }
            }
        }
    }

    /// A boundary asks for a copy.
    pub(super) fn asked_for(&mut self, copy: ParcelCopy) {
        let (_, _, way) = self.tables.parcel(copy);
        let lane = &mut self.lanes[way as usize];
        if lane.is_taken {
            lane.queue.push_back(copy);
            return;
        }
        self.begin_copy(copy, way, copy.asked);
    }

    fn begin_copy(&mut self, copy: ParcelCopy, number: u32, now: f64) {
        let way = &self.tables.ways[number as usize];
        let Some(component) = way.component else { return };
        self.lanes[number as usize].is_taken = true;
        if way.latency_seconds > 0.0 {
            // No one is slower while it waits for its first byte.
            let mut job = Job::new(Work::Latency(copy), way.latency_seconds, now);
            job.goes_at(1.0, now);
            let of = &mut self.components[component as usize];
            of.jobs.push(job);
            let next = of.next.min(job.end);
            self.is_done_next(component, next);
            return;
        }
        self.copies(component, copy, now, now);
    }

    /// The first byte of a copy goes over its way.
    fn copies(&mut self, component: u32, copy: ParcelCopy, began: f64, now: f64) {
        let tables = self.tables;
        let (of, device, way) = tables.parcel(copy);
        let job = Job::new(Work::Copy(copy), of.bytes as f64, now).on(&tables.devices[device as usize]);
        let of_way = &tables.ways[way as usize];
        let job = Job { began, ..job.over(way, of_way, self.taken.left_of(tables, way)) };
        self.changes(component, job.shares(), now);
        self.components[component as usize].jobs.push(job);
    }

    /// A CPU slot begins its step.
    pub(super) fn begin_step(&mut self, device: u32, now: f64) {
        let table = &self.tables.devices[device as usize];
        let Some((_, component)) = table.node else { return };
        let steps = &self.tables.of.devices[device as usize].steps;
        let Some(step) = steps.get(self.devices[device as usize].step) else { return };
        let mut job = Job::new(Work::Step { device }, step.seconds, now).on(table);
        job.want.of_slot = 1.0;
        self.components[component as usize].jobs.push(job);
        self.changes(component, false, now);
        if step.seconds <= 0.0 {
            // It is over before anything else begins.
            self.share_all();
        }
    }

    /// Activations begin or end to go over a route.
    pub(super) fn transit(&mut self, route: u32, begins: bool, now: f64) {
        let over = &mut self.transits[route as usize];
        *over = if begins { *over + 1 } else { over.saturating_sub(1) };
        let tables = self.tables;
        for &way in &tables.route_ways[route as usize] {
            self.taken.of_ways[way as usize] = self.taken_of(|ways| ways.contains(&way));
            let of = &tables.ways[way as usize];
            for group in &of.groups {
                let is_in = |way: &u32| tables.ways[*way as usize].groups.contains(group);
                self.taken.of_groups[*group as usize] = self.taken_of(|ways| ways.iter().any(is_in));
            }
            if let Some(component) = of.component {
                self.components[component as usize].is_left_changed = true;
                self.changes(component, true, now);
            }
        }
    }

    /// What activations take of the ways for which this holds.
    fn taken_of(&self, of: impl Fn(&[u32]) -> bool) -> f64 {
        let mut taken = 0.0;
        let routes = self.tables.of.links.routes.iter().zip(&self.tables.route_ways);
        for (&over, (route, ways)) in self.transits.iter().zip(routes) {
            if over > 0 && of(ways) {
                taken += f64::from(over) * route.bytes_per_second;
            }
        }
        taken
    }

    /// What is at work, its phase, and its [`Job::seconds_left`].
    pub(super) fn at_work(&mut self, now: f64) -> impl Iterator<Item = ((Phase, What), f64)> + '_ {
        self.share_all();
        let ways = &self.tables.ways;
        let jobs = self.components.iter().flat_map(|component| &component.jobs);
        jobs.map(move |job| (job.phase(), job.seconds_left(ways, now)))
    }

    /// What has been asked for and has not happened, in the order in which it will, and when it will.
    pub(super) fn pending(&self) -> impl Iterator<Item = (What, f64)> {
        let mut pending: Vec<&Event> = self.events.iter().collect();
        pending.sort_unstable_by(|one, other| other.cmp(one));
        pending.into_iter().map(|event| (event.what, event.at()))
    }

    /// What is at work on a component is not what it was: copies that share rates, or what has no part in these.
    fn changes(&mut self, component: u32, copies: bool, now: f64) {
        self.changed_at = now;
        let of = &mut self.components[component as usize];
        of.are_copies_changed |= copies;
        if !std::mem::replace(&mut of.is_changed, true) {
            self.changed.push(component);
            self.is_done_next(component, f64::INFINITY);
        }
    }

    /// Foretells when the next job of a component is done.
    fn is_done_next(&mut self, component: u32, next: f64) {
        self.components[component as usize].next = next;
        let (earliest, whose) = self.next_done;
        if next <= earliest {
            self.next_done = (next, component);
        } else if whose == component {
            let all = (0..).zip(&self.components).map(|(index, of)| (of.next, index));
            let earlier = |one: (f64, u32), other: (f64, u32)| if other.0 < one.0 { other } else { one };
            self.next_done = all.reduce(earlier).unwrap_or((f64::INFINITY, 0));
        }
    }

    /// Sets the speeds of all jobs anew where what is at work has changed.
    fn share_all(&mut self) {
        let now = std::mem::replace(&mut self.changed_at, f64::INFINITY);
        while let Some(component) = self.changed.pop() {
            let of = &mut self.components[component as usize];
            if std::mem::take(&mut of.are_copies_changed) {
                of.share_ways(self.tables, &self.taken, &mut self.scratch);
            }
            let alone = of.jobs.iter_mut().filter(|job| job.node.is_none());
            let mut next = alone.fold(f64::INFINITY, |next, job| earlier(next, job.goes_at(job.fair, now)));
            for &node in &self.tables.nodes[component as usize] {
                next = earlier(next, of.share_cores(node, &self.tables.of.links.cores[node as usize], now));
            }
            of.is_changed = false;
            self.is_done_next(component, next);
        }
    }
}

impl<'t> Component<'t> {
    /// What the ways of its copies leave each of them.
    fn share_ways(&mut self, tables: &Tables<'_>, taken: &Taken, scratch: &mut Scratch<'t>) {
        if std::mem::take(&mut self.is_left_changed) {
            for job in self.jobs.iter_mut().filter(|job| job.is_copy()) {
                job.flow.most = taken.left_of(tables, job.way);
                if !job.shares() {
                    job.gets(job.flow.most, &tables.ways[job.way as usize]);
                }
            }
        }
        let Scratch { fair, flows, left } = scratch;
        left.clear();
        left.extend(tables.groups.iter().zip(&taken.of_groups).map(|(all, taken)| all - taken));
        flows.clear();
        flows.extend(self.jobs.iter().filter(|job| job.shares()).map(|job| job.flow));
        fair.share(flows, left);
        for (job, &rate) in self.jobs.iter_mut().filter(|job| job.shares()).zip(&fair.rates) {
            job.gets(rate, &tables.ways[job.way as usize]);
        }
    }

    /// Slows down what is at work on the cores of a node; when the first of it ends.
    fn share_cores(&mut self, node: u32, of: &Cores, now: f64) -> f64 {
        let own = || self.jobs.iter().filter(|job| job.node == Some(node));
        let level = level(own().map(|job| job.want), of.cores);
        let mut slowed = Slowed::to(level);
        // What no one is slowed down by need not be summed up.
        let (mut steps, mut copies) = (0.0, 0.0);
        if of.contention_slowdown > 1.0 {
            steps = own().filter(|job| !job.is_copy()).fold(0.0, |steps, job| steps + job.want.slots);
        }
        if of.slowdown_seconds_per_byte > 0.0 {
            let of_copies = own().filter(|job| job.is_copy());
            copies = of_copies.fold(0.0, |copies, job| copies + slowed.speed(job) * job.want.slots);
        }
        let slower = crowded(steps, of.cores, of.contention_slowdown) + of.slowdown_seconds_per_byte * copies;
        let own = self.jobs.iter_mut().filter(|job| job.node == Some(node));
        own.fold(f64::INFINITY, |next, job| {
            let speed = slowed.speed(job);
            earlier(next, job.goes_at(if job.is_copy() { speed } else { speed / slower }, now))
        })
    }
}

/// The earlier of two moments.
fn earlier(one: f64, other: f64) -> f64 {
    if other < one { other } else { one }
}
