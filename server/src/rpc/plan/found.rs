//! What was found besides a plan's stages, as messages.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::ledger::Ledger;
use loadmaster_proto::plan::prediction::SecondsInterval;
use loadmaster_proto::wire::v1;

use super::message::{figure, number};
use crate::store::records::{
    AlternativeRecord, BaselineRecord, CertificateRecord, CorrectionRecord, FrontRecord, PlacedDeviceRecord,
    PlanContent, RejectedRecord, RestrictionRecord, SummaryRecord,
};

/// A device of a stage.
pub(super) fn device(of: &PlacedDeviceRecord) -> v1::PlacedDevice {
    v1::PlacedDevice {
        node: of.node.clone(),
        index: number(of.index),
        uuid: of.uuid.clone(),
        kind: of.kind.clone(),
        capacity_bytes: Bytes(of.capacity).to_wire(),
    }
}

/// Fills what a plan was asked for and what was found besides it into its message.
pub(super) fn fill(plan: &mut v1::Plan, content: &PlanContent) {
    let (asked, found) = (&content.asked, &content.found);
    plan.shape = v1::PlanShape::from(asked.shape).into();
    plan.objective = asked.objective.map_or(v1::Objective::Unspecified, Into::into).into();
    plan.memory_unit = v1::MemoryUnit::from(asked.memory_unit).into();
    plan.constraints = Some((&asked.constraints).into());
    plan.launcher = asked.launcher.map_or(v1::Launcher::Unspecified, Into::into).into();
    plan.launcher_version.clone_from(&asked.launcher_version);
    plan.cluster = asked.cluster.as_ref().map(ToString::to_string).unwrap_or_default();
    plan.iteration = iteration(content);
    plan.certificate = found.certificate.as_ref().map(|of| certificate(of, &content.solver));
    plan.baselines = found.baselines.iter().map(|of| baseline(of, content)).collect();
    plan.restriction_cost = found.restriction.as_ref().map(restriction);
    plan.front = found.front.iter().map(|of| front_point(of, content)).collect();
    plan.alternatives = found.alternatives.iter().map(|of| alternative(of, content)).collect();
    plan.hourly_price = found.hourly_price;
    plan.corrections = found.corrections.iter().map(correction).collect();
}

fn iteration(content: &PlanContent) -> Option<v1::IterationEstimate> {
    let of = content.found.iteration.as_ref()?;
    let samples = content.training.global_batch_size() as f64;
    let factor = content.found.corrections.iter().find(|correction| correction.ledger.is_none());
    Some(v1::IterationEstimate {
        iteration_seconds: of.seconds,
        closed_form_seconds: of.closed_form,
        bubble_ratio: of.bubble,
        step_seconds: of.step,
        samples_per_second: if of.seconds > 0.0 { samples / of.seconds } else { 0.0 },
        origin: v1::PredictionOrigin::from(of.origin).into(),
        links: of.links.clone(),
        correction_factor: factor.map(|correction| correction.factor),
        transfers: v1::Transfers::from(of.overlap).into(),
        transfers_reason: of.overlap_reason.clone(),
        interval: of.margin.map(|margin| SecondsInterval::around(of.seconds, margin).into()),
    })
}

fn certificate(of: &CertificateRecord, solver: &str) -> v1::Certificate {
    let rejected = |of: &RejectedRecord| v1::RejectedPlan {
        what: of.what.clone(),
        value: of.value,
        reason: of.reason.clone(),
    };
    v1::Certificate {
        solver: solver.to_owned(),
        value: of.value,
        bound: of.bound,
        gap_ratio: of.gap,
        proven: of.proven,
        unit: of.unit.clone(),
        states: i64::try_from(of.states).unwrap_or(i64::MAX),
        // Told once, with the answer to the request.
        search_seconds: 0.0,
        stopped: of.stopped,
        rejected: of.rejected.iter().map(rejected).collect(),
    }
}

fn peak(summary: &SummaryRecord, content: &PlanContent) -> v1::MemoryFigure {
    let (ledger, predictor): (Ledger, &str) = (content.ledger, &content.predictor);
    figure(summary.peak, ledger, v1::FigureSource::Predicted, predictor)
}

fn baseline(of: &BaselineRecord, content: &PlanContent) -> v1::Baseline {
    let plan = of.plan.as_ref();
    v1::Baseline {
        name: of.name.clone(),
        partitioning: plan.map(|plan| (&plan.partitioning).into()),
        predicted_peak: plan.map(|plan| peak(plan, content)),
        iteration_seconds: plan.and_then(|plan| plan.seconds),
        fits: of.fits,
        peak_ratio: of.peak_ratio,
        time_ratio: of.time_ratio,
        note: of.note.clone(),
        micro_batch_size: plan.map_or(0, |plan| number(plan.micro_batch_size)),
    }
}

fn restriction(of: &RestrictionRecord) -> v1::RestrictionCost {
    v1::RestrictionCost {
        free_value: of.free_value,
        restricted_value: of.restricted_value,
        ratio: of.ratio,
        free_partitioning: Some((&of.free_partitioning).into()),
        binding: of.binding.clone(),
        free_proven: of.free_proven,
    }
}

fn front_point(of: &FrontRecord, content: &PlanContent) -> v1::FrontPoint {
    let policies = of.recompute.iter();
    v1::FrontPoint {
        predicted_peak: Some(peak(&of.summary, content)),
        iteration_seconds: of.summary.seconds.unwrap_or(0.0),
        partitioning: Some((&of.summary.partitioning).into()),
        micro_batch_size: number(of.summary.micro_batch_size),
        recompute: policies.map(|&policy| v1::RecomputePolicy::from(policy).into()).collect(),
        plan: of.plan.as_ref().map(ToString::to_string).unwrap_or_default(),
    }
}

fn alternative(of: &AlternativeRecord, content: &PlanContent) -> v1::Alternative {
    v1::Alternative {
        plan: of.plan.as_ref().map(ToString::to_string).unwrap_or_default(),
        partitioning: Some((&of.summary.partitioning).into()),
        micro_batch_size: number(of.summary.micro_batch_size),
        predicted_peak: Some(peak(&of.summary, content)),
        iteration_seconds: of.summary.seconds,
        value: of.value,
    }
}

fn correction(of: &CorrectionRecord) -> v1::Correction {
    let quantity = of.ledger.map_or(v1::Quantity::IterationSeconds, |_| v1::Quantity::PeakBytes);
    v1::Correction {
        device_kind: of.device_kind.clone(),
        predictor: of.predictor.clone(),
        quantity: quantity.into(),
        ledger: of.ledger.map_or(v1::Ledger::Unspecified, Into::into).into(),
        plans: number(of.plans),
        version: of.version.clone(),
        factor: of.factor,
        count: number(of.count),
        explanation: of.explanation.clone(),
    }
}
