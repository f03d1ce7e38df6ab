//! What lanes are said to do, against the clock and against intervals.

use loadmaster_proto::chunks::residency::intervals::ResidencyInterval;
use loadmaster_proto::chunks::residency::paging_intervals::Paging;
use loadmaster_proto::chunks::residency::uses::PayloadUses;
use loadmaster_proto::plan::rates::LaneRates;
use proptest::prelude::*;

use super::clock::{ITERATIONS, Staged, clock};
use super::draw::{SharedChunk, cases};
use super::weighed::hastes;
use crate::chunks::lane_spans::Witness;
use crate::chunks::lanes::LaneRun;
use crate::chunks::{LaneSpan, LaneWork};

/// Remembers all that it sees.
#[derive(Default)]
struct Everything(Vec<LaneSpan>);

impl Witness for Everything {
    fn saw(&mut self, work: LaneWork, start: f64, end: f64) {
        self.0.push(LaneSpan { work, start, end, is_requested: true });
    }
}

/// Of passes, up, down and updates, the lane that does it; none of waiting.
fn lane(work: LaneWork) -> Option<usize> {
    match work {
        LaneWork::Step(_) | LaneWork::UpdateOnDevice(_) | LaneWork::Gather(_) | LaneWork::Scatter(_) => {
            Some(0)
        }
        LaneWork::Wait(..) | LaneWork::WaitForKept(..) | LaneWork::WaitForRows(_) => None,
        LaneWork::Up(..) | LaneWork::Back(_) | LaneWork::RowsUp(_) => Some(1),
        LaneWork::Down(..) | LaneWork::Out(_) | LaneWork::RowsDown(_) => Some(2),
        LaneWork::Update(..) => Some(3),
        LaneWork::Rows(_) => Some(4),
    }
}

fn of_lane(spans: &[LaneSpan], of: usize) -> Vec<LaneSpan> {
    let mut own: Vec<LaneSpan> = spans.iter().filter(|span| lane(span.work) == Some(of)).copied().collect();
    own.retain(|span| span.start < span.end);
    own.sort_by(|one, other| one.start.total_cmp(&other.start));
    own
}

fn pagings() -> impl Strategy<Value = Paging> {
    (0_usize..5, 0_usize..4).prop_map(|(ahead, behind)| Paging { ahead, behind })
}

/// All that is seen of as many iterations as the clock has.
fn seen(staged: &Staged, rates: LaneRates) -> Vec<LaneSpan> {
    let checked = staged.checked();
    let scene = staged.scene(&checked, rates);
    let mut run = LaneRun::seen_by(&scene, Everything::default());
    (0..ITERATIONS).for_each(|_| _ = run.iterate());
    run.over().1.0
}

/// The intervals of a chunk behind which all gradients are there.
fn completes(uses: &PayloadUses, interval: &ResidencyInterval) -> bool {
    let within = |step: &usize| (interval.at.needed..interval.at.leaves).contains(step);
    uses.payload == interval.payload && uses.gradients.last().is_some_and(within)
}

proptest! {
    #![proptest_config(loadmaster_samples::cases(250))]

    /// From when to when lanes do each thing is as a clock says that goes from event to event.
    #[test]
    fn spans_are_where_a_clock_has_them(
        case in cases(), which in any::<usize>(), after_backward in any::<bool>(), paging in (pagings(), hastes()),
    ) {
        let Some(staged) = Staged::new(&case, which, after_backward, paging) else { return Ok(()) };
        let rates = LaneRates { host_memory: None, ..case.question.rates };
        let (jobs, _) = staged.jobs(&case, rates);
        let ends = clock(&jobs);
        let seen = seen(&staged, rates);
        for lane in 0..5 {
            let own = jobs.iter().zip(&ends).filter(|(job, _)| job.lane == lane && job.seconds > 0.0);
            let mut clocked: Vec<(f64, f64)> = own.map(|(job, end)| (end - job.seconds, *end)).collect();
            clocked.sort_by(|one, other| one.0.total_cmp(&other.0));
            let seen = of_lane(&seen, lane);
            prop_assert_eq!(seen.len(), clocked.len());
            for (span, (start, end)) in seen.iter().zip(clocked) {
                let near = |one: f64, other: f64| (one - other).abs() <= 1e-9 * (1.0 + end);
                prop_assert!(near(span.start, start) && near(span.end, end), "{:?}, not {} to {}", span, start, end);
            }
        }
    }

    /// A chunk is updated once in each iteration, behind its gradients' arrival, and comes once more behind that.
    /// What comes and leaves are the intervals.
    #[test]
    fn chunks_are_updated_between_arrival_and_return(
        case in cases(), which in any::<usize>(), after_backward in any::<bool>(), paging in (pagings(), hastes()),
    ) {
        let Some(staged) = Staged::new(&case, which, after_backward, paging) else { return Ok(()) };
        let Staged { stage, chunks, intervals, .. } = &staged;
        let seen = seen(&staged, case.question.rates);
        let (ups, downs, updates) = (of_lane(&seen, 1), of_lane(&seen, 2), of_lane(&seen, 3));
        // A table on the host is the first; its rows are no intervals.
        let first = usize::from(chunks.table.is_some());
        for chunk in (first..chunks.layout.chunks().len()).filter(|chunk| !stage.on_device.contains(chunk)) {
            let of_chunk = |span: &&LaneSpan| matches!(span.work, LaneWork::Update(of, _) if of == chunk);
            let updates: Vec<&LaneSpan> = updates.iter().filter(of_chunk).collect();
            let own = chunks.uses.payloads().iter().filter(|of| of.payload.chunk == chunk);
            let complete: Vec<&ResidencyInterval> =
                intervals.iter().filter(|interval| own.clone().any(|uses| completes(uses, interval))).collect();
            prop_assert_eq!(complete.len(), 1);
            prop_assert_eq!(updates.len(), ITERATIONS);
            let share = SharedChunk::of(chunks, chunk, chunks.sharing.ranks());
            let is_whole = |span: &&LaneSpan| span.work == LaneWork::Update(chunk, share.updated);
            prop_assert!(updates.iter().all(is_whole));
            let arrivals: Vec<&LaneSpan> =
                downs.iter().filter(|span| matches!(span.work, LaneWork::Down(of, _) if of == *complete[0])).collect();
            prop_assert_eq!(arrivals.len(), ITERATIONS);
            for interval in intervals.iter().filter(|interval| interval.payload.chunk == chunk) {
                let comes: Vec<&LaneSpan> =
                    ups.iter().filter(|span| matches!(span.work, LaneWork::Up(of, _) if of == *interval)).collect();
                // Gradients that are apart begin on the device.
                prop_assert!(comes.len() == ITERATIONS || (comes.is_empty() && interval.payload.is_gradients));
                for (update, next) in updates.iter().zip(comes.iter().skip(1)) {
                    prop_assert!(update.end <= next.start, "{:?} before {:?}", next, update);
                }
            }
            for (arrival, update) in arrivals.iter().zip(updates) {
                prop_assert!(arrival.end <= update.start, "{:?} before {:?}", update, arrival);
            }
        }
    }

    /// The iteration that is shown takes the seconds that are reported, and no lane does two things at once.
    #[test]
    fn spans_of_a_steady_iteration_add_up(
        case in cases(), which in any::<usize>(), after_backward in any::<bool>(), paging in (pagings(), hastes()),
    ) {
        let Some(staged) = Staged::new(&case, which, after_backward, paging) else { return Ok(()) };
        let checked = staged.checked();
        let scene = staged.scene(&checked, case.question.rates);
        let (lanes, spans) = scene.simulate_with_spans();
        prop_assert_eq!(lanes, scene.simulate());
        let seconds = |of: &[LaneSpan]| of.iter().map(|span| span.end - span.start).sum::<f64>();
        let busy = lanes.busy;
        let all = [busy.compute, busy.up, busy.down, busy.update, busy.rows];
        for (lane, busy) in all.into_iter().enumerate() {
            let own = of_lane(&spans, lane);
            prop_assert!(own.windows(2).all(|pair| pair[0].end <= pair[1].start), "{:?}", own);
            // Of iterations that differ, each ends with other copies to the device and other updates to do.
            if [0, 2].contains(&lane) || (lanes.is_steady && lanes.cycle == 1) {
                prop_assert!((seconds(&own) - busy).abs() <= 1e-7 * (1.0 + busy), "lane {}: {} of {}", lane, seconds(&own), busy);
            }
        }
        let mut passes: Vec<LaneSpan> =
            spans.iter().filter(|span| lane(span.work).is_none_or(|lane| lane == 0)).copied().collect();
        let steps = passes.iter().filter(|span| matches!(span.work, LaneWork::Step(_))).count();
        prop_assert_eq!(steps, staged.chunks.steps.all().len());
        passes.retain(|span| span.start < span.end);
        // Passes, exchanges and waits leave no gap, and do not lie over each other.
        prop_assert!(passes.windows(2).all(|pair| pair[0].end == pair[1].start), "{:?}", passes);
        let end = passes.last().map_or(0.0, |span| span.end);
        prop_assert!(spans.iter().all(|span| 0.0 <= span.start && span.end <= end));
        if lanes.is_steady && lanes.cycle == 1 {
            prop_assert!((end - lanes.iteration_seconds).abs() <= 1e-9 * (1.0 + end));
        }
        // Whichever iteration is shown, and whenever its copies begin, be it behind its end: it requests every
        // interval that comes once.
        let is_requested = |span: &&LaneSpan| matches!(span.work, LaneWork::Up(..)) && span.is_requested;
        let comes = checked.all().filter(|(_, _, copies)| copies.comes).count();
        prop_assert_eq!(spans.iter().filter(is_requested).count(), comes);
        let waits: Vec<LaneSpan> = spans.iter().filter(|span| lane(span.work).is_none()).copied().collect();
        if lanes.cycle == 1 {
            let kept = lanes.kept_fetch_seconds + lanes.kept_leave_seconds;
            let waited = lanes.fetch_seconds + lanes.leave_seconds + kept;
            prop_assert!((seconds(&waits) - waited).abs() <= 1e-7 * (1.0 + waited));
        }
    }
}
