//! How long an iteration of a chunked stage takes: passes, copies both ways, and updates on the host, beside each other.
//!
//! A lane does one thing at a time, in the order in which it was asked. What happens at a boundary and in which order is
//! [`loadmaster_proto::chunks::residency`]'s to say, and the rank does it so. Chunks whose state is on the device are updated
//! behind the step that completes them, on the passes' lane.
//!
//! Ranks that share chunks exchange parts at boundaries: gradients that
//! are complete before they leave, or where their state is on the devices before that is updated; parameters when they have come.
//! Passes wait for that, so it is their lane's; and all ranks do as much at the same time, so one of them stands for all.
//!
//! Rows of a table on the host are gathered and added up by a worker of their own. A row is taken to be as much work as an
//! update of as many parameters, which touches more bytes. Passes of the embedding stop until its rows have come, or left.
//!
//! A GPU's copies go over the memory of its host beside updates, and parameters in bf16 that are made are rounded there before
//! they are copied, through the buffers of gradients ([`LaneRates::host_memory`]). What of it happens while an update is on its
//! way makes the next one longer. On the host of an H100, updates beside copies took a third longer than alone.
//!
//! What micro-batches have on the host goes over the same two ways as chunks, in the order in which
//! [`loadmaster_proto::chunks::activations`] has it at boundaries.

use loadmaster_predict::Away;
use loadmaster_proto::chunks::residency::intervals::BoundaryVisits;
use loadmaster_proto::chunks::residency::intervals::{IntervalCopies, Intervals};
use loadmaster_proto::chunks::stage::{Chunks, UpdateTime};
use loadmaster_proto::plan::rates::LaneRates;
use loadmaster_proto::training::boundaries::{BoundaryAct, BoundaryTable};

use super::lane_clocks::LaneClocks;
use super::lane_spans::{LaneWork, Witness};

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
    pub intervals: &'a Intervals<'a>,
    /// When chunks are updated.
    pub update: UpdateTime,
    /// What of micro-batches is on the host, and when.
    pub away: &'a [Away],
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
    /// Seconds in which passes wait for what micro-batches have on the host and comes back.
    pub kept_fetch_seconds: f64,
    /// The same for what goes there.
    pub kept_leave_seconds: f64,
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
    /// Rows of a table on the host, and gradients that are added to those of the table.
    pub rows: f64,
}

impl LaneSeconds {
    /// Of the lane that has most to do.
    pub fn most(&self) -> f64 {
        [self.compute, self.up, self.down, self.update, self.rows].into_iter().fold(0.0, f64::max)
    }
}

impl Lanes {
    /// Seconds in which passes wait, for copies or for other ranks.
    pub fn waited_seconds(&self) -> f64 {
        let kept = self.kept_fetch_seconds + self.kept_leave_seconds;
        self.fetch_seconds + self.leave_seconds + kept + self.exchange_seconds
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
        kept_fetch_seconds: of(|told| told.kept_fetch_seconds),
        kept_leave_seconds: of(|told| told.kept_leave_seconds),
        exchange_seconds: told.last().map(|told| told.exchange_seconds).unwrap_or_default(),
        cycle: told.len(),
        is_steady,
    }
}

/// Iterations one after the other.
#[derive(Debug, Clone)]
pub(super) struct LaneRun<'a, W = ()> {
    scene: &'a LaneScene<'a>,
    due: BoundaryVisits,
    due_kept: BoundaryTable,
    /// Of each step.
    seconds: Vec<f64>,
    /// The chunks whose state is on the device and whose gradients are complete behind each step.
    completed: Vec<Vec<usize>>,
    clocks: LaneClocks<W>,
}

impl<'a> LaneRun<'a> {
    /// Before the first iteration.
    pub(super) fn new(scene: &'a LaneScene<'a>) -> Self {
        Self::seen_by(scene, ())
    }
}

impl<'a, W: Witness> LaneRun<'a, W> {
    /// Before the first iteration, with a recipient of what happens.
    pub(super) fn seen_by(scene: &'a LaneScene<'a>, witness: W) -> Self {
        let uses = &scene.chunks.uses;
        let steps = uses.steps();
        let due = boundary_visits(scene.intervals);
        let mut seconds = scene.seconds.to_vec();
        seconds.resize(steps, 0.0);
        let due_kept = boundary_activations(scene.away, steps);
        let over_end = scene.intervals.all().filter(|(_, interval, _)| interval.at.is_over_end());
        let over_end = over_end.map(|(payload, ..)| payload).collect();
        let clocks = LaneClocks::new(scene.chunks, scene.away.len(), over_end, witness);
        let mut completed = vec![Vec::new(); steps];
        uses.completions_on_device().for_each(|(chunk, step)| completed[step].push(chunk));
        Self { scene, due, due_kept, seconds, completed, clocks }
    }

    /// When the last iteration ended, and who saw it.
    pub(super) fn over(self) -> (f64, W) {
        (self.clocks.now, self.clocks.witness)
    }

    /// The next iteration.
    pub(super) fn iterate(&mut self) -> Lanes {
        let Self { scene, due, due_kept, seconds, completed, clocks } = self;
        let begin = clocks.now;
        clocks.witness.begins(begin);
        let mut told = Lanes::default();
        let mut later = Vec::new();
        for boundary in 0..=seconds.len() {
            let [leave, are_gone, come, are_needed] = BoundaryAct::ALL.map(|act| due.due(boundary, act));
            let [kept_leave, kept_gone, kept_come, kept_needed] = due_kept.at(boundary);
            kept_leave.iter().for_each(|&of| clocks.take_away(scene, of, &mut told.busy));
            leave.for_each(|of| clocks.leave(scene, of, &mut told, &mut later));
            told.kept_leave_seconds +=
                kept_gone.iter().map(|&of| clocks.wait_for_kept(of, false)).sum::<f64>();
            told.leave_seconds += are_gone.map(|of| clocks.wait(of, false)).sum::<f64>();
            kept_come.iter().for_each(|&of| clocks.bring_back(scene, of, &mut told.busy));
            come.for_each(|of| clocks.come(scene, of, &mut told.busy));
            told.kept_fetch_seconds +=
                kept_needed.iter().map(|&of| clocks.wait_for_kept(of, true)).sum::<f64>();
            for of in are_needed {
                told.fetch_seconds += clocks.wait(of, true);
                if of.copies.is_gathered {
                    clocks.exchange(scene, of.interval.payload.chunk, LaneWork::Gather, &mut told);
                }
            }
            clocks.gather(scene, boundary, &mut told);
            if let Some(&seconds) = seconds.get(boundary) {
                clocks.pass(LaneWork::Step(boundary), seconds, &mut told);
            }
            for &chunk in completed.get(boundary).into_iter().flatten() {
                clocks.exchange(scene, chunk, LaneWork::Scatter, &mut told);
                let seconds = scene.elements(chunk) as f64 / scene.rates.device_update;
                clocks.pass(LaneWork::UpdateOnDevice(chunk), seconds, &mut told);
            }
            clocks.scatter(scene, boundary, &mut told, &mut later);
        }
        let now = clocks.now;
        for &chunk in &later {
            let there = if scene.chunks.is_host_table(chunk) { now.max(clocks.added) } else { now };
            told.busy.update += clocks.update_chunk(scene, chunk, there);
        }
        told.iteration_seconds = clocks.now - begin;
        told
    }
}

/// What copies, or waits, at each boundary.
fn boundary_visits(intervals: &Intervals<'_>) -> BoundaryVisits {
    BoundaryVisits::new(intervals, |copies| {
        let IntervalCopies { leaves_changed, comes, is_gathered, .. } = copies;
        [leaves_changed, leaves_changed, comes, comes || is_gathered]
    })
}

/// The same of what micro-batches have on the host, by its number, in an iteration of so many steps.
fn boundary_activations(away: &[Away], steps: usize) -> BoundaryTable {
    // What has no bytes is not copied.
    let at = |index: usize| {
        let Away { absence, bytes, .. } = &away[index];
        absence.at.boundaries().map(|boundary| (*bytes > 0).then_some(boundary))
    };
    BoundaryTable::new((away.len(), steps + 1), at, |index| index)
}
