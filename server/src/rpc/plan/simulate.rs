//! `SimulatePlan` and `ComparePlans`.

use std::collections::BTreeSet;
use std::time::Duration;

use loadmaster_proto::error::{Invalid, in_range};
use loadmaster_proto::name::PlanName;
use loadmaster_proto::training::Schedule;
use loadmaster_proto::training::schedule::Pass;
use loadmaster_proto::wire::{field, v1};

use super::message::number;
use super::{Plans, cores};
use crate::rpc::error::ApiError;
use crate::store::records::PlanRecord;
use loadmaster_planning::search::Seconds;
use loadmaster_planning::simulate::{Lane, Order, Overlap, Pipeline, Simulated, simulate};
use loadmaster_planning::time::Edge;
use loadmaster_proto::plan::Plan;

/// Passes that a timeline lists where the request names no number, and the most.
const DEFAULT_PASSES: usize = 10_000;
const MAX_PASSES: i32 = 100_000;
/// Chunks per device where the request names no number, and the most.
const DEFAULT_CHUNKS: u32 = 2;
const MAX_CHUNKS: i32 = 64;
/// Plans that may be compared.
const COMPARED: std::ops::RangeInclusive<usize> = 2..=8;
/// Passes of each plan that a comparison lists.
const COMPARED_PASSES: usize = 2_000;
/// How long a simulation may take; it heeds no stop, and ends because its passes are limited.
const PATIENCE: Duration = Duration::from_secs(60);

impl Plans {
    pub(super) async fn simulate(&self, request: v1::SimulatePlanRequest) -> Result<v1::Timeline, ApiError> {
        let name = PlanName::parse("name", &request.name)?;
        let listed = match in_range("max_passes", request.max_passes, 0..=MAX_PASSES)? {
            0 => DEFAULT_PASSES,
            most => most.unsigned_abs() as usize,
        };
        let chunks: u32 =
            field("virtual_stages", in_range("virtual_stages", request.virtual_stages, 0..=MAX_CHUNKS)?)?;
        let asked = v1::SimulatedSchedule::try_from(request.schedule)
            .map_err(|_| Invalid::field("schedule", format!("{} is unknown", request.schedule)))?;
        if chunks != 0 && asked != v1::SimulatedSchedule::Interleaved {
            let why = "is of SIMULATED_SCHEDULE_INTERLEAVED alone: leave it out, or name that schedule";
            return Err(Invalid::field("virtual_stages", why).into());
        }
        let chunks = if chunks == 0 { DEFAULT_CHUNKS } else { chunks };
        let overlap = field("transfers", request.transfers)?;
        let record = self.store.get_plan(&name).await?;
        // All passes are in memory at once, so only as many simulations as searches run beside each other.
        let simulation =
            self.searches.run(PATIENCE, move |_| timeline(&record, asked, overlap, chunks, listed));
        let (timeline, _) = simulation.await?;
        Ok(timeline)
    }

    pub(super) async fn compare(
        &self,
        request: v1::ComparePlansRequest,
    ) -> Result<v1::ComparePlansResponse, ApiError> {
        in_range("names", request.names.len(), COMPARED)?;
        let mut plans = Vec::with_capacity(request.names.len());
        let mut records = Vec::with_capacity(request.names.len());
        for (index, name) in request.names.iter().enumerate() {
            let record = self.store.get_plan(&PlanName::parse(&format!("names[{index}]"), name)?).await?;
            plans.push(self.with_trials(&record).await?);
            records.push(record);
        }
        let mut warnings = incomparable(&records);
        let notes: BTreeSet<String> =
            records.iter().filter_map(|record| cores::of_plan(&record.content)).collect();
        warnings.extend(notes);
        let simulations = self.searches.run(PATIENCE, move |_| {
            let own = v1::SimulatedSchedule::Unspecified;
            let (mut timelines, mut lacking) = (Vec::new(), Vec::new());
            for record in records.iter().filter(|record| pipeline_of(&record.content).is_some()) {
                match timeline(record, own, None, 1, COMPARED_PASSES) {
                    Ok(timeline) => timelines.push(timeline),
                    // The other figures are compared all the same.
                    Err(error) => lacking.push(format!("{} has no timeline: {error}", record.name)),
                }
            }
            Ok((timelines, lacking))
        });
        let ((timelines, lacking), _) = simulations.await?;
        warnings.extend(lacking);
        Ok(v1::ComparePlansResponse { plans, timelines, warnings })
    }
}

/// What makes the numbers of plans incomparable.
fn incomparable(records: &[PlanRecord]) -> Vec<String> {
    let differ = |of: &dyn Fn(&Plan) -> String| {
        let values: BTreeSet<String> = records.iter().map(|record| of(&record.content)).collect();
        (values.len() > 1).then(|| values.into_iter().collect::<Vec<_>>().join(", "))
    };
    let mut warnings = Vec::new();
    if let Some(models) = differ(&|content| content.model.to_string()) {
        warnings.push(format!("the plans are of different models: {models}"));
    }
    if let Some(batches) = differ(&|content| content.training.global_batch_size().to_string()) {
        warnings.push(format!(
            "an iteration has different numbers of samples ({batches}): compare samples per second, not seconds"
        ));
    }
    if let Some(ledgers) = differ(&|content| content.ledger.as_str().to_owned()) {
        warnings.push(format!("bytes are of different ledgers ({ledgers}) and must not be compared"));
    }
    if let Some(profiles) = differ(&|content| content.profile.to_string()) {
        warnings.push(format!("the predictions come from different profiles: {profiles}"));
    }
    if let Some(predictors) = differ(&|content| content.predictor.clone()) {
        warnings.push(format!("the predictions come from different predictors: {predictors}"));
    }
    let corrected = |content: &Plan| {
        let versions: Vec<&str> =
            content.found.corrections.iter().map(|correction| correction.version.as_str()).collect();
        if versions.is_empty() { "none".to_owned() } else { versions.join("+") }
    };
    if let Some(versions) = differ(&corrected) {
        warnings.push(format!("the predictions are corrected differently: {versions}"));
    }
    let overlaps: BTreeSet<String> = records
        .iter()
        .filter_map(|record| Some(record.content.found.iteration.as_ref()?.overlap.to_string()))
        .collect();
    if overlaps.len() > 1 {
        let overlaps = overlaps.into_iter().collect::<Vec<_>>().join(", ");
        warnings.push(format!("the seconds are of different transfers between stages: {overlaps}"));
    }
    warnings
}

/// Seconds of a plan's stages and edges; none where its profile has no times.
fn pipeline_of(content: &Plan) -> Option<(Vec<Seconds>, Vec<Edge>)> {
    let stages: Option<Vec<Seconds>> = content
        .stages
        .iter()
        .map(|stage| {
            stage.seconds.map(|of| Seconds { forward: of.forward, backward: of.backward, step: of.step })
        })
        .collect();
    let stages = stages?;
    let edges: Vec<Edge> = content.found.edge_seconds.iter().map(|&both| Edge::halves(both)).collect();
    (edges.len() + 1 == stages.len()).then_some((stages, edges))
}

fn timeline(
    record: &PlanRecord,
    asked: v1::SimulatedSchedule,
    overlap: Option<Overlap>,
    chunks: u32,
    listed: usize,
) -> Result<v1::Timeline, ApiError> {
    let content = &record.content;
    let Some((stages, edges)) = pipeline_of(content) else {
        return Err(ApiError::NoTimes { plan: record.name.to_string() });
    };
    let devices = number(stages.len()).unsigned_abs();
    let (schedule, order) = match asked {
        v1::SimulatedSchedule::Unspecified => match content.training.schedule {
            Schedule::Gpipe => (v1::SimulatedSchedule::Gpipe, Order::Gpipe),
            Schedule::OneFOneB => (v1::SimulatedSchedule::OneFOneB, Order::OneFOneB),
        },
        v1::SimulatedSchedule::Gpipe => (asked, Order::Gpipe),
        v1::SimulatedSchedule::OneFOneB => (asked, Order::OneFOneB),
        v1::SimulatedSchedule::Interleaved => (asked, Order::Interleaved { devices }),
        v1::SimulatedSchedule::Pipedream => (asked, Order::PipeDream),
    };
    let predicted = content.found.iteration.as_ref().map(|of| of.overlap);
    let overlap = overlap.or(predicted).unwrap_or_default();
    let mut warnings: Vec<String> = cores::of_plan(content).into_iter().collect();
    let (stages, edges) = if schedule == v1::SimulatedSchedule::Interleaved {
        warnings.push(format!(
            "each device is taken to hold {chunks} chunks with an equal share of its stage's time; the plan's own cuts \
             are those of one chunk each"
        ));
        interleaved(&stages, &edges, chunks)
    } else {
        (stages, edges)
    };
    if schedule != own_schedule(content) {
        warnings.push(
            "the plan's memory was predicted for its own schedule: another one may hold more micro-batches at once"
                .to_owned(),
        );
    }
    let simulated = simulate(&Pipeline {
        stages: &stages,
        edges: &edges,
        micro_batches: content.training.micro_batches,
        order,
        overlap,
    });
    let simulated = simulated.map_err(|error| Invalid::field("schedule", error.to_string()))?;
    let (lanes, truncated) = lanes(&simulated, listed);
    Ok(v1::Timeline {
        plan: record.name.to_string(),
        schedule: schedule.into(),
        lanes,
        iteration_seconds: simulated.iteration_seconds,
        bubble_ratio: simulated.bubble,
        truncated,
        warnings,
        transfers: v1::Transfers::from(overlap).into(),
    })
}

fn own_schedule(content: &Plan) -> v1::SimulatedSchedule {
    match content.training.schedule {
        Schedule::Gpipe => v1::SimulatedSchedule::Gpipe,
        Schedule::OneFOneB => v1::SimulatedSchedule::OneFOneB,
    }
}

/// Chunks of equal parts of each stage's time. The edge from the last device back to the first one is taken to be
/// as slow as the slowest of the others.
fn interleaved(stages: &[Seconds], edges: &[Edge], chunks: u32) -> (Vec<Seconds>, Vec<Edge>) {
    let share = 1.0 / f64::from(chunks.max(1));
    let (mut parts, mut ways) = (Vec::new(), Vec::new());
    let back =
        edges.iter().copied().reduce(|a, b| if a.both() >= b.both() { a } else { b }).unwrap_or_default();
    for chunk in 0..chunks {
        for (index, stage) in stages.iter().enumerate() {
            parts.push(Seconds {
                forward: stage.forward * share,
                backward: stage.backward * share,
                step: stage.step * share,
            });
            let is_last = chunk + 1 == chunks && index + 1 == stages.len();
            if !is_last {
                ways.push(edges.get(index).copied().unwrap_or(back));
            }
        }
    }
    (parts, ways)
}

/// What each device does, and whether passes were left out.
fn lanes(simulated: &Simulated, listed: usize) -> (Vec<v1::Lane>, bool) {
    let devices = simulated.lanes.len();
    // Every lane shows as much of its beginning.
    let each = listed / devices.max(1);
    let longest = simulated.lanes.iter().map(|lane| lane.passes.len()).max().unwrap_or(0);
    let lanes = simulated.lanes.iter().enumerate().map(|(device, lane)| v1::Lane {
        stage: number(device),
        passes: spans(lane, each, devices),
        busy_seconds: lane.busy,
        in_flight: simulated.at_once.get(device).copied().map_or(0, number),
        weight_versions: simulated.weight_versions.get(device).copied().map_or(1, number),
    });
    (lanes.collect(), longest > each)
}

fn spans(lane: &Lane, most: usize, devices: usize) -> Vec<v1::PassSpan> {
    use v1::pass_span::Kind;
    let span = |kind: Kind, micro_batch: u32, chunk: usize, start: f64, end: f64| v1::PassSpan {
        kind: kind.into(),
        micro_batch: number(micro_batch),
        chunk: number(chunk),
        start_seconds: start,
        end_seconds: end,
    };
    let passes = lane.passes.iter().take(most).map(|timed| {
        let chunk = timed.stage as usize / devices.max(1);
        match timed.pass {
            Pass::Forward(index) => span(Kind::Forward, index, chunk, timed.start, timed.end),
            Pass::Backward(index) => span(Kind::Backward, index, chunk, timed.start, timed.end),
        }
    });
    let step = lane.step.map(|(start, end)| span(Kind::Step, 0, 0, start, end));
    passes.chain(step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Interleaved, a device has at most what its chunks hold at the same moment: as many as go forward before the
    /// first one comes back. Its chunks are full one after another; added up, that would be 12, 12, 10 and 6.
    #[test]
    fn a_device_of_chunks_holds_what_they_hold_at_once() {
        let stage = Seconds { forward: 1.0, backward: 2.0, step: 0.0 };
        let (devices, micro_batches) = (4, 8);
        let (stages, edges) = interleaved(&[stage; 4], &[Edge::default(); 3], 2);
        let order = Order::Interleaved { devices };
        let overlap = Overlap::Computing;
        let pipeline = Pipeline { stages: &stages, edges: &edges, micro_batches, order, overlap };
        let (lanes, truncated) = lanes(&simulate(&pipeline).unwrap(), 1_000);
        let held: Vec<i32> = lanes.iter().map(|lane| lane.in_flight).collect();
        assert_eq!((held, truncated), (vec![11, 9, 7, 5], false));
        let open = lanes[0].passes.iter().scan(0, |open, pass| {
            *open += if pass.kind() == v1::pass_span::Kind::Forward { 1 } else { -1 };
            Some(*open)
        });
        // The step that ends the lane is no backward pass.
        assert_eq!(open.max(), Some(11));
    }
}
