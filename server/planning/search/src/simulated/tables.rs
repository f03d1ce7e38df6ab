//! Every stage, asked once, and what the stages before any place and layer take at least.

use std::collections::{HashMap, hash_map};

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::training::Schedule;

use super::super::graph::{Lengths, Likeness};
use super::super::{Peak, PlaceId, PlacedStage, Places, Question, Seconds, StageAt, StageCosts, Step, Stop};
use super::Terms;
use loadmaster_simulate::Overlap;

/// Stages that tables may hold: half a GiB.
const MOST_CELLS: usize = 12 << 20;

/// States (a place and a layer) that the bounds may hold, and ways between them that may be looked at.
const MOST_STATES: usize = 8 << 20;
const MOST_WAYS: usize = 400 << 20;

/// Work of asking for a stage, and of looking at so many ways between states.
const CELL: u64 = 20;
const WAYS_PER_UNIT: usize = 4;

/// A stage of given layers on devices that are alike.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cell {
    pub(super) seconds: Seconds,
    /// The most micro-batches that it can hold; 0 where it cannot be.
    pub(super) held: u32,
    /// Its peak with as few micro-batches as a last stage holds, in the unit.
    pub(super) least_peak: u64,
}

const NONE: Cell =
    Cell { seconds: Seconds { forward: 0.0, backward: 0.0, step: 0.0 }, held: 0, least_peak: 0 };

/// All stages under one choice on devices that are alike, by first and last layer.
#[derive(Debug)]
pub(super) struct StageTable {
    pub(super) choice: usize,
    pub(super) cells: Vec<Cell>,
}

/// What plans need at least up to a place and a layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Before {
    /// Forward passes and transfers of one micro-batch; infinite where no stages lead here.
    pub(super) forward: f64,
    /// Both ways.
    pub(super) both: f64,
    /// Until the busiest of the stages is done.
    pub(super) busy: f64,
    /// Until the stage is done that waits longest for its first micro-batch to come back, without both passes and transfers of
    /// what follows; 0 where waits are not counted.
    pub(super) waiting: f64,
    /// The highest peak.
    pub(super) highest: u64,
}

const NOWHERE: Before = Before {
    forward: f64::INFINITY,
    both: f64::INFINITY,
    busy: f64::INFINITY,
    waiting: f64::INFINITY,
    highest: u64::MAX,
};

/// What whole plans need at least.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Whole {
    /// Simulated seconds of an iteration; infinite where there is no plan.
    pub seconds: f64,
    /// The highest peak; `u64::MAX` where there is no plan.
    pub highest: u64,
}

/// A way into a place.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) from: PlaceId,
    pub(super) step: usize,
    /// Tables of its choices.
    pub(super) tables: Vec<usize>,
    /// By first layer: past the last layer that pins allow; empty without pins.
    pub(super) walls: Vec<usize>,
}

/// All tables of a question.
#[derive(Debug)]
pub(super) struct StageTables {
    pub(super) layers: usize,
    pub(super) list: Vec<StageTable>,
    /// Ways into each place.
    pub(super) into: Vec<Vec<Entry>>,
    /// By row and layer.
    before: Vec<Before>,
    /// By place: its row; none of a place that no plan comes to.
    rows: Vec<Option<u32>>,
    /// Whether what stages wait for was counted.
    pub(super) counts_waits: bool,
    /// How often a micro-batch has to be back before the next one goes: of as many as the longest pipeline holds.
    trips: f64,
}

impl StageTables {
    /// None where there would be too many, or when stopped.
    pub(super) fn of<C: StageCosts>(question: &Question<'_, C>, terms: Terms, stop: &Stop) -> Option<Self> {
        let (layers, places) = (question.costs.layers(), question.places.count());
        if layers == 0 || places == 0 {
            return None;
        }
        let most_stages = (*question.stages.end()).min(layers);
        let rows = rows(question.places, most_stages);
        if rows.iter().flatten().count().checked_mul(layers + 1)? > MOST_STATES {
            return None;
        }
        let held = question.in_flight(most_stages.saturating_sub(1)).max(1);
        let trips = match question.schedule {
            Schedule::PipeDream => f64::from(question.micro_batches) / f64::from(held),
            Schedule::Gpipe | Schedule::OneFOneB => f64::from(question.micro_batches.div_ceil(held)),
        };
        let mut tables = Self {
            layers,
            list: Vec::new(),
            into: vec![Vec::new(); places],
            before: Vec::new(),
            rows,
            counts_waits: terms.counts_waits && question.schedule != Schedule::PipeDream,
            trips,
        };
        let mut alike: HashMap<Likeness, Vec<usize>> = HashMap::new();
        let mut ways = 0_usize;
        for from in 0..places {
            if tables.rows[from].is_none() {
                continue;
            }
            for (index, step) in question.places.steps(from as PlaceId).iter().enumerate() {
                if tables.rows[step.to as usize].is_none() {
                    continue;
                }
                let own = match alike.entry(Likeness::of(step)) {
                    hash_map::Entry::Occupied(known) => known.get().clone(),
                    hash_map::Entry::Vacant(new) => {
                        new.insert(tables.price(question, terms, step, stop)?).clone()
                    }
                };
                ways = ways.saturating_add(own.len().saturating_mul(layers * (layers + 1) / 2));
                if own.is_empty() {
                    continue;
                }
                let walls = question.walls(from as PlaceId, index);
                tables.into[step.to as usize].push(Entry {
                    from: from as PlaceId,
                    step: index,
                    tables: own,
                    walls,
                });
            }
        }
        if ways > MOST_WAYS {
            return None;
        }
        tables.fill(question, terms, stop)?;
        Some(tables)
    }

    /// The tables of a step's choices.
    fn price<C: StageCosts>(
        &mut self,
        question: &Question<'_, C>,
        terms: Terms,
        step: &Step,
        stop: &Stop,
    ) -> Option<Vec<usize>> {
        let layers = self.layers;
        let mut own = Vec::new();
        for &choice in question.choices {
            if question.costs.choices().get(choice).is_none_or(|is| is.devices() != step.devices) {
                continue;
            }
            if (self.list.len() + 1).saturating_mul(layers * layers) > MOST_CELLS {
                return None;
            }
            let at = question.stage_at(step, 0, 0, choice);
            let capacity = question.fleet.capacity(step.kinds);
            let mut cells = vec![NONE; layers * layers];
            let mut is_any = false;
            for first in (0..layers).filter(|&first| first == 0 || question.cuts.may_end(first - 1)) {
                if !stop.take(CELL * (layers - first) as u64) || stop.is_requested() {
                    return None;
                }
                for last in first..layers {
                    if question.cuts.may_end(last) {
                        let stage = StageAt { first, last, ..at };
                        let cell = cell(question, terms, capacity, &stage);
                        is_any |= cell.held > 0;
                        cells[first * layers + last] = cell;
                    }
                    if question.cuts.must_end(last) {
                        break;
                    }
                }
            }
            if is_any {
                own.push(self.list.len());
                self.list.push(StageTable { choice, cells });
            }
        }
        Some(own)
    }

    /// What the stages before each place and layer need at least.
    fn fill<C: StageCosts>(&mut self, question: &Question<'_, C>, terms: Terms, stop: &Stop) -> Option<()> {
        let (layers, width) = (self.layers, self.layers + 1);
        let reached = self.rows.iter().flatten().count();
        let mut before = vec![NOWHERE; reached * width];
        let Some(begin) = before.first_mut() else { return Some(()) };
        *begin = Before { forward: 0.0, both: 0.0, busy: 0.0, waiting: 0.0, highest: 0 };
        let counts_waits = self.counts_waits;
        let lengths = Lengths::of(question.places);
        let most_after = (*question.stages.end()).min(layers).saturating_sub(1);
        let m = f64::from(question.micro_batches);
        for place in 1..self.into.len() {
            let Some(row) = self.rows[place] else { continue };
            let (earlier, own) = before.split_at_mut(row as usize * width);
            for entry in &self.into[place] {
                let Some(begin) = self.rows[entry.from as usize] else { continue };
                let from = &earlier[begin as usize * width..][..width];
                let ways = entry.tables.len() * layers * (layers + 1) / 2;
                if !stop.take((ways / WAYS_PER_UNIT) as u64) || stop.is_requested() {
                    return None;
                }
                let step = &question.places.steps(entry.from)[entry.step];
                let after = most_after.min(lengths.after[place].1 as usize);
                for table in entry.tables.iter().map(|&table| &self.list[table]) {
                    for (first, from) in from.iter().enumerate().take(layers) {
                        if from.forward.is_infinite() {
                            continue;
                        }
                        let input = match first.checked_sub(1) {
                            Some(cut) => question.costs.cut_seconds(cut, step.entry, table.choice),
                            None => 0.0,
                        };
                        let wall = entry.walls.get(first).copied().unwrap_or(layers);
                        let cells = &table.cells[first * layers..][..layers];
                        for last in first..wall {
                            let cell = &cells[last];
                            if cell.held == 0 {
                                continue;
                            }
                            let (passes, one_way) = (cell.seconds.passes(), from.forward + input / 2.0);
                            let (both, each) = match terms.overlap {
                                Overlap::Computing => (from.both + input, passes),
                                Overlap::Nothing => (from.both, passes + input),
                            };
                            let late = match terms.overlap {
                                Overlap::Computing => one_way,
                                Overlap::Nothing => from.forward,
                            };
                            let busy = match question.schedule {
                                Schedule::PipeDream => m * (each + cell.seconds.step),
                                Schedule::Gpipe | Schedule::OneFOneB => {
                                    (both + m * each).max(late + m * each + cell.seconds.step)
                                }
                            };
                            let to = &mut own[last + 1];
                            if counts_waits {
                                let held = f64::from(question.in_flight(after.min(layers - 1 - last)));
                                let Seconds { forward, backward, step } = cell.seconds;
                                let works = forward + held * backward + (m - held) * each;
                                let own = (from.both + input + works).max(late + works + step);
                                let waiting = own.max(from.waiting + input + passes);
                                to.waiting = to.waiting.min(waiting);
                            }
                            to.forward = to.forward.min(one_way + cell.seconds.forward);
                            to.both = to.both.min(from.both + input + passes);
                            to.busy = to.busy.min(from.busy.max(busy));
                            to.highest = to.highest.min(from.highest.max(cell.least_peak));
                        }
                    }
                }
            }
        }
        self.before = before;
        Some(())
    }

    /// What the stages before a place and a layer need at least.
    pub(super) fn before(&self, place: PlaceId, layer: usize) -> Before {
        let row = self.rows.get(place as usize).copied().flatten();
        let at = row.and_then(|row| self.before.get(row as usize * (self.layers + 1) + layer));
        at.copied().unwrap_or(NOWHERE)
    }

    /// What whole plans need at least.
    pub(super) fn whole(&self) -> Whole {
        let last = self.into.len().saturating_sub(1);
        let all = self.before(last as PlaceId, self.layers);
        let waiting = if self.counts_waits { all.waiting } else { 0.0 };
        Whole { seconds: all.busy.max(self.trips * all.both).max(waiting), highest: all.highest }
    }

    pub(super) fn cell(&self, table: usize, first: usize, last: usize) -> &Cell {
        &self.list[table].cells[first * self.layers + last]
    }

    /// A stage of a table at a way into a place.
    pub(super) fn placed(&self, entry: &Entry, table: usize, first: usize, last: usize) -> PlacedStage {
        PlacedStage { first, last, choice: self.list[table].choice, from: entry.from, step: entry.step }
    }
}

/// A row for each place that plans of so many stages come to, in order: from the first place, and on to the last.
fn rows(places: &Places, most_stages: usize) -> Vec<Option<u32>> {
    let Lengths { before, after } = Lengths::of(places);
    let mut known = 0;
    let row = |(before, (after, _)): (u32, (u32, u32))| {
        let is_met = before.saturating_add(after) as usize <= most_stages;
        is_met.then(|| {
            known += 1;
            known - 1
        })
    };
    before.into_iter().zip(after).map(row).collect()
}

fn cell<C: StageCosts>(question: &Question<'_, C>, terms: Terms, capacity: Bytes, stage: &StageAt) -> Cell {
    let seconds = if terms.is_timed { question.costs.seconds(stage) } else { Some(Seconds::default()) };
    let Some(seconds) = seconds else { return NONE };
    let least = question.in_flight(0);
    let Some(lowest) = question.costs.peak(stage, least) else { return NONE };
    let room = if question.within_capacity { capacity.0 } else { u64::MAX };
    let cap = terms.most_bytes.unwrap_or(u64::MAX);
    let is_within = |peak: Peak| peak.needed <= room && peak.bytes <= cap;
    let fits = |held: u32| question.costs.peak(stage, held).is_some_and(is_within);
    if !is_within(lowest) {
        return NONE;
    }
    let most = question.in_flight(question.costs.layers().saturating_sub(1));
    let mut held = most;
    if !fits(most) {
        let mut failing = most;
        held = least;
        while failing - held > 1 {
            let middle = held + (failing - held) / 2;
            if fits(middle) { held = middle } else { failing = middle }
        }
    }
    Cell { seconds, held, least_peak: terms.unit.of(lowest.bytes, capacity) }
}
