//! How far copies and steps come whose speed changes.

use super::Cores;
use super::due::DeviceTable;
use super::fair::{Flow, MaxMin, Want, level};
use super::lanes::{Event, Parceled};
use super::walk::Walk;

/// Lanes and cores that change each other's speed, and what is at work on them.
#[derive(Debug)]
pub(super) struct Component {
    jobs: Vec<Job>,
    /// When the next of them is done; infinite while speeds are to be set anew.
    next: f64,
    /// Whether they are, because what is at work is not what it was.
    is_changed: bool,
    /// Whether that is so of copies, too, or of what they share with activations.
    are_copies_changed: bool,
}

impl Default for Component {
    fn default() -> Self {
        Self { jobs: Vec::new(), next: f64::INFINITY, is_changed: false, are_copies_changed: false }
    }
}

/// What is used again from one change of speeds to the next.
#[derive(Debug, Default)]
pub(super) struct Scratch<'t> {
    fair: MaxMin,
    flows: Vec<Flow<'t>>,
    left: Vec<f64>,
    over: Vec<Job>,
}

/// What activations take, in bytes a second.
#[derive(Debug)]
pub(super) struct Taken {
    of_ways: Vec<f64>,
    of_groups: Vec<f64>,
}

impl Taken {
    /// Nothing, of so many ways and so many groups of them.
    pub(super) fn nothing(ways: usize, groups: usize) -> Self {
        Self { of_ways: vec![0.0; ways], of_groups: vec![0.0; groups] }
    }
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
    /// Of a copy: the speed that its way leaves it.
    fair: f64,
    /// On CPU slots: their node, and what of its cores this takes at that speed.
    node: Option<u32>,
    want: Want,
}

#[derive(Debug, Clone, Copy)]
enum Work {
    /// A copy before its first byte.
    Latency(Parceled),
    /// A copy: bytes.
    Copy(Parceled),
    /// A step of a CPU slot: seconds of a core.
    Step { device: u32 },
}

impl Job {
    fn new(work: Work, left: f64, now: f64) -> Self {
        // Of no speed yet: its component says how fast.
        let want = Want { of_slot: 0.0, slots: 1.0 };
        Self {
            work,
            began: now,
            left,
            since: now,
            speed: 0.0,
            end: f64::INFINITY,
            fair: 1.0,
            node: None,
            want,
        }
    }

    fn is_copy(&self) -> bool {
        matches!(self.work, Work::Copy(_))
    }

    /// The same of a device.
    fn on(self, table: &DeviceTable) -> Self {
        let node = table.node.map(|(node, _)| node);
        Self { node, want: Want { slots: table.slots, ..self.want }, ..self }
    }

    fn goes_at(&mut self, speed: f64, now: f64) {
        if speed != self.speed {
            self.left = (self.left - (now - self.since) * self.speed).max(0.0);
            (self.since, self.speed) = (now, speed);
            self.end = if speed > 0.0 { now + self.left / speed } else { f64::INFINITY };
        }
    }
}

impl<'t> Walk<'t> {
    /// Has the next happen of what is asked for or at work; whether there was anything.
    pub(super) fn happen_next(&mut self) -> bool {
        let asked = self.events.peek().map_or(f64::INFINITY, Event::at);
        // Whatever else happens at the same moment changes speeds again: they are set once it is over.
        if self.changed_at < asked {
            self.share_all();
        }
        let (done, component) = self.next_done;
        // What ends comes before what begins at the same moment.
        if done < f64::INFINITY && done <= asked {
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
        let of = &mut self.components[component as usize];
        let mut over = std::mem::take(&mut self.scratch.over);
        over.extend(of.jobs.extract_if(.., |job| job.end <= now));
        for job in over.drain(..) {
            match job.work {
                Work::Latency(copy) => {
                    self.copies(component, copy, job.began, now);
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
                    self.changes(component, true, now);
                }
                Work::Step { device } => {
                    self.end_step(device as usize, job.began, now);
                    self.awake.push(device);
                    self.changes(component, false, now);
                }
            }
        }
        self.scratch.over = over;
    }

    /// A boundary asks for a copy.
    pub(super) fn asked_for(&mut self, copy: Parceled, now: f64) {
        let lane = &mut self.lanes[copy.way as usize];
        if lane.is_taken {
            lane.queue.push_back(copy);
            return;
        }
        self.begin_copy(copy, now);
    }

    fn begin_copy(&mut self, copy: Parceled, now: f64) {
        let way = &self.tables.ways[copy.way as usize];
        let Some(component) = way.component else { return };
        self.lanes[copy.way as usize].is_taken = true;
        if way.latency_seconds > 0.0 {
            // Nobody is slower while it waits for its first byte.
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
    fn copies(&mut self, component: u32, copy: Parceled, began: f64, now: f64) {
        let table = &self.tables.devices[copy.device as usize];
        let job = Job { began, ..Job::new(Work::Copy(copy), copy.bytes as f64, now) };
        self.components[component as usize].jobs.push(job.on(table));
        self.changes(component, true, now);
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

    /// Seconds until each job is done, at its speed of now.
    pub(super) fn seconds_left(&mut self, now: f64) -> impl Iterator<Item = f64> + '_ {
        self.share_all();
        let jobs = self.components.iter().flat_map(|component| &component.jobs);
        jobs.map(move |job| (job.end - now).min(f64::MAX))
    }

    /// What is at work on a component is not what it was: copies, or steps alone.
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
            let mut scratch = std::mem::take(&mut self.scratch);
            let mut of = std::mem::take(&mut self.components[component as usize]);
            if of.are_copies_changed {
                self.share_ways(&mut of.jobs, &mut scratch);
            }
            of.jobs.iter_mut().filter(|job| job.node.is_none()).for_each(|job| job.goes_at(job.fair, now));
            for &node in &self.tables.nodes[component as usize] {
                self.share_cores(node, &mut of.jobs, now);
            }
            let next = of.jobs.iter().fold(f64::INFINITY, |next, job| next.min(job.end));
            (of.is_changed, of.are_copies_changed) = (false, false);
            self.components[component as usize] = of;
            self.scratch = scratch;
            self.is_done_next(component, next);
        }
    }

    /// What the ways of a component's copies leave each of them.
    fn share_ways(&self, jobs: &mut [Job], scratch: &mut Scratch<'t>) {
        let tables = self.tables;
        let Scratch { fair, flows, left, .. } = scratch;
        left.resize(tables.groups.len(), 0.0);
        flows.clear();
        for job in jobs.iter() {
            let Work::Copy(copy) = job.work else { continue };
            let way = &tables.ways[copy.way as usize];
            for &group in &way.groups {
                left[group as usize] = tables.groups[group as usize] - self.taken.of_groups[group as usize];
            }
            let most = (way.bytes_per_second - self.taken.of_ways[copy.way as usize]).max(0.0);
            flows.push(Flow { most, groups: &way.groups });
        }
        fair.share(flows, left);
        for (job, &rate) in jobs.iter_mut().filter(|job| job.is_copy()).zip(&fair.rates) {
            job.fair = rate;
            if let (Work::Copy(copy), Some(_)) = (job.work, job.node) {
                let way = &tables.ways[copy.way as usize];
                job.want.of_slot = way.core_share * rate / way.bytes_per_second;
            }
        }
    }

    /// Slows down what is at work on the cores of a node.
    fn share_cores(&self, node: u32, jobs: &mut [Job], now: f64) {
        let Cores { cores, crowded_ratio, slowdown_seconds_per_byte, .. } =
            self.tables.of.links.cores[node as usize];
        let own = || jobs.iter().filter(|job| job.node == Some(node));
        let level = level(own().map(|job| job.want), cores);
        let speed = |job: &Job| {
            let want = job.want.of_slot;
            if want > level { job.fair * (level / want) } else { job.fair }
        };
        let (steps, copies) = own().fold((0.0, 0.0), |(steps, copies), job| match job.is_copy() {
            true => (steps, copies + speed(job) * job.want.slots),
            false => (steps + job.want.slots, copies),
        });
        let slower = crowded(steps, cores, crowded_ratio) + slowdown_seconds_per_byte * copies;
        for job in jobs.iter_mut().filter(|job| job.node == Some(node)) {
            let speed = speed(job);
            job.goes_at(if job.is_copy() { speed } else { speed / slower }, now);
        }
    }
}

/// How many times as long as alone each of so many steps takes on these cores.
pub(super) fn crowded(steps: f64, cores: f64, ratio: f64) -> f64 {
    let others = (steps.min(cores) - 1.0).max(0.0);
    if others > 0.0 { 1.0 + (ratio - 1.0) * others / (cores - 1.0) } else { 1.0 }
}
