//! A plan as it is stored, from what a search found.

use loadmaster_proto::name::{PlanName, ProfileName};
use loadmaster_proto::plan::prediction::{Breakdown, Interval, StageSeconds};
use loadmaster_proto::training::TrainingSpec;

use super::Subject;
use super::site::Site;
use crate::rpc::error::ApiError;
use loadmaster_planning::predict::{on_top, warnings};
use loadmaster_planning::predictor::{Margin, Origin, Prediction, StageSetting};
use loadmaster_planning::recommend::{Candidate, Factors, GIVEN, Prices, Recommendation, Transfers, holds};
use loadmaster_planning::search::KindSet;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::PlanStage;
use loadmaster_proto::plan::compared::Alternative;
use loadmaster_proto::plan::compared::FrontPoint;
use loadmaster_proto::plan::findings::AppliedCorrection;
use loadmaster_proto::plan::findings::Findings;
use loadmaster_proto::plan::findings::IterationEstimate;
use loadmaster_proto::plan::goal::Goal;

/// Everything that plans of one request have in common.
pub(super) struct Writer<'a> {
    pub(super) profile: &'a ProfileName,
    pub(super) subject: &'a Subject,
    /// By kind of device, in the fleet's order; the predictor, and what it is multiplied with.
    pub(super) kinds: &'a [(&'a Subject, Factors)],
    pub(super) prices: &'a Prices<'a>,
    pub(super) site: &'a Site,
    pub(super) training: TrainingSpec,
    pub(super) margin: Margin,
    pub(super) asked: Goal,
    pub(super) corrections: Vec<AppliedCorrection>,
    pub(super) notes: Vec<String>,
    pub(super) transfers: Transfers,
}

/// A plan with its name, which follows from its content.
pub(super) type Written = (PlanName, Plan);

impl Writer<'_> {
    /// A plan without anything besides its stages and its iteration.
    pub(super) fn plan(&self, plan: &Candidate, solver: &str) -> Result<Plan, ApiError> {
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
                interval: margin
                    .map(|margin| Interval::around(loadmaster_proto::bytes::Bytes(stage.peak.bytes), margin)),
                seconds,
                seconds_margin: seconds.and_then(|_| self.seconds_margin(stage.kinds, &setting)),
                origin: prediction.origin,
                in_flight: stage.in_flight,
                recompute: stage.choice.recompute,
                devices: stage.devices.iter().map(|&device| self.site.record(device)).collect(),
            });
            settings.push(setting);
            predictions.push(prediction);
        }
        let margins: Option<Vec<f64>> = stages.iter().map(|stage| stage.seconds_margin).collect();
        let margin = margins.and_then(|margins| margins.into_iter().reduce(f64::max));
        let predictor = &*self.subject.predictor;
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
        let copies = predictor.copies_bytes_per_parameter();
        told.extend(
            self.asked.launcher.and_then(|launcher| holds::note(launcher, &settings, &predictions, copies)),
        );
        told.extend(self.notes.iter().cloned());
        Ok(Plan {
            profile: self.profile.clone(),
            model: self.subject.profile.settings.model.clone(),
            training,
            device_kind: self.subject.profile.settings.device_kind.clone(),
            stages,
            predictor: predictor.name().to_owned(),
            ledger: predictor.ledger(),
            solver: solver.to_owned(),
            warnings: told,
            asked: self.asked.clone(),
            found: Findings {
                edge_seconds: if plan.closed_form.is_some() { plan.edges.clone() } else { Vec::new() },
                iteration: self.iteration(plan).map(|of| IterationEstimate { margin, ..of }),
                host: self.subject.host,
                hourly_price: plan.hourly_price,
                corrections: self.corrections.clone(),
                ..Findings::default()
            },
        })
    }

    /// The plan of a recommendation, and the plans that came next, as plans of their own.
    pub(super) fn recommendation(&self, found: &Recommendation) -> Result<(Plan, Vec<Written>), ApiError> {
        let solver = &found.solver;
        let mut others: Vec<Written> = Vec::new();
        let mut store = |plan: &Candidate| -> Result<PlanName, ApiError> {
            let written = named(self.plan(plan, solver)?)?;
            let name = written.0.clone();
            if others.iter().all(|(other, _)| *other != name) {
                others.push(written);
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

    /// The plan that its caller named.
    pub(super) fn given(&self, plan: &Candidate) -> Result<Plan, ApiError> {
        self.plan(plan, GIVEN)
    }

    /// What devices hold and no figure shows, of any kind of device.
    fn unknown(&self) -> Option<&'static str> {
        let others = self.kinds.iter().map(|(subject, _)| *subject);
        std::iter::once(self.subject).chain(others).find_map(|subject| subject.predictor.unknown())
    }

    /// The prediction of the kind of device that the stage fills most, before any correction.
    fn fullest(&self, kinds: KindSet, setting: &StageSetting) -> Result<Prediction, ApiError> {
        let mut fullest: Option<Prediction> = None;
        for kind in kinds.kinds() {
            let Some((subject, _)) = self.kinds.get(kind) else { continue };
            let predicted =
                subject.predictor.stage(setting).map_err(|error| ApiError::Forecast(error.into()))?;
            if fullest.as_ref().is_none_or(|most| predicted.bytes > most.bytes) {
                fullest = Some(predicted);
            }
        }
        match fullest {
            Some(fullest) => Ok(fullest),
            None => {
                let predicted = self.subject.predictor.stage(setting);
                predicted.map_err(|error| ApiError::Forecast(error.into()))
            }
        }
    }

    /// How far the seconds of a stage may be off, on the kind of device where they are known least.
    fn seconds_margin(&self, kinds: KindSet, setting: &StageSetting) -> Option<f64> {
        let own = kinds.kinds().filter_map(|kind| self.kinds.get(kind)).map(|(subject, _)| *subject);
        let mut subjects: Vec<&Subject> = own.collect();
        if subjects.is_empty() {
            subjects.push(self.subject);
        }
        let margins: Option<Vec<f64>> =
            subjects.iter().map(|subject| subject.predictor.stage(setting).ok()?.seconds_margin).collect();
        margins?.into_iter().reduce(f64::max)
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
            origin: self.prices.origin(plan).unwrap_or(Origin::Extrapolated),
            links: self.site.links(),
            overlap: plan.overlap,
            overlap_reason: self.transfers.reason.clone(),
            margin: None,
        })
    }
}

/// Gives a plan the name that follows from its content.
pub(super) fn named(content: Plan) -> Result<Written, ApiError> {
    Ok((content.name()?, content))
}

/// Parts of a prediction in proportion, so that they add up to the corrected peak.
fn scaled(parts: Breakdown, predicted: u64, peak: u64) -> Breakdown {
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
