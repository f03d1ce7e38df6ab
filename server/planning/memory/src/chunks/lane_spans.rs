//! What lanes do when, for who wants to see it.

use loadmaster_proto::chunks::residency::intervals::{IntervalCopies, ResidencyInterval};

use super::lanes::{LaneRun, LaneScene, Lanes};

/// What a lane does, or waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaneWork {
    /// Passes: a step.
    Step(usize),
    /// Passes: the update of a chunk on the device, all of whose gradients are there.
    UpdateOnDevice(usize),
    /// Passes wait for the copy of a payload, which comes or leaves.
    Wait(ResidencyInterval, bool),
    /// Ranks give each other their parts of a chunk that came.
    Gather(usize),
    /// Ranks add up the gradients of a chunk, each those of its part.
    Scatter(usize),
    /// A payload comes to the device.
    Up(ResidencyInterval, IntervalCopies),
    /// It goes to the host.
    Down(ResidencyInterval, IntervalCopies),
    /// Passes wait for rows of a table on the host, which come or leave.
    WaitForRows(bool),
    /// Rows of a table on the host come for a step.
    RowsUp(usize),
    /// Gradients of rows leave behind a step.
    RowsDown(usize),
    /// What a micro-batch keeps goes to the host: which of the scene's.
    Out(usize),
    /// It comes back.
    Back(usize),
    /// Passes wait for that, which comes or leaves.
    WaitForKept(usize, bool),
    /// The host gathers or adds up so many elements of rows.
    Rows(u64),
    /// The host updates so many elements of a chunk: those that the rank owns.
    Update(usize, u64),
}

/// What a lane does for a while, in seconds since the start of the iteration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LaneSpan {
    /// What is done.
    pub work: LaneWork,
    pub start: f64,
    pub end: f64,
    /// The iteration that is shown requests it. Each iteration requests as much, so these are what is counted: what an
    /// earlier one requested is shown, too, and what begins behind the end has no seconds here.
    pub is_requested: bool,
}

impl LaneWork {
    /// Whether it goes over the link between device and host.
    fn is_copy(self) -> bool {
        use LaneWork::{Back, Down, Out, RowsDown, RowsUp, Up};
        matches!(self, Up(..) | Down(..) | RowsUp(_) | RowsDown(_) | Out(_) | Back(_))
    }

    /// Whether it is remembered however short it is: bytes are reported by step, and copies are counted.
    fn is_counted(self) -> bool {
        matches!(self, Self::Step(_)) || self.is_copy()
    }
}

/// Receives what lanes do. No one is while plans are searched: then it costs nothing.
pub(super) trait Witness {
    /// An iteration begins.
    fn begins(&mut self, _now: f64) {}

    /// Receives what is done from one moment to another. A later call may report an earlier moment.
    fn saw(&mut self, _work: LaneWork, _start: f64, _end: f64) {}
}

impl Witness for () {}

/// Remembers the last iteration, and what is left of those before.
#[derive(Debug, Default)]
pub(super) struct LastIteration {
    begin: f64,
    spans: Vec<LaneSpan>,
    /// How many of them earlier iterations requested.
    earlier: usize,
}

impl Witness for LastIteration {
    fn begins(&mut self, now: f64) {
        self.begin = now;
        self.spans.retain(|span| span.end > now);
        self.earlier = self.spans.len();
    }

    fn saw(&mut self, work: LaneWork, start: f64, end: f64) {
        if start < end || work.is_counted() {
            self.spans.push(LaneSpan { work, start, end, is_requested: true });
        }
    }
}

impl LastIteration {
    /// What happens in the iteration that began last and ends now, from its own start on, and what it requests.
    fn spans_until(self, now: f64) -> Vec<LaneSpan> {
        let (begin, earlier) = (self.begin, self.earlier);
        let within = |moment: f64| moment.clamp(begin, now) - begin;
        let whole = self.spans.into_iter().enumerate().map(|(index, LaneSpan { work, start, end, .. })| {
            LaneSpan { work, start: within(start), end: within(end), is_requested: index >= earlier }
        });
        let is_shown =
            |span: &LaneSpan| span.start < span.end || (span.is_requested && span.work.is_counted());
        whole.filter(is_shown).collect()
    }
}

impl LaneScene<'_> {
    /// As [`Self::simulate`], with what happens in the last of its iterations, in the order in which it begins. What an earlier
    /// one left to do, and what goes on behind its end, is cut off there.
    pub fn simulate_with_spans(&self) -> (Lanes, Vec<LaneSpan>) {
        let mut run = LaneRun::seen_by(self, LastIteration::default());
        let lanes = run.repeat();
        let (now, seen) = run.over();
        let mut spans = seen.spans_until(now);
        spans.sort_by(|one, other| one.start.total_cmp(&other.start));
        (lanes, spans)
    }
}
