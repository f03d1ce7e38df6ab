//! Measurements of a plan that are outside of the predicted intervals, and those that cannot test a prediction.

use loadmaster_proto::wire::v1::{DeviceGroup, MemoryFigure, Plan, PlanStage, Report};

use crate::text::terminal_abilities::Look;
use crate::text::{bytes, bytes_margin, plain, predicted_seconds, seconds};

/// How far from a predicted figure a measured one may be where no interval is known, as a share of it.
const UNKNOWN: f64 = 0.1;
/// What contradicts no figure, whatever its interval: a margin that was asked for may be 0.
const ROUNDING: f64 = 0.01;

/// A training of a plan, by a trial or by its user.
struct Training<'a> {
    /// Its run or report.
    name: &'a str,
    /// 0 where they were not measured.
    iteration_seconds: f64,
    /// Other programs used its devices, or its ranks shared cores: its seconds test no prediction.
    is_disturbed: bool,
    /// By stage; empty where they were not measured.
    peaks: &'a [MemoryFigure],
}

/// A line for each figure of the newest trial and of the newest report that is outside of its interval; seconds
/// first.
pub fn of(plan: &Plan, look: Look) -> Vec<String> {
    let validation = plan.trials.iter().find(|validation| validation.failure_message.is_empty());
    let trial = validation.map(|of| Training {
        name: &of.run,
        iteration_seconds: of.iteration_seconds,
        is_disturbed: of.contended || of.oversubscribed,
        peaks: &of.measured_peaks,
    });
    let observed = plan.reports.iter().find(|of| is_of(&plan.devices, of)).map(|of| Training {
        name: &of.name,
        iteration_seconds: of.iteration_seconds,
        is_disturbed: false,
        peaks: &of.stage_peaks,
    });
    let trainings = || [&trial, &observed].into_iter().flatten();
    let times = trainings().filter_map(|training| iteration(plan, training, look));
    times.chain(trainings().filter_map(|training| peak(plan, training, look))).collect()
}

/// Whether a report says anything about a plan on these devices: it does of the same kind alone.
fn is_of(devices: &[DeviceGroup], report: &Report) -> bool {
    let observed = &report.device_kind;
    devices.iter().all(|group| observed.is_empty() || group.kind.is_empty() || group.kind == *observed)
}

fn iteration(plan: &Plan, training: &Training<'_>, look: Look) -> Option<String> {
    let estimate = plan.iteration.as_ref()?;
    let (predicted, measured) = (estimate.iteration_seconds, training.iteration_seconds);
    let share = estimate.interval.as_ref().map(|interval| interval.margin_ratio);
    let run = plain(training.name);
    let text = if training.is_disturbed {
        let taken = seconds(measured);
        format!(
            "note: {run} took {taken} per iteration, which is not comparable with the prediction: other work used its \
             devices or CPU cores"
        )
    } else {
        let (predicted, ratio) = (predicted_seconds(predicted, share, look), measured / predicted);
        format!(
            "measured {} per iteration, {ratio:.2} {} the predicted {predicted} ({run})",
            seconds(measured),
            look.times()
        )
    };
    (measured > 0.0 && is_outside(estimate.iteration_seconds, measured, share)).then_some(text)
}

/// Of the stage that is furthest off.
fn peak(plan: &Plan, training: &Training<'_>, look: Look) -> Option<String> {
    let outside = |(index, (stage, measured)): (usize, (&PlanStage, &MemoryFigure))| {
        let predicted =
            stage.predicted_peak.as_ref().filter(|of| of.accounting == measured.accounting)?.bytes;
        let share = stage.interval.as_ref().map(|interval| interval.margin_ratio);
        let measured = measured.bytes;
        is_outside(predicted as f64, measured as f64, share).then_some((index, predicted, measured))
    };
    let all = plan.stages.iter().zip(training.peaks).enumerate().filter_map(outside);
    let off = |&(_, predicted, measured): &(usize, i64, i64)| measured.abs_diff(predicted);
    let (index, predicted, measured) = all.max_by_key(off)?;
    let difference = bytes(measured.saturating_sub(predicted).saturating_abs());
    let direction = if measured > predicted { "more" } else { "less" };
    Some(format!(
        "measured {} on stage {index}, {difference} {direction} than the predicted {} {} ({})",
        bytes(measured),
        bytes(predicted),
        bytes_margin(plan.stages.get(index)?.interval.as_ref(), predicted, look),
        plain(training.name)
    ))
}

fn is_outside(predicted: f64, measured: f64, margin: Option<f64>) -> bool {
    predicted > 0.0 && (measured - predicted).abs() > predicted * margin.unwrap_or(UNKNOWN).max(ROUNDING)
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::wire::v1::{
        IterationEstimate, MemoryAccounting, MemoryInterval, SecondsInterval, TrialResult,
    };

    use super::*;

    fn figure(mib: i64) -> MemoryFigure {
        MemoryFigure {
            bytes: mib << 20,
            accounting: MemoryAccounting::Allocated.into(),
            ..MemoryFigure::default()
        }
    }

    fn plan() -> Plan {
        let stage = |mib| PlanStage {
            predicted_peak: Some(figure(mib)),
            interval: Some(MemoryInterval { margin_ratio: 0.05, ..MemoryInterval::default() }),
            ..PlanStage::default()
        };
        Plan {
            devices: vec![DeviceGroup { kind: "cpu".to_owned(), ..DeviceGroup::default() }],
            stages: vec![stage(100), stage(200)],
            iteration: Some(IterationEstimate {
                iteration_seconds: 1.49,
                interval: Some(SecondsInterval { margin_ratio: 0.12, ..SecondsInterval::default() }),
                ..IterationEstimate::default()
            }),
            trials: vec![TrialResult {
                run: "runs/01".to_owned(),
                iteration_seconds: 1.6,
                measured_peaks: vec![figure(104), figure(192)],
                ..TrialResult::default()
            }],
            ..Plan::default()
        }
    }

    fn told(plan: &Plan) -> Vec<String> {
        of(plan, Look::PLAIN)
    }

    /// What is within its interval is no contradiction; what is outside is told with both figures.
    #[test]
    fn figures_outside_of_their_interval_are_told() {
        let mut plan = plan();
        assert!(told(&plan).is_empty());
        plan.trials[0].iteration_seconds = 13.85;
        plan.trials[0].measured_peaks = vec![figure(108), figure(150)];
        assert_eq!(
            told(&plan),
            [
                "measured 13.85 s per iteration, 9.30 x the predicted 1.49 s +-12.0 % (runs/01)",
                "measured 150.00 MiB on stage 1, 50.00 MiB less than the predicted 200.00 MiB +-5.0 % (runs/01)",
            ]
        );
    }

    /// The seconds of a disturbed trial are a note, not a contradiction; its bytes are.
    #[test]
    fn a_contended_trial_tests_no_seconds() {
        let mut plan = plan();
        plan.trials[0].iteration_seconds = 13.85;
        plan.trials[0].contended = true;
        let note = "note: runs/01 took 13.85 s per iteration, which is not comparable with the prediction: other work \
                    used its devices or CPU cores";
        assert_eq!(told(&plan), [note]);
        plan.trials[0].measured_peaks[1] = figure(150);
        assert!(told(&plan)[1].starts_with("measured 150.00 MiB on stage 1"), "{:?}", told(&plan));
    }

    /// Without an interval a tenth is enough, and a margin of 0 that was asked for makes no byte a contradiction.
    #[test]
    fn what_nobody_promised_may_be_contradicted_too() {
        let mut plan = plan();
        plan.iteration.as_mut().unwrap().interval = None;
        assert!(told(&plan).is_empty());
        plan.trials[0].iteration_seconds = 1.7;
        assert!(told(&plan)[0].contains("the predicted 1.49 s (interval unknown)"), "{:?}", told(&plan));
        plan.trials[0].iteration_seconds = 0.0;
        plan.stages[0].interval = Some(MemoryInterval::default());
        plan.trials[0].measured_peaks[0].bytes = (100 << 20) + 512;
        assert!(told(&plan).is_empty());
    }

    /// Bytes of another accounting, failed trials and trainings on other kinds of devices say nothing.
    #[test]
    fn what_cannot_be_compared_contradicts_nothing() {
        let mut plan = plan();
        plan.trials[0].measured_peaks[0] =
            MemoryFigure { accounting: MemoryAccounting::Reserved.into(), ..figure(900) };
        assert!(told(&plan).is_empty());
        let failed = TrialResult { failure_message: "out of memory".to_owned(), ..TrialResult::default() };
        plan.trials.insert(0, failed);
        assert!(told(&plan).is_empty());
        plan.reports = vec![Report {
            name: "plans/7f/reports/1".to_owned(),
            iteration_seconds: 9.0,
            device_kind: "NVIDIA H200".to_owned(),
            ..Report::default()
        }];
        assert!(told(&plan).is_empty());
        plan.reports[0].device_kind = "cpu".to_owned();
        assert!(told(&plan)[0].ends_with("(plans/7f/reports/1)"), "{:?}", told(&plan));
    }
}
