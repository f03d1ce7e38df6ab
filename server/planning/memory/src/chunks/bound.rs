//! Seconds that no intervals of a choice go below, whatever rule plans them.
//!
//! A chunk whose state is on the host comes at least once for an iteration, within it or before it, and its gradients leave once,
//! within it. Behind that it is updated, and then it may come once more. So an iteration takes at least
//!
//! * what passes and updates on the device take, what any lane does, and
//! * from any step on: the passes up to it, and what leaves behind it;
//! * from a first use of a chunk to a chunk's last. The passes between them. Then, until the former is there once more, all
//!   that leaves and is updated from the latter on to the former, one after the other in the order in which gradients are
//!   complete. What was updated last is what the next iteration needs first.
//!
//! Where ranks share chunks, passes stop for each exchange, wherever their state is. Of gradients right behind the step that
//! completes them, before they leave or are updated; of parameters anywhere between their coming and their first use.
//!
//! What does not fit on the device between two of its uses comes once more.
//!
//! What micro-batches keep on the host goes over the same ways as chunks: it leaves behind its step and must be gone before another,
//! and comes back behind one and must be there before another. So from any step to any later one pass also as many seconds as
//! copies take that must be over before it. And behind a step as many as those take that begin there, or later.
//!
//! Where an embedding table is on the host, passes stop for its rows in every step of the embedding. For what is gathered and
//! comes, and for what leaves; where ranks share it they stop for both exchanges as well. From the first rows of an iteration to
//! those of the next lie all passes, and then the last rows' addition and the table's update. The embedding is the first and
//! the last that computes.

use loadmaster_predict::Away;
use loadmaster_proto::chunks::embedding::HostTable;
use loadmaster_proto::chunks::layout::List;
use loadmaster_proto::training::boundaries::BoundaryInterval;

use super::layout_evaluation::LayoutEvaluation;

/// Moments of an iteration at which what does not fit is counted.
const MOMENTS: usize = 48;

/// A chunk whose state is on the host: first use, the step that completes it, and seconds on the three lanes.
#[derive(Debug, Clone, Copy)]
struct Round {
    first: usize,
    last: usize,
    /// Of its gradients among the payloads: what is complete at once leaves in this order.
    position: usize,
    up: f64,
    down: f64,
    update: f64,
    /// Seconds in which passes stop for an all-gather, and for a reduce-scatter.
    exchange: f64,
}

/// What a micro-batch has on the host from one step to another, and seconds on the two lanes.
#[derive(Debug, Clone, Copy)]
struct Trip {
    at: BoundaryInterval,
    up: f64,
    down: f64,
}

/// An iteration's passes and the rounds of its chunks, in the order in which gradients are complete.
#[derive(Debug, Clone)]
struct Cycle {
    rounds: Vec<Round>,
    trips: Vec<Trip>,
    /// Seconds of passes and reduce-scatters before each step at least, and of all.
    before: Vec<f64>,
    /// Seconds of each step.
    seconds: Vec<f64>,
}

impl LayoutEvaluation<'_> {
    /// The least seconds of an iteration with these chunks on the device, however large that is.
    pub(super) fn bound(&self, on_device: usize) -> f64 {
        let trips = self.trips();
        if trips.is_empty() {
            return self.chunk_bound(on_device);
        }
        self.least_seconds.of(on_device, || self.bound_with(on_device, trips))
    }

    /// The same without what micro-batches have on the host: as all choices have it that are like each other but for that.
    pub(super) fn chunk_bound(&self, on_device: usize) -> f64 {
        self.placed.least_seconds.of(on_device, || self.bound_with(on_device, Vec::new()))
    }

    fn bound_with(&self, on_device: usize, trips: Vec<Trip>) -> f64 {
        let (placed, rates) = (&self.placed, &self.question.rates);
        let are = placed.are_on_device(on_device);
        let mut seconds = self.ground.costs.seconds.clone();
        let table = self.table_seconds(&mut seconds);
        let mut rounds = Vec::with_capacity(placed.count());
        // Chunks on the device, of their parameters: anywhere before their first use.
        let mut gathers = 0.0;
        for (chunk, is_on_device) in are.into_iter().enumerate() {
            let (first, last) = (placed.uses.payloads()[chunk].steps.first(), placed.uses.completed(chunk));
            let (Some(&first), Some(last)) = (first, last) else { continue };
            if is_on_device {
                let exchange = placed.exchange_seconds(chunk);
                seconds[last] += exchange + placed.elements(chunk) as f64 / rates.device_update;
                gathers += exchange;
                continue;
            }
            let bytes = placed.copied_bytes(chunk);
            let (up, down) = (rates.up_seconds(bytes), rates.down_seconds(bytes));
            // Of a table on the host the update is none that follows its round.
            let is_table = table.is_some() && chunk == HostTable::CHUNK;
            let update = if is_table { 0.0 } else { rates.update_seconds(placed.elements(chunk)) };
            let exchange = placed.exchange_seconds(chunk);
            let position = placed.uses.gradients_of(chunk);
            rounds.push(Round { first, last, position, up, down, update, exchange });
        }
        let round = table.map_or(0.0, |table| seconds.iter().sum::<f64>() + table);
        Cycle::new(rounds, trips, seconds).least_seconds(gathers).max(round)
    }

    /// What micro-batches have on the host between two steps.
    fn trips(&self) -> Vec<Trip> {
        let rates = &self.question.rates;
        let away = self.ground.costs.away.iter().filter(|away| away.bytes > 0);
        let of = |away: &Away| Trip {
            at: away.absence.at,
            up: rates.up_seconds(away.bytes),
            down: rates.down_seconds(away.bytes),
        };
        away.map(of).collect()
    }

    /// Adds to the seconds of steps those in which passes stop for rows of a table on the host; returns the seconds from the last
    /// of them to the table's update. None where there is none.
    fn table_seconds(&self, seconds: &mut [f64]) -> Option<f64> {
        let (table, rates) = (self.ground.course.table?, &self.question.rates);
        let bytes = table.taken().saturating_mul(self.placed.lists.scalar_bytes(List::Parameters));
        let worked = rates.update_seconds(table.taken());
        let mut parts = Some(self.placed.exchange_seconds(HostTable::CHUNK));
        for (step, seconds) in seconds.iter_mut().enumerate() {
            let Some(&of) = self.ground.course.steps.all().get(step) else { continue };
            if HostTable::gathers_in(of) {
                *seconds += worked + rates.up_seconds(bytes) + parts.take().unwrap_or(0.0);
            } else if HostTable::scatters_in(of) {
                *seconds += rates.down_seconds(bytes);
            }
            if table.last == Some(step) {
                *seconds += self.placed.exchange_seconds(HostTable::CHUNK);
            }
        }
        Some(worked + rates.update_seconds(self.placed.elements(HostTable::CHUNK)))
    }

    /// The same where only what fits beside the rest is kept between uses.
    pub(super) fn bound_of_room(&self, on_device: usize) -> f64 {
        let placed = &self.placed;
        let are = placed.are_on_device(on_device);
        // What no step needs never comes.
        let comes = |chunk: &usize| !are[*chunk] && !placed.uses.payloads()[*chunk].steps.is_empty();
        let here = (0..placed.count()).filter(comes);
        let once: f64 = here.map(|chunk| self.question.rates.up_seconds(placed.copied_bytes(chunk))).sum();
        let trips: f64 = self.trips().iter().map(|trip| trip.up).sum();
        once + trips + self.again_bytes(on_device) as f64 / self.question.rates.up
    }

    /// Bytes that come more than once, at least. A payload that is away between two uses comes once more; of what is between
    /// uses at a moment, no more stays than there is room for. Each such gap is counted at one moment.
    fn again_bytes(&self, on_device: usize) -> u64 {
        let placed = &self.placed;
        let are = placed.are_on_device(on_device);
        let least = placed.least_chunk_bytes(on_device);
        let steps = least.len();
        let stride = steps.div_ceil(MOMENTS).max(1);
        let moments: Vec<usize> = (0..steps).step_by(stride).collect();
        // Bytes of gaps that are open at a moment, by the first moment that is not before the gap.
        let mut open = vec![vec![0_u64; moments.len() + 1]; moments.len()];
        for of in placed.uses.payloads().iter().filter(|of| !are[of.payload.chunk]) {
            let stays = of.changed.filter(|_| !placed.may_leave_unfinished(false, of));
            for pair in of.steps.windows(2) {
                let [from, to] = *pair else { continue };
                // What may not leave is part of the least.
                if stays.is_some_and(|(first, last)| first <= from && to <= last) {
                    continue;
                }
                let begin = from / stride + 1;
                let end = to.div_ceil(stride);
                for open in open.iter_mut().take(end).skip(begin) {
                    open[begin] += placed.copied_bytes(of.payload.chunk);
                }
            }
        }
        // Of moments up to each, which end with it: the most.
        let mut most = vec![0_u64; moments.len()];
        for (at, &step) in moments.iter().enumerate() {
            let taken = least[step].saturating_add(self.ground.costs.needed[step]);
            // A payload on the device is as long as the parts of all ranks, and its copy as one of them.
            let free = self.question.capacity.0.saturating_sub(taken) / u64::from(placed.sharing.ranks());
            let mut sum = 0_u64;
            for begin in (0..=at).rev() {
                sum += open[at][begin];
                // The last moment before is `begin − 1`.
                let before = begin.checked_sub(1).map_or(0, |before| most[before]);
                most[at] = most[at].max(before + sum.saturating_sub(free));
            }
            most[at] = most[at].max(at.checked_sub(1).map_or(0, |before| most[before]));
        }
        most.last().copied().unwrap_or(0)
    }
}

impl Cycle {
    fn new(mut rounds: Vec<Round>, trips: Vec<Trip>, seconds: Vec<f64>) -> Self {
        rounds.sort_by_key(|round| (round.last, round.position));
        let mut behind = vec![0.0; seconds.len()];
        rounds.iter().for_each(|round| behind[round.last] += round.exchange);
        let mut before = vec![0.0];
        let mut sum = 0.0;
        before.extend(seconds.iter().zip(&behind).map(|(seconds, behind)| {
            sum += seconds + behind;
            sum
        }));
        Self { rounds, trips, before, seconds }
    }

    /// Where passes stop for so many seconds more.
    fn least_seconds(&self, gathers: f64) -> f64 {
        self.within(gathers).max(self.across())
    }

    /// Within an iteration.
    fn within(&self, gathers: f64) -> f64 {
        let Self { rounds, trips, before, seconds } = self;
        let steps = seconds.len();
        let (mut come, mut leave) = (vec![0.0; steps], vec![0.0; steps]);
        rounds.iter().for_each(|round| leave[round.last] += round.down);
        // What is gone before a step, and what begins to come back before it.
        let (mut gone, mut back) = (vec![0.0; steps], vec![0.0; steps]);
        for trip in trips {
            come[trip.at.needed] += trip.up;
            leave[trip.at.leaves.saturating_sub(1)] += trip.down;
            gone[trip.at.freed] += trip.down;
            back[trip.at.fetched] += trip.up;
        }
        let (mut left, mut returned) = (vec![0.0; steps + 1], vec![0.0; steps + 1]);
        for step in (0..steps).rev() {
            left[step] = left[step + 1] + leave[step];
            returned[step] = returned[step + 1] + back[step];
        }
        let gathers = gathers + rounds.iter().map(|round| round.exchange).sum::<f64>();
        let (mut came, mut went, mut until, mut most) = (0.0, 0.0, 0.0_f64, before[steps] + gathers);
        for step in 0..steps {
            came += come[step];
            went += gone[step];
            // Nothing has begun to come back that does so from here on, before what is gone here is.
            until = until.max(went - before[step]);
            most = most.max(until + before[step] + returned[step]);
            until = until.max(came - before[step]);
            most = most.max(until + before[step] + seconds[step] + left[step]);
        }
        let sum = |of: fn(&Round) -> f64| rounds.iter().map(of).sum::<f64>();
        let up = sum(|round| round.up) + trips.iter().map(|trip| trip.up).sum::<f64>();
        most.max(up).max(sum(|round| round.update))
    }

    /// From an iteration to the next.
    fn across(&self) -> f64 {
        let Self { rounds, before, seconds, .. } = self;
        // Passes between a first and a last use are known only where they lie in this order.
        let latest = rounds.iter().map(|round| round.first).max().unwrap_or(0);
        let (mut down, mut update, mut most) = (0.0_f64, 0.0_f64, 0.0_f64);
        let (mut step, mut exchanged) = (0, 0.0);
        for round in rounds.iter().filter(|round| round.last >= latest) {
            if round.last != step {
                (step, exchanged) = (round.last, 0.0);
            }
            exchanged += round.exchange;
            down = down.max(before[step] + seconds[step] + exchanged) + round.down;
            update = update.max(down) + round.update;
            most = most.max(update + round.up + round.exchange - before[round.first]);
        }
        most
    }
}
