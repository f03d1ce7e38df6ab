//! Where chunks are while a model is trained in them: a row for each, a column for each step.

use std::ops::Range;

use loadmaster_proto::chunks::residency::intervals;
use loadmaster_proto::training::boundaries::BoundaryInterval;
use loadmaster_proto::wire::v1::chunked_stage::Residency as When;
use loadmaster_proto::wire::v1::{ChunkTraffic, Plan, PlanStage, ResidencyInterval};

use super::pieces::Pieces;
use crate::text::label::cells;
use crate::text::plural;
use crate::text::terminal_abilities::Look;

/// Where a chunk is in a step, or what it is for is; the later, the nearer to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// In the memory of the host alone.
    Host,
    /// It leaves the device, whose memory it still takes.
    Leaving,
    /// It is on its way to the device, whose memory it takes.
    Coming,
    /// On the device.
    There,
    /// On the device, with its state, in every step.
    ForGood,
}

impl Place {
    /// All of them, in the order of legends.
    pub(crate) const ALL: [Self; 5] = [Self::Host, Self::Coming, Self::There, Self::Leaving, Self::ForGood];

    /// In words.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Host => "on the host",
            Self::Leaving => "leaving, or no longer needed",
            Self::Coming => "coming",
            Self::There => "on the device",
            Self::ForGood => "always on the device",
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Residency {
    /// Parameters, whose space gradients take where they may; then gradients that are apart, if there are any.
    pub bands: Vec<Band>,
    /// How many chunks there are, above 0.
    pub chunks: usize,
    /// Steps of an iteration, above 0.
    pub steps: usize,
    /// Cells beside the rows.
    pub names: usize,
    /// `12 chunks, 2 of them on the device for good; 24 visits in 48 steps (planned)`.
    pub summary: String,
    /// Where it is from, and what is left out, for people.
    pub notes: Vec<String>,
}

/// Where the parameters of all chunks are, or their gradients.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Band {
    pub is_gradients: bool,
    visits: Vec<intervals::ResidencyInterval>,
    /// Chunks that are always there.
    for_good: Vec<usize>,
}

/// A band in as many rows and columns as there is room for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Cells {
    /// From the first chunk on.
    pub rows: Vec<ResidencyRow>,
    /// The steps of each column.
    pub columns: Pieces,
    /// Chunks of each row, but the last one, which may have fewer.
    per_row: usize,
}

impl Cells {
    /// Whether a cell is one chunk in one step.
    pub(crate) fn are_single(&self) -> bool {
        self.per_row == 1 && self.columns.largest() == 1
    }

    /// What a cell is.
    pub(crate) fn meaning(&self) -> String {
        if self.are_single() {
            return "a cell is one chunk in one step".to_owned();
        }
        let (chunks, steps) = (plural(self.per_row, "chunk"), plural(self.columns.largest(), "step"));
        format!(
            "a cell is up to {chunks} in up to {steps} and shows the most common place outside CPU memory"
        )
    }
}

/// Where some chunks that follow each other are.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ResidencyRow {
    /// `chunk 3`, or `3–5`.
    pub label: String,
    /// Column by column: on the host where all of them are there all the time; else where most of what is elsewhere is, of
    /// two places with as much the one nearer to the device.
    pub places: Vec<Place>,
}

impl Residency {
    /// Of a plan in chunks whose visits are planned; nothing of any other.
    pub(crate) fn of(plan: &Plan) -> Option<Self> {
        let stage = plan.stages.iter().find(|stage| stage.chunked_training.is_some())?;
        let chunks = stage.chunked_training.as_ref()?;
        let Some(When::PlannedResidency(planned)) = &chunks.residency else { return None };
        let visits = |is_gradients: bool| {
            let own = planned.intervals.iter().filter(move |visit| visit.gradients_only == is_gradients);
            own.filter_map(sound).collect::<Vec<_>>()
        };
        let mut for_good: Vec<usize> =
            chunks.resident_chunks.iter().filter_map(|&chunk| usize::try_from(chunk).ok()).collect();
        for_good.sort_unstable();
        for_good.dedup();
        let mut bands: Vec<Band> = [false, true]
            .map(|is_gradients| Band {
                is_gradients,
                visits: visits(is_gradients),
                for_good: for_good.clone(),
            })
            .into();
        let all = || bands.iter().flat_map(|band| &band.visits);
        let number =
            all().map(|visit| visit.payload.chunk).chain(for_good.iter().copied()).max()?.saturating_add(1);
        let steps = all()
            .map(|visit| visit.at.freed.max(visit.at.fetched))
            .chain(listed_steps(stage))
            .max()
            .filter(|&steps| steps > 0)?;
        let drawn = all().count();
        bands.retain(|band| !band.is_gradients || !band.visits.is_empty());

        let kept = match for_good.len() {
            0 => String::new(),
            kept => format!(", {kept} of them always on the device"),
        };
        let (chunk_count, visit_count) = (plural(number, "chunk"), plural(drawn, "visit"));
        let summary = format!("{chunk_count}{kept}; {visit_count} in {} (planned)", plural(steps, "step"));
        let mut notes =
            vec!["a step is one pass of one layer; steps are numbered from 0 in each iteration".to_owned()];
        if drawn < planned.intervals.len() {
            notes.push(format!(
                "not drawn, because the steps are not valid: {}",
                plural(planned.intervals.len() - drawn, "visit")
            ));
        }
        if stage.measured_chunk_traffic.as_ref().is_some_and(|run| run.replanned) {
            notes.push(
                "in training, memory was too small: some chunks were fetched later or evicted earlier than planned"
                    .to_owned(),
            );
        }
        let names = cells(&format!("chunk {}", number - 1)).max(cells(&format!("{number}-{number}")));
        Some(Self { bands, chunks: number, steps, names, summary, notes })
    }

    /// A band in at most so many rows and columns.
    pub(crate) fn cells(&self, band: &Band, (rows, columns): (usize, usize), look: Look) -> Cells {
        // Each row has as many chunks, but for the last one.
        let per_row = self.chunks.div_ceil(rows.max(1));
        let rows = self.chunks.div_ceil(per_row.max(1));
        let columns = Pieces::new(self.steps, columns);
        let mut held = vec![PlaceSteps::default(); rows * columns.len()];
        let mut add = |chunk: usize, steps: Range<usize>, place: Place| {
            if steps.is_empty() {
                return;
            }
            let row = chunk / per_row.max(1) * columns.len();
            for column in columns.of(steps.start)..=columns.of(steps.end - 1) {
                let of = columns.range(column);
                let common = steps.end.min(of.end).saturating_sub(steps.start.max(of.start));
                if let Some(held) = held.get_mut(row + column) {
                    held.add(place, common);
                }
            }
        };
        for intervals::ResidencyInterval { at, payload } in &band.visits {
            for coming in coming(at, self.steps) {
                add(payload.chunk, coming, Place::Coming);
            }
            add(payload.chunk, at.needed..at.leaves, Place::There);
            add(payload.chunk, at.leaves..at.freed, Place::Leaving);
        }
        for &chunk in &band.for_good {
            add(chunk, 0..self.steps, Place::ForGood);
        }
        let row = |row: usize| {
            let chunks = row * per_row..((row + 1) * per_row).min(self.chunks);
            let own = held.iter().skip(row * columns.len()).take(columns.len());
            ResidencyRow { label: label(&chunks, look), places: own.map(PlaceSteps::mostly).collect() }
        };
        let rows = (0..rows).map(row).collect();
        Cells { rows, columns, per_row }
    }

    /// Places that are anywhere, for legends.
    pub(crate) fn places(&self) -> impl Iterator<Item = Place> {
        let is_kept = self.bands.iter().any(|band| !band.for_good.is_empty());
        Place::ALL.into_iter().filter(move |&place| is_kept || place != Place::ForGood)
    }
}

/// A visit that makes sense, whose boundaries follow each other.
fn sound(visit: &ResidencyInterval) -> Option<intervals::ResidencyInterval> {
    let visit = intervals::ResidencyInterval::try_from(*visit).ok()?;
    let BoundaryInterval { fetched, needed, leaves, freed } = visit.at;
    // It is in time, or begins in the iteration before.
    let comes = fetched <= needed || fetched >= freed;
    (comes && needed <= leaves && leaves <= freed).then_some(visit)
}

/// The steps in which a chunk is on its way, of so many: those at the end, too, where that begins in the iteration before.
fn coming(at: &BoundaryInterval, steps: usize) -> [Range<usize>; 2] {
    if at.is_over_end() { [0..at.needed, at.fetched..steps] } else { [at.fetched..at.needed, 0..0] }
}

/// In how many steps of how many chunks each place was, but for the host.
#[derive(Debug, Clone, Copy, Default)]
struct PlaceSteps([usize; Place::ALL.len()]);

impl PlaceSteps {
    fn add(&mut self, place: Place, steps: usize) {
        if let Some(held) = self.0.get_mut(place as usize) {
            *held = held.saturating_add(steps);
        }
    }

    /// The place of most of them.
    fn mostly(&self) -> Place {
        let steps = |place: Place| self.0.get(place as usize).copied().unwrap_or(0);
        let elsewhere = Place::ALL.into_iter().filter(|&place| steps(place) > 0);
        elsewhere.max_by_key(|&place| (steps(place), place)).unwrap_or(Place::Host)
    }
}

fn label(chunks: &Range<usize>, look: Look) -> String {
    let last = chunks.end.saturating_sub(1);
    if chunks.start == last {
        format!("chunk {last}")
    } else {
        format!("{}{}{last}", chunks.start, look.to())
    }
}

/// How many steps the lists of a stage have.
fn listed_steps(stage: &PlanStage) -> impl Iterator<Item = usize> {
    let lists = |run: &ChunkTraffic| [run.non_chunk_step_bytes.len(), run.chunk_step_bytes.len()];
    stage.chunk_traffic.iter().chain(&stage.measured_chunk_traffic).flat_map(lists)
}
