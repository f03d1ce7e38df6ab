//! A plan as lists show it: what tells plans apart.

use loadmaster_predict::learn::error_ratio;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::plan::prediction::SecondsInterval;
use loadmaster_proto::plan::summary::{self, SummaryModel};
use loadmaster_proto::wire::{ToWire as _, v1};

use super::message::number;
use crate::rpc::messages::time;
use crate::store::labels_etag;
use crate::store::records::{NewestReport, NewestTrial, PlanRow, PlanSummary};

/// A plan in short.
pub(super) fn plan(row: &PlanRow, model: &SummaryModel) -> v1::Plan {
    let plan = without_summary(row);
    v1::Plan { summary: Some(summary::of_plan(&plan, model, None)), ..plan }
}

fn without_summary(row: &PlanRow) -> v1::Plan {
    let of = &row.summary;
    let devices: u64 = of.devices.iter().map(|group| group.count).fold(0, u64::saturating_add);
    v1::Plan {
        name: row.name.to_string(),
        profile: row.profile.to_string(),
        model: row.model.to_string(),
        training: Some(of.training.into()),
        parallelism_layout: v1::ParallelismLayout::from(of.asked.shape).into(),
        devices: of
            .devices
            .iter()
            .map(|group| v1::DeviceGroup {
                count: number(group.count),
                capacity_bytes: Bytes(group.capacity).to_wire(),
                kind: group.kind.clone(),
            })
            .collect(),
        predicted_peak: Some(v1::MemoryFigure::predicted(of.peak, of.ledger, &of.predictor)),
        solver: of.solver.clone(),
        create_time: Some(time(row.create_time)),
        objective: of.asked.objective.map_or(v1::Objective::Unspecified, Into::into).into(),
        framework: of.asked.framework.to_wire(),
        framework_version: of.asked.framework_version.clone(),
        cluster: of.asked.cluster.as_ref().map(ToString::to_string).unwrap_or_default(),
        iteration: of.iteration_seconds.map(|seconds| iteration(of, seconds)),
        hourly_price: of.hourly_price,
        memory_unit: v1::MemoryUnit::from(of.asked.memory_unit).into(),
        layout_notation: of.partition.clone(),
        virtual_stage_count: if of.virtual_stages > 1 { number(of.virtual_stages) } else { 0 },
        device_count: number(devices),
        training_summary: Some(trainings(row)),
        etag: labels_etag(&row.labels),
        labels: row.labels.clone().into_iter().collect(),
        recommended_plan: row.alternative_of.as_ref().map(ToString::to_string).unwrap_or_default(),
        ..v1::Plan::default()
    }
}

/// A whole plan with what its row adds: a summary of its trainings, and the plan that names it.
pub(super) fn with_summary(plan: v1::Plan, row: &PlanRow) -> v1::Plan {
    v1::Plan {
        training_summary: Some(trainings(row)),
        recommended_plan: row.alternative_of.as_ref().map(ToString::to_string).unwrap_or_default(),
        ..plan
    }
}

fn iteration(of: &PlanSummary, seconds: f64) -> v1::IterationEstimate {
    let samples = of.training.global_batch_size() as f64;
    v1::IterationEstimate {
        iteration_seconds: seconds,
        samples_per_second: if seconds > 0.0 { samples / seconds } else { 0.0 },
        interval: of.iteration_margin.map(|margin| SecondsInterval::around(seconds, margin).into()),
        ..v1::IterationEstimate::default()
    }
}

fn trainings(row: &PlanRow) -> v1::TrainingSummary {
    let trained = &row.trained;
    let counted = v1::TrainingSummary {
        trial_count: number(trained.trials),
        succeeded_trial_count: number(trained.succeeded),
        report_count: number(trained.reports),
        reported_seconds: trained.reported.as_ref().map(|of| of.seconds),
        reported_error_ratio: trained.reported.as_ref().and_then(|of| reported_error(&row.summary, of)),
        ..v1::TrainingSummary::default()
    };
    let Some(NewestTrial { run, measured, contended, oversubscribed }) = &trained.newest else {
        return counted;
    };
    let peak = measured.peak();
    let comparable = peak.filter(|peak| peak.ledger == row.summary.ledger);
    let predicted = row.summary.iteration_seconds;
    v1::TrainingSummary {
        measured_peak: peak.map(|peak| peak.to_wire(&run.to_string())),
        peak_error_ratio: comparable
            .and_then(|peak| error_ratio(row.summary.peak as f64, peak.bytes.0 as f64)),
        iteration_seconds: measured.iteration_seconds,
        iteration_error_ratio: predicted
            .zip(measured.iteration_seconds)
            .and_then(|(predicted, measured)| error_ratio(predicted, measured)),
        contended: *contended,
        oversubscribed: *oversubscribed,
        ..counted
    }
}

/// Seconds of another kind of device are no measure of those that were predicted.
fn reported_error(of: &PlanSummary, reported: &NewestReport) -> Option<f64> {
    let predicted = of.iteration_seconds.filter(|_| reported.device_kind == of.device_kind)?;
    error_ratio(predicted, reported.seconds)
}
