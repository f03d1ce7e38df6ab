//! How long an iteration of a chunked stage takes: passes, copies both ways, and updates on the host, beside each other.
//!
//! A lane does one thing at a time, in the order in which it was asked. What happens at a boundary and in which order is
//! [`loadmaster_proto::chunks::residency`]'s to say, and the rank does it so. Chunks whose state is on the device are updated
//! behind the step that completes them, on the passes' lane. Ranks that share chunks exchange parts at boundaries: gradients
//! that are complete before they leave, or where their state is on the devices before that is updated; parameters when they have
//! come. Passes wait for that, so it is their lane's; and all ranks do as much at the same time, so one of them stands for all.

use loadmaster_proto::chunks::host::HostMemory;
use loadmaster_proto::chunks::residency::visits::{Visit, VisitCopies, Visits};
use loadmaster_proto::chunks::stage::{Chunks, UpdateTime};
use loadmaster_proto::plan::lane_rates::LaneRates;

use super::laid::most_updated;
use super::spans::{LaneWork, Witness};

/// Most iterations until one begins as another did.
const MOST_ITERATIONS: usize = 32;
/// Iterations begin alike where nothing differs by more than this share of their seconds.
const ALIKE: f64 = 1e-9;

/// A chunked stage in its steps.
#[derive(Debug, Clone, Copy)]
pub struct LaneScene<'a> {
    /// What it does.
    pub chunks: &'a Chunks,
    /// When payloads are on the device.
    pub visits: &'a Visits<'a>,
    /// When chunks are updated.
    pub update: UpdateTime,
    /// Seconds of each step, without updates on the device.
    pub seconds: &'a [f64],
    /// How fast all else is.
    pub rates: LaneRates,
}

/// What a simulation of lanes says, of an iteration as all later ones are.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Lanes {
    /// Seconds of the iteration, their mean where several of them repeat together.
    pub iteration_seconds: f64,
    /// Seconds in which each lane does something.
    pub busy: LaneSeconds,
    /// Seconds in which passes wait for what comes.
    pub fetch_seconds: f64,
    /// The same for what leaves.
    pub leave_seconds: f64,
    /// Seconds of passes' lane in which ranks exchange parts of chunks.
    pub exchange_seconds: f64,
    /// How many iterations these are the mean of.
    pub cycle: usize,
    /// Whether iterations repeat themselves. Where they do not within those that were looked at, seconds are the mean of the
    /// later half, and no less than the busiest lane's.
    pub is_steady: bool,
}

/// Seconds of each lane in an iteration. None of them can take less than its own, so the most of them is a bound of any
/// plan that moves and computes as much.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LaneSeconds {
    /// Passes, updates on the device, and what ranks exchange.
    pub compute: f64,
    /// Copies to the device.
    pub up: f64,
    /// Copies to the host.
    pub down: f64,
    /// Updates on the host.
    pub update: f64,
}

impl LaneSeconds {
    /// Of the lane that has most to do.
    pub fn most(&self) -> f64 {
        [self.compute, self.up, self.down, self.update].into_iter().fold(0.0, f64::max)
    }
}

/// An iteration takes more seconds than were asked about.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct TakesMore {
    /// And no less than these.
    pub(super) at_least: f64,
}

impl LaneScene<'_> {
    /// Simulates iterations until one begins as an earlier one did.
    pub fn simulate(&self) -> Lanes {
        LaneRun::new(self).repeat()
    }

    /// The same until it is known that an iteration takes more seconds than these.
    ///
    /// # Errors
    /// It takes more.
    pub(super) fn simulate_within(&self, most_seconds: f64) -> Result<Lanes, TakesMore> {
        LaneRun::new(self).repeat_within(most_seconds)
    }
}

impl<W: Witness> LaneRun<'_, W> {
    /// Iterations until one begins as an earlier one did, or there were many.
    pub(super) fn repeat(&mut self) -> Lanes {
        // What takes more than this takes that, since nothing is known of it.
        let most = Lanes { iteration_seconds: f64::INFINITY, ..Lanes::default() };
        self.repeat_within(f64::INFINITY).unwrap_or(most)
    }

    /// The same until it is known that an iteration takes more seconds than these.
    ///
    /// Nothing is done earlier for what comes before it being done later, and the first iteration finds everything free. So
    /// `n` iterations from any state take no less than the first `n`, and in the long run none takes less than their mean.
    fn repeat_within(&mut self, most_seconds: f64) -> Result<Lanes, TakesMore> {
        let mut begins = vec![self.clocks.waiting()];
        let mut told: Vec<Lanes> = Vec::new();
        while told.len() < MOST_ITERATIONS {
            told.push(self.iterate());
            let (waiting, now) = (self.clocks.waiting(), self.clocks.now);
            let mean_seconds = now / told.len() as f64;
            if mean_seconds > most_seconds {
                return Err(TakesMore { at_least: mean_seconds });
            }
            let tolerance = ALIKE * mean_seconds;
            let are_alike = |before: &Vec<f64>| {
                before.iter().zip(&waiting).all(|(before, now)| (before - now).abs() <= tolerance)
            };
            if let Some(first) = begins.iter().rposition(are_alike) {
                return Ok(mean(&told[first..], true));
            }
            begins.push(waiting);
        }
        let told = mean(&told[told.len() / 2..], false);
        Ok(Lanes { iteration_seconds: told.iteration_seconds.max(told.busy.most()), ..told })
    }
}

/// The mean of iterations. All of them do as much.
fn mean(told: &[Lanes], is_steady: bool) -> Lanes {
    let of = |of: fn(&Lanes) -> f64| told.iter().map(of).sum::<f64>() / told.len().max(1) as f64;
    Lanes {
        iteration_seconds: of(|told| told.iteration_seconds),
        busy: told.last().map(|told| told.busy).unwrap_or_default(),
        fetch_seconds: of(|told| told.fetch_seconds),
        leave_seconds: of(|told| told.leave_seconds),
        exchange_seconds: told.last().map(|told| told.exchange_seconds).unwrap_or_default(),
        cycle: told.len(),
        is_steady,
    }
}

/// A visit, and its payload's position.
type Told = (usize, Visit, VisitCopies);

/// What is due at a boundary, in the order in which it happens.
#[derive(Debug, Clone, Default)]
struct DueVisits {
    leave: Vec<Told>,
    are_gone: Vec<Told>,
    come: Vec<Told>,
    are_needed: Vec<Told>,
}

/// Iterations one after the other.
#[derive(Debug, Clone)]
pub(super) struct LaneRun<'a, W = ()> {
    scene: &'a LaneScene<'a>,
    /// Of each boundary.
    due: Vec<DueVisits>,
    /// Of each step.
    seconds: Vec<f64>,
    /// The chunks whose state is on the device and whose gradients are complete behind each step.
    completed: Vec<Vec<usize>>,
    clocks: Clocks<W>,
}

/// When everything is free, or done, from the start of the first iteration.
#[derive(Debug, Clone)]
struct Clocks<W> {
    now: f64,
    up: f64,
    down: f64,
    update: f64,
    /// When each payload's copy is over.
    copied: Vec<f64>,
    /// When each chunk is updated.
    updated: Vec<f64>,
    /// When each buffer that gradients pass through is free.
    passed: Vec<f64>,
    next_passed: usize,
    witness: W,
}

impl<'a> LaneRun<'a> {
    /// Before the first iteration.
    pub(super) fn new(scene: &'a LaneScene<'a>) -> Self {
        Self::seen_by(scene, ())
    }
}

impl<'a, W: Witness> LaneRun<'a, W> {
    /// Before the first iteration, with somebody who is told what happens.
    pub(super) fn seen_by(scene: &'a LaneScene<'a>, witness: W) -> Self {
        let uses = &scene.chunks.uses;
        let steps = uses.steps();
        let mut due = vec![DueVisits::default(); steps + 1];
        for (payload, &visit, copies) in scene.visits.all() {
            let told = (payload, visit, copies);
            due[visit.leaves].leave.extend(copies.leaves_changed.then_some(told));
            due[visit.freed].are_gone.extend(copies.leaves_changed.then_some(told));
            due[visit.fetched].come.extend(copies.comes.then_some(told));
            due[visit.needed].are_needed.extend((copies.comes || copies.is_gathered).then_some(told));
        }
        // Copies of one boundary in the order in which they are waited for.
        due.iter_mut().for_each(|due| due.come.sort_by_key(|(_, visit, _)| visit.needed));
        let mut seconds = scene.seconds.to_vec();
        seconds.resize(steps, 0.0);
        let HostMemory { chunks, staging, .. } = &scene.chunks.host;
        let clocks = Clocks {
            now: 0.0,
            up: 0.0,
            down: 0.0,
            update: 0.0,
            copied: vec![0.0; uses.payloads().len()],
            updated: vec![0.0; chunks.len()],
            passed: vec![0.0; staging.len()],
            next_passed: 0,
            witness,
        };
        let completed: Vec<Vec<usize>> =
            (0..steps).map(|step| uses.completed_on_device(step).collect()).collect();
        Self { scene, due, seconds, completed, clocks }
    }

    /// When the last iteration ended, and who saw it.
    pub(super) fn over(self) -> (f64, W) {
        (self.clocks.now, self.clocks.witness)
    }

    /// The next iteration.
    pub(super) fn iterate(&mut self) -> Lanes {
        let Self { scene, due, seconds, completed, clocks } = self;
        let begin = clocks.now;
        clocks.witness.begins(begin);
        let mut told = Lanes::default();
        let mut later = Vec::new();
        for (boundary, DueVisits { leave, are_gone, come, are_needed }) in due.iter().enumerate() {
            leave.iter().for_each(|of| clocks.leave(scene, of, &mut told, &mut later));
            told.leave_seconds += are_gone.iter().map(|of| clocks.wait(of, false)).sum::<f64>();
            come.iter().for_each(|of| clocks.come(scene, of, &mut told.busy));
            for of in are_needed {
                told.fetch_seconds += clocks.wait(of, true);
                let (_, visit, copies) = of;
                if copies.is_gathered {
                    clocks.exchange(scene, visit.payload.chunk, LaneWork::Gather, &mut told);
                }
            }
            if let Some(&seconds) = seconds.get(boundary) {
                clocks.pass(LaneWork::Step(boundary), seconds, &mut told);
            }
            for &chunk in completed.get(boundary).into_iter().flatten() {
                clocks.exchange(scene, chunk, LaneWork::Scatter, &mut told);
                let seconds = scene.elements(chunk) as f64 / scene.rates.device_update;
                clocks.pass(LaneWork::UpdateOnDevice(chunk), seconds, &mut told);
            }
        }
        let now = clocks.now;
        later.iter().for_each(|&chunk| told.busy.update += clocks.update_chunk(scene, chunk, now));
        told.iteration_seconds = clocks.now - begin;
        told
    }
}

impl<W: Witness> Clocks<W> {
    /// How long each thing that the next iteration may have to wait for is still to take, in an order that is the same before
    /// each of them.
    fn waiting(&self) -> Vec<f64> {
        let (behind, first) = self.passed.split_at(self.next_passed);
        let lanes = [self.up, self.down, self.update];
        let all = lanes.iter().chain(&self.updated).chain(first).chain(behind);
        all.map(|at| (at - self.now).max(0.0)).collect()
    }

    fn leave(
        &mut self,
        scene: &LaneScene<'_>,
        &(payload, visit, copies): &Told,
        told: &mut Lanes,
        later: &mut Vec<usize>,
    ) {
        let chunk = visit.payload.chunk;
        if copies.is_complete {
            self.exchange(scene, chunk, LaneWork::Scatter, told);
        }
        let busy = &mut told.busy;
        let passes = copies.is_complete && scene.has_no_place(payload);
        let free = if passes { self.passed[self.next_passed] } else { 0.0 };
        let seconds = scene.rates.down_seconds(scene.chunks.copied_bytes(chunk, copies.leaves_unfinished));
        let start = self.down.max(self.now).max(free);
        self.down = start + seconds;
        self.copied[payload] = self.down;
        self.witness.saw(LaneWork::Down(visit, copies), start, self.down);
        busy.down += seconds;
        if copies.is_complete && scene.update == UpdateTime::OnArrival {
            busy.update += self.update_chunk(scene, chunk, self.down);
            if passes {
                self.passed[self.next_passed] = self.updated[chunk];
                self.next_passed = (self.next_passed + 1) % self.passed.len();
            }
        } else if copies.is_complete {
            later.push(chunk);
        }
    }

    fn come(&mut self, scene: &LaneScene<'_>, &(payload, visit, copies): &Told, busy: &mut LaneSeconds) {
        let chunk = visit.payload.chunk;
        let seconds = scene.rates.up_seconds(scene.chunks.copied_bytes(chunk, copies.comes_unfinished));
        let start = self.up.max(self.now).max(self.updated[chunk]);
        self.up = start + seconds;
        self.copied[payload] = self.up;
        self.witness.saw(LaneWork::Up(visit, copies), start, self.up);
        busy.up += seconds;
    }

    /// Waits for the copy of a payload. Returns the seconds that it takes.
    fn wait(&mut self, &(payload, visit, _): &Told, comes: bool) -> f64 {
        let waited = (self.copied[payload] - self.now).max(0.0);
        let since = self.now;
        self.now = self.now.max(self.copied[payload]);
        self.witness.saw(LaneWork::Wait(visit, comes), since, self.now);
        waited
    }

    /// Ranks give each other their parts of a chunk: of its parameters, or of gradients.
    fn exchange(
        &mut self,
        scene: &LaneScene<'_>,
        chunk: usize,
        work: fn(usize) -> LaneWork,
        told: &mut Lanes,
    ) {
        let seconds = scene.rates.exchange_seconds(scene.chunks.others_bytes(chunk));
        told.exchange_seconds += seconds;
        self.pass(work(chunk), seconds, told);
    }

    /// The passes' lane does something.
    fn pass(&mut self, work: LaneWork, seconds: f64, told: &mut Lanes) {
        let start = self.now;
        self.now += seconds;
        self.witness.saw(work, start, self.now);
        told.busy.compute += seconds;
    }

    /// A chunk is updated once its gradients are there. Returns the seconds that it takes.
    fn update_chunk(&mut self, scene: &LaneScene<'_>, chunk: usize, there: f64) -> f64 {
        let elements = scene.elements(chunk);
        let seconds = scene.rates.update_seconds(elements);
        let start = self.update.max(there);
        self.update = start + seconds;
        self.updated[chunk] = self.update;
        self.witness.saw(LaneWork::Update(chunk, elements), start, self.update);
        seconds
    }
}

impl LaneScene<'_> {
    /// Elements that an update of a chunk goes over.
    pub(super) fn elements(&self, chunk: usize) -> u64 {
        self.chunks.layout.chunks().get(chunk).map_or(0, |chunk| most_updated(&self.chunks.sharing, chunk))
    }

    /// Whether a payload's gradients only pass through the host.
    fn has_no_place(&self, payload: usize) -> bool {
        let of = self.chunks.uses.payloads()[payload].payload;
        let place = &self.chunks.host.chunks[of.chunk];
        if of.is_gradients { place.gradients.is_none() } else { place.parameters.is_none() }
    }
}
