//! The front between memory and time: every plan that no other one beats in both.

use loadmaster_proto::wire::v1::Plan;

use crate::devices::notation;
use crate::table::{accounting, common_accounting};
use crate::text::label::safe;
use crate::text::terminal_abilities::Look;
use crate::text::{bytes, count, plural, seconds};

/// Points that are drawn; of more, some of them.
const MOST_POINTS: usize = 500;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Front {
    /// In the order of the answer.
    pub points: Vec<Point>,
    /// `peak bytes, allocated memory`.
    pub bytes_axis: String,
    /// `seconds per iteration`.
    pub seconds_axis: &'static str,
    /// How many points the front has, in a sentence.
    pub summary: String,
    /// Where the numbers are from, and what is left out, for people.
    pub notes: Vec<String>,
}

/// One plan of the front.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Point {
    /// Predicted peak of the fullest device.
    pub bytes: f64,
    /// Predicted seconds of one iteration.
    pub seconds: f64,
    /// Whether it is the plan that the picture is of.
    pub chosen: bool,
    /// `8-8d2-7, micro-batch 4`.
    pub label: String,
    /// All that is known of it.
    pub title: String,
}

impl Front {
    /// Of a plan; nothing where it has no front, or one of several memory accountings, which share no axis.
    pub(crate) fn of(plan: &Plan, look: Look) -> Option<Self> {
        let figures = || plan.front.iter().filter_map(|point| point.predicted_peak.as_ref());
        let common = common_accounting(figures())?;
        let all: Vec<Point> = plan.front.iter().filter_map(|point| dot(plan, point, look)).collect();
        let mut notes = Vec::new();
        let points = thinned(all, &mut notes);
        if points.is_empty() {
            return None;
        }
        let mut origins: Vec<String> = figures().map(|figure| safe(&figure.producer)).collect();
        origins.sort();
        origins.dedup();
        origins.truncate(5);
        notes.insert(
            0,
            format!(
                "{} memory, predicted by {} from {}; seconds {} (predicted)",
                accounting(common),
                origins.join(", "),
                safe(&plan.profile),
                // Older fronts were found by it.
                if plan.solver.starts_with("time/") { "by AMP's closed form" } else { "simulated" },
            ),
        );
        Some(Self {
            points,
            bytes_axis: format!("highest predicted peak of a device, bytes, {} memory", accounting(common)),
            seconds_axis: "predicted seconds per iteration",
            summary: format!(
                "{}: no other plan is better in both memory and time",
                plural(plan.front.len(), "plan")
            ),
            notes,
        })
    }

    /// Least and most bytes.
    pub(crate) fn bytes_range(&self) -> (f64, f64) {
        range(self.points.iter().map(|point| point.bytes))
    }

    /// Least and most seconds.
    pub(crate) fn seconds_range(&self) -> (f64, f64) {
        range(self.points.iter().map(|point| point.seconds))
    }
}

/// The range of some values with a little room around it; of one value, a range around it.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values.fold((f64::INFINITY, 0.0_f64), |(low, high), at| (low.min(at), high.max(at)));
    let room = if high > low { (high - low) * 0.06 } else { (high * 0.1).max(1e-9) };
    ((low - room).max(0.0), high + room)
}

fn dot(plan: &Plan, point: &loadmaster_proto::wire::v1::FrontPoint, look: Look) -> Option<Point> {
    let peak = point.predicted_peak.as_ref()?;
    let valid = (0.0..=1e12).contains(&point.iteration_seconds);
    let stages = || point.pipeline_layout.iter().flat_map(|of| &of.stages);
    // The plan that has the front is no point of it by name, only by what it is.
    let is_same = || {
        stages().eq(plan.stages.iter().filter_map(|stage| stage.config.as_ref()))
            && plan.training.as_ref().is_some_and(|of| of.micro_batch_size == point.micro_batch_size)
            && plan.predicted_peak.as_ref().is_some_and(|of| of.bytes == peak.bytes)
    };
    let chosen = point.plan == plan.name || is_same();
    let label = format!("{}, micro-batch {}", notation(stages()), point.micro_batch_size);
    let separator = format!(" {} ", look.dot());
    let mut facts = vec![label.clone(), bytes(peak.bytes), seconds(point.iteration_seconds)];
    if !point.plan.is_empty() {
        facts.push(safe(&point.plan));
    }
    let title = facts.join(&separator);
    let bytes = peak.bytes.max(0) as f64;
    valid.then_some(Point { bytes, seconds: point.iteration_seconds, chosen, label, title })
}

/// At most [`MOST_POINTS`] of them: both ends, the chosen one, and evenly spread ones between.
fn thinned(all: Vec<Point>, notes: &mut Vec<String>) -> Vec<Point> {
    let total = all.len();
    if total <= MOST_POINTS {
        return all;
    }
    notes.push(format!(
        "{} of {} points are drawn, evenly spread",
        MOST_POINTS,
        count(i64::try_from(total).unwrap_or(i64::MAX))
    ));
    let wanted = |at: usize| (at * (total - 1)).div_ceil(MOST_POINTS - 1);
    let mut next = 0;
    let keep = |(at, point): (usize, Point)| {
        let due = at >= wanted(next);
        if due {
            next += 1;
        }
        (due || point.chosen).then_some(point)
    };
    all.into_iter().enumerate().filter_map(keep).collect()
}
