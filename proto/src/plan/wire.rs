//! Plans as messages; they only ever travel from the planner to its callers.

use super::findings::{Certificate, Rejected};
use crate::accounting::Accounting;
use crate::bytes::Bytes;
use crate::plan::comparison::{Alternative, Baseline, FrontPoint, Outline, RestrictionCost};
use crate::plan::findings::AppliedCorrection;
use crate::plan::prediction::SecondsInterval;
use crate::plan::{PlacedDevice, Plan, PlanStage};
use crate::wire::{ToWire, v1};

impl v1::MemoryFigure {
    /// Bytes that a predictor expects.
    pub fn predicted(bytes: u64, ledger: Accounting, predictor: &str) -> Self {
        Self {
            bytes: Bytes(bytes).to_wire(),
            accounting: v1::MemoryAccounting::from(ledger).into(),
            origin: v1::FigureOrigin::Predicted.into(),
            producer: predictor.to_owned(),
        }
    }
}

impl From<&Plan> for v1::Plan {
    /// Sets all fields but those that are stored beside a plan: names of layers, trials, reports, its creation time.
    fn from(plan: &Plan) -> Self {
        let Plan { asked, found, .. } = plan;
        Self {
            profile: plan.profile.to_string(),
            other_profiles: plan.other_profiles.iter().map(ToString::to_string).collect(),
            model: plan.model.to_string(),
            training: Some(plan.training.into()),
            devices: device_groups(plan),
            stages: plan.stages.iter().map(|of| stage(of, plan)).collect(),
            predicted_peak: Some(predicted(plan.peak(), plan)),
            solver: plan.solver.clone(),
            warnings: crate::warning::sent(&plan.warnings),
            parallelism_layout: v1::ParallelismLayout::from(asked.shape).into(),
            objective: asked.objective.map_or(v1::Objective::Unspecified, Into::into).into(),
            memory_unit: v1::MemoryUnit::from(asked.memory_unit).into(),
            constraints: Some((&asked.constraints).into()),
            framework: asked.framework.to_wire(),
            framework_version: asked.framework_version.clone(),
            cluster: asked.cluster.as_ref().map(ToString::to_string).unwrap_or_default(),
            iteration: iteration(plan),
            certificate: found.certificate.as_ref().map(|of| certificate(of, &plan.solver)),
            baselines: found.baselines.iter().map(|of| baseline(of, plan)).collect(),
            restriction_cost: found.restriction.as_ref().map(Into::into),
            front: found.front.iter().map(|of| front_point(of, plan)).collect(),
            alternatives: found.alternatives.iter().map(|of| alternative(of, plan)).collect(),
            hourly_price: found.hourly_price,
            calibrations: found.corrections.iter().map(Into::into).collect(),
            virtual_stage_count: if plan.is_interleaved() { plan.virtual_stages.to_wire() } else { 0 },
            layout_notation: plan.partition(),
            device_count: plan.device_count().to_wire(),
            verdict: v1::Verdict::from(plan.verdict()).into(),
            ..Self::default()
        }
    }
}

fn predicted(bytes: u64, plan: &Plan) -> v1::MemoryFigure {
    v1::MemoryFigure::predicted(bytes, plan.ledger, &plan.predictor)
}

fn stage(of: &PlanStage, plan: &Plan) -> v1::PlanStage {
    v1::PlanStage {
        config: Some(of.config.into()),
        capacity_bytes: Bytes(of.capacity).to_wire(),
        predicted_peak: Some(predicted(of.predicted_peak, plan)),
        breakdown: of.breakdown.map(|breakdown| breakdown.to_wire(plan.ledger)),
        interval: of.interval.map(Into::into),
        seconds: of.seconds.map(Into::into),
        seconds_margin_ratio: of.seconds_margin,
        coverage: v1::ProfileCoverage::from(of.origin).into(),
        in_flight_micro_batch_count: of.in_flight.to_wire(),
        recompute: v1::RecomputePolicy::from(of.recompute).into(),
        memory_optimizations: (!of.actions.is_empty()).then(|| (&of.actions).into()),
        offload_traffic: of.offload.as_ref().map(Into::into),
        saved_bytes: of.saved.map(Into::into),
        chunked_training: of.chunks.as_deref().map(Into::into),
        chunk_traffic: of.chunk_run.as_deref().map(Into::into),
        device_ranges: v1::DeviceRange::of(of.devices.iter().map(Into::into)),
        ..v1::PlanStage::default()
    }
}

impl From<&PlacedDevice> for v1::PlacedDevice {
    fn from(of: &PlacedDevice) -> Self {
        Self {
            node: of.node.clone(),
            index: of.index.to_wire(),
            uuid: of.uuid.clone(),
            kind: of.kind.clone(),
            capacity_bytes: Bytes(of.capacity).to_wire(),
        }
    }
}

/// Neighbouring devices of equal kind and capacity as one group.
fn device_groups(plan: &Plan) -> Vec<v1::DeviceGroup> {
    let mut groups: Vec<v1::DeviceGroup> = Vec::new();
    for stage in plan.first_stages() {
        // Plans name their devices, but for those that were stored without.
        let unnamed = stage.devices.is_empty().then(|| {
            let capacity = Bytes(stage.capacity).to_wire();
            (stage.config.devices().to_wire(), capacity, plan.device_kind.clone())
        });
        let named = stage.devices.iter().map(|of| (1, Bytes(of.capacity).to_wire(), of.kind.clone()));
        for (count, capacity_bytes, kind) in unnamed.into_iter().chain(named) {
            match groups.last_mut() {
                Some(group) if (group.capacity_bytes, &group.kind) == (capacity_bytes, &kind) => {
                    group.count += count;
                }
                _ => groups.push(v1::DeviceGroup { count, capacity_bytes, kind }),
            }
        }
    }
    groups
}

fn iteration(plan: &Plan) -> Option<v1::IterationEstimate> {
    let of = plan.found.iteration.as_ref()?;
    let samples = plan.training.global_batch_size() as f64;
    let factor = plan.found.corrections.iter().find(|correction| correction.ledger.is_none());
    Some(v1::IterationEstimate {
        iteration_seconds: of.seconds,
        closed_form_seconds: of.closed_form,
        bubble_ratio: of.bubble,
        optimizer_step_seconds: of.step,
        samples_per_second: if of.seconds > 0.0 { samples / of.seconds } else { 0.0 },
        coverage: v1::ProfileCoverage::from(of.origin).into(),
        link_speed_origin: of.links.clone(),
        calibration_factor: factor.map(|correction| correction.factor),
        communication_overlap: v1::CommunicationOverlap::from(of.overlap).into(),
        communication_overlap_reason: of.overlap_reason.clone(),
        interval: of.margin.map(|margin| SecondsInterval::around(of.seconds, margin).into()),
    })
}

fn certificate(of: &Certificate, solver: &str) -> v1::Certificate {
    v1::Certificate {
        solver: solver.to_owned(),
        objective_value: of.value,
        best_bound: of.bound,
        optimality_gap: of.gap,
        optimal: of.proven,
        unit: of.unit.clone(),
        state_count: of.states.to_wire(),
        // Told once, with the answer to the request.
        search_seconds: 0.0,
        deadline_reached: of.stopped,
        rejected_plans: of.rejected.iter().map(Into::into).collect(),
        fewest_fetched_bytes: of.fetches_fewest,
    }
}

impl From<&Rejected> for v1::RejectedPlan {
    fn from(of: &Rejected) -> Self {
        Self { description: of.what.clone(), value: of.value, reason: of.reason.clone() }
    }
}

fn baseline(of: &Baseline, plan: &Plan) -> v1::Baseline {
    let outline = of.plan.as_ref();
    v1::Baseline {
        name: of.name.clone(),
        pipeline_layout: outline.map(|of| (&of.partitioning).into()),
        predicted_peak: outline.map(|of| predicted(of.peak, plan)),
        iteration_seconds: outline.and_then(|of| of.seconds),
        fits: of.fits,
        peak_ratio: of.peak_ratio,
        time_ratio: of.time_ratio,
        note: of.note.clone(),
        micro_batch_size: outline.map_or(0, |of| of.micro_batch_size.to_wire()),
    }
}

impl From<&RestrictionCost> for v1::RestrictionCost {
    fn from(of: &RestrictionCost) -> Self {
        Self {
            free_value: of.free_value,
            restricted_value: of.restricted_value,
            ratio: of.ratio,
            free_pipeline_layout: Some((&of.free_partitioning).into()),
            binding_restrictions: of.placement.clone(),
            free_optimal: of.free_proven,
        }
    }
}

fn front_point(of: &FrontPoint, plan: &Plan) -> v1::FrontPoint {
    let Outline { partitioning, micro_batch_size, peak, seconds } = &of.summary;
    let policies = of.recompute.iter();
    v1::FrontPoint {
        predicted_peak: Some(predicted(*peak, plan)),
        iteration_seconds: seconds.unwrap_or(0.0),
        pipeline_layout: Some(partitioning.into()),
        micro_batch_size: micro_batch_size.to_wire(),
        stage_recompute_policies: policies.map(|&policy| v1::RecomputePolicy::from(policy).into()).collect(),
        plan: of.plan.as_ref().map(ToString::to_string).unwrap_or_default(),
    }
}

fn alternative(of: &Alternative, plan: &Plan) -> v1::Alternative {
    let Outline { partitioning, micro_batch_size, peak, seconds } = &of.summary;
    v1::Alternative {
        plan: of.plan.as_ref().map(ToString::to_string).unwrap_or_default(),
        pipeline_layout: Some(partitioning.into()),
        micro_batch_size: micro_batch_size.to_wire(),
        predicted_peak: Some(predicted(*peak, plan)),
        iteration_seconds: *seconds,
        objective_value: of.value,
    }
}

impl From<&AppliedCorrection> for v1::Calibration {
    fn from(of: &AppliedCorrection) -> Self {
        let quantity = of.ledger.map_or(v1::Quantity::IterationSeconds, |_| v1::Quantity::PeakBytes);
        Self {
            device_kind: of.device_kind.clone(),
            predictor: of.predictor.clone(),
            quantity: quantity.into(),
            accounting: of.ledger.map_or(v1::MemoryAccounting::Unspecified, Into::into).into(),
            plan_count: of.plans.to_wire(),
            version: of.version.clone(),
            factor: of.factor,
            pair_count: of.count.to_wire(),
            explanation: of.explanation.clone(),
        }
    }
}
