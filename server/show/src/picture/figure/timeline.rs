//! What devices hold in an iteration, moment by moment, against what they allow.

use loadmaster_proto::wire::v1::{MemoryBreakdown, MemoryCurve, Plan, Timeline};

use super::schedule::Schedule;
use crate::table::parts::parts;
use crate::table::{accounting, common_accounting};
use crate::text::label::cells;
use crate::text::{bytes, plural, seconds};

/// Charts that are drawn; of more, those of the fullest stages.
const MOST_CHARTS: usize = 8;
/// A capacity of more than so many times what is ever held is told, not drawn: it would flatten the curve.
pub(super) const TOO_FAR: i64 = 4;
/// How many parts a breakdown has.
const PARTS: usize = 8;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MemoryTimeline {
    /// In the order of the pipeline.
    pub charts: Vec<Chart>,
    /// Seconds at the right end, the same for all charts; above 0.
    pub end_seconds: f64,
    /// Where the iteration ends: earlier than the right end beside a longer one.
    pub iteration_seconds: f64,
    /// Cells beside the charts, left and right: as beside the lanes above, so that moments lie below each other.
    pub columns: (usize, usize),
    /// Bytes at the upper end, the same for all charts.
    pub scale_bytes: i64,
    /// Ledger of the scale; none where there are several.
    pub accounting: Option<i32>,
    /// Places of the parts that are ever held, with their letters and names.
    pub parts: Vec<(usize, char, &'static str)>,
    /// Where the numbers are from, and what is left out, for people.
    pub notes: Vec<String>,
}

/// The fullest device of a stage.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Chart {
    /// `stage 0: at most 812.00 MiB of 1.00 GiB, at 1.20 s; at the host 96.00 MiB`.
    pub label: String,
    /// What a device allows; none where nothing was given.
    pub capacity_bytes: Option<i64>,
    /// In order, each until the next one.
    pub levels: Vec<Level>,
    /// The most that is in the host's memory, and of others in its own.
    pub pools: [i64; 2],
}

/// What is held for a while.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Level {
    pub start: f64,
    /// By part.
    pub parts: [i64; PARTS],
    /// In the host's memory, and of others in its own.
    pub pools: [i64; 2],
}

/// What the two kinds of pools are called.
pub(crate) const POOLS: [&str; 2] = ["in host", "hosted"];

impl Level {
    pub(crate) fn total(&self) -> i64 {
        self.parts.iter().fold(0, |sum, &bytes| sum.saturating_add(bytes))
    }

    /// The most of both, in each respect.
    fn with(self, other: Self) -> Self {
        let [host, peer_pools] = [0, 1].map(|pool| self.pools[pool].max(other.pools[pool]));
        let most = if other.total() > self.total() { other } else { self };
        Self { pools: [host, peer_pools], ..most }
    }
}

impl MemoryTimeline {
    /// Of a plan's timeline; nothing where that does not say what is held.
    pub(crate) fn of(plan: &Plan, timeline: &Timeline) -> Option<Self> {
        let mut curves: Vec<&MemoryCurve> =
            timeline.memory_curves.iter().filter(|of| !of.points.is_empty()).collect();
        if curves.is_empty() {
            return None;
        }
        let mut notes = Vec::new();
        let hidden = curves.len().saturating_sub(MOST_CHARTS);
        if hidden > 0 {
            curves.sort_by_key(|curve| std::cmp::Reverse(curve.peak_bytes));
            curves.truncate(MOST_CHARTS);
            curves.sort_by_key(|curve| curve.stage);
            notes.push(format!("left out: {} that need less", plural(hidden, "stage")));
        }
        let merged = curves.iter().map(|curve| curve.point_step_count).max().unwrap_or(1);
        let charts: Vec<Chart> = curves.into_iter().map(chart).collect();
        let held = charts.iter().flat_map(|chart| &chart.levels).map(Level::total).max().unwrap_or(0);
        let capacities = || charts.iter().filter_map(|chart| chart.capacity_bytes);
        let near = capacities().filter(|&capacity| capacity / TOO_FAR <= held).max();
        if capacities().any(|capacity| capacity / TOO_FAR > held) {
            notes.push("capacities far above the highest peak are not drawn".to_owned());
        }
        let names = parts(&MemoryBreakdown::default());
        let has = |part: usize| {
            charts
                .iter()
                .flat_map(|chart| &chart.levels)
                .any(|level| level.parts.get(part).is_some_and(|of| *of > 0))
        };
        let parts = names.into_iter().enumerate().filter(|&(part, _)| has(part));
        notes.push(source(plan, merged));
        let starts = charts.iter().flat_map(|chart| &chart.levels).map(|level| level.start);
        let whole = Some(timeline.iteration_seconds).filter(|whole| (0.0..=1e12).contains(whole));
        let end_seconds = starts.chain(whole).fold(f64::MIN_POSITIVE, f64::max);
        Some(Self {
            end_seconds,
            iteration_seconds: end_seconds,
            columns: (0, 0),
            scale_bytes: near.unwrap_or(0).max(held).max(1),
            accounting: common_accounting(
                plan.stages.iter().filter_map(|stage| stage.predicted_peak.as_ref()),
            ),
            parts: parts.map(|(part, (letter, name, _))| (part, letter, name)).collect(),
            charts,
            notes,
        })
    }

    /// Whether a capacity is within the scale.
    pub(crate) fn shown_capacity(&self, chart: &Chart) -> Option<i64> {
        chart.capacity_bytes.filter(|&capacity| capacity <= self.scale_bytes)
    }

    /// The pools that anything is ever in.
    pub(crate) fn pools(&self, chart: &Chart) -> impl Iterator<Item = usize> {
        let pools = chart.pools;
        (0..pools.len()).filter(move |&pool| pools[pool] > 0)
    }

    /// Lays it out below these lanes.
    pub(crate) fn align(&mut self, lanes: &mut Schedule) {
        lanes.columns.0 = lanes.columns.0.max(self.widest());
        self.columns = lanes.columns;
    }

    /// Cells that the longest amount of a scale takes.
    pub(crate) fn widest(&self) -> usize {
        let amounts = self.charts.iter().filter_map(|chart| self.shown_capacity(chart));
        let widest = amounts.chain([self.scale_bytes]).map(|amount| cells(&bytes(amount))).max();
        widest.unwrap_or(0).max(cells(POOLS[0]))
    }
}

impl MemoryTimeline {
    /// What is held at most in each of so many equal pieces of time; nothing behind the end of the iteration.
    pub(crate) fn columns(&self, chart: &Chart, columns: usize) -> Vec<Option<Level>> {
        let mut held: Vec<Option<Level>> = vec![None; columns];
        let scale = columns as f64 / self.end_seconds;
        let starts = chart.levels.iter().skip(1).map(|level| level.start);
        for (level, until) in chart.levels.iter().zip(starts.chain([self.iteration_seconds])) {
            let first = (level.start * scale) as usize;
            let last = ((until * scale).ceil() as usize).max(first + 1);
            for cell in held.iter_mut().take(last).skip(first) {
                *cell = Some(cell.map_or(*level, |known| known.with(*level)));
            }
        }
        held
    }
}

fn chart(curve: &MemoryCurve) -> Chart {
    let level = |point: &loadmaster_proto::wire::v1::MemoryPoint| {
        let start = point.start_seconds;
        let held = point.breakdown.unwrap_or_default();
        (0.0..=1e12).contains(&start).then(|| Level {
            start,
            parts: parts(&held).map(|(_, _, bytes)| bytes.max(0)),
            pools: [point.host_bytes.max(0), point.peer_pool_bytes.max(0)],
        })
    };
    let mut levels: Vec<Level> = curve.points.iter().filter_map(level).collect();
    levels.sort_by(|one, other| one.start.total_cmp(&other.start));
    let fullest =
        levels.iter().copied().reduce(|most, level| if level.total() > most.total() { level } else { most });
    let fullest = fullest.unwrap_or_default();
    let pools = [0, 1].map(|pool| levels.iter().map(|level| level.pools[pool]).max().unwrap_or(0));
    let capacity_bytes = Some(curve.capacity_bytes).filter(|&capacity| capacity > 0);
    let mut label = format!("stage {}: at most {}", curve.stage, bytes(fullest.total()));
    if let Some(capacity) = capacity_bytes {
        label.push_str(&format!(" of {}", bytes(capacity)));
    }
    label.push_str(&format!(", at {}", seconds(fullest.start)));
    if pools[0] > 0 {
        label.push_str(&format!("; at the host {}", bytes(pools[0])));
    }
    if curve.peer_pool_bytes > 0 {
        let (most, pool) = (bytes(pools[1]), bytes(curve.peer_pool_bytes));
        label.push_str(&format!("; for others {most}, {pool} set aside"));
    }
    Chart { label, capacity_bytes, levels, pools }
}

fn source(plan: &Plan, merged: i32) -> String {
    let stages = || plan.stages.iter().filter_map(|stage| stage.predicted_peak.as_ref());
    let account = common_accounting(stages())
        .map_or_else(|| "several memory accountings".to_owned(), |of| format!("{} memory", accounting(of)));
    let mut text =
        format!("{account}; the predicted maximum of each step is drawn until the next step begins");
    if merged > 1 {
        text.push_str(&format!("; up to {merged} steps are drawn as one: the step with the most memory"));
    }
    text
}
