//! Plans and predictions as messages.

use loadmaster_predict::cores;
use loadmaster_predict::forecast::{Excluded, Forecast, StageForecast};
use loadmaster_predict::learn::error_ratio;
use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::measure::run::Work;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::report::Peak;
use loadmaster_proto::warning::{Warning, WarningCode};
use loadmaster_proto::wire::v1;

use crate::profile::disturbance;
use crate::rpc::messages::time;
use crate::store::records::{MeasurementRecord, PlanRecord, RunRecord, RunState};

/// Most names of measurements that an answer lists.
const SHOWN_MEASUREMENTS: usize = 100;

/// Of a plan in chunks whose visits were not kept to.
const REPLANNED: &str = "the newest trial used more memory outside chunks than planned, so it prefetched chunks later \
                         or evicted chunks earlier. The measured seconds are those of this slower schedule.";

pub(super) fn number(value: impl TryInto<i32>) -> i32 {
    value.try_into().unwrap_or(i32::MAX)
}

/// One trial of a plan: its run and, when it succeeded, a measurement per device.
#[derive(Debug)]
pub(super) struct Trial {
    pub(super) run: RunRecord,
    /// What it yielded.
    pub(super) measurements: Vec<MeasurementRecord>,
}

impl Trial {
    /// Whether all stages were trained, not one of them alone.
    fn is_whole(&self) -> bool {
        let work = self.run.work.trained().map(|trained| &trained.strategy.work);
        !matches!(work, Some(Work::Solo(_)))
    }

    /// The measurement of the device with the highest peak memory of a stage that was trained alone.
    fn alone(&self, stage: usize) -> Option<&MeasurementRecord> {
        let own = self.measurements.iter().filter(|of| of.measurement.stage_index as usize == stage);
        own.max_by_key(|of| of.measurement.peak_allocated).filter(|_| !self.is_whole())
    }

    /// The measurement of the device with the highest peak memory of each stage, in order; none unless all of `stages` stages
    /// were measured.
    fn fullest(&self, stages: usize) -> Option<Vec<&MeasurementRecord>> {
        (0..stages)
            .map(|stage| {
                let own = self.measurements.iter().filter(|of| of.measurement.stage_index as usize == stage);
                own.max_by_key(|of| of.measurement.peak_allocated)
            })
            .collect()
    }
}

/// Returns the warning that the seconds of a plan depend on links whose speed no one measured or gave.
fn assumed_links(content: &Plan) -> Option<Warning> {
    let iteration = content.found.iteration.as_ref()?;
    let why = "the seconds depend on assumed speeds of links. Measure the links, or set their bandwidth.";
    iteration.links.contains("assumed").then(|| WarningCode::LinksAssumed.says(why))
}

/// A plan with the trials of it, newest first.
pub(super) fn plan(record: &PlanRecord, layer_names: &[String], trials: &[Trial]) -> v1::Plan {
    let content = &record.content;
    let (whole, alone): (Vec<&Trial>, Vec<&Trial>) = trials.iter().partition(|trial| trial.is_whole());
    let newest = whole.iter().find_map(|trial| trial.fullest(content.stages.len()));
    let layer_name = |layer: usize| layer_names.get(layer).cloned().unwrap_or_default();
    let mut plan = v1::Plan {
        name: record.name.to_string(),
        create_time: Some(time(record.create_time)),
        trials: whole.iter().filter_map(|trial| validation(record, trial)).collect(),
        ..v1::Plan::from(content)
    };
    plan.warnings.extend(cores::of_plan(content).map(Into::into));
    plan.warnings.extend(assumed_links(content).map(Into::into));
    for (index, (message, stage)) in plan.stages.iter_mut().zip(&content.stages).enumerate() {
        message.first_layer_name = layer_name(stage.config.first_layer);
        message.last_layer_name = layer_name(stage.config.last_layer);
        let newest = newest.as_ref().and_then(|fullest| fullest.get(index).copied());
        // What a stage needed alone says something where it was never trained with the others.
        let newest = newest.or_else(|| alone.iter().find_map(|trial| trial.alone(index)));
        message.measured_peak = newest.map(measured);
        let in_chunks = newest.and_then(|of| of.measurement.chunks.as_deref());
        message.measured_chunk_traffic = in_chunks.map(Into::into);
        if in_chunks.is_some_and(|chunks| chunks.is_replanned) {
            plan.warnings.push(WarningCode::ChunksReplanned.says(REPLANNED).of_stage(index).into());
        }
        message.measured_offload_traffic =
            newest.and_then(|of| of.measurement.offload.as_deref()).map(Into::into);
        // Bytes of two ledgers have no ratio.
        let comparable =
            message.measured_peak.as_ref().filter(|figure| figure.accounting == ledger(content.ledger));
        message.error_ratio =
            comparable.and_then(|figure| error_ratio(stage.predicted_peak as f64, figure.bytes as f64));
    }
    plan
}

/// Writes the peaks that the newest report on the plan's kind of device has into the stages of which no trial measured one.
pub(super) fn put_reported_peaks(plan: &mut v1::Plan, content: &Plan) {
    let is_of_stages = |of: &&v1::Report| {
        of.stage_peaks.len() == content.positions() && of.device_kind == content.device_kind
    };
    let Some(newest) = plan.reports.iter().find(is_of_stages) else { return };
    // Stages that take turns on a device have one peak together.
    let peaks = newest.stage_peaks.iter().cycle();
    for ((message, stage), peak) in plan.stages.iter_mut().zip(&content.stages).zip(peaks) {
        if message.measured_peak.is_some() {
            continue;
        }
        let is_comparable = peak.accounting == ledger(content.ledger);
        message.error_ratio =
            error_ratio(stage.predicted_peak as f64, peak.bytes as f64).filter(|_| is_comparable);
        message.measured_peak = Some(peak.clone());
    }
}

fn ledger(ledger: Accounting) -> i32 {
    v1::MemoryAccounting::from(ledger).into()
}

fn measured(record: &MeasurementRecord) -> v1::MemoryFigure {
    let measurement = &record.measurement;
    Peak { bytes: measurement.peak_allocated, ledger: measurement.peak_ledger }
        .to_wire(&record.run.to_string())
}

/// An ended trial; none while it waits or runs.
fn validation(record: &PlanRecord, trial: &Trial) -> Option<v1::TrialResult> {
    let failure = match trial.run.state {
        RunState::Queued | RunState::Running => return None,
        RunState::Succeeded => String::new(),
        RunState::Cancelled => "cancelled".to_owned(),
        RunState::OutOfMemory | RunState::Failed => {
            trial.run.failures.last().map_or_else(|| "failed".to_owned(), |last| last.failure.message.clone())
        }
    };
    let fullest = trial.fullest(record.content.stages.len()).unwrap_or_default();
    let peaks = fullest.iter().map(|of| of.measurement.peak_allocated.0 as f64);
    let comparable = fullest.iter().all(|of| of.measurement.peak_ledger == record.content.ledger);
    let measured_peak = peaks.reduce(f64::max).filter(|_| comparable);
    let iteration_seconds =
        trial.measurements.iter().map(|of| of.measurement.iteration_seconds).fold(0.0, f64::max);
    let losses = trial.measurements.last().map(|last| last.measurement.losses.clone()).unwrap_or_default();
    let disturbance = disturbance(&trial.measurements);
    Some(v1::TrialResult {
        contended: disturbance.contended > 0,
        oversubscribed: disturbance.oversubscribed > 0,
        measure_time: trial.run.end_time.map(time),
        measured_peaks: fullest.iter().map(|of| measured(of)).collect(),
        iteration_seconds,
        peak_error_ratio: measured_peak
            .and_then(|measured| error_ratio(record.content.peak() as f64, measured)),
        iteration_error_ratio: record
            .content
            .iteration_seconds()
            .and_then(|predicted| error_ratio(predicted, iteration_seconds)),
        losses,
        failure_message: failure,
        run: trial.run.name.to_string(),
    })
}

/// A forecast; profile, model, training and kind of device are the caller's.
pub(super) fn forecast(
    forecast: &Forecast,
    predictor: &str,
    ledger: Accounting,
    layer_names: &[String],
    excluded: Vec<Excluded>,
) -> v1::PredictPlanResponse {
    v1::PredictPlanResponse {
        predictor: predictor.to_owned(),
        stages: forecast.stages.iter().map(|stage| stage_forecast(stage, ledger, layer_names)).collect(),
        verdict: v1::Verdict::from(forecast.verdict()).into(),
        first_too_small_device: forecast.first_too_small().map(number),
        excluded_memory: excluded.into_iter().map(excluded_memory).collect(),
        measurements: forecast.sources.iter().take(SHOWN_MEASUREMENTS).cloned().collect(),
        measurement_count: number(forecast.sources.len()),
        warnings: loadmaster_proto::warning::sent(&forecast.warnings),
        ..v1::PredictPlanResponse::default()
    }
}

fn stage_forecast(stage: &StageForecast, ledger: Accounting, layer_names: &[String]) -> v1::StagePrediction {
    let (config, prediction) = (stage.setting.stage, &stage.prediction);
    let layer_name = |layer: usize| layer_names.get(layer).cloned().unwrap_or_default();
    v1::StagePrediction {
        config: Some(config.into()),
        first_layer_name: layer_name(config.first_layer),
        last_layer_name: layer_name(config.last_layer),
        peak: Some(v1::MemoryFigure::predicted(prediction.bytes.0, ledger, prediction.predictor)),
        breakdown: prediction.breakdown.map(|breakdown| breakdown.to_wire(ledger)),
        interval: stage.interval.map(Into::into),
        seconds: prediction.seconds.map(Into::into),
        seconds_margin_ratio: prediction.seconds_margin,
        coverage: v1::ProfileCoverage::from(prediction.origin).into(),
        in_flight_micro_batch_count: number(stage.setting.in_flight()),
        first_device: number(stage.first_device),
        capacity_bytes: stage.smallest.map(|device| device.capacity.to_wire()),
        slack_bytes: stage
            .slack()
            .map(|slack| i64::try_from(slack).unwrap_or(if slack < 0 { i64::MIN } else { i64::MAX })),
        verdict: v1::Verdict::from(stage.verdict()).into(),
        memory_optimizations: None,
        offload_traffic: None,
        chunked_training: None,
        chunk_traffic: None,
    }
}

fn excluded_memory(excluded: Excluded) -> v1::ExcludedMemory {
    v1::ExcludedMemory {
        description: excluded.what.to_owned(),
        typical_low_bytes: excluded.typical.map(|(low, _)| Bytes(low).to_wire()),
        typical_high_bytes: excluded.typical.map(|(_, high)| Bytes(high).to_wire()),
        note: excluded.note.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use loadmaster_samples::{CutTransformer, Degrees};

    use super::*;

    fn content() -> Plan {
        let case = CutTransformer::small_gpt2(vec![2, 2], Degrees::All(1), Degrees::All(1));
        CutTransformer { devices_per_node: 2, micro_batch: 4, ..case }.plan()
    }

    /// Reported peaks are in the stages of which no trial measured one: those of the newest report on the plan's kind of
    /// device. They are compared where they are of the plan's accounting.
    #[test]
    fn reported_peaks_are_in_the_stages() {
        let content = content();
        let report = |kind: &str, ledger: i32, bytes: &[i64]| v1::Report {
            device_kind: kind.to_owned(),
            stage_peaks: bytes
                .iter()
                .map(|&bytes| v1::MemoryFigure { bytes, accounting: ledger, ..v1::MemoryFigure::default() })
                .collect(),
            ..v1::Report::default()
        };
        let (own, kind) = (ledger(content.ledger), content.device_kind.as_str());
        let with = |reports: Vec<v1::Report>, trial: Option<i64>| {
            let mut plan = v1::Plan { reports, ..v1::Plan::from(&content) };
            let measured = trial.map(|bytes| v1::MemoryFigure { bytes, ..v1::MemoryFigure::default() });
            plan.stages[0].measured_peak = measured;
            put_reported_peaks(&mut plan, &content);
            let of_stage = |stage: &v1::PlanStage| {
                (stage.measured_peak.as_ref().map(|peak| peak.bytes), stage.error_ratio.is_some())
            };
            plan.stages.iter().map(of_stage).collect::<Vec<_>>()
        };
        let reports = || {
            vec![
                report("another kind", own, &[1, 2]),
                report(kind, own, &[]),
                report(kind, own, &[3, 4]),
                report(kind, own, &[5, 6]),
            ]
        };
        assert_eq!(with(reports(), None), [(Some(3), true), (Some(4), true)]);
        assert_eq!(with(reports(), Some(9)), [(Some(9), false), (Some(4), true)], "a trial comes first");
        assert_eq!(with(vec![report(kind, own + 1, &[3, 4])], None), [(Some(3), false), (Some(4), false)]);
        assert_eq!(with(vec![report("another kind", own, &[1, 2])], None), [(None, false), (None, false)]);
    }
}
