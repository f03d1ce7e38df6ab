//! What a plan predicted of itself, beside what was measured.

use loadmaster_proto::chunks::stage::ChunkResidency;
use loadmaster_proto::name::PlanName;
use loadmaster_proto::plan::findings::AppliedCorrection;
use loadmaster_proto::plan::report::{CopiedStage, Measured};
use loadmaster_proto::plan::{Plan, PlanStage};

use super::of_copies::{Counters, Figure};
use super::{Pair, Quantity, Subject};

/// predicted / measured − 1: negative where the prediction was too low.
pub fn error_ratio(predicted: f64, measured: f64) -> Option<f64> {
    let ratio = predicted / measured - 1.0;
    (measured > 0.0 && ratio.is_finite()).then_some(ratio)
}

/// What the predictions of one quantity were multiplied with for a plan on its own kind of device alone; 1 where
/// they were not. Corrections of the other kinds that its request offered did not touch it.
fn factor(plan: &Plan, quantity: Quantity) -> f64 {
    let corrects = |correction: &&AppliedCorrection| match quantity {
        Quantity::PeakBytes(ledger) => correction.ledger == Some(ledger),
        Quantity::IterationSeconds => correction.ledger.is_none(),
        Quantity::WaitedSeconds(_) | Quantity::CopiedBytes(_) => false,
    };
    let own = plan.found.corrections.iter().filter(|of| of.device_kind == plan.device_kind);
    own.filter(corrects).map(|correction| correction.factor).reduce(f64::max).unwrap_or(1.0)
}

/// Whether all devices of a stage are of the plan's own kind.
fn is_of_one_kind(stage: &PlanStage, kind: &str) -> bool {
    stage.devices.iter().all(|device| device.kind.is_empty() || device.kind == kind)
}

/// The figures of a plan that can be compared: what was measured on its kind of device, bytes of its memory
/// accounting, and what its stages copied, where that was counted. Predictions are those before any correction. Of a
/// plan on several kinds nothing is compared: what was measured does not say on which. Of a plan in chunks no peaks
/// of devices and no seconds of iterations are: what misses there is none of what misses of plain stages. Its copies
/// are counted as those of plain stages are.
pub fn pairs(
    name: &PlanName,
    plan: &Plan,
    device_kind: &str,
    measured: &Measured,
    copied: &[CopiedStage],
) -> Vec<Pair> {
    let one_kind = plan.stages.iter().all(|stage| is_of_one_kind(stage, &plan.device_kind));
    if device_kind != plan.device_kind || !one_kind {
        return Vec::new();
    }
    let pair = |Figure { quantity, predicted, measured }: Figure| {
        let (device_kind, predictor) = (device_kind.to_owned(), plan.predictor.clone());
        let subject = Subject { device_kind, predictor, quantity };
        Pair { subject, plan: name.to_string(), predicted: predicted / factor(plan, quantity), measured }
    };
    let of_passes = if plan.chunks().is_some() { Vec::new() } else { of_passes(plan, measured) };
    // A wait of a disturbed iteration is as long as its seconds are, which are left out for that.
    let is_undisturbed = measured.iteration_seconds.is_some();
    let copied = copied.iter().flat_map(|copied| of_copies(plan, copied, is_undisturbed));
    of_passes.into_iter().chain(copied).map(pair).collect()
}

/// Peaks of devices, and seconds of an iteration.
fn of_passes(plan: &Plan, measured: &Measured) -> Vec<Figure> {
    // Stages that take turns on a device have one peak together.
    let peaks = plan.first_stages().iter().zip(&measured.stage_peaks);
    let peaks = peaks.filter(|(_, peak)| peak.ledger == plan.ledger).map(|(stage, peak)| Figure {
        quantity: Quantity::PeakBytes(peak.ledger),
        predicted: stage.predicted_peak as f64,
        measured: peak.bytes.0 as f64,
    });
    let seconds = plan.iteration_seconds().zip(measured.iteration_seconds);
    let seconds = seconds.map(|(predicted, measured)| Figure {
        quantity: Quantity::IterationSeconds,
        predicted,
        measured,
    });
    peaks.chain(seconds).collect()
}

/// What a stage copied. Waits are given where an iteration was predicted; those beside corrected seconds are none that the
/// predictor made.
fn of_copies(plan: &Plan, copied: &CopiedStage, is_undisturbed: bool) -> Vec<Figure> {
    let Some(stage) = plan.stages.get(copied.stage) else { return Vec::new() };
    let predicted = Counters { offload: stage.offload.as_ref(), chunks: stage.chunk_run.as_deref() };
    let measured = Counters { offload: copied.offload.as_ref(), chunks: copied.chunks.as_ref() };
    let is_predicted = plan.iteration_seconds().is_some() && factor(plan, Quantity::IterationSeconds) == 1.0;
    let has_waits = is_undisturbed && is_predicted;
    let is_as_planned = has_planned_room(stage, copied);
    let is_told = |figure: &Figure| match figure.quantity {
        Quantity::PeakBytes(_) | Quantity::IterationSeconds => true,
        Quantity::CopiedBytes(_) => is_as_planned,
        Quantity::WaitedSeconds(_) => is_as_planned && has_waits,
    };
    predicted.beside(measured).into_iter().filter(is_told).collect()
}

/// Whether chunks had the room that they were planned with: in other room they come and leave otherwise than was predicted, which is
/// an error of what is besides them, not of what moves.
fn has_planned_room(stage: &PlanStage, copied: &CopiedStage) -> bool {
    let Some((chunked, measured)) = stage.chunks.as_ref().zip(copied.chunks.as_ref()) else { return true };
    match chunked.residency {
        ChunkResidency::Planned(_) => !measured.is_replanned,
        ChunkResidency::Paged => {
            stage.chunk_run.as_ref().is_some_and(|planned| planned.other_bytes == measured.other_bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::bytes::Bytes;

    use loadmaster_proto::accounting::Accounting;
    use loadmaster_proto::chunks::stage::ChunkedStage;
    use loadmaster_proto::measure::chunked::ChunkRun;
    use loadmaster_proto::measure::offload::{CopyCount, Offload};
    use loadmaster_proto::name::ProfileName;
    use loadmaster_proto::plan::findings::{Findings, IterationEstimate};
    use loadmaster_proto::plan::prediction::Origin;
    use loadmaster_proto::plan::report::Peak;
    use loadmaster_proto::training::overlap::Overlap;
    use loadmaster_proto::training::stage::StageConfig;

    use super::*;
    use crate::learn::Link;

    fn offload(waited_seconds: f64) -> Offload {
        let copies = vec![CopyCount { peer: None, out_bytes: 7, in_bytes: 7, waited_seconds }];
        Offload { host_peak: Bytes(5), peer_pool_peak: Bytes(0), copies }
    }

    /// A plan of two stages, the second of which copies; 2 s of an iteration.
    fn plan() -> Plan {
        let stage = |layer: usize| PlanStage {
            predicted_peak: 100,
            offload: (layer == 1).then(|| offload(0.0)),
            ..loadmaster_samples::plan_stage(StageConfig::single(layer, layer))
        };
        let iteration = IterationEstimate {
            seconds: 2.0,
            closed_form: 2.0,
            bubble: 0.0,
            step: 0.0,
            origin: Origin::Profiled,
            links: String::new(),
            overlap: Overlap::default(),
            overlap_reason: String::new(),
            margin: None,
        };
        Plan {
            profile: ProfileName::from_id("p").unwrap(),
            found: Findings { iteration: Some(iteration), ..Findings::default() },
            ..loadmaster_samples::plan(vec![stage(0), stage(1)])
        }
    }

    fn measured(iteration_seconds: Option<f64>) -> Measured {
        let peak = Peak { bytes: Bytes(90), ledger: Accounting::Allocated };
        Measured { iteration_seconds, stage_peaks: vec![peak; 2] }
    }

    fn quantities(plan: &Plan, measured: &Measured, copied: &[CopiedStage]) -> Vec<Quantity> {
        let name = PlanName::from_id("x").unwrap();
        pairs(&name, plan, "cpu", measured, copied).iter().map(|pair| pair.subject.quantity).collect()
    }

    const PEAK: Quantity = Quantity::PeakBytes(Accounting::Allocated);
    const AT_HOST: Quantity = Quantity::PeakBytes(Accounting::Host);
    const COPIED: Quantity = Quantity::CopiedBytes(Link::Host);
    const WAITED: Quantity = Quantity::WaitedSeconds(Link::Host);

    /// What a stage copied is beside its own prediction. Of an iteration that others disturbed no seconds are
    /// reported, its waits included, and none beside seconds that were corrected; bytes are as good as ever.
    #[test]
    fn copies_are_pairs_and_waits_those_of_undisturbed_iterations() {
        let mut plan = plan();
        let copied = |stage| [CopiedStage { stage, offload: Some(offload(0.5)), chunks: None }];
        let name = PlanName::from_id("x").unwrap();
        let all = pairs(&name, &plan, "cpu", &measured(Some(2.5)), &copied(1));
        let told: Vec<(Quantity, f64, f64)> =
            all.iter().map(|pair| (pair.subject.quantity, pair.predicted, pair.measured)).collect();
        let expected = [
            (PEAK, 100.0, 90.0),
            (PEAK, 100.0, 90.0),
            (Quantity::IterationSeconds, 2.0, 2.5),
            (AT_HOST, 5.0, 5.0),
            (COPIED, 7.0, 7.0),
            (COPIED, 7.0, 7.0),
            (WAITED, 0.0, 0.5),
        ];
        assert_eq!(told, expected);
        let disturbed = quantities(&plan, &measured(None), &copied(1));
        assert_eq!(disturbed, [PEAK, PEAK, AT_HOST, COPIED, COPIED]);
        assert_eq!(
            quantities(&plan, &measured(None), &copied(0)),
            [PEAK, PEAK],
            "that stage predicts no copies"
        );
        assert_eq!(quantities(&plan, &measured(None), &copied(9)), [PEAK, PEAK], "there is no such stage");
        assert_eq!(pairs(&name, &plan, "other", &measured(Some(2.5)), &copied(1)), []);

        plan.found.corrections = vec![AppliedCorrection {
            device_kind: "cpu".to_owned(),
            predictor: "component/2".to_owned(),
            ledger: None,
            version: "correction/1+x".to_owned(),
            factor: 1.25,
            count: 3,
            plans: 3,
            explanation: String::new(),
        }];
        let corrected = quantities(&plan, &measured(Some(2.5)), &copied(1));
        assert_eq!(corrected, [PEAK, PEAK, Quantity::IterationSeconds, AT_HOST, COPIED, COPIED]);
    }

    /// A plan in chunks is compared by its host bytes, copies and waits, and not by device peaks or seconds of its
    /// iteration.
    #[test]
    fn chunks_tell_what_they_copy_alone() {
        let mut plan = plan();
        plan.stages.truncate(1);
        let run = ChunkRun { host_bytes: Bytes(3), up_bytes: 4, down_bytes: 2, ..ChunkRun::default() };
        plan.stages[0].chunks = Some(Box::new(loadmaster_samples::chunked(1 << 20)));
        plan.stages[0].chunk_run = Some(Box::new(run.clone()));
        let copied = [CopiedStage { stage: 0, offload: None, chunks: Some(run) }];
        assert_eq!(quantities(&plan, &measured(Some(1.0)), &copied), [AT_HOST, COPIED, COPIED, WAITED]);
    }

    /// Chunks that had other room than was planned moved otherwise, for which no prediction of moves is to blame.
    #[test]
    fn chunks_in_other_room_are_not_judged_by_what_they_moved() {
        let mut plan = plan();
        plan.stages.truncate(1);
        let run =
            ChunkRun { host_bytes: Bytes(3), up_bytes: 4, other_bytes: vec![5, 6], ..ChunkRun::default() };
        plan.stages[0].chunk_run = Some(Box::new(run.clone()));
        let chunked = loadmaster_samples::chunked(1 << 20);
        let paged = ChunkResidency::Paged;
        let all = vec![AT_HOST, COPIED, COPIED, WAITED];
        let replanned = ChunkRun { is_replanned: true, up_bytes: 9, ..run.clone() };
        let more = ChunkRun { other_bytes: vec![5, 7], up_bytes: 9, ..run.clone() };
        let planned = ChunkResidency::Planned(Vec::new());
        for (residency, run, told) in [
            (&planned, &run, all.clone()),
            (&planned, &replanned, vec![AT_HOST]),
            (&planned, &more, all.clone()),
            (&paged, &run, all),
            (&paged, &more, vec![AT_HOST]),
        ] {
            let own = ChunkedStage { residency: residency.clone(), ..chunked.clone() };
            plan.stages[0].chunks = Some(Box::new(own));
            let copied = [CopiedStage { stage: 0, offload: None, chunks: Some(run.clone()) }];
            assert_eq!(quantities(&plan, &measured(Some(1.0)), &copied), told, "{residency:?}, {run:?}");
        }
    }
}
