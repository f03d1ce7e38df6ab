//! How long an iteration of a chunked stage takes: passes, copies both ways, and updates on the host, beside each other.
//!
//! A lane does one thing at a time, in the order in which it was asked. What happens at a boundary and in which order is
//! [`loadmaster_proto::chunks::residency`]'s to say, and the rank does it so.

use loadmaster_proto::chunks::host::HostMemory;
use loadmaster_proto::chunks::residency::visits::{Visit, VisitCopies, Visits};
use loadmaster_proto::chunks::stage::{Chunks, UpdateTime};

/// Most iterations until one is as the one before.
const MOST_ITERATIONS: u32 = 16;
/// Iterations whose seconds differ by less are alike.
const ALIKE: f64 = 1e-9;

/// How fast what happens beside the passes is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LaneRates {
    /// To the device, bytes per second.
    pub up: f64,
    /// To the host, bytes per second.
    pub down: f64,
    /// Updates on the host, parameters per second.
    pub update: f64,
}

/// A chunked stage in its steps.
#[derive(Debug, Clone, Copy)]
pub struct LaneScene<'a> {
    /// What it does.
    pub chunks: &'a Chunks,
    /// When payloads are on the device.
    pub visits: &'a Visits<'a>,
    /// When chunks are updated.
    pub update: UpdateTime,
    /// Seconds of each step.
    pub seconds: &'a [f64],
    /// How fast all else is.
    pub rates: LaneRates,
}

/// What a simulation of lanes says, of an iteration as all later ones are.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Lanes {
    /// Seconds of the iteration.
    pub iteration_seconds: f64,
    /// Seconds in which each lane does something.
    pub busy: LaneSeconds,
    /// Seconds in which passes wait for what comes.
    pub fetch_seconds: f64,
    /// The same for what leaves.
    pub leave_seconds: f64,
    /// Whether the last iteration that was looked at is as the one before.
    pub is_steady: bool,
}

/// Seconds of each lane in an iteration. None of them can take less than its own, so the most of them is a bound of any
/// plan that moves and computes as much.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LaneSeconds {
    /// Passes.
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

/// A visit, and its payload's position.
type Told = (usize, Visit, VisitCopies);

/// When everything is free, or done, from the start of the first iteration.
#[derive(Debug, Clone)]
struct Clocks {
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
}

impl LaneScene<'_> {
    /// Simulates iterations until they are alike.
    pub fn simulate(&self) -> Lanes {
        let steps = self.chunks.uses.steps();
        let mut due: [Vec<Vec<Told>>; 4] = std::array::from_fn(|_| vec![Vec::new(); steps + 1]);
        for (payload, &visit, copies) in self.visits.all() {
            for (due, at) in due.iter_mut().zip([visit.leaves, visit.freed, visit.fetched, visit.needed]) {
                due[at].push((payload, visit, copies));
            }
        }
        let [_, _, come, _] = &mut due;
        come.iter_mut().for_each(|due| due.sort_by_key(|(_, visit, _)| visit.needed));
        let HostMemory { chunks, staging, .. } = &self.chunks.host;
        let mut clocks = Clocks {
            now: 0.0,
            up: 0.0,
            down: 0.0,
            update: 0.0,
            copied: vec![0.0; self.chunks.uses.payloads().len()],
            updated: vec![0.0; chunks.len()],
            passed: vec![0.0; staging.len()],
            next_passed: 0,
        };
        let mut before: Option<f64> = None;
        let mut told = Lanes::default();
        for _ in 0..MOST_ITERATIONS {
            let begin = clocks.now;
            told = self.iterate(&mut clocks, &due);
            told.iteration_seconds = clocks.now - begin;
            told.is_steady =
                before.is_some_and(|before| (before - told.iteration_seconds).abs() <= ALIKE * before);
            if told.is_steady {
                break;
            }
            before = Some(told.iteration_seconds);
        }
        told
    }

    fn iterate(
        &self,
        clocks: &mut Clocks,
        [leave, are_gone, come, are_needed]: &[Vec<Vec<Told>>; 4],
    ) -> Lanes {
        let mut told = Lanes::default();
        let mut later = Vec::new();
        for boundary in 0..=self.chunks.uses.steps() {
            for &(payload, visit, copies) in leave[boundary].iter().filter(|(_, _, of)| of.leaves_changed) {
                let chunk = visit.payload.chunk;
                let passes = copies.is_complete && self.has_no_place(payload);
                let free = if passes { clocks.passed[clocks.next_passed] } else { 0.0 };
                let seconds = self.copy_seconds(chunk, copies.leaves_unfinished, self.rates.down);
                clocks.down = clocks.down.max(clocks.now).max(free) + seconds;
                clocks.copied[payload] = clocks.down;
                told.busy.down += seconds;
                if copies.is_complete && self.update == UpdateTime::OnArrival {
                    told.busy.update += self.update_chunk(clocks, chunk, clocks.down);
                    if passes {
                        clocks.passed[clocks.next_passed] = clocks.updated[chunk];
                        clocks.next_passed = (clocks.next_passed + 1) % clocks.passed.len();
                    }
                } else if copies.is_complete {
                    later.push(chunk);
                }
            }
            for &(payload, _, _) in are_gone[boundary].iter().filter(|(_, _, of)| of.leaves_changed) {
                let waited = (clocks.copied[payload] - clocks.now).max(0.0);
                told.leave_seconds += waited;
                clocks.now += waited;
            }
            for &(payload, visit, copies) in &come[boundary] {
                clocks.copied[payload] = clocks.now;
                if copies.comes {
                    let chunk = visit.payload.chunk;
                    let seconds = self.copy_seconds(chunk, copies.comes_unfinished, self.rates.up);
                    clocks.up = clocks.up.max(clocks.now).max(clocks.updated[chunk]) + seconds;
                    clocks.copied[payload] = clocks.up;
                    told.busy.up += seconds;
                }
            }
            for &(payload, _, _) in &are_needed[boundary] {
                let waited = (clocks.copied[payload] - clocks.now).max(0.0);
                told.fetch_seconds += waited;
                clocks.now += waited;
            }
            let seconds = self.seconds.get(boundary).copied().unwrap_or(0.0);
            told.busy.compute += seconds;
            clocks.now += seconds;
        }
        for chunk in later {
            told.busy.update += self.update_chunk(clocks, chunk, clocks.now);
        }
        told
    }

    /// A chunk is updated once its gradients are there. Returns the seconds that it takes.
    fn update_chunk(&self, clocks: &mut Clocks, chunk: usize, there: f64) -> f64 {
        let elements = self.chunks.layout.chunks().get(chunk).map_or(0, |chunk| chunk.extent);
        let seconds = elements as f64 / self.rates.update;
        clocks.update = clocks.update.max(there) + seconds;
        clocks.updated[chunk] = clocks.update;
        seconds
    }

    fn copy_seconds(&self, chunk: usize, is_unfinished: bool, rate: f64) -> f64 {
        self.chunks.copied_bytes(chunk, is_unfinished) as f64 / rate
    }

    /// Whether a payload's gradients only pass through the host.
    fn has_no_place(&self, payload: usize) -> bool {
        let of = self.chunks.uses.payloads()[payload].payload;
        let place = &self.chunks.host.chunks[of.chunk];
        if of.is_gradients { place.gradients.is_none() } else { place.parameters.is_none() }
    }
}
