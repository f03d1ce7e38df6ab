//! A plan in chunks as it is reported and kept.

use loadmaster_proto::amounts::Seconds;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::chunks::stage::{ChunkedStage, Chunks};
use loadmaster_proto::measure::chunked::ChunkRun;
use loadmaster_proto::plan::findings::IterationEstimate;
use loadmaster_proto::plan::prediction::StageSeconds;
use loadmaster_proto::plan::{Plan, PlanStage};
use loadmaster_proto::training::TrainingSpec;
use loadmaster_proto::training::actions::{Step, Steps};
use loadmaster_proto::warning::WarningCode;

use super::objectives::BestChunkPlan;
use super::{ChunkContext, SOLVER, Trained};
use crate::plan::PlanBuilder;
use crate::result::{LackingStep, QuestionError};
use loadmaster_memory::chunks::{ChunkPlan, NoRoom, StepMemory, interval, larger};
use loadmaster_predict::Prediction;
use loadmaster_predict::forecast::{on_top, warnings as told};

impl ChunkContext<'_> {
    /// The plan, without what proves it and what others come to.
    pub(super) fn build_plan(&self, best: &BestChunkPlan) -> Result<Plan, QuestionError> {
        let BestChunkPlan { batch, plan } = best;
        let trained = self.trained(*batch, self.devices.capacity);
        let context = self.question.context;
        let training = TrainingSpec { recompute: plan.recompute, ..trained.question.training };
        // Each rank of a run claims what it takes, and no more.
        let stage = ChunkedStage { host_memory: plan.host_bytes, ..plan.stage.clone() };
        let chunks = stage.lay_out_split(self.model, &training, &trained.question.stage())?;
        let moments = trained.passes.moments(&chunks, plan.recompute, &plan.actions)?;
        let other: Vec<u64> =
            moments.curve.iter().map(|step| trained.passes.corrected(step.most.total())).collect();
        let run = predicted(plan, other);
        let held = StepMemory { other: &run.other_bytes, resident: &run.payload_bytes };
        let (step, peak) = held.highest();
        let besides = moments.curve.get(step).map(|step| step.most).unwrap_or_default();
        let breakdown = held.breakdown(step, besides, &chunks);
        let setting = trained.passes.setting(plan.recompute);
        let predictor = &*self.devices.chain.predictor;
        let seconds = stage_seconds(plan, &chunks, &trained)?;
        let passes = (seconds.forward + seconds.backward) * f64::from(training.micro_batches);
        let certificate_note = self.bound_is(plan);
        let expected = interval(peak, plan.peak().0);
        let prediction = Prediction {
            bytes: Bytes(peak),
            breakdown: Some(breakdown),
            seconds: None,
            margin: moments.margin.map(|_| expected.margin),
            seconds_margin: None,
            predictor: predictor.name(),
            origin: moments.origin,
        };
        let mut warnings = told(predictor, &[setting], &[prediction], context.margin);
        let place = usize::from(predictor.unknown().is_some());
        warnings.splice(place..place, on_top(predictor.ledger()));
        warnings.extend(predictor.besides_chunks().map(|why| WarningCode::TableIncomplete.says(why)));
        warnings.extend(context.notes.iter().cloned());
        warnings.extend(larger(&stage, &chunks));
        let (asked, there) = (self.question.asked.host_memory, self.question.host_memory(self.devices.node));
        if there < asked {
            warnings.push(WarningCode::HostMemoryLimited.says(format!(
                "chunks may use {there} of CPU memory, the limit of the cluster, instead of the requested {asked}"
            )));
        }
        warnings.push(WarningCode::BoundScope.says(certificate_note));
        let stage = PlanStage {
            config: setting.stage,
            capacity: self.devices.placed.iter().map(|placed| placed.capacity).min().unwrap_or(0),
            predicted_peak: peak,
            breakdown: Some(breakdown),
            interval: context.margin.interval_of(predictor, &prediction).map(|_| expected),
            seconds: Some(seconds),
            seconds_margin: None,
            origin: moments.origin,
            in_flight: setting.in_flight(),
            recompute: plan.recompute,
            devices: self.devices.placed.clone(),
            actions: plan.actions.clone(),
            offload: plan.offload.clone(),
            saved: None,
            chunks: Some(Box::new(stage)),
            chunk_run: Some(Box::new(run)),
        };
        let mut written = PlanBuilder { context }.empty(self.devices.chain, training, SOLVER);
        written.asked.objective = Some(self.question.criteria.objective);
        written.found.lane_rates = Some(self.rates.rates);
        written.found.iteration = Some(IterationEstimate {
            seconds: plan.lanes.iteration_seconds,
            closed_form: passes + seconds.step,
            bubble: waiting(plan),
            step: seconds.step,
            origin: moments.origin,
            links: self.rates.told.clone(),
            overlap: context.transfers.overlap,
            overlap_reason: context.transfers.reason.clone(),
            margin: None,
        });
        (written.stages, written.warnings) = (vec![stage], warnings);
        Ok(written)
    }

    /// What the certificate's bound is, and what was looked at.
    fn bound_is(&self, plan: &ChunkPlan) -> String {
        let looked = plan.certificate.map_or_else(String::new, |of| {
            format!(
                ". There are {} combinations of chunk size, chunk order, recompute, parameters in CPU memory, chunks on \
                 the device and paging. The search simulated {} of them. No combination is faster than {} per iteration",
                of.choices,
                of.simulated,
                Seconds(of.bound_seconds)
            )
        });
        format!(
            "bytes are computed from the intervals in which chunks are on the device. The bound on the iteration time \
             is the longest time among passes, copies in each direction, and optimizer steps. The bound is valid for \
             every order of copies with the tried chunk sizes and numbers of chunks on the device{looked}"
        )
    }

    /// The step that lacks room of the device; none where the host alone lacks.
    pub(super) fn lacking(&self, lack: &NoRoom) -> Option<LackingStep> {
        let (step, _) = lack.device?;
        let own = self.question.context.training;
        let batch = self.batches.first();
        let training = TrainingSpec {
            recompute: lack.choice.recompute,
            micro_batches: batch.map_or(own.micro_batches, |batch| batch.micro_batches),
            schedule: self.schedule,
            ..own
        };
        let steps = Steps::of_chunks(&training, self.model.layers().len(), lack.choice.order);
        let pass = |what: &str, micro_batch: u32, layer: usize| {
            let name = self.model.layers().get(layer).map_or("", |layer| layer.name.as_str());
            let told = format!("{what} pass of micro-batch {micro_batch} through layer {layer} ({name})");
            (told, name.to_owned())
        };
        let (told, layer) = match steps.all().get(step) {
            Some(&(Step::Forward { micro_batch, layer } | Step::Again { micro_batch, layer })) => {
                pass("forward", micro_batch, layer)
            }
            Some(&Step::Backward { micro_batch, layer }) => pass("backward", micro_batch, layer),
            _ => (format!("step {step}"), String::new()),
        };
        Some(LackingStep {
            told,
            layer,
            device: self.devices.told(),
            ledger: self.devices.chain.predictor.ledger(),
        })
    }
}

/// Seconds of a micro-batch's passes, and of all that an iteration has besides.
fn stage_seconds(
    plan: &ChunkPlan,
    chunks: &Chunks,
    trained: &Trained<'_>,
) -> Result<StageSeconds, QuestionError> {
    let seconds = trained.passes.seconds(&chunks.steps)?;
    let [mut forward, mut backward] = [0.0; 2];
    for (step, seconds) in chunks.steps.all().iter().zip(&seconds) {
        match step {
            Step::Forward { .. } => forward += seconds,
            Step::Again { .. } | Step::Backward { .. } => backward += seconds,
            Step::Renew | Step::Exchange | Step::Update { .. } => {}
        }
    }
    let step = (plan.lanes.iteration_seconds - forward - backward).max(0.0);
    let each = f64::from(trained.question.training.micro_batches.max(1));
    Ok(StageSeconds { forward: forward / each, backward: backward / each, step })
}

/// What a plan moves and holds where other things hold so much in each step.
fn predicted(plan: &ChunkPlan, other_bytes: Vec<u64>) -> ChunkRun {
    ChunkRun {
        other_bytes,
        payload_bytes: plan.resident.clone(),
        host_bytes: plan.host_bytes,
        fetch_seconds: plan.lanes.fetch_seconds,
        leave_seconds: plan.lanes.leave_seconds,
        step_seconds: plan.lanes.busy.update,
        ..ChunkRun::moving(&plan.moved)
    }
}

/// The share of an iteration in which its passes wait: for copies, or for other ranks.
fn waiting(plan: &ChunkPlan) -> f64 {
    let seconds = plan.lanes.iteration_seconds;
    if seconds > 0.0 { (plan.lanes.waited_seconds() / seconds).min(1.0) } else { 0.0 }
}
