//! A candidate as a plan: what a search weighed becomes what is told and kept. [`incomparable`] lists why plans must not be compared.

use std::collections::BTreeSet;

use loadmaster_launchers::rules;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::name::{PlanName, ProfileName};
use loadmaster_proto::plan::comparison::{Alternative, FrontPoint};
use loadmaster_proto::plan::findings::{AppliedCorrection, Findings, IterationEstimate};
use loadmaster_proto::plan::prediction::{Breakdown, Interval, StageSeconds};
use loadmaster_proto::plan::request::Goal;
use loadmaster_proto::plan::{Plan, PlanStage};
use loadmaster_proto::training::TrainingSpec;
use loadmaster_proto::training::actions::StageActions;

use super::problem::{ProfiledChain, Transfers};
use super::result::{QuestionError, RecommendError, Recommendation};
use super::search::{Candidate, CandidateStage};
use loadmaster_predict::forecast::{on_top, warnings};
use loadmaster_predict::{Margin, Origin, Prediction, StageSetting};
use loadmaster_search::cost::{Factors, Prices};
use loadmaster_search::fleet::PlannedFleet;
use loadmaster_search::{KindSet, StageAt};

/// A plan with its name, which follows from its content.
pub type NamedPlan = (PlanName, Plan);

/// Everything that plans of one question have in common.
pub(super) struct PlanBuilder<'a> {
    pub(super) chain: &'a ProfiledChain,
    /// By kind of device, in the fleet's order; and what its predictions are multiplied with.
    pub(super) kinds: &'a [(&'a ProfiledChain, Factors)],
    pub(super) prices: &'a Prices<'a>,
    pub(super) fleet: &'a PlannedFleet,
    pub(super) training: TrainingSpec,
    pub(super) margin: Margin,
    pub(super) goal: Goal,
    pub(super) corrections: Vec<AppliedCorrection>,
    pub(super) notes: Vec<String>,
    pub(super) transfers: Transfers,
}

impl PlanBuilder<'_> {
    /// A plan without anything besides its stages and its iteration.
    ///
    /// # Errors
    /// A stage cannot be predicted, or the launcher cannot start ranks on these devices.
    pub(super) fn plan(&self, plan: &Candidate, solver: &str) -> Result<Plan, QuestionError> {
        self.check_start(plan)?;
        let first = plan.stages.first().map(|stage| stage.choice.recompute);
        let training = TrainingSpec {
            schedule: plan.schedule,
            micro_batch_size: plan.batch.micro_batch_size,
            micro_batches: plan.batch.micro_batches,
            recompute: first.unwrap_or(self.training.recompute),
            ..self.training
        };
        let count = u32::try_from(plan.stages.len()).unwrap_or(u32::MAX);
        let mut stages = Vec::with_capacity(plan.stages.len());
        let mut settings = Vec::with_capacity(plan.stages.len());
        let mut predictions = Vec::with_capacity(plan.stages.len());
        for (stage_index, stage) in (0..count).zip(&plan.stages) {
            let setting = StageSetting {
                stage: stage.config(),
                stage_index,
                stage_count: count,
                training: TrainingSpec { recompute: stage.choice.recompute, ..training },
            };
            let prediction = self.fullest(stage.kinds, &setting)?;
            let seconds = stage.seconds.map(|of| StageSeconds {
                forward: of.forward,
                backward: of.backward,
                step: of.step,
            });
            let margin = self.margin.interval(&prediction).map(|interval| interval.margin);
            let margin = margin.filter(|_| self.unknown().is_none());
            stages.push(PlanStage {
                config: stage.config(),
                capacity: stage.capacity.0,
                predicted_peak: stage.peak.bytes,
                breakdown: prediction
                    .breakdown
                    .map(|parts| scaled(parts, prediction.bytes.0, stage.peak.bytes)),
                interval: margin.map(|margin| Interval::around(Bytes(stage.peak.bytes), margin)),
                seconds,
                seconds_margin: seconds.and_then(|_| self.seconds_margin(stage.kinds, &setting)),
                origin: prediction.origin,
                in_flight: stage.in_flight,
                recompute: stage.choice.recompute,
                devices: stage.devices.iter().map(|&device| self.fleet.placed(device)).collect(),
                actions: StageActions::default(),
                offload: None,
                saved: None,
                chunks: None,
                chunk_run: None,
            });
            settings.push(setting);
            predictions.push(prediction);
        }
        let margins: Option<Vec<f64>> = stages.iter().map(|stage| stage.seconds_margin).collect();
        let margin = margins.and_then(|margins| margins.into_iter().reduce(f64::max));
        let predictor = &*self.chain.predictor;
        let mut told = warnings(predictor, &settings, &predictions, self.margin);
        told.splice(0..0, on_top(predictor.ledger()).map(str::to_owned));
        // What makes a figure less than a peak comes before everything else.
        if let Some(unknown) = self.unknown() {
            told.retain(|warning| warning != unknown);
            told.insert(0, unknown.to_owned());
        }
        told.extend(
            predictor.across_nodes().filter(|_| stages.iter().any(PlanStage::spans_nodes)).map(str::to_owned),
        );
        told.extend(self.chain.parameter_notes(self.goal.launcher, &settings, &predictions));
        told.extend(self.notes.iter().cloned());
        Ok(Plan {
            profile: self.chain.profile.clone(),
            other_profiles: self.profiles_of_others(),
            model: self.chain.model_name.clone(),
            training,
            device_kind: self.chain.device_kind.clone(),
            stages,
            virtual_stages: plan.virtual_stages,
            predictor: predictor.name().to_owned(),
            ledger: predictor.ledger(),
            solver: solver.to_owned(),
            warnings: told,
            asked: self.goal.clone(),
            found: Findings {
                edge_seconds: if plan.closed_form.is_some() { plan.edges.clone() } else { Vec::new() },
                iteration: self.iteration(plan).map(|of| IterationEstimate { margin, ..of }),
                host: self.chain.host,
                hourly_price: plan.hourly_price,
                corrections: self.corrections.clone(),
                ..Findings::default()
            },
        })
    }

    /// # Errors
    /// The launcher numbers ranks machine by machine, equally many on each, and the stages have their devices otherwise.
    fn check_start(&self, plan: &Candidate) -> Result<(), RecommendError> {
        let fleet = &self.fleet.fleet;
        let Some(launcher) = self.goal.launcher.filter(|&launcher| rules(launcher).even_nodes) else {
            return Ok(());
        };
        let positions = plan.stages.len() / plan.virtual_stages.max(1) as usize;
        let ranks = plan.stages.iter().take(positions).flat_map(|stage| stage.devices.iter().copied());
        if fleet.is_machine_by_machine(ranks) {
            return Ok(());
        }
        Err(RecommendError::Launcher(format!(
            "{launcher} starts equally many ranks on each node, node by node, and the stages have their devices in another order: \
             leave out the partitioning, which has {launcher}'s order searched for, or leave out the launcher"
        )))
    }

    /// The plan of a recommendation, and the plans that came next, as plans of their own.
    pub(super) fn recommendation(
        &self,
        found: &Recommendation,
    ) -> Result<(Plan, Vec<NamedPlan>), QuestionError> {
        let solver = &found.solver;
        let mut others: Vec<NamedPlan> = Vec::new();
        let mut store = |plan: &Candidate| -> Result<PlanName, QuestionError> {
            let plan = self.plan(plan, solver)?;
            let name = plan.name()?;
            if others.iter().all(|(other, _)| *other != name) {
                others.push((name.clone(), plan));
            }
            Ok(name)
        };
        let mut alternatives = Vec::with_capacity(found.alternatives.len());
        for (plan, value) in &found.alternatives {
            let name = store(plan)?;
            alternatives.push(Alternative { plan: Some(name), summary: plan.outline()?, value: *value });
        }
        let mut front = Vec::with_capacity(found.front.len());
        for plan in found.front.iter().rev() {
            front.push(FrontPoint {
                plan: Some(store(plan)?),
                summary: plan.outline()?,
                recompute: plan.stages.iter().map(|stage| stage.choice.recompute).collect(),
            });
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

    /// Profiles of other kinds of devices than the first one's.
    fn profiles_of_others(&self) -> Vec<ProfileName> {
        let mut others: Vec<ProfileName> = Vec::new();
        for (chain, _) in self.kinds {
            if chain.profile != self.chain.profile && !others.contains(&chain.profile) {
                others.push(chain.profile.clone());
            }
        }
        others
    }

    /// What devices hold and no figure shows, of any kind of device.
    fn unknown(&self) -> Option<&'static str> {
        let others = self.kinds.iter().map(|(chain, _)| *chain);
        std::iter::once(self.chain).chain(others).find_map(|chain| chain.predictor.unknown())
    }

    /// The prediction of the kind of device that the stage fills most, before any correction.
    fn fullest(&self, kinds: KindSet, setting: &StageSetting) -> Result<Prediction, QuestionError> {
        let mut fullest: Option<Prediction> = None;
        for kind in kinds.kinds() {
            let Some((chain, _)) = self.kinds.get(kind) else { continue };
            let predicted = chain.predictor.stage(setting)?;
            if fullest.as_ref().is_none_or(|most| predicted.bytes > most.bytes) {
                fullest = Some(predicted);
            }
        }
        match fullest {
            Some(fullest) => Ok(fullest),
            None => Ok(self.chain.predictor.stage(setting)?),
        }
    }

    /// How far the seconds of a stage may be off, on the kind of device where they are known least.
    fn seconds_margin(&self, kinds: KindSet, setting: &StageSetting) -> Option<f64> {
        let own = kinds.kinds().filter_map(|kind| self.kinds.get(kind)).map(|(chain, _)| *chain);
        let mut chains: Vec<&ProfiledChain> = own.collect();
        if chains.is_empty() {
            chains.push(self.chain);
        }
        let margins: Option<Vec<f64>> =
            chains.iter().map(|chain| chain.predictor.stage(setting).ok()?.seconds_margin).collect();
        margins?.into_iter().reduce(f64::max)
    }

    /// How far the seconds of a plan's stages are from what was profiled; none without times.
    fn origin(&self, plan: &Candidate) -> Option<Origin> {
        let of_stage = |stage: &CandidateStage| {
            let at = StageAt::anywhere(stage.first, stage.last, stage.kinds);
            self.prices.origin(plan.schedule, plan.batch, stage.choice, &at)
        };
        plan.stages.iter().map(of_stage).collect::<Option<Vec<Origin>>>()?.into_iter().max()
    }

    fn iteration(&self, plan: &Candidate) -> Option<IterationEstimate> {
        let closed_form = plan.closed_form?;
        let timeline = plan.timeline();
        let step = plan.stages.iter().filter_map(|stage| stage.seconds).map(|of| of.step).fold(0.0, f64::max);
        let simulated = timeline.as_ref().map(|of| of.iteration_seconds);
        Some(IterationEstimate {
            seconds: simulated.unwrap_or(closed_form),
            closed_form,
            bubble: timeline.as_ref().map_or(0.0, |of| of.bubble),
            step: timeline.map_or(step, |of| of.iteration_seconds - of.passes_seconds),
            origin: self.origin(plan).unwrap_or(Origin::Extrapolated),
            links: self.fleet.link_origins(),
            overlap: plan.overlap,
            overlap_reason: self.transfers.reason.clone(),
            margin: None,
        })
    }
}

/// A front of plans, the fastest first, as it is told: the least memory first, and each as a plan of its own.
///
/// # Errors
/// The stages of a plan do not follow each other.
pub(super) fn front_points(plans: Vec<Plan>) -> Result<(Vec<FrontPoint>, Vec<NamedPlan>), QuestionError> {
    let mut others: Vec<NamedPlan> = Vec::with_capacity(plans.len());
    let mut front = Vec::with_capacity(plans.len());
    for plan in plans.into_iter().rev() {
        let name = plan.name()?;
        front.push(FrontPoint {
            plan: Some(name.clone()),
            summary: plan.outline()?,
            recompute: plan.stages.iter().map(|stage| stage.recompute).collect(),
        });
        if others.iter().all(|(other, _)| *other != name) {
            others.push((name, plan));
        }
    }
    Ok((front, others))
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
pub fn incomparable(plans: &[&Plan]) -> Vec<String> {
    let differ = |field: &dyn Fn(&Plan) -> String| {
        let values: BTreeSet<String> = plans.iter().map(|plan| field(plan)).collect();
        (values.len() > 1).then(|| values.into_iter().collect::<Vec<_>>().join(", "))
    };
    let mut warnings = Vec::new();
    if let Some(models) = differ(&|plan| plan.model.to_string()) {
        warnings.push(format!("the plans are of different models: {models}"));
    }
    if let Some(batches) = differ(&|plan| plan.training.global_batch_size().to_string()) {
        warnings.push(format!(
            "an iteration has different numbers of samples ({batches}): compare samples per second, not seconds"
        ));
    }
    if let Some(ledgers) = differ(&|plan| plan.ledger.as_str().to_owned()) {
        warnings.push(format!("bytes are of different ledgers ({ledgers}) and must not be compared"));
    }
    if let Some(profiles) = differ(&|plan| plan.profile.to_string()) {
        warnings.push(format!("the predictions come from different profiles: {profiles}"));
    }
    if let Some(predictors) = differ(&|plan| plan.predictor.clone()) {
        warnings.push(format!("the predictions come from different predictors: {predictors}"));
    }
    let corrected = |plan: &Plan| {
        let versions: Vec<&str> =
            plan.found.corrections.iter().map(|correction| correction.version.as_str()).collect();
        if versions.is_empty() { "none".to_owned() } else { versions.join("+") }
    };
    if let Some(versions) = differ(&corrected) {
        warnings.push(format!("the predictions are corrected differently: {versions}"));
    }
    let overlaps: BTreeSet<String> =
        plans.iter().filter_map(|plan| Some(plan.found.iteration.as_ref()?.overlap.to_string())).collect();
    if overlaps.len() > 1 {
        let overlaps = overlaps.into_iter().collect::<Vec<_>>().join(", ");
        warnings.push(format!("the seconds are of different transfers between stages: {overlaps}"));
    }
    warnings
}
