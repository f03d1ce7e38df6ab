//! `SimulatePlan` and `ComparePlans`.

use std::collections::BTreeSet;
use std::time::Duration;

use loadmaster_predict::cores;
use loadmaster_proto::error::{Invalid, in_range};
use loadmaster_proto::name::PlanName;
use loadmaster_proto::plan::compatibility::{Setting, Settings};
use loadmaster_proto::training::schedule::Pass;
use loadmaster_proto::warning::{Warning, WarningCode};
use loadmaster_proto::wire::{field, v1};
use loadmaster_recommend::incomparable;
use loadmaster_simulate::{AskedOrder, Lane, Order, Overlap, Simulated};

use super::message::number;
use super::search::SearchTerms;
use super::timeline::{self, AskedMemory};
use super::{Plans, chunk_timeline};
use crate::rpc::error::ApiError;
use crate::store::records::PlanRecord;

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
/// What a timeline of a plan in chunks says without its lanes.
const UNTOLD_CHUNKS: &str = "the plan uses chunked training. The timeline shows the passes without the copies of chunks between \
                             CPU memory and device. The optimizer step at its end also contains the time of these copies.";
/// How long a simulation may take; it heeds no stop, and ends because its passes are limited.
const PATIENCE: Duration = Duration::from_secs(60);

impl Plans {
    pub(super) async fn simulate(
        &self,
        request: v1::SimulatePlanRequest,
        terms: &SearchTerms,
    ) -> Result<v1::Timeline, ApiError> {
        let name = PlanName::parse("name", &request.name)?;
        let listed = match in_range("max_pass_count", request.max_pass_count, 0..=MAX_PASSES)? {
            0 => DEFAULT_PASSES,
            most => most.unsigned_abs() as usize,
        };
        let chunks: u32 = field(
            "virtual_stages",
            in_range("virtual_stages", request.virtual_stage_count, 0..=MAX_CHUNKS)?,
        )?;
        let asked = v1::SimulatedSchedule::try_from(request.schedule)
            .map_err(|_| Invalid::field("schedule", format!("{} is unknown", request.schedule)))?;
        Settings::default()
            .when(chunks != 0, Setting::VirtualStages)
            .when(asked != v1::SimulatedSchedule::Interleaved, Setting::FlatSchedule)
            .check()?;
        let overlap: Option<Overlap> = field("communication_overlap", request.communication_overlap)?;
        let record = self.store.get_plan(&name).await?;
        let own = record.content.found.iteration.as_ref().map(|of| of.overlap);
        // What names the plan's own asks for the plan as it was predicted.
        let overlap = overlap.filter(|_| overlap != own);
        let usual =
            if record.content.is_interleaved() { record.content.virtual_stages } else { DEFAULT_CHUNKS };
        let chunks = if chunks == 0 { usual } else { chunks };
        let asked = match asked {
            v1::SimulatedSchedule::Unspecified => AskedOrder::Own,
            v1::SimulatedSchedule::Gpipe => AskedOrder::Gpipe,
            v1::SimulatedSchedule::OneFOneB => AskedOrder::OneFOneB,
            v1::SimulatedSchedule::Interleaved => AskedOrder::Interleaved { chunks },
            v1::SimulatedSchedule::Pipedream => AskedOrder::PipeDream,
        };
        let asked = asked.or_own(&record.content);
        let memory = self.memory_of(&record, request.include_memory).await;
        // All passes are in memory at once, so only as many simulations as searches run beside each other.
        let simulation =
            self.searches.run(terms, PATIENCE, move |_| timeline(&record, asked, overlap, listed, &memory));
        let (timeline, _) = simulation.await?;
        Ok(timeline)
    }

    pub(super) async fn compare(
        &self,
        request: v1::ComparePlansRequest,
        terms: &SearchTerms,
    ) -> Result<v1::ComparePlansResponse, ApiError> {
        in_range("names", request.names.len(), COMPARED)?;
        let mut plans = Vec::with_capacity(request.names.len());
        let mut records = Vec::with_capacity(request.names.len());
        for (index, name) in request.names.iter().enumerate() {
            let record = self.store.get_plan(&PlanName::parse(&format!("names[{index}]"), name)?).await?;
            plans.push(self.with_trials(&record).await?);
            records.push(record);
        }
        let mut warnings = incomparable(&records.iter().map(|record| &record.content).collect::<Vec<_>>());
        let notes: BTreeSet<Warning> =
            records.iter().filter_map(|record| cores::of_plan(&record.content)).collect();
        warnings.extend(notes);
        let mut memories = Vec::with_capacity(records.len());
        for record in &records {
            memories.push(self.memory_of(record, request.include_memory).await);
        }
        let simulations = self.searches.run(terms, PATIENCE, move |_| {
            let (mut timelines, mut lacking) = (Vec::new(), Vec::new());
            let records = records.iter().zip(&memories);
            for (record, memory) in
                records.filter(|(record, _)| loadmaster_simulate::has_times(&record.content))
            {
                match timeline(record, AskedOrder::Own, None, COMPARED_PASSES, memory) {
                    Ok(timeline) => timelines.push(timeline),
                    // The other figures are compared all the same.
                    Err(error) => {
                        let why = format!("{} has no timeline: {error}", record.name);
                        lacking.push(WarningCode::TimelineIncomplete.says(why));
                    }
                }
            }
            Ok((timelines, lacking))
        });
        let ((timelines, lacking), _) = simulations.await?;
        warnings.extend(lacking);
        Ok(v1::ComparePlansResponse {
            plans,
            timelines,
            warnings: loadmaster_proto::warning::sent(&warnings),
        })
    }
}

fn timeline(
    record: &PlanRecord,
    asked: AskedOrder,
    overlap: Option<Overlap>,
    listed: usize,
    memory: &AskedMemory,
) -> Result<v1::Timeline, ApiError> {
    let plan = &record.content;
    let timeline = loadmaster_simulate::timeline(plan, asked, overlap)
        .map_err(|error| Invalid::field("schedule", error.to_string()))?;
    let Some(timeline) = timeline else {
        return Err(ApiError::NoTimes { plan: record.name.to_string() });
    };
    let (lanes, truncated) = lanes(&timeline.simulated, listed);
    let mut answer = v1::Timeline {
        plan: record.name.to_string(),
        schedule: match timeline.order {
            Order::Gpipe => v1::SimulatedSchedule::Gpipe,
            Order::OneFOneB => v1::SimulatedSchedule::OneFOneB,
            Order::Interleaved { .. } => v1::SimulatedSchedule::Interleaved,
            Order::PipeDream => v1::SimulatedSchedule::Pipedream,
        }
        .into(),
        stage_timelines: lanes,
        iteration_seconds: timeline.simulated.iteration_seconds,
        bubble_ratio: timeline.simulated.bubble,
        truncated,
        warnings: cores::of_plan(plan).into_iter().chain(timeline.warnings).map(Into::into).collect(),
        communication_overlap: v1::CommunicationOverlap::from(timeline.overlap).into(),
        ..v1::Timeline::default()
    };
    let of_chunks = match asked {
        AskedOrder::Own if plan.is_interleaved() && overlap.is_none() => Some(plan.virtual_stages),
        // Copies are told of the plan's own transfers alone.
        AskedOrder::Interleaved { chunks } if overlap.is_none() => Some(chunks),
        _ => None,
    };
    if let Some(chunks) = of_chunks {
        let acts = plan.is_interleaved() || plan.stages.iter().any(|stage| !stage.actions.is_empty());
        match memory.interleaved(plan, chunks).filter(|_| acts) {
            None => {}
            Some(Ok(interleaved)) => timeline::tell_interleaved(&mut answer, &interleaved, listed),
            Some(Err(why)) => {
                let why = format!("copies and memory are not shown: {why}");
                answer.warnings.push(WarningCode::TimelineIncomplete.says(why).into());
            }
        }
        return Ok(answer);
    }
    if plan.is_interleaved() {
        return Ok(answer);
    }
    let is_in_chunks = plan.stages.iter().any(|stage| stage.chunks.is_some());
    let told = if is_in_chunks {
        let of = memory.in_chunks(plan, asked, overlap);
        of.map(|of| of.map(|of| chunk_timeline::tell(&mut answer, plan, &of, listed)))
    } else {
        let of = memory.over_time(plan, asked, overlap);
        of.map(|of| of.map(|of| timeline::tell(&mut answer, plan, &of, listed)))
    };
    if is_in_chunks && !matches!(told, Some(Ok(()))) {
        answer.warnings.push(WarningCode::CopiesNotSimulated.says(UNTOLD_CHUNKS).into());
    }
    if let Some(Err(why)) = told {
        let why = format!("copies and memory over time are not shown: {why}");
        answer.warnings.push(WarningCode::TimelineIncomplete.says(why).into());
    }
    Ok(answer)
}

/// What each device does, and whether passes were left out.
fn lanes(simulated: &Simulated, listed: usize) -> (Vec<v1::StageTimeline>, bool) {
    let devices = simulated.lanes.len();
    // Every lane shows as much of its beginning.
    let each = listed / devices.max(1);
    let longest = simulated.lanes.iter().map(|lane| lane.passes.len()).max().unwrap_or(0);
    let lanes = simulated.lanes.iter().enumerate().map(|(device, lane)| v1::StageTimeline {
        stage: number(device),
        passes: spans(lane, each, devices),
        busy_seconds: lane.busy,
        in_flight_micro_batch_count: simulated.at_once.get(device).copied().map_or(0, number),
        weight_version_count: simulated.weight_versions.get(device).copied().map_or(1, number),
        ..v1::StageTimeline::default()
    });
    (lanes.collect(), longest > each)
}

pub(super) fn spans(lane: &Lane, most: usize, devices: usize) -> Vec<v1::PassSpan> {
    use v1::pass_span::Kind;
    let span = |kind: Kind, micro_batch: u32, chunk: usize, start: f64, end: f64| v1::PassSpan {
        kind: kind.into(),
        micro_batch: number(micro_batch),
        virtual_stage: number(chunk),
        start_seconds: start,
        end_seconds: end,
        ..v1::PassSpan::default()
    };
    let passes = lane.passes.iter().take(most).map(|timed| {
        let chunk = timed.stage as usize / devices.max(1);
        match timed.pass {
            Pass::Forward(index) => span(Kind::Forward, index, chunk, timed.start, timed.end),
            Pass::Backward(index) => span(Kind::Backward, index, chunk, timed.start, timed.end),
        }
    });
    let step = lane.step.map(|(start, end)| span(Kind::OptimizerStep, 0, 0, start, end));
    passes.chain(step).collect()
}
