//! What the device of a plan in chunks holds, step by step: chunks, and what is there besides.

use std::ops::Range;

use loadmaster_proto::wire::v1::{ChunkTraffic, Plan, PlanStage};

use super::pieces::Pieces;
use super::residency::Residency;
use super::timeline::TOO_FAR;
use crate::text::label::{cells, safe};
use crate::text::{bytes, plural};

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StepBytes {
    /// `at most 1.90 GiB of 2.00 GiB, in step 12 (predicted); measured 1.80 GiB, in step 12`.
    pub label: String,
    /// In each step, as it was predicted; as it was measured where nothing was.
    pub held: Vec<DeviceBytes>,
    /// Which of the two.
    pub source: &'static str,
    /// What was measured beside a prediction, in each step; empty without.
    pub measured: Vec<i64>,
    /// Steps of an iteration, above 0.
    pub steps: usize,
    /// What the device allows; none where nothing was given, or it is far above all that is held.
    pub capacity_bytes: Option<i64>,
    /// Bytes at the upper end.
    pub scale_bytes: i64,
    /// Cells beside the chart.
    pub names: usize,
    /// Where the numbers are from, and what is left out, for people.
    pub notes: Vec<String>,
}

/// Bytes of a device in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct DeviceBytes {
    /// Besides chunks: N(t).
    pub other: i64,
    /// Of chunks: R(t).
    pub chunks: i64,
}

impl DeviceBytes {
    pub(crate) fn total(self) -> i64 {
        self.other.saturating_add(self.chunks)
    }
}

impl StepBytes {
    /// Of a plan in chunks; nothing where nobody says what each step holds.
    pub(crate) fn of(plan: &Plan) -> Option<Self> {
        let stage = plan.stages.iter().find(|stage| stage.chunked_training.is_some())?;
        let known = |run: &Option<ChunkTraffic>| run.as_ref().map(listed).filter(|held| !held.is_empty());
        let mut notes = vec!["allocated bytes of tensors: the maximum of each step".to_owned()];
        let (held, source, measured) = match (
            known(&stage.chunk_traffic),
            known(&stage.measured_chunk_traffic),
        ) {
            (Some(predicted), Some(measured)) if predicted.len() == measured.len() => {
                (predicted, "predicted", measured.into_iter().map(DeviceBytes::total).collect())
            }
            (Some(predicted), measured) => {
                let note = |measured: Vec<DeviceBytes>| {
                    let (one, other) = (plural(measured.len(), "step"), predicted.len());
                    format!(
                        "the measured bytes are not drawn: they are of {one}, the predicted bytes of {other}"
                    )
                };
                notes.extend(measured.map(note));
                (predicted, "predicted", Vec::new())
            }
            (None, measured) => (measured?, "measured", Vec::new()),
        };
        let totals = || held.iter().map(|held| held.total()).chain(measured.iter().copied());
        let most = totals().max().unwrap_or(0);
        let given = Some(stage.capacity_bytes).filter(|&capacity| capacity > 0);
        let capacity_bytes = given.filter(|&capacity| capacity / TOO_FAR <= most);
        if given.is_some() && capacity_bytes.is_none() {
            notes.push("the capacity is far above the highest peak, and is not drawn".to_owned());
        }
        notes.push(on_host(stage));
        notes.push(origin(stage, plan));
        let scale_bytes = capacity_bytes.unwrap_or(0).max(most).max(1);
        let label = label(stage, &held, source, &measured);
        let names =
            [Some(scale_bytes), capacity_bytes].into_iter().flatten().map(|of| cells(&bytes(of))).max();
        let names = names.unwrap_or(0);
        let steps = held.len();
        Some(Self { label, held, source, measured, steps, capacity_bytes, scale_bytes, names, notes })
    }

    /// Lays it out below this, so that steps lie below each other.
    pub(crate) fn align(&mut self, above: &mut Residency) {
        (self.names, self.steps) = (self.names.max(above.names), self.steps.max(above.steps));
        (above.names, above.steps) = (self.names, self.steps);
    }

    /// The fullest step of each of at most so many columns.
    pub(crate) fn columns(&self, most: usize) -> Vec<DeviceBytes> {
        let fullest = |steps: Range<usize>| {
            let own = self.held.iter().take(steps.end).skip(steps.start);
            own.copied().max_by_key(|held| held.total()).unwrap_or_default()
        };
        Pieces::new(self.steps, most).ranges().map(fullest).collect()
    }

    /// The most that was measured in each of at most so many columns; empty where nothing was, beside a prediction.
    pub(crate) fn measured_columns(&self, most: usize) -> Vec<i64> {
        if self.measured.is_empty() {
            return Vec::new();
        }
        let highest = |steps: Range<usize>| {
            self.measured.iter().take(steps.end).skip(steps.start).copied().max().unwrap_or(0)
        };
        Pieces::new(self.steps, most).ranges().map(highest).collect()
    }

    /// What a column of so many is.
    pub(crate) fn meaning(&self, columns: usize) -> Option<String> {
        let steps = Pieces::new(self.steps, columns).largest();
        (steps > 1).then(|| {
            format!("up to {} are drawn as one column: the step with the most memory", plural(steps, "step"))
        })
    }
}

/// What each step holds, as far as both parts are known.
fn listed(run: &ChunkTraffic) -> Vec<DeviceBytes> {
    let both = run.non_chunk_step_bytes.iter().zip(&run.chunk_step_bytes);
    both.map(|(&other, &chunks)| DeviceBytes { other: other.max(0), chunks: chunks.max(0) }).collect()
}

fn label(stage: &PlanStage, held: &[DeviceBytes], source: &str, measured: &[i64]) -> String {
    let most = held.iter().map(|held| held.total()).max().unwrap_or(0);
    let step = held.iter().position(|held| held.total() == most).unwrap_or(0);
    let mut text = format!("at most {}", bytes(most));
    if stage.capacity_bytes > 0 {
        text.push_str(&format!(" of {}", bytes(stage.capacity_bytes)));
    }
    text.push_str(&format!(", in step {step} ({source})"));
    if let Some(&highest) = measured.iter().max() {
        let step = measured.iter().position(|&of| of == highest).unwrap_or(0);
        text.push_str(&format!("; measured {}, in step {step}", bytes(highest)));
    }
    text
}

/// What the host has of it, which no step changes.
fn on_host(stage: &PlanStage) -> String {
    let runs = [(&stage.chunk_traffic, "predicted"), (&stage.measured_chunk_traffic, "measured")];
    let known = runs.into_iter().filter_map(|(run, source)| Some((run.as_ref()?.host_bytes, source)));
    let texts: Vec<String> = known.map(|(host, source)| format!("{} ({source})", bytes(host))).collect();
    let pool = stage.memory_optimizations.as_ref().map_or(0, |of| of.host_pool_bytes);
    let activations =
        if pool > 0 { format!(", and a pool of {} for activations", bytes(pool)) } else { String::new() };
    format!("in CPU memory: {} in every step{activations}", texts.join(", "))
}

/// Where the numbers are from.
fn origin(stage: &PlanStage, plan: &Plan) -> String {
    let by = |figure: &Option<loadmaster_proto::wire::v1::MemoryFigure>| {
        figure.as_ref().map(|figure| safe(&figure.producer)).filter(|origin| !origin.is_empty())
    };
    let mut parts = Vec::new();
    if stage.chunk_traffic.is_some() {
        let predictor = by(&stage.predicted_peak).map_or_else(String::new, |origin| format!(" by {origin}"));
        parts.push(format!("predicted{predictor} from {}", safe(&plan.profile)));
    }
    if stage.measured_chunk_traffic.is_some() {
        let run = by(&stage.measured_peak).map_or_else(String::new, |origin| format!(" in {origin}"));
        parts.push(format!("measured{run}"));
    }
    parts.join("; ")
}
