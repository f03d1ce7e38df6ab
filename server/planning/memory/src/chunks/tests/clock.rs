//! Lanes against a list of all jobs, each of which begins when its lane and what it waits for are ready.

use std::collections::VecDeque;

use loadmaster_proto::chunks::host::HostParameters;
use loadmaster_proto::chunks::layout::List;
use loadmaster_proto::chunks::residency::intervals::{Intervals, ResidencyInterval};
use loadmaster_proto::chunks::residency::paging_intervals::Paging;
use loadmaster_proto::chunks::stage::{ChunkedStage, Chunks, UpdateTime};
use loadmaster_proto::plan::rates::LaneRates;
use loadmaster_proto::training::actions::{Absence, Step};
use loadmaster_proto::training::{RecomputePolicy, TrainingSpec};
use proptest::prelude::*;

use super::draw::{Case, SharedChunk, cases, stages};
use super::weighed::{begun_before, hastes};
use crate::chunks::lanes::{LaneRun, TakesMore};
use crate::chunks::{LaneScene, LaneSeconds, StepCosts};

pub(super) const ITERATIONS: usize = 8;

/// Something that takes time on one of five lanes: passes, up, down, updates, rows of a table on the host.
#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) lane: usize,
    pub(super) seconds: f64,
    after: Vec<usize>,
}

/// All jobs of some iterations, in the order in which each lane is asked for its own; and the last pass of each. The last gradient
/// of each chunk is `found` in a step.
fn jobs(
    (chunks, stage, intervals): (&Chunks, &ChunkedStage, &[ResidencyInterval]),
    found: &[Option<usize>],
    costs: &StepCosts,
    rates: LaneRates,
) -> (Vec<Job>, Vec<usize>) {
    let (uses, layout) = (&chunks.uses, chunks.layout.chunks());
    let position = |interval: &ResidencyInterval| {
        uses.payloads().iter().position(|of| of.payload == interval.payload).unwrap()
    };
    let shares: Vec<SharedChunk> =
        (0..layout.len()).map(|chunk| SharedChunk::of(chunks, chunk, chunks.sharing.ranks())).collect();
    let bytes = |interval: &ResidencyInterval, is_unfinished: bool| {
        shares[interval.payload.chunk].copied(is_unfinished) as f64
    };
    let exchange = |chunk: usize| match shares[chunk] {
        SharedChunk { ranks: 1, .. } => 0.0,
        of => rates.collective_seconds + f64::from(of.ranks - 1) * of.part as f64 / rates.gather,
    };
    // Of such chunks nothing is copied: ranks have their parts on their devices.
    let is_copied = |interval: &ResidencyInterval| !stage.on_device.contains(&interval.payload.chunk);
    let gradients = |interval: &ResidencyInterval| uses.payloads()[position(interval)].gradients.clone();
    let changes = |interval: &ResidencyInterval| {
        gradients(interval).iter().any(|step| (interval.at.needed..interval.at.leaves).contains(step))
    };
    let is_complete = |interval: &ResidencyInterval| {
        changes(interval) && gradients(interval).iter().all(|step| *step < interval.at.leaves)
    };
    let comes = |interval: &ResidencyInterval| {
        !(interval.payload.is_gradients && gradients(interval)[0] >= interval.at.needed)
    };
    let comes_unfinished =
        |interval: &ResidencyInterval| gradients(interval).iter().any(|step| *step < interval.at.needed);
    let mut jobs: Vec<Job> = Vec::new();
    let mut ends = Vec::new();
    let mut updated: Vec<Option<usize>> = vec![None; layout.len()];
    let mut passed: VecDeque<usize> = VecDeque::new();
    let mut last: Option<usize> = None;
    let table = chunks.table;
    let is_table = |chunk: usize| table.is_some() && chunk == 0;
    let rows = table.map_or(0.0, |table| (table.tokens * table.width) as f64);
    let row_bytes = rows * chunks.lists.scalar_bytes(List::Parameters) as f64;
    let mut added: Option<usize> = None;
    // What comes in the iteration before. In the first it is there.
    let is_over_end = |interval: &ResidencyInterval| interval.at.fetched > interval.at.needed;
    let mut over_end: Vec<(ResidencyInterval, usize, bool)> = Vec::new();
    for iteration in 0..ITERATIONS {
        let mut copies = std::mem::take(&mut over_end);
        // Ranks have a part of the table each until the first rows.
        let mut is_in_parts = chunks.sharing.ranks() > 1;
        let mut later = Vec::new();
        let mut kept: Vec<(usize, usize)> = vec![(0, 0); costs.away.len()];
        for boundary in 0..=uses.steps() {
            // What has no bytes is nothing to copy.
            let at = |of: fn(&Absence) -> usize| {
                let all = costs.away.iter().enumerate().filter(|(_, away)| away.bytes > 0);
                all.filter(move |(_, away)| of(&away.absence) == boundary)
            };
            for (index, away) in at(|of| of.at.leaves) {
                let seconds = rates.copy_seconds + away.bytes as f64 / rates.down;
                jobs.push(Job { lane: 2, seconds, after: last.into_iter().collect() });
                kept[index].0 = jobs.len() - 1;
            }
            let mut leave: Vec<&ResidencyInterval> = intervals
                .iter()
                .filter(|of| of.at.leaves == boundary && changes(of) && is_copied(of))
                .collect();
            leave.sort_by_key(|of| position(of));
            for interval in leave {
                let is_unfinished = !is_complete(interval);
                if !is_unfinished {
                    jobs.push(Job {
                        lane: 0,
                        seconds: exchange(interval.payload.chunk),
                        after: last.into_iter().collect(),
                    });
                    last = Some(jobs.len() - 1);
                }
                let seconds = rates.copy_seconds + bytes(interval, is_unfinished) / rates.down;
                let mut after: Vec<usize> = last.into_iter().collect();
                let chunk = interval.payload.chunk;
                let update = shares[chunk].updated as f64 / rates.update;
                let place = &chunks.host.chunks[chunk];
                let has_place =
                    if interval.payload.is_gradients { &place.gradients } else { &place.parameters };
                let passes = is_complete(interval) && has_place.is_none();
                if passes && passed.len() == chunks.host.staging.len() {
                    after.extend(passed.pop_front());
                }
                jobs.push(Job { lane: 2, seconds, after });
                copies.push((*interval, jobs.len() - 1, true));
                if is_complete(interval) && is_table(chunk) {
                    jobs.push(Job { lane: 4, seconds: update, after: vec![jobs.len() - 1] });
                    passed.extend(passes.then(|| jobs.len() - 1));
                } else if is_complete(interval) && stage.update == UpdateTime::OnArrival {
                    jobs.push(Job { lane: 3, seconds: update, after: vec![jobs.len() - 1] });
                    updated[chunk] = Some(jobs.len() - 1);
                    passed.extend(passes.then(|| jobs.len() - 1));
                } else if is_complete(interval) {
                    later.push((chunk, update));
                }
            }
            let mut gone: Vec<usize> =
                copies.iter().filter(|of| of.2 && of.0.at.freed == boundary).map(|of| of.1).collect();
            gone.extend(at(|of| of.at.freed).map(|(index, _)| kept[index].0));
            for (index, away) in at(|of| of.at.fetched) {
                let seconds = rates.copy_seconds + away.bytes as f64 / rates.up;
                let after = gone.iter().copied().chain(last).collect();
                jobs.push(Job { lane: 1, seconds, after });
                kept[index].1 = jobs.len() - 1;
            }
            let mut come: Vec<&ResidencyInterval> = intervals
                .iter()
                .filter(|of| of.at.fetched == boundary && comes(of) && is_copied(of))
                .collect();
            come.sort_by_key(|of| (is_over_end(of), of.at.needed, position(of)));
            for interval in come {
                let after = gone.iter().copied().chain(last).chain(updated[interval.payload.chunk]).collect();
                let seconds = rates.copy_seconds + bytes(interval, comes_unfinished(interval)) / rates.up;
                jobs.push(Job { lane: 1, seconds, after });
                let asked = (*interval, jobs.len() - 1, false);
                if is_over_end(interval) { over_end.push(asked) } else { copies.push(asked) }
            }
            let mut needed: Vec<(ResidencyInterval, Option<usize>)> = Vec::new();
            for &(interval, copy, leaves) in &copies {
                if !leaves && interval.at.needed == boundary {
                    needed.push((interval, Some(copy)));
                }
            }
            let is_there = |of: &ResidencyInterval| !is_copied(of) || iteration == 0 && is_over_end(of);
            let near = intervals.iter().filter(|of| of.at.needed == boundary && comes(of) && is_there(of));
            needed.extend(near.map(|of| (*of, None)));
            needed.sort_by_key(|of| position(&of.0));
            let mut after: Vec<usize> = gone.iter().copied().chain(last).collect();
            after.extend(at(|of| of.at.needed).map(|(index, _)| kept[index].1));
            for (interval, copy) in needed {
                after.extend(copy);
                if !comes_unfinished(&interval) {
                    jobs.push(Job {
                        lane: 0,
                        seconds: exchange(interval.payload.chunk),
                        after: after.clone(),
                    });
                    after.push(jobs.len() - 1);
                }
            }
            let seconds = costs.seconds.get(boundary).copied().unwrap_or(0.0);
            let step = chunks.steps.all().get(boundary).filter(|_| table.is_some());
            if let Some(Step::Forward { layer: 0, .. } | Step::Again { layer: 0, .. }) = step {
                if std::mem::take(&mut is_in_parts) {
                    after.extend(updated[0]);
                    jobs.push(Job { lane: 0, seconds: exchange(0), after: after.clone() });
                    after.push(jobs.len() - 1);
                }
                let work = rows / rates.update;
                jobs.push(Job {
                    lane: 4,
                    seconds: work,
                    after: after.iter().copied().chain(updated[0]).collect(),
                });
                let seconds = rates.copy_seconds + row_bytes / rates.up;
                jobs.push(Job { lane: 1, seconds, after: vec![jobs.len() - 1] });
                after.push(jobs.len() - 1);
            }
            jobs.push(Job { lane: 0, seconds, after });
            last = Some(jobs.len() - 1);
            for &chunk in &stage.on_device {
                if found[chunk] != Some(boundary) {
                    continue;
                }
                for seconds in [exchange(chunk), shares[chunk].updated as f64 / rates.device_update] {
                    jobs.push(Job { lane: 0, seconds, after: last.into_iter().collect() });
                    last = Some(jobs.len() - 1);
                }
            }
            if let Some(Step::Backward { layer: 0, .. }) = step {
                let seconds = rates.copy_seconds + row_bytes / rates.down;
                jobs.push(Job { lane: 2, seconds, after: last.into_iter().chain(added).collect() });
                // Passes wait for that.
                last = Some(jobs.len() - 1);
                jobs.push(Job { lane: 4, seconds: rows / rates.update, after: last.into_iter().collect() });
                added = Some(jobs.len() - 1);
                let is_last = boundary + 1 == uses.steps();
                if is_last && chunks.sharing.ranks() > 1 {
                    let after = last.into_iter().chain(added).collect();
                    jobs.push(Job { lane: 0, seconds: exchange(0), after });
                    (last, added) = (Some(jobs.len() - 1), Some(jobs.len() - 1));
                }
                let update = shares[0].updated as f64 / rates.update;
                if is_last && stage.update == UpdateTime::OnArrival {
                    jobs.push(Job { lane: 3, seconds: update, after: added.into_iter().collect() });
                    updated[0] = Some(jobs.len() - 1);
                } else if is_last {
                    later.push((0, update));
                }
            }
        }
        ends.extend(last);
        for (chunk, seconds) in later {
            let after = last.into_iter().chain(added.filter(|_| is_table(chunk))).collect();
            jobs.push(Job { lane: 3, seconds, after });
            updated[chunk] = Some(jobs.len() - 1);
        }
    }
    (jobs, ends)
}

/// When each job is over: none waits for a later one.
pub(super) fn clock(jobs: &[Job]) -> Vec<f64> {
    let (mut ends, mut free): (Vec<f64>, [f64; 5]) = (Vec::new(), [0.0; 5]);
    for job in jobs {
        let begin = job.after.iter().map(|&other| ends[other]).fold(free[job.lane], f64::max);
        free[job.lane] = begin + job.seconds;
        ends.push(free[job.lane]);
    }
    ends
}

/// A stage of a case that has room, with intervals.
pub(super) struct Staged {
    pub(super) stage: ChunkedStage,
    pub(super) chunks: Chunks,
    pub(super) costs: StepCosts,
    pub(super) intervals: Vec<ResidencyInterval>,
    recompute: RecomputePolicy,
}

impl Staged {
    pub(super) fn new(
        case: &Case,
        which: usize,
        after_backward: bool,
        (paging, haste): (Paging, Option<(usize, usize)>),
    ) -> Option<Self> {
        let mut fit = Vec::new();
        stages(case, |stage, recompute, chunks, costs, has_room| {
            if has_room {
                fit.push((stage.clone(), recompute, chunks.clone(), costs.clone()));
            }
        });
        let which = which % fit.len().max(1);
        let (mut stage, recompute, chunks, costs) = fit.into_iter().nth(which)?;
        if after_backward && stage.host_copy == HostParameters::Stored {
            stage.update = UpdateTime::AfterBackward;
        }
        let room: Vec<u64> = costs.needed.iter().map(|needed| case.question.capacity.0 - needed).collect();
        let intervals = stage.paged(paging, &chunks, &room).unwrap();
        let intervals = begun_before(case, (&stage, &chunks, &costs), &intervals, haste);
        Some(Self { stage, chunks, costs, intervals, recompute })
    }

    pub(super) fn checked(&self) -> Intervals<'_> {
        self.stage.told(&self.chunks, &self.intervals).unwrap()
    }

    pub(super) fn scene<'a>(&'a self, intervals: &'a Intervals<'a>, rates: LaneRates) -> LaneScene<'a> {
        let Self { stage, chunks, costs, .. } = self;
        LaneScene {
            chunks,
            intervals,
            update: stage.update,
            away: &costs.away,
            seconds: &costs.seconds,
            rates,
        }
    }

    /// All jobs of some iterations, and the last pass of each.
    pub(super) fn jobs(&self, case: &Case, rates: LaneRates) -> (Vec<Job>, Vec<usize>) {
        jobs((&self.chunks, &self.stage, &self.intervals), &self.found(case), &self.costs, rates)
    }

    /// The step that finds the last gradient of each chunk: as if all state were on the host.
    fn found(&self, case: &Case) -> Vec<Option<usize>> {
        let bare = ChunkedStage { on_device: Vec::new(), ..self.stage.clone() };
        let training = TrainingSpec { recompute: self.recompute, ..case.question.training };
        let chunks = bare.lay_out_split(&case.question.model, &training, &case.question.stage()).unwrap();
        let last = |chunk: usize| {
            let payloads = chunks.uses.payloads().iter().filter(|uses| uses.payload.chunk == chunk);
            payloads.flat_map(|uses| &uses.gradients).max().copied()
        };
        (0..chunks.layout.chunks().len()).map(last).collect()
    }
}

proptest! {
    #![proptest_config(loadmaster_samples::cases(400))]

    #[test]
    fn lanes_take_as_long_as_a_clock_says(
        case in cases(), which in any::<usize>(), after_backward in any::<bool>(),
        (ahead, behind) in (0_usize..5, 0_usize..4), haste in hastes(),
    ) {
        let paging = (Paging { ahead, behind }, haste);
        let Some(staged) = Staged::new(&case, which, after_backward, paging) else { return Ok(()) };
        // What the host's memory has to do with it takes as long as other things happen to be at the same time.
        let rates = LaneRates { host_memory: None, ..case.question.rates };
        let (jobs, passes) = staged.jobs(&case, rates);
        let ends = clock(&jobs);
        let checked = staged.checked();
        let scene = staged.scene(&checked, rates);
        let mut run = LaneRun::new(&scene);
        let mut end = 0.0;
        for &pass in &passes {
            let told = run.iterate();
            let kept = told.kept_fetch_seconds + told.kept_leave_seconds;
            let waits = told.busy.compute + told.fetch_seconds + told.leave_seconds + kept;
            prop_assert!((told.iteration_seconds - waits).abs() <= 1e-9 * (1.0 + ends[pass]));
            end += told.iteration_seconds;
            prop_assert!((end - ends[pass]).abs() <= 1e-9 * (1.0 + end), "{} instead of {}", end, ends[pass]);
        }
        let mut busy = [0.0; 5];
        jobs.iter().for_each(|job| busy[job.lane] += job.seconds / ITERATIONS as f64);
        let told = scene.simulate();
        let LaneSeconds { compute, up, down, update, rows } = told.busy;
        for (told, busy) in [compute, up, down, update, rows].iter().zip(busy) {
            prop_assert!((told - busy).abs() <= 1e-9 * (1.0 + busy));
        }
        prop_assert!(told.iteration_seconds >= told.busy.most() * (1.0 - 1e-9));
    }

    /// What copies and rounding take of the host's memory makes nothing faster, and nothing slower where there is plenty.
    #[test]
    fn the_hosts_memory_only_adds_seconds(
        case in cases(), which in any::<usize>(), ahead in 0_usize..4, haste in hastes(), memory in 1_f64..1e5,
    ) {
        let paging = (Paging { ahead, behind: 1 }, haste);
        let Some(staged) = Staged::new(&case, which, false, paging) else { return Ok(()) };
        let checked = staged.checked();
        let after = |host_memory: Option<f64>| {
            let scene = staged.scene(&checked, LaneRates { host_memory, ..case.question.rates });
            let mut run = LaneRun::new(&scene);
            (0..ITERATIONS).map(|_| run.iterate().iteration_seconds).sum::<f64>()
        };
        let [cores, some, plenty] = [None, Some(memory), Some(1e30)].map(after);
        prop_assert!(some >= cores * (1.0 - 1e-9), "{} after {}", some, cores);
        let is_made = staged.stage.host_copy == HostParameters::Cast;
        prop_assert!((plenty - cores).abs() <= 1e-9 * (1.0 + cores) || is_made && plenty > cores, "{} {}", plenty, cores);
    }

    /// What repeats itself goes on as it was said to.
    #[test]
    fn iterations_go_on_as_the_steady_one(
        case in cases(), which in any::<usize>(), ahead in 0_usize..4, haste in hastes(),
    ) {
        let paging = (Paging { ahead, behind: 1 }, haste);
        let Some(staged) = Staged::new(&case, which, false, paging) else { return Ok(()) };
        let checked = staged.checked();
        let scene = staged.scene(&checked, case.question.rates);
        let told = scene.simulate();
        prop_assume!(told.is_steady);
        let mut run = LaneRun::new(&scene);
        let all: Vec<f64> = (0..40 + 240).map(|_| run.iterate().iteration_seconds).collect();
        // All cycles that are as short end within these.
        let mean = all[40..].iter().sum::<f64>() / 240.0;
        let spread = all[40..].iter().fold(0.0_f64, |most, of| most.max((of - mean).abs()));
        let tolerance = 1e-7 * mean + spread * 32.0 / 240.0;
        prop_assert!((mean - told.iteration_seconds).abs() <= tolerance, "{} instead of {}", told.iteration_seconds, mean);
    }

    /// What ends early takes more in the long run than was asked about, and no less than is said; all else ends as ever.
    #[test]
    fn what_ends_early_takes_more(
        case in cases(), which in any::<usize>(), ahead in 0_usize..4, share in 0.3..1.5_f64, haste in hastes(),
    ) {
        let paging = (Paging { ahead, behind: 1 }, haste);
        let Some(staged) = Staged::new(&case, which, false, paging) else { return Ok(()) };
        let checked = staged.checked();
        let scene = staged.scene(&checked, case.question.rates);
        let whole = scene.simulate();
        prop_assume!(whole.is_steady);
        let most = whole.iteration_seconds * share;
        match scene.simulate_within(most) {
            Ok(told) => prop_assert_eq!(told, whole),
            Err(TakesMore { at_least }) => {
                prop_assert!(most < at_least);
                prop_assert!(at_least <= whole.iteration_seconds * (1.0 + 1e-9), "{} of {}", at_least, whole.iteration_seconds);
            }
        }
    }
}
