//! What is drawn on one page: a heading, and pictures of one plan or of several side by side.

use loadmaster_proto::wire::v1::{ComparePlansResponse, Plan, Timeline, Warning};

use super::figure::Figure;
use crate::picture::figure::front::Front;
use crate::picture::figure::memory::Memory;
use crate::picture::figure::placement::Placement;
use crate::picture::figure::residency::Residency;
use crate::picture::figure::schedule::Schedule;
use crate::picture::figure::step_bytes::StepBytes;
use crate::picture::figure::timeline::MemoryTimeline;
use crate::picture::figure::{facts, lists};
use crate::table::plan::contradiction;
use crate::text;
use crate::text::label::{id, sentence};
use crate::text::terminal_abilities::Look;

/// Warnings that are shown.
const MOST_WARNINGS: usize = 50;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sheet {
    /// What it is of.
    pub(super) title: String,
    /// The headline of the one plan, line by line.
    pub(super) headline: Vec<String>,
    /// Measurements outside of the predicted intervals; above the pictures.
    pub(super) contradictions: Vec<String>,
    /// From top to bottom.
    pub(super) blocks: Vec<Block>,
    /// Warnings by severity; below the pictures.
    pub(super) warnings: Vec<String>,
    /// In the terminal it follows the plan's table, which has the warnings and the contradictions.
    pub(super) follows_table: bool,
}

/// Pictures of one kind, of one plan each.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Block {
    /// What they show.
    pub(super) title: &'static str,
    /// Each with the name of its plan, which is empty where there is one plan only.
    pub(super) figures: Vec<(String, Figure)>,
    /// Only in files: the terminal has it above the pictures.
    pub(super) file_only: bool,
}

/// Which pictures are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Which {
    /// The stages on the devices.
    pub devices: bool,
    /// The memory of the devices.
    pub memory: bool,
    /// One iteration.
    pub schedule: bool,
    /// Where chunks are, and what the device holds, step by step.
    pub chunks: bool,
    /// The front between memory and time.
    pub front: bool,
}

impl Which {
    pub const ALL: Self = Self { devices: true, memory: true, schedule: true, chunks: true, front: true };
    pub const NONE: Self =
        Self { devices: false, memory: false, schedule: false, chunks: false, front: false };
}

const DEVICES: &str = "Stages on the devices";
const MEMORY: &str = "Memory of the devices";
const SCHEDULE: &str = "Schedule";
const OVER_TIME: &str = "Memory over time";
const CHUNKS: &str = "Chunks, step by step";
const STEP_BYTES: &str = "Memory, step by step";
const FRONT: &str = "Front between memory and time";

impl Sheet {
    /// Of one plan, with its timeline where there is one.
    pub fn of_plan(plan: &Plan, timeline: Option<&Timeline>, which: Which, look: Look) -> Self {
        let mut blocks = Vec::new();
        let mut add = |title, file_only, figure: Figure| {
            blocks.push(Block { title, figures: vec![(String::new(), figure)], file_only });
        };
        if which.devices {
            add(DEVICES, false, Figure::Placement(Placement::of(plan, look)));
        }
        if let Some(memory) = Memory::of(plan, look).filter(|_| which.memory) {
            add(MEMORY, false, Figure::Memory(memory));
        }
        let drawn = timeline.filter(|_| which.schedule);
        let mut schedule = drawn.and_then(|timeline| Schedule::of(plan, timeline));
        let mut over_time = drawn.and_then(|timeline| MemoryTimeline::of(plan, timeline));
        if let (Some(schedule), Some(over_time)) = (&mut schedule, &mut over_time) {
            over_time.align(schedule);
        }
        if let Some(schedule) = schedule {
            add(SCHEDULE, false, Figure::Schedule(schedule));
        }
        if let Some(over_time) = over_time {
            add(OVER_TIME, false, Figure::MemoryTimeline(over_time));
        }
        let (residency, step_bytes) = if which.chunks { in_chunks(plan) } else { (None, None) };
        if let Some(residency) = residency {
            add(CHUNKS, false, Figure::Residency(residency));
        }
        if let Some(step_bytes) = step_bytes {
            add(STEP_BYTES, false, Figure::StepBytes(step_bytes));
        }
        if let Some(front) = Front::of(plan, look).filter(|_| which.front) {
            add(FRONT, false, Figure::Front(front));
        }
        if which == Which::ALL {
            add("Facts", true, Figure::Table(facts::of(plan, timeline, look)));
            add("Stages", true, Figure::Table(lists::stages(plan, look)));
            if let Some(others) = lists::others(plan, look) {
                add("Other plans", true, Figure::Table(others));
            }
        }
        let contradictions = contradiction::of(plan, look).iter().map(|line| sentence(line)).collect();
        let headline = text::headline(plan.summary.as_ref(), look);
        let warnings = warnings(&plan.warnings);
        Self { title: title(plan, look), headline, contradictions, blocks, warnings, follows_table: true }
    }

    /// Of several plans side by side, on common scales.
    pub fn of_comparison(answer: &ComparePlansResponse, which: Which, look: Look) -> Self {
        let plans = &answer.plans;
        let timeline = |plan: &Plan| answer.timelines.iter().find(|timeline| timeline.plan == plan.name);
        let timelines: Vec<Option<&Timeline>> = plans.iter().map(timeline).collect();

        let table = Figure::Table(facts::differences(plans, &timelines, look));
        let mut blocks =
            vec![Block { title: "Differences", figures: vec![(String::new(), table)], file_only: false }];
        let mut add = |title, figures: Vec<(String, Figure)>| {
            if !figures.is_empty() {
                blocks.push(Block { title, figures, file_only: false });
            }
        };
        if which.devices {
            let figure = |plan: &Plan| (name(plan), Figure::Placement(Placement::of(plan, look)));
            add(DEVICES, plans.iter().map(figure).collect());
        }
        if which.memory {
            let mut all: Vec<(String, Memory)> =
                plans.iter().filter_map(|plan| Some((name(plan), Memory::of(plan, look)?))).collect();
            let same = all.windows(2).all(|pair| pair[0].1.accounting == pair[1].1.accounting);
            if same {
                let scale = all.iter().map(|(_, memory)| memory.scale_bytes).max().unwrap_or(1);
                let columns = widest(all.iter().map(|(_, memory)| memory.columns));
                for (_, memory) in &mut all {
                    (memory.scale_bytes, memory.columns) = (scale, columns);
                }
            } else {
                let note = "the predictions count different memory (allocated, reserved or device): do not compare the bars";
                all.iter_mut().for_each(|(_, memory)| memory.notes.push(note.to_owned()));
            }
            add(MEMORY, all.into_iter().map(|(name, memory)| (name, Figure::Memory(memory))).collect());
        }
        if which.schedule {
            let [schedules, held] = iterations(plans, &timelines);
            add(SCHEDULE, schedules);
            add(OVER_TIME, held);
        }
        if which.chunks {
            let [residencies, held] = by_steps(plans);
            add(CHUNKS, residencies);
            add(STEP_BYTES, held);
        }
        let names: Vec<String> = plans.iter().map(|plan| id(&plan.name)).collect();
        let title = format!("plans {}", names.join(", "));
        let headline = Vec::new();
        let told = |plan: &Plan| {
            let lines = contradiction::of(plan, look);
            lines.into_iter().map(|line| sentence(&format!("{}: {line}", name(plan)))).collect::<Vec<_>>()
        };
        let contradictions = plans.iter().flat_map(told).collect();
        let warnings = warnings(&answer.warnings);
        Self { title, headline, contradictions, blocks, warnings, follows_table: false }
    }

    pub fn is_empty(&self) -> bool {
        self.blocks.iter().all(|block| block.file_only)
    }

    /// Which of these pictures it has not, by the words that ask for them.
    pub fn lacks(&self, which: Which) -> Vec<&'static str> {
        let kinds: [(&str, bool, &[&str]); 5] = [
            ("devices", which.devices, &[DEVICES]),
            ("memory", which.memory, &[MEMORY]),
            ("schedule", which.schedule, &[SCHEDULE]),
            ("chunks", which.chunks, &[CHUNKS, STEP_BYTES]),
            ("front", which.front, &[FRONT]),
        ];
        let has = |titles: &[&str]| self.blocks.iter().any(|block| titles.contains(&block.title));
        kinds
            .iter()
            .filter(|(_, is_asked, titles)| *is_asked && !has(titles))
            .map(|(word, ..)| *word)
            .collect()
    }
}

/// The iterations of several plans on common scales, and what devices hold in them.
fn iterations(plans: &[Plan], timelines: &[Option<&Timeline>]) -> [Vec<(String, Figure)>; 2] {
    let all = || plans.iter().zip(timelines).filter_map(|(plan, timeline)| Some((plan, (*timeline)?)));
    let mut schedules: Vec<(String, Schedule)> =
        all().filter_map(|(plan, timeline)| Some((name(plan), Schedule::of(plan, timeline)?))).collect();
    let mut held: Vec<(String, MemoryTimeline)> = all()
        .filter_map(|(plan, timeline)| Some((name(plan), MemoryTimeline::of(plan, timeline)?)))
        .collect();
    let ends = schedules.iter().map(|(_, of)| of.end_seconds);
    let end = ends.chain(held.iter().map(|(_, of)| of.end_seconds)).fold(f64::MIN_POSITIVE, f64::max);
    let names = held.iter().map(|(_, of)| (of.widest(), 0));
    let columns = widest(schedules.iter().map(|(_, of)| of.columns).chain(names));
    for (_, schedule) in &mut schedules {
        (schedule.end_seconds, schedule.columns) = (end, columns);
    }
    let scale = held.iter().map(|(_, of)| of.scale_bytes).max().unwrap_or(1);
    let same = held.windows(2).all(|pair| pair[0].1.accounting == pair[1].1.accounting);
    for (_, of) in &mut held {
        (of.end_seconds, of.columns) = (end, columns);
        of.scale_bytes = if same { scale } else { of.scale_bytes };
    }
    let schedules = schedules.into_iter().map(|(name, of)| (name, Figure::Schedule(of)));
    let held = held.into_iter().map(|(name, of)| (name, Figure::MemoryTimeline(of)));
    [schedules.collect(), held.collect()]
}

/// Where the chunks of a plan are, and what its device holds, with steps below each other.
fn in_chunks(plan: &Plan) -> (Option<Residency>, Option<StepBytes>) {
    let (mut residency, mut step_bytes) = (Residency::of(plan), StepBytes::of(plan));
    if let (Some(residency), Some(step_bytes)) = (&mut residency, &mut step_bytes) {
        step_bytes.align(residency);
    }
    (residency, step_bytes)
}

/// The same of several plans, with a common scale of bytes, which are all of one accounting. Steps are each plan's own.
fn by_steps(plans: &[Plan]) -> [Vec<(String, Figure)>; 2] {
    let (mut residencies, mut held): (Vec<_>, Vec<_>) = plans.iter().map(in_chunks).unzip();
    let scale = held.iter().flatten().map(|of| of.scale_bytes).max().unwrap_or(1);
    let names = residencies.iter().flatten().map(|of| of.names);
    let names = names.chain(held.iter().flatten().map(|of| of.names)).max().unwrap_or(0);
    residencies.iter_mut().flatten().for_each(|of| of.names = names);
    held.iter_mut().flatten().for_each(|of| (of.names, of.scale_bytes) = (names, scale));
    let named = |(plan, figure): (&Plan, Option<Figure>)| Some((name(plan), figure?));
    let residencies = residencies.into_iter().map(|of| of.map(Figure::Residency));
    let held = held.into_iter().map(|of| of.map(Figure::StepBytes));
    [
        plans.iter().zip(residencies).filter_map(named).collect(),
        plans.iter().zip(held).filter_map(named).collect(),
    ]
}

/// What a plan is called beside others.
fn name(plan: &Plan) -> String {
    let title = text::title(plan.summary.as_ref(), Look::FILE);
    format!("plan {} {}", id(&plan.name), sentence(&title)).trim_end().to_owned()
}

/// Columns that are wide enough for all pictures side by side.
fn widest(all: impl Iterator<Item = (usize, usize)>) -> (usize, usize) {
    all.fold((0, 0), |(labels, values), (label, value)| (labels.max(label), values.max(value)))
}

fn warnings(all: &[Warning]) -> Vec<String> {
    text::folded(all, MOST_WARNINGS).iter().map(|line| sentence(line)).collect()
}

/// The title of a plan's page: of its summary, else its id and its model's.
pub fn title(plan: &Plan, look: Look) -> String {
    match text::title(plan.summary.as_ref(), look) {
        none if none.is_empty() => format!("plan {} {} {}", id(&plan.name), look.dot(), id(&plan.model)),
        title => sentence(&title),
    }
}
