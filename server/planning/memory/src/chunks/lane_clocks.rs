//! When each lane of a chunked stage is free, and when what is in flight is over.

use loadmaster_proto::chunks::embedding::HostTable;
use loadmaster_proto::chunks::layout::List;
use loadmaster_proto::chunks::residency::intervals::IntervalCopies;
use loadmaster_proto::chunks::residency::intervals::PayloadInterval;
use loadmaster_proto::chunks::stage::{Chunks, UpdateTime};
use loadmaster_proto::training::actions::Step;

use super::chunk_usage::most_updated;
use super::lane_spans::{LaneWork, Witness};
use super::lanes::{LaneScene, LaneSeconds, Lanes};

/// A residency interval, and its payload's position.
/// When everything is free, or done, from the start of the first iteration.
#[derive(Debug, Clone)]
pub(super) struct LaneClocks<W> {
    pub(super) now: f64,
    up: f64,
    down: f64,
    update: f64,
    /// Seconds that the next update takes more, as copies went over the host's memory meanwhile.
    more: f64,
    rows: f64,
    /// When the last parameters were rounded for a GPU.
    rounded: f64,
    /// When the last rows were added.
    pub(super) added: f64,
    /// Whether each rank that shares a table on the host has all of it as it was last updated.
    has_table: bool,
    /// When each payload's copy is over.
    copied: Vec<f64>,
    /// Payloads that come in the iteration before the one that needs them.
    over_end: Vec<usize>,
    /// When the copy of each thing that micro-batches have on the host is over.
    kept: Vec<f64>,
    /// When each chunk is updated.
    updated: Vec<f64>,
    /// When each buffer that something passes through is free.
    passed: Vec<f64>,
    next_passed: usize,
    pub(super) witness: W,
}

impl<W: Witness> LaneClocks<W> {
    /// Everything is free, and those payloads are there that come in the iteration before. Micro-batches have so many things on
    /// the host.
    pub(super) fn new(chunks: &Chunks, kept: usize, over_end: Vec<usize>, witness: W) -> Self {
        Self {
            now: 0.0,
            up: 0.0,
            down: 0.0,
            update: 0.0,
            more: 0.0,
            rows: 0.0,
            rounded: 0.0,
            added: 0.0,
            has_table: false,
            copied: vec![0.0; chunks.uses.payloads().len()],
            over_end,
            kept: vec![0.0; kept],
            updated: vec![0.0; chunks.host.chunks.len()],
            passed: vec![0.0; chunks.host.staging.len()],
            next_passed: 0,
            witness,
        }
    }

    /// How long each thing that the next iteration may have to wait for is still to take, in an order that is the same before
    /// each of them.
    pub(super) fn waiting(&self) -> Vec<f64> {
        let (behind, first) = self.passed.split_at(self.next_passed);
        let lanes = [self.up, self.down, self.update, self.rows, self.rounded, self.now + self.more];
        let coming = self.over_end.iter().map(|&payload| &self.copied[payload]);
        let all = lanes.iter().chain(&self.updated).chain(first).chain(behind).chain(coming);
        all.map(|at| (at - self.now).max(0.0)).collect()
    }

    pub(super) fn leave(
        &mut self,
        scene: &LaneScene<'_>,
        &PayloadInterval { payload, interval, copies }: &PayloadInterval,
        told: &mut Lanes,
        later: &mut Vec<usize>,
    ) {
        let chunk = interval.payload.chunk;
        if copies.is_complete {
            self.exchange(scene, chunk, LaneWork::Scatter, told);
        }
        let busy = &mut told.busy;
        let passes = copies.is_complete && scene.has_no_place(payload);
        let free = if passes { self.passed[self.next_passed] } else { 0.0 };
        let bytes = scene.chunks.copied_bytes(chunk, copies.leaves_unfinished);
        let seconds = scene.rates.down_seconds(bytes);
        let start = self.down.max(self.now).max(free);
        self.down = start + seconds;
        self.goes_over_memory(scene, bytes, start);
        self.copied[payload] = self.down;
        self.witness.saw(LaneWork::Down(interval, copies), start, self.down);
        busy.down += seconds;
        if copies.is_complete && scene.chunks.is_host_table(chunk) {
            // It is added to that of the table, which is updated when its rows have theirs, too.
            self.work_on_rows(scene.elements(chunk), self.down, scene, busy);
            if passes {
                self.free_buffer(self.rows);
            }
        } else if copies.is_complete && scene.update == UpdateTime::OnArrival {
            busy.update += self.update_chunk(scene, chunk, self.down);
            if passes {
                self.free_buffer(self.updated[chunk]);
            }
        } else if copies.is_complete {
            later.push(chunk);
        }
    }

    /// The buffer that is next is free once more at this moment.
    fn free_buffer(&mut self, at: f64) {
        self.passed[self.next_passed] = at;
        self.next_passed = (self.next_passed + 1) % self.passed.len();
    }

    /// The worker of rows does something with so many elements, once they are there.
    fn work_on_rows(&mut self, elements: u64, there: f64, scene: &LaneScene<'_>, busy: &mut LaneSeconds) {
        let seconds = scene.rates.update_seconds(elements);
        let start = self.rows.max(there);
        self.rows = start + seconds;
        self.witness.saw(LaneWork::Rows(elements), start, self.rows);
        busy.rows += seconds;
    }

    /// Before a pass that takes rows of a table on the host they come, behind its last update. Ranks that share the table give
    /// each other their parts before the first of an iteration.
    pub(super) fn gather(&mut self, scene: &LaneScene<'_>, step: usize, told: &mut Lanes) {
        let Some(table) = scene.table_in(step, HostTable::gathers_in) else { return };
        if scene.is_shared() && !self.has_table {
            let updated = self.updated[HostTable::CHUNK];
            told.fetch_seconds += self.wait_until(updated, LaneWork::WaitForRows(true));
            self.exchange(scene, HostTable::CHUNK, LaneWork::Gather, told);
            self.has_table = true;
        }
        let there = self.now.max(self.updated[HostTable::CHUNK]);
        self.work_on_rows(table.taken(), there, scene, &mut told.busy);
        let seconds = scene.rates.up_seconds(scene.chunks.row_bytes());
        let start = self.up.max(self.rows);
        self.up = start + seconds;
        self.goes_over_memory(scene, scene.chunks.row_bytes(), start);
        self.witness.saw(LaneWork::RowsUp(step), start, self.up);
        told.busy.up += seconds;
        told.fetch_seconds += self.wait_until(self.up, LaneWork::WaitForRows(true));
    }

    /// Behind a pass that finds gradients of rows they leave, where the last ones were added, and are added. The table is updated
    /// behind the last of an iteration; ranks that share it add up its gradients before.
    pub(super) fn scatter(
        &mut self,
        scene: &LaneScene<'_>,
        step: usize,
        told: &mut Lanes,
        later: &mut Vec<usize>,
    ) {
        let Some(table) = scene.table_in(step, HostTable::scatters_in) else { return };
        let seconds = scene.rates.down_seconds(scene.chunks.row_bytes());
        let start = self.down.max(self.now).max(self.added);
        self.down = start + seconds;
        self.goes_over_memory(scene, scene.chunks.row_bytes(), start);
        self.witness.saw(LaneWork::RowsDown(step), start, self.down);
        told.busy.down += seconds;
        told.leave_seconds += self.wait_until(self.down, LaneWork::WaitForRows(false));
        self.work_on_rows(table.taken(), self.now, scene, &mut told.busy);
        self.added = self.rows;
        if table.last != Some(step) {
            return;
        }
        if scene.is_shared() {
            told.leave_seconds += self.wait_until(self.added, LaneWork::WaitForRows(false));
            self.exchange(scene, HostTable::CHUNK, LaneWork::Scatter, told);
            // They are complete on the host from now on.
            self.added = self.now;
            self.has_table = false;
        }
        match scene.update {
            UpdateTime::OnArrival => {
                told.busy.update += self.update_chunk(scene, HostTable::CHUNK, self.added);
            }
            UpdateTime::AfterBackward => later.push(HostTable::CHUNK),
        }
    }

    pub(super) fn come(
        &mut self,
        scene: &LaneScene<'_>,
        &PayloadInterval { payload, interval, copies }: &PayloadInterval,
        busy: &mut LaneSeconds,
    ) {
        let chunk = interval.payload.chunk;
        let bytes = scene.chunks.copied_bytes(chunk, copies.comes_unfinished);
        let seconds = scene.rates.up_seconds(bytes);
        let there = self.now.max(self.updated[chunk]);
        let rounding = scene.rounding_seconds(payload, copies, bytes);
        let there = rounding.map_or(there, |seconds| self.round(there, seconds));
        let start = self.up.max(there);
        self.up = start + seconds;
        if rounding.is_some() {
            self.free_buffer(self.up);
        }
        self.goes_over_memory(scene, bytes, start);
        self.copied[payload] = self.up;
        self.witness.saw(LaneWork::Up(interval, copies), start, self.up);
        busy.up += seconds;
    }

    /// Parameters are rounded into a buffer, once they are there and it is free. Returns when they are.
    fn round(&mut self, there: f64, seconds: f64) -> f64 {
        let start = self.rounded.max(there).max(self.passed[self.next_passed]);
        self.rounded = start + seconds;
        if self.update > start {
            self.more += seconds;
        }
        self.rounded
    }

    /// A copy of so many bytes begins. Where that takes memory of the host from updates, the next of them takes as much longer.
    fn goes_over_memory(&mut self, scene: &LaneScene<'_>, bytes: u64, start: f64) {
        if let Some(rate) = scene.rates.host_memory.filter(|_| self.update > start) {
            self.more += bytes as f64 / rate;
        }
    }

    /// Waits for the copy of a payload. Returns the seconds that it takes.
    pub(super) fn wait(
        &mut self,
        &PayloadInterval { payload, interval, .. }: &PayloadInterval,
        comes: bool,
    ) -> f64 {
        self.wait_until(self.copied[payload], LaneWork::Wait(interval, comes))
    }

    fn wait_until(&mut self, moment: f64, work: LaneWork) -> f64 {
        let since = self.now;
        self.now = self.now.max(moment);
        self.witness.saw(work, since, self.now);
        self.now - since
    }

    /// What a micro-batch keeps begins to leave.
    pub(super) fn take_away(&mut self, scene: &LaneScene<'_>, of: usize, busy: &mut LaneSeconds) {
        let seconds = scene.rates.down_seconds(scene.away[of].bytes);
        let start = self.down.max(self.now);
        self.down = start + seconds;
        self.goes_over_memory(scene, scene.away[of].bytes, start);
        self.kept[of] = self.down;
        self.witness.saw(LaneWork::Out(of), start, self.down);
        busy.down += seconds;
    }

    /// It begins to come back.
    pub(super) fn bring_back(&mut self, scene: &LaneScene<'_>, of: usize, busy: &mut LaneSeconds) {
        let seconds = scene.rates.up_seconds(scene.away[of].bytes);
        let start = self.up.max(self.now);
        self.up = start + seconds;
        self.goes_over_memory(scene, scene.away[of].bytes, start);
        self.kept[of] = self.up;
        self.witness.saw(LaneWork::Back(of), start, self.up);
        busy.up += seconds;
    }

    /// Waits for its copy. Returns the seconds that it takes.
    pub(super) fn wait_for_kept(&mut self, of: usize, comes: bool) -> f64 {
        self.wait_until(self.kept[of], LaneWork::WaitForKept(of, comes))
    }

    /// Ranks give each other their parts of a chunk: of its parameters, or of gradients.
    pub(super) fn exchange(
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
    pub(super) fn pass(&mut self, work: LaneWork, seconds: f64, told: &mut Lanes) {
        let start = self.now;
        self.now += seconds;
        self.witness.saw(work, start, self.now);
        told.busy.compute += seconds;
    }

    /// A chunk is updated once its gradients are there. Returns the seconds that it takes.
    pub(super) fn update_chunk(&mut self, scene: &LaneScene<'_>, chunk: usize, there: f64) -> f64 {
        let elements = scene.elements(chunk);
        let more = std::mem::take(&mut self.more);
        let seconds = scene.rates.update_seconds(elements) + if self.update > there { more } else { 0.0 };
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

    /// Whether several ranks own the chunks.
    fn is_shared(&self) -> bool {
        self.chunks.sharing.ranks() > 1
    }

    /// The table on the host, if a step does this with it.
    fn table_in(&self, step: usize, is: fn(Step) -> bool) -> Option<HostTable> {
        let does = self.chunks.steps.all().get(step).is_some_and(|&step| is(step));
        self.chunks.table.filter(|_| does)
    }

    /// Whether a payload's gradients only pass through the host.
    fn has_no_place(&self, payload: usize) -> bool {
        let of = self.chunks.uses.payloads()[payload].payload;
        let place = &self.chunks.host.chunks[of.chunk];
        if of.is_gradients { place.gradients.is_none() } else { place.parameters.is_none() }
    }
    /// Seconds in which parameters are rounded that come to a GPU with this copy of so many bytes; none where nothing is.
    fn rounding_seconds(&self, payload: usize, copies: IntervalCopies, bytes: u64) -> Option<f64> {
        let rate = self.rates.host_memory?;
        let lists = &self.chunks.lists;
        let (rounded, whole) = (lists.scalar_bytes(List::Parameters), lists.scalar_bytes(List::Fp32Copy));
        let of = self.chunks.uses.payloads()[payload].payload;
        let is_made = self.has_no_place(payload) && !of.is_gradients && !copies.comes_unfinished;
        (is_made && rounded < whole).then(|| bytes as f64 / rounded as f64 * (rounded + whole) as f64 / rate)
    }
}
