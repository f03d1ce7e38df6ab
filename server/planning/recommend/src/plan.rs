//! A candidate as a plan: what a search weighed becomes what is reported and kept. [`incomparable`] lists why plans
//! must not be compared.

use std::collections::BTreeSet;

use loadmaster_launchers::rules;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::name::PlanName;
use loadmaster_proto::plan::comparison::{Alternative, FrontPoint};
use loadmaster_proto::plan::findings::{Findings, IterationEstimate};
use loadmaster_proto::plan::prediction::{Breakdown, Interval, StageSeconds};
use loadmaster_proto::plan::{Plan, PlanStage};
use loadmaster_proto::training::TrainingSpec;
use loadmaster_proto::training::actions::StageActions;
use loadmaster_proto::warning::{Warning, WarningCode};

use super::context::Context;
use super::problem::ProfiledChain;
use super::result::{QuestionError, RecommendError, Recommendation};
use super::search::Candidate;
use loadmaster_predict::forecast::{on_top, warnings};
use loadmaster_predict::{Origin, Prediction};
use loadmaster_search::Seconds;

/// A plan with its name, which follows from its content.
pub type NamedPlan = (PlanName, Plan);

/// Makes plans of candidates, and of what was found about their stages.
pub(super) struct PlanBuilder<'a> {
    pub(super) context: &'a Context<'a>,
}

impl PlanBuilder<'_> {
    /// A plan without anything besides its stages and its iteration.
    ///
    /// # Errors
    /// A stage cannot be predicted, or the framework cannot start ranks on these devices.
    pub(super) fn plan(&self, plan: &Candidate, solver: &str) -> Result<Plan, QuestionError> {
        self.check_start(plan)?;
        let context = self.context;
        let first = plan.stages.first().map(|stage| stage.choice.recompute);
        let training = TrainingSpec {
            schedule: plan.schedule,
            micro_batch_size: plan.batch.micro_batch_size,
            micro_batches: plan.batch.micro_batches,
            recompute: first.unwrap_or(context.training.recompute),
            ..context.training
        };
        let settings = context.settings(plan);
        let mut stages = Vec::with_capacity(plan.stages.len());
        let mut predictions = Vec::with_capacity(plan.stages.len());
        for (stage, setting) in plan.stages.iter().zip(&settings) {
            let prediction = context.fullest(stage.kinds, setting)?;
            let seconds = stage.seconds.map(|Seconds { forward, backward, step }| StageSeconds {
                forward,
                backward,
                step,
            });
            let margin = context.margin.interval(&prediction).map(|interval| interval.margin);
            let margin = margin.filter(|_| context.unknown().is_none());
            stages.push(PlanStage {
                config: stage.config(),
                capacity: stage.capacity.0,
                predicted_peak: stage.peak.bytes,
                breakdown: prediction
                    .breakdown
                    .map(|parts| scaled(parts, prediction.bytes.0, stage.peak.bytes)),
                interval: margin.map(|margin| Interval::around(Bytes(stage.peak.bytes), margin)),
                seconds,
                seconds_margin: seconds.and_then(|_| context.seconds_margin(stage.kinds, setting)),
                origin: prediction.origin,
                in_flight: stage.in_flight,
                recompute: stage.choice.recompute,
                devices: context.placed(&stage.devices),
                actions: StageActions::default(),
                offload: None,
                saved: None,
                chunks: None,
                chunk_run: None,
            });
            predictions.push(prediction);
        }
        let margins: Option<Vec<f64>> = stages.iter().map(|stage| stage.seconds_margin).collect();
        let margin = margins.and_then(|margins| margins.into_iter().reduce(f64::max));
        let predictor = &*context.chain.predictor;
        let mut told = warnings(predictor, &settings, &predictions, context.margin);
        told.splice(0..0, on_top(predictor.ledger()));
        // What makes a figure less than a peak comes before everything else.
        if let Some(unknown) = context.unknown() {
            told.retain(|warning| warning.code != WarningCode::OverheadUnknown);
            told.insert(0, WarningCode::OverheadUnknown.says(unknown));
        }
        let apart = predictor.across_nodes().filter(|_| stages.iter().any(PlanStage::spans_nodes));
        told.extend(apart.map(|why| WarningCode::ShardsAcrossNodes.says(why)));
        told.extend(context.chain.parameter_notes(context.goal.framework, &settings, &predictions));
        told.extend(context.notes.iter().cloned());
        let empty = self.empty(context.chain, training, solver);
        Ok(Plan {
            other_profiles: context.profiles_of_others(),
            stages,
            virtual_stages: plan.virtual_stages,
            warnings: told,
            found: Findings {
                edge_seconds: if plan.closed_form.is_some() { plan.edges.clone() } else { Vec::new() },
                iteration: self.iteration(plan, margin),
                hourly_price: plan.hourly_price,
                ..empty.found
            },
            ..empty
        })
    }

    /// A plan by a profile, of which no stage is written yet, nor what was found of it.
    pub(super) fn empty(&self, chain: &ProfiledChain, training: TrainingSpec, solver: &str) -> Plan {
        let Context { chain: first, goal, corrections, .. } = self.context;
        Plan {
            profile: first.profile.clone(),
            other_profiles: Vec::new(),
            model: first.model_name.clone(),
            training,
            device_kind: chain.device_kind.clone(),
            stages: Vec::new(),
            virtual_stages: 1,
            predictor: chain.predictor.name().to_owned(),
            ledger: chain.predictor.ledger(),
            solver: solver.to_owned(),
            warnings: Vec::new(),
            asked: goal.clone(),
            found: Findings { host: first.host, corrections: corrections.clone(), ..Findings::default() },
        }
    }

    /// Gives a stage the bytes of a prediction with its memory optimizations.
    pub(super) fn rewrite(&self, stage: &mut PlanStage, prediction: &Prediction) {
        let bytes = prediction.bytes.0;
        let peak = self.context.corrected(bytes);
        stage.predicted_peak = peak;
        stage.breakdown = prediction.breakdown.map(|parts| scaled(parts, bytes, peak));
        let margin = self.context.margin.interval(prediction).map(|interval| interval.margin);
        stage.interval = margin.map(|margin| Interval::around(Bytes(peak), margin));
        stage.origin = prediction.origin;
    }

    /// # Errors
    /// The framework numbers ranks machine by machine, equally many on each, and the stages have their devices otherwise.
    fn check_start(&self, plan: &Candidate) -> Result<(), RecommendError> {
        let fleet = &self.context.fleet.fleet;
        let Some(framework) = self.context.goal.framework.filter(|&framework| rules(framework).even_nodes)
        else {
            return Ok(());
        };
        let positions = plan.stages.len() / plan.virtual_stages.max(1) as usize;
        let ranks = plan.stages.iter().take(positions).flat_map(|stage| stage.devices.iter().copied());
        if fleet.is_machine_by_machine(ranks) {
            return Ok(());
        }
        Err(RecommendError::Framework(format!(
            "{framework} starts equally many ranks on each node, node by node, but the stages use the devices in another \
             order. Remove the pipeline layout, so that {framework}'s order is searched, or remove the framework"
        )))
    }

    /// The plan of a recommendation, and the plans that came next, as plans of their own.
    pub(super) fn recommendation(
        &self,
        found: &Recommendation,
    ) -> Result<(Plan, Vec<NamedPlan>), QuestionError> {
        let solver = &found.solver;
        let mut others: Vec<NamedPlan> = Vec::new();
        let mut store = |plan: &Candidate| keep(&mut others, self.plan(plan, solver)?);
        let mut alternatives = Vec::with_capacity(found.alternatives.len());
        for (plan, value) in &found.alternatives {
            let name = store(plan)?;
            alternatives.push(Alternative { plan: Some(name), summary: plan.outline()?, value: *value });
        }
        let mut front = Vec::with_capacity(found.front.len());
        for plan in found.front.iter().rev() {
            let recompute = plan.stages.iter().map(|stage| stage.choice.recompute).collect();
            front.push(FrontPoint { plan: Some(store(plan)?), summary: plan.outline()?, recompute });
        }
        let mut content = self.plan(&found.best, solver)?;
        content.warnings.extend(found.notes.iter().cloned());
        content.found.certificate = Some(found.certificate.clone());
        content.found.alternatives = alternatives;
        content.found.front = front;
        content.found.baselines = found.compared.clone();
        content.found.restriction = found.restriction.clone();
        Ok((content, others))
    }

    fn iteration(&self, plan: &Candidate, margin: Option<f64>) -> Option<IterationEstimate> {
        let Context { fleet, transfers, .. } = self.context;
        let closed_form = plan.closed_form?;
        let timeline = plan.timeline();
        let step =
            plan.stages.iter().filter_map(|stage| stage.seconds).map(|own| own.step).fold(0.0, f64::max);
        let simulated = timeline.as_ref().map(|whole| whole.iteration_seconds);
        Some(IterationEstimate {
            seconds: simulated.unwrap_or(closed_form),
            closed_form,
            bubble: timeline.as_ref().map_or(0.0, |whole| whole.bubble),
            step: timeline.map_or(step, |whole| whole.iteration_seconds - whole.passes_seconds),
            origin: self.context.origin(plan).unwrap_or(Origin::Extrapolated),
            links: fleet.link_origins(),
            overlap: plan.overlap,
            overlap_reason: transfers.reason.clone(),
            margin,
        })
    }
}

/// A front of plans, the fastest first, as it is reported: the least memory first, and each as a plan of its own.
///
/// # Errors
/// The stages of a plan do not follow each other.
pub(super) fn front_points(plans: Vec<Plan>) -> Result<(Vec<FrontPoint>, Vec<NamedPlan>), QuestionError> {
    let mut others: Vec<NamedPlan> = Vec::with_capacity(plans.len());
    let mut front = Vec::with_capacity(plans.len());
    for plan in plans.into_iter().rev() {
        let recompute = plan.stages.iter().map(|stage| stage.recompute).collect();
        let summary = plan.outline()?;
        front.push(FrontPoint { plan: Some(keep(&mut others, plan)?), summary, recompute });
    }
    Ok((front, others))
}

/// Keeps a plan among those that another one names, each once; and its name.
///
/// # Errors
/// Its content has no name.
pub(super) fn keep(others: &mut Vec<NamedPlan>, plan: Plan) -> Result<PlanName, QuestionError> {
    let name = plan.name()?;
    if others.iter().all(|(other, _)| *other != name) {
        others.push((name.clone(), plan));
    }
    Ok(name)
}

/// Parts of a prediction in proportion, so that they add up to the corrected peak.
pub(super) fn scaled(parts: Breakdown, predicted: u64, peak: u64) -> Breakdown {
    if predicted == peak || predicted == 0 {
        return parts;
    }
    let factor = peak as f64 / predicted as f64;
    let times = |bytes: u64| (bytes as f64 * factor).floor() as u64;
    let mut scaled = Breakdown {
        weights: times(parts.weights),
        gradients: times(parts.gradients),
        optimizer: times(parts.optimizer),
        activations: times(parts.activations),
        edges: times(parts.edges),
        communication: times(parts.communication),
        transient: times(parts.transient),
        overhead: times(parts.overhead),
    };
    // What rounding took away.
    scaled.overhead += peak.saturating_sub(scaled.total());
    scaled
}

/// Returns the reasons why the numbers of plans are incomparable.
pub fn incomparable(plans: &[&Plan]) -> Vec<Warning> {
    let differ = |field: &dyn Fn(&Plan) -> String| {
        let values: BTreeSet<String> = plans.iter().map(|plan| field(plan)).collect();
        (values.len() > 1).then(|| values.into_iter().collect::<Vec<_>>().join(", "))
    };
    let mut warnings = Vec::new();
    if let Some(models) = differ(&|plan| plan.model.to_string()) {
        warnings.push(WarningCode::ModelsDiffer.says(format!("the plans have different models: {models}")));
    }
    if let Some(batches) = differ(&|plan| plan.training.global_batch_size().to_string()) {
        warnings.push(WarningCode::BatchesDiffer.says(format!(
            "the plans have different numbers of samples per iteration ({batches}). Compare samples per second, not seconds"
        )));
    }
    if let Some(ledgers) = differ(&|plan| plan.ledger.as_str().to_owned()) {
        warnings.push(WarningCode::AccountingsDiffer.says(format!(
            "the plans have bytes of different memory accountings ({ledgers}), which cannot be compared"
        )));
    }
    if let Some(profiles) = differ(&|plan| plan.profile.to_string()) {
        warnings.push(
            WarningCode::ProfilesDiffer
                .says(format!("the predictions come from different profiles: {profiles}")),
        );
    }
    if let Some(predictors) = differ(&|plan| plan.predictor.clone()) {
        warnings.push(
            WarningCode::PredictorsDiffer
                .says(format!("the predictions come from different predictors: {predictors}")),
        );
    }
    let corrected = |plan: &Plan| {
        let versions: Vec<&str> =
            plan.found.corrections.iter().map(|correction| correction.version.as_str()).collect();
        if versions.is_empty() { "none".to_owned() } else { versions.join("+") }
    };
    if let Some(versions) = differ(&corrected) {
        warnings.push(
            WarningCode::CalibrationsDiffer
                .says(format!("the predictions have different calibrations: {versions}")),
        );
    }
    let overlaps: BTreeSet<String> =
        plans.iter().filter_map(|plan| Some(plan.found.iteration.as_ref()?.overlap.to_string())).collect();
    if overlaps.len() > 1 {
        let overlaps = overlaps.into_iter().collect::<Vec<_>>().join(", ");
        warnings.push(WarningCode::OverlapsDiffer.says(format!(
            "the plans assume different communication overlap between stages: {overlaps}. The \
                    predicted times of the plans differ partly for this reason"
        )));
    }
    warnings
}
