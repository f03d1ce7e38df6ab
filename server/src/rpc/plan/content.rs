//! A plan as it is stored, from what a search found.

use loadmaster_proto::model::layer::fingerprint;
use loadmaster_proto::name::{PlanName, ProfileName};
use loadmaster_proto::plan::prediction::{Breakdown, Interval, StageSeconds};
use loadmaster_proto::training::TrainingSpec;
use loadmaster_proto::training::stage::Partitioning;

use super::Subject;
use super::site::Site;
use crate::rpc::error::ApiError;
use crate::store::records::{
    AlternativeRecord, AskedRecord, BaselineRecord, CertificateRecord, CorrectionRecord, FoundRecord,
    FrontRecord, IterationRecord, PlanContent, PlanStageRecord, RejectedRecord, RestrictionRecord,
    SummaryRecord,
};
use loadmaster_planning::predict::forecast::{on_top, warnings};
use loadmaster_planning::predict::{Margin, Origin, Prediction, StageSetting};
use loadmaster_planning::recommend::{
    Candidate, Certificate, Compared, Factors, GIVEN, Prices, Recommendation, Rejected, Restriction,
    Transfers, holds,
};
use loadmaster_planning::search::KindSet;

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
    pub(super) asked: AskedRecord,
    pub(super) corrections: Vec<CorrectionRecord>,
    pub(super) notes: Vec<String>,
    pub(super) transfers: Transfers,
}

/// A plan with its name, which follows from its content.
pub(super) type Written = (PlanName, PlanContent);

impl Writer<'_> {
    /// A plan without anything besides its stages and its iteration.
    pub(super) fn plan(&self, plan: &Candidate, solver: &str) -> Result<PlanContent, ApiError> {
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
            stages.push(PlanStageRecord {
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
        told.extend(predictor.across_nodes().filter(|_| stages.iter().any(spans_nodes)).map(str::to_owned));
        let copies = predictor.copies_bytes_per_parameter();
        told.extend(
            self.asked.launcher.and_then(|launcher| holds::note(launcher, &settings, &predictions, copies)),
        );
        told.extend(self.notes.iter().cloned());
        Ok(PlanContent {
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
            found: FoundRecord {
                edge_seconds: if plan.closed_form.is_some() { plan.edges.clone() } else { Vec::new() },
                iteration: self.iteration(plan).map(|of| IterationRecord { margin, ..of }),
                host: self.subject.host.map(Into::into),
                hourly_price: plan.hourly_price,
                corrections: self.corrections.clone(),
                ..FoundRecord::default()
            },
        })
    }

    /// The plan of a recommendation, and the plans that came next, as plans of their own.
    pub(super) fn recommendation(
        &self,
        found: &Recommendation,
    ) -> Result<(PlanContent, Vec<Written>), ApiError> {
        let solver = &found.certificate.solver;
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
            alternatives.push(AlternativeRecord { plan: Some(name), summary: summary(plan)?, value: *value });
        }
        let mut front = Vec::with_capacity(found.front.len());
        for plan in found.front.iter().rev() {
            front.push(FrontRecord {
                plan: Some(store(plan)?),
                summary: summary(plan)?,
                recompute: plan.stages.iter().map(|stage| stage.choice.recompute).collect(),
            });
        }
        let mut content = self.plan(&found.best, solver)?;
        content.warnings.extend(found.notes.iter().cloned());
        content.found.certificate = Some(certificate(&found.certificate));
        content.found.alternatives = alternatives;
        content.found.front = front;
        content.found.baselines = found.compared.iter().map(baseline).collect::<Result<_, _>>()?;
        content.found.restriction = found.restriction.as_ref().map(restriction).transpose()?;
        Ok((content, others))
    }

    /// The plan that its caller named.
    pub(super) fn given(&self, plan: &Candidate) -> Result<PlanContent, ApiError> {
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

    fn iteration(&self, plan: &Candidate) -> Option<IterationRecord> {
        let closed_form = plan.closed_form?;
        let timeline = plan.timeline();
        let step = plan.stages.iter().filter_map(|stage| stage.seconds).map(|of| of.step).fold(0.0, f64::max);
        let simulated = timeline.as_ref().map(|of| of.iteration_seconds);
        Some(IterationRecord {
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

/// Whether the shards of some replica of a stage are on several nodes: its devices are in the order of its ranks,
/// shards next to each other.
fn spans_nodes(stage: &PlanStageRecord) -> bool {
    let shards = stage.config.tensor_degree.max(1) as usize;
    stage.devices.chunks(shards).any(|replica| {
        let mut nodes = replica.iter().map(|device| &device.node);
        let first = nodes.next();
        nodes.any(|node| Some(node) != first)
    })
}

/// Gives a plan the name that follows from its content.
pub(super) fn named(content: PlanContent) -> Result<Written, ApiError> {
    let name = PlanName::from_id(&fingerprint(&content)[..16])?;
    Ok((name, content))
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

fn partitioning(plan: &Candidate) -> Result<Partitioning, ApiError> {
    Ok(plan.partitioning()?)
}

fn summary(plan: &Candidate) -> Result<SummaryRecord, ApiError> {
    Ok(SummaryRecord {
        partitioning: partitioning(plan)?,
        micro_batch_size: plan.batch.micro_batch_size,
        peak: plan.peak_bytes(),
        seconds: plan.seconds(),
    })
}

fn certificate(of: &Certificate) -> CertificateRecord {
    let rejected =
        |of: &Rejected| RejectedRecord { what: of.what.clone(), value: of.value, reason: of.reason.clone() };
    CertificateRecord {
        value: of.value,
        bound: of.bound,
        gap: of.gap(),
        unit: of.unit.to_owned(),
        proven: of.is_proven,
        stopped: of.is_stopped,
        states: of.states,
        rejected: of.rejected.iter().map(rejected).collect(),
    }
}

fn baseline(of: &Compared) -> Result<BaselineRecord, ApiError> {
    Ok(BaselineRecord {
        name: of.name.to_owned(),
        fits: of.plan.as_ref().is_some_and(Candidate::fits),
        plan: of.plan.as_ref().map(summary).transpose()?,
        peak_ratio: of.peak_ratio,
        time_ratio: of.time_ratio,
        note: of.note.clone(),
    })
}

fn restriction(of: &Restriction) -> Result<RestrictionRecord, ApiError> {
    Ok(RestrictionRecord {
        free_value: of.free_value,
        restricted_value: of.restricted_value,
        ratio: of.ratio,
        free_partitioning: partitioning(&of.free)?,
        binding: of.binding.clone(),
        free_proven: of.is_proven,
    })
}
