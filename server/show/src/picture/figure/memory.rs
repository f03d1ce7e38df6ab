//! What the memory of the devices holds at its peak, part by part, against what they allow.

use loadmaster_proto::wire::v1::{MemoryFigure, Plan, PlanStage, ProfileCoverage};

use crate::devices::{self, Device};
use crate::table::parts::parts;
use crate::table::{accounting, common_accounting};
use crate::text::label::{cells, safe};
use crate::text::terminal_abilities::Look;
use crate::text::{bytes, percent, plural, word};

/// Devices that are drawn one by one; of more, those of a stage that are equal are drawn as one.
const ONE_BY_ONE: usize = 16;
/// Bars that are drawn; of more, the fullest.
const MOST_BARS: usize = 48;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Memory {
    /// In the order of the pipeline.
    pub bars: Vec<DeviceBar>,
    /// Bytes at the right end, the same for all bars.
    pub scale_bytes: i64,
    /// Ledger of the scale; none where predictions are of several, and bars must not be compared.
    pub accounting: Option<i32>,
    /// Places of the parts that any bar has, with their letters and names.
    pub parts: Vec<(usize, char, &'static str)>,
    /// Cells that the longest label and the longest amount take; common to pictures side by side.
    pub columns: (usize, usize),
    /// Whether any bar has a margin.
    pub has_margin: bool,
    /// Whether any bar has a measured peak.
    pub has_measured: bool,
    /// Where the numbers are from, and what is left out, for people.
    pub notes: Vec<String>,
}

/// The memory of one device, or of each of several equal ones.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DeviceBar {
    /// `0: node0/0–3`: its stage and which devices.
    pub label: String,
    /// Bytes of each part, by its place; of what has no parts, one without a place.
    pub parts: Vec<(Option<usize>, i64)>,
    pub peak_bytes: i64,
    /// Upper end of the interval of the prediction, where one is known.
    pub high_bytes: Option<i64>,
    /// What a device allows; none where nothing was given.
    pub capacity_bytes: Option<i64>,
    /// Measured peak of the stage's fullest device, in the accounting of the prediction.
    pub measured_bytes: Option<i64>,
    /// `812.00 MiB, 39.6 %, measured 800.00 MiB`; with the capacity where devices differ.
    pub amount: String,
    /// All that is known of it.
    pub title: String,
}

impl Memory {
    /// Of a plan; nothing where no stage has a prediction.
    pub(crate) fn of(plan: &Plan, look: Look) -> Option<Self> {
        let predicted = || plan.stages.iter().filter_map(|stage| stage.predicted_peak.as_ref());
        predicted().next()?;
        let common = common_accounting(predicted());
        let (all, more) = devices::of(plan);
        let one_by_one = all.len() <= ONE_BY_ONE;
        let equal = |a: &Device, b: &Device| {
            !one_by_one && a.stage == b.stage && a.capacity_bytes == b.capacity_bytes && a.kind == b.kind
        };
        let capacity = all.first().map_or(0, |device| device.capacity_bytes);
        let capacities_differ = all.iter().any(|device| device.capacity_bytes != capacity);
        let differ = (common.is_none(), capacities_differ);
        let mut bars: Vec<DeviceBar> =
            all.chunk_by(equal).filter_map(|group| bar(plan, group, differ, look)).collect();
        let mut notes = vec![source(plan, common)];
        if capacity > 0 && !capacities_differ {
            notes.push(format!("each device allows training {} (given)", bytes(capacity)));
        }
        if !one_by_one {
            notes.push(
                "equal devices of a stage are drawn as one bar, which shows the bytes of each device"
                    .to_owned(),
            );
        }
        if more {
            notes.push(format!("only the first {} are drawn", plural(all.len(), "device")));
        }
        notes.extend(keep_fullest(&mut bars));
        notes.extend(unlike(plan));
        let names = parts(&loadmaster_proto::wire::v1::MemoryBreakdown::default());
        let has =
            |part: usize| bars.iter().flat_map(|bar| &bar.parts).any(|&(at, n)| at == Some(part) && n > 0);
        Some(Self {
            scale_bytes: bars.iter().map(DeviceBar::extent).max().unwrap_or(0).max(1),
            accounting: common,
            parts: names
                .into_iter()
                .enumerate()
                .filter(|&(part, _)| has(part))
                .map(|(part, (letter, name, _))| (part, letter, name))
                .collect(),
            has_margin: bars.iter().any(|bar| bar.high_bytes.is_some_and(|high| high > bar.peak_bytes)),
            has_measured: bars.iter().any(|bar| bar.measured_bytes.is_some()),
            columns: (widest(&bars, |bar| &bar.label), widest(&bars, |bar| &bar.amount)),
            bars,
            notes,
        })
    }

    /// Whether bytes without known parts are among the bars.
    pub(crate) fn has_whole(&self) -> bool {
        self.bars.iter().flat_map(|bar| &bar.parts).any(|(at, _)| at.is_none())
    }

    /// Whether any capacity is known.
    pub(crate) fn has_capacity(&self) -> bool {
        self.bars.iter().any(|bar| bar.capacity_bytes.is_some())
    }

    /// `bytes, allocated memory`: what the axis shows.
    pub(crate) fn axis(&self) -> String {
        match self.accounting {
            Some(of) => format!("predicted peak bytes, {} memory", accounting(of)),
            None => {
                "predicted peak bytes, which count different memory (allocated, reserved, device): do not compare the \
                 bars"
                    .to_owned()
            }
        }
    }
}

impl DeviceBar {
    /// The most bytes that it shows.
    fn extent(&self) -> i64 {
        let of = |bytes: Option<i64>| bytes.unwrap_or(0);
        self.peak_bytes.max(of(self.high_bytes)).max(of(self.capacity_bytes)).max(of(self.measured_bytes))
    }

    /// Share of the capacity that the prediction takes; without a capacity the bytes decide.
    fn fullness(&self) -> f64 {
        self.peak_bytes as f64 / self.capacity_bytes.unwrap_or(1).max(1) as f64
    }
}

fn bar(plan: &Plan, group: &[Device], differ: (bool, bool), look: Look) -> Option<DeviceBar> {
    let first = group.first()?;
    let stage = plan.stages.get(first.stage)?;
    let predicted = stage.predicted_peak.as_ref()?;
    let breakdown = stage.breakdown.filter(|breakdown| breakdown.accounting == predicted.accounting);
    let parts = match &breakdown {
        Some(breakdown) => {
            let positive = |(place, (_, _, bytes)): (usize, (char, &str, i64))| {
                (bytes > 0).then_some((Some(place), bytes))
            };
            parts(breakdown).into_iter().enumerate().filter_map(positive).collect()
        }
        None => vec![(None, predicted.bytes.max(0))],
    };
    let capacity_bytes = Some(first.capacity_bytes).filter(|&capacity| capacity > 0);
    let measured =
        stage.measured_peak.as_ref().filter(|measured| measured.accounting == predicted.accounting);
    let high_bytes = stage.interval.as_ref().map(|interval| interval.high_bytes);
    let stages: Vec<String> =
        devices::stages_in_turn(plan, first.stage).map(|stage| stage.to_string()).collect();
    let mut bar = DeviceBar {
        label: format!("{}: {}", stages.join(", "), devices::names(group, look)),
        parts,
        peak_bytes: predicted.bytes.max(0),
        high_bytes,
        capacity_bytes,
        measured_bytes: measured.map(|measured| measured.bytes.max(0)),
        amount: String::new(),
        title: String::new(),
    };
    bar.amount = amount(stage, &bar, differ.0, differ.1);
    bar.title = title(&bar, stage, look);
    Some(bar)
}

fn widest(bars: &[DeviceBar], of: fn(&DeviceBar) -> &str) -> usize {
    bars.iter().map(|bar| cells(of(bar))).max().unwrap_or(0)
}

/// What stands beside a bar. Ledger and capacity are told where not all bars have the same.
fn amount(stage: &PlanStage, bar: &DeviceBar, accountings_differ: bool, capacities_differ: bool) -> String {
    let mut text = bytes(bar.peak_bytes);
    if let Some(predicted) = stage.predicted_peak.as_ref().filter(|_| accountings_differ) {
        text.push_str(&format!(" {}", accounting(predicted.accounting)));
    }
    if let Some(capacity) = bar.capacity_bytes {
        let of = if capacities_differ { format!(" of {}", bytes(capacity)) } else { String::new() };
        text.push_str(&format!("{of}, {}", percent(bar.peak_bytes as f64 / capacity as f64)));
    }
    if let Some(measured) = bar.measured_bytes {
        text.push_str(&format!(", measured {}", bytes(measured)));
    }
    text
}

fn title(bar: &DeviceBar, stage: &PlanStage, look: Look) -> String {
    let figure = |what: &str, figure: &MemoryFigure| {
        format!(
            "{what} {} ({} memory, {})",
            bytes(figure.bytes),
            accounting(figure.accounting),
            safe(&figure.producer)
        )
    };
    let mut facts = vec![format!("stage {}", bar.label)];
    facts.extend(stage.predicted_peak.as_ref().map(|predicted| figure("predicted peak", predicted)));
    match stage.coverage() {
        ProfileCoverage::Unspecified => {}
        origin => facts.push(word(origin.as_str_name(), "PROFILE_COVERAGE_")),
    }
    facts.extend(bar.high_bytes.map(|high| format!("at most {} with the margin", bytes(high))));
    facts.extend(stage.measured_peak.as_ref().map(|measured| figure("highest measured peak", measured)));
    facts.extend(bar.capacity_bytes.map(|capacity| format!("{} allowed to training", bytes(capacity))));
    facts.join(&format!(" {} ", look.dot()))
}

/// Leaves the fullest bars, and says what it took away.
fn keep_fullest(bars: &mut Vec<DeviceBar>) -> Option<String> {
    if bars.len() <= MOST_BARS {
        return None;
    }
    let mut order: Vec<usize> = (0..bars.len()).collect();
    order.sort_by(|&a, &b| bars[b].fullness().total_cmp(&bars[a].fullness()).then(a.cmp(&b)));
    let hidden = &order[MOST_BARS..];
    let fullest = hidden.first().map_or_else(String::new, |&at| bars[at].amount.clone());
    let note = format!("{} bars are not drawn; the highest of these: {fullest}", hidden.len());
    let kept: std::collections::BTreeSet<usize> = order[..MOST_BARS].iter().copied().collect();
    let mut at = 0;
    bars.retain(|_| {
        at += 1;
        kept.contains(&(at - 1))
    });
    Some(note)
}

fn source(plan: &Plan, common: Option<i32>) -> String {
    let origins = |of: &dyn Fn(&PlanStage) -> Option<&MemoryFigure>| {
        let mut all: Vec<String> =
            plan.stages.iter().filter_map(of).map(|figure| safe(&figure.producer)).collect();
        all.sort();
        all.dedup();
        all.truncate(5);
        all.join(", ")
    };
    let account = common
        .map_or_else(|| "several memory accountings".to_owned(), |of| format!("{} memory", accounting(of)));
    let predictors = origins(&|stage| stage.predicted_peak.as_ref());
    let mut text = format!("{account}; predicted by {predictors} from {}", safe(&plan.profile));
    let runs = origins(&|stage| stage.measured_peak.as_ref());
    if !runs.is_empty() {
        text.push_str(&format!("; measured in {runs}"));
    }
    text
}

/// Measured peaks of another memory accounting than the prediction share no scale with it and are not drawn.
fn unlike(plan: &Plan) -> Option<String> {
    let differ = |stage: &&PlanStage| match (&stage.predicted_peak, &stage.measured_peak) {
        (Some(predicted), Some(measured)) => predicted.accounting != measured.accounting,
        _ => false,
    };
    let hidden = plan.stages.iter().filter(differ).count();
    (hidden > 0).then(|| {
        format!(
            "measured peaks of {} are not drawn: the prediction counts different memory (allocated, reserved or \
             device)",
            plural(hidden, "stage")
        )
    })
}
