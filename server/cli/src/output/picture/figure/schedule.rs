//! One iteration as a timeline: what the devices of each stage do, and when they wait.

use loadmaster_proto::wire::v1::{
    Lane, PassSpan, Plan, PredictionOrigin, SimulatedSchedule, Timeline, pass_span,
};

use crate::text::label::{cells, safe, sentence};
use crate::text::{count, percent, plural, seconds, word};

/// Lanes that are drawn; of more, the first and the last.
const MOST_LANES: usize = 32;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Schedule {
    /// One per stage.
    pub(crate) lanes: Vec<Row>,
    /// Seconds at the right end, the same for all lanes; above 0.
    pub(crate) end_seconds: f64,
    /// Where the iteration ends: earlier than the right end beside a longer one.
    pub(crate) iteration_seconds: f64,
    /// Cells that the longest label and the longest share take; common to pictures side by side.
    pub(crate) columns: (usize, usize),
    /// `1f1b: 1.23 s per iteration, 18.2 % bubble`.
    pub(crate) summary: String,
    /// Where the numbers are from, and what is left out, for people.
    pub(crate) notes: Vec<String>,
}

/// What the devices of one stage do.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    /// `stage 3`; of the row that stands for lanes left out, how many they are.
    pub(crate) label: String,
    pub(crate) stage: usize,
    /// Its passes in order, each within the iteration.
    pub(crate) passes: Vec<Pass>,
    /// `busy 81.2 %`.
    pub(crate) busy: String,
    /// All that is known of the lane.
    pub(crate) title: String,
}

/// One pass, or the step at the end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Pass {
    pub(crate) kind: Kind,
    /// Which micro-batch, from 0.
    pub(crate) micro_batch: i32,
    /// Which chunk of the stage's layers.
    pub(crate) chunk: i32,
    /// Seconds since the start of the iteration, finite.
    pub(crate) start: f64,
    /// See start; not less.
    pub(crate) end: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Forward,
    Backward,
    /// Gradient synchronisation and optimizer step.
    Step,
}

impl Kind {
    /// All of them, in the order of legends.
    pub(crate) const ALL: [Self; 3] = [Self::Forward, Self::Backward, Self::Step];

    /// In words.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Step => "synchronisation and step",
        }
    }
}

impl Pass {
    fn of(span: &PassSpan) -> Option<Self> {
        let kind = match span.kind() {
            pass_span::Kind::Unspecified => return None,
            pass_span::Kind::Forward => Kind::Forward,
            pass_span::Kind::Backward => Kind::Backward,
            pass_span::Kind::Step => Kind::Step,
        };
        let (start, end) = (span.start_seconds, span.end_seconds);
        // Clocks start at 0, and no iteration that anybody waits for takes longer.
        let sane = |at: f64| (0.0..=1e12).contains(&at);
        let pass = Self { kind, micro_batch: span.micro_batch, chunk: span.chunk, start, end };
        (sane(start) && sane(end) && start <= end).then_some(pass)
    }

    /// All that is known of it.
    pub(crate) fn title(&self) -> String {
        let what = match self.kind {
            Kind::Step => self.kind.name().to_owned(),
            Kind::Forward | Kind::Backward if self.chunk > 0 => {
                format!("{} pass of micro-batch {}, chunk {}", self.kind.name(), self.micro_batch, self.chunk)
            }
            Kind::Forward | Kind::Backward => {
                format!("{} pass of micro-batch {}", self.kind.name(), self.micro_batch)
            }
        };
        let took = seconds(self.end - self.start);
        format!("{what}: {took}, from {} to {} (predicted)", seconds(self.start), seconds(self.end))
    }
}

impl Schedule {
    /// Of a plan's timeline; nothing where it has no lanes.
    pub(crate) fn of(plan: &Plan, timeline: &Timeline) -> Option<Self> {
        if timeline.lanes.is_empty() {
            return None;
        }
        let mut notes = Vec::new();
        let total = timeline.lanes.len();
        let half = if total > MOST_LANES { MOST_LANES / 2 } else { total };
        let mut lanes: Vec<Row> = timeline.lanes.iter().take(half).map(|lane| row(lane, timeline)).collect();
        if total > half {
            let label = format!("{} more", count(i64::try_from(total - 2 * half).unwrap_or(i64::MAX)));
            let stage = half;
            lanes.push(Row { label, stage, passes: Vec::new(), busy: String::new(), title: String::new() });
            lanes.extend(timeline.lanes.iter().skip(total - half).map(|lane| row(lane, timeline)));
            notes.push(format!("left out in the middle: {}", plural(total - 2 * half, "stage")));
        }
        let listed: usize = timeline.lanes.iter().map(|lane| lane.passes.len()).sum();
        let valid: usize = timeline.lanes.iter().flat_map(|lane| &lane.passes).filter_map(Pass::of).count();
        if valid < listed {
            notes.push(format!("{} passes without a valid time are not drawn", listed - valid));
        }
        if timeline.truncated {
            notes.push("later passes are left out of the answer; the totals count them".to_owned());
        }
        notes.push(source(plan));
        let trial = plan.validations.iter().find(|trial| trial.failure.is_empty());
        notes.extend(trial.map(|trial| {
            let took = seconds(trial.iteration_seconds);
            format!("measured: {took} per iteration in {}, under the plan's own schedule", safe(&trial.run))
        }));
        notes.extend(
            timeline.warnings.iter().take(20).map(|warning| format!("warning: {}", sentence(warning))),
        );
        let ends = lanes.iter().flat_map(|lane| &lane.passes).map(|pass| pass.end);
        let whole = Some(timeline.iteration_seconds).filter(|whole| (0.0..=1e12).contains(whole));
        let end_seconds = ends.chain(whole).fold(f64::MIN_POSITIVE, f64::max);
        let widest = |of: fn(&Row) -> &str| lanes.iter().map(|lane| cells(of(lane))).max().unwrap_or(0);
        let columns = (widest(|lane| &lane.label), widest(|lane| &lane.busy));
        let summary = summary(timeline);
        Some(Self { columns, lanes, end_seconds, iteration_seconds: end_seconds, summary, notes })
    }
}

fn summary(timeline: &Timeline) -> String {
    let order = match timeline.schedule() {
        SimulatedSchedule::Unspecified => "the plan's schedule".to_owned(),
        SimulatedSchedule::OneFOneB => "1f1b".to_owned(),
        order => word(order.as_str_name(), "SIMULATED_SCHEDULE_"),
    };
    format!(
        "{order}: {} per iteration, {} of the devices' time is bubble (predicted)",
        seconds(timeline.iteration_seconds),
        percent(timeline.bubble_ratio)
    )
}

/// Where the seconds are from.
fn source(plan: &Plan) -> String {
    let mut text = format!("predicted: simulated from the layer times of {}", safe(&plan.profile));
    let Some(iteration) = &plan.iteration else { return text };
    match iteration.origin() {
        PredictionOrigin::Unspecified => {}
        origin => text.push_str(&format!(" ({})", word(origin.as_str_name(), "PREDICTION_ORIGIN_"))),
    }
    if !iteration.links.is_empty() {
        text.push_str(&format!("; links: {}", sentence(&iteration.links)));
    }
    text
}

fn row(lane: &Lane, timeline: &Timeline) -> Row {
    let stage = usize::try_from(lane.stage).unwrap_or(0);
    let share = lane.busy_seconds / timeline.iteration_seconds;
    let busy = if share.is_finite() { format!("busy {}", percent(share)) } else { String::new() };
    let mut title = format!(
        "stage {stage}: busy for {} (predicted); at most {} micro-batch{} in flight",
        seconds(lane.busy_seconds),
        lane.in_flight,
        if lane.in_flight == 1 { "" } else { "es" }
    );
    if lane.weight_versions > 1 {
        title.push_str(&format!("; {} versions of the weights at once", lane.weight_versions));
    }
    let passes = lane.passes.iter().filter_map(Pass::of).collect();
    Row { label: format!("stage {stage}"), stage, passes, busy, title }
}

/// What a lane mostly does in each of `columns` equal pieces of `end` seconds; nothing where it mostly waits.
pub(crate) fn columns(passes: &[Pass], end: f64, columns: usize) -> Vec<Option<Kind>> {
    let mut weights = vec![[0.0_f64; 3]; columns];
    let scale = columns as f64 / end;
    for pass in passes {
        let (from, to) = (pass.start * scale, (pass.end * scale).min(columns as f64));
        let first = from.max(0.0) as usize;
        for (at, weight) in weights.iter_mut().enumerate().skip(first) {
            let overlap = (to.min(at as f64 + 1.0) - from.max(at as f64)).max(0.0);
            weight[pass.kind as usize] += overlap;
            if to <= at as f64 + 1.0 {
                break;
            }
        }
    }
    let most = |weight: &[f64; 3]| {
        let busy: f64 = weight.iter().sum();
        let (kind, _) =
            Kind::ALL.into_iter().zip(weight).reduce(|best, one| if one.1 > best.1 { one } else { best })?;
        (busy >= 0.5).then_some(kind)
    };
    weights.iter().map(most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(kind: Kind, start: f64, end: f64) -> Pass {
        Pass { kind, micro_batch: 0, chunk: 0, start, end }
    }

    /// Each piece of time shows what happens in most of it.
    #[test]
    fn columns_show_what_takes_most_of_the_time() {
        let passes = [pass(Kind::Forward, 0.0, 1.0), pass(Kind::Backward, 2.0, 4.0)];
        let (f, b) = (Some(Kind::Forward), Some(Kind::Backward));
        assert_eq!(columns(&passes, 4.0, 4), [f, None, b, b]);
        assert_eq!(columns(&passes, 4.0, 2), [f, b]);
        let many: Vec<Pass> =
            (0..1000).map(|at| pass(Kind::Forward, f64::from(at), f64::from(at) + 0.9)).collect();
        assert_eq!(columns(&many, 1000.0, 3), [f, f, f]);
        assert_eq!(columns(&passes, 4.0, 0), []);
    }
}
