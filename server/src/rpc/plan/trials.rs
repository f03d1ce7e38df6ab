//! What the trials of a validation showed.

use loadmaster_predict::learn::best_trial::{Criterion, Tried, best, places};
use loadmaster_predict::learn::error_ratio;
use loadmaster_proto::name::{OperationName, PlanName};
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::objective::{MemoryUnit, Objective};
use loadmaster_proto::wire::{ToWire, v1};

use super::Plans;
use crate::rpc::error::ApiError;
use crate::rpc::messages;
use crate::store::records::{RunState, TrialRecord};

/// Most plans, or stages of one, that one validation trains.
pub(super) const MAX_CANDIDATES: u32 = 20;

/// The trials of a validation and the plan that measured best.
#[derive(Debug)]
pub(in crate::rpc) struct Compared {
    /// As they travel.
    pub(in crate::rpc) message: v1::Trials,
    /// None while none has succeeded.
    pub(in crate::rpc) best: Option<PlanName>,
}

impl Plans {
    /// What the trials of an operation showed so far.
    pub(in crate::rpc) async fn trials(&self, operation: &OperationName) -> Result<Compared, ApiError> {
        Ok(compare(&self.store.trials(operation, MAX_CANDIDATES).await?))
    }
}

/// `trials` are in the order of their predictions.
fn compare(trials: &[TrialRecord]) -> Compared {
    let (objective, as_shares) = trials.first().map_or_else(Default::default, |first| goal(&first.content));
    let criterion = Criterion::of(objective, as_shares);
    if trials.iter().any(|trial| trial.stage.is_some()) {
        return of_stages(trials);
    }
    let tried: Vec<Tried<'_>> = trials
        .iter()
        .map(|trial| Tried {
            samples: trial.content.training.global_batch_size(),
            capacities: trial.content.stages.iter().map(|stage| stage.capacity).collect(),
            measured: trial.measured.as_ref(),
        })
        .collect();
    let places = places(criterion, &tried);
    let best = best(&places).and_then(|position| trials.get(position)).map(|trial| trial.plan.clone());
    let rows = (1..).zip(trials).zip(&places);
    let rows = rows.map(|((predicted_rank, trial), &place)| row(trial, predicted_rank, place));
    let ranking_quantity = criterion.as_str().to_owned();
    Compared { message: v1::Trials { trials: rows.collect(), ranking_quantity }, best }
}

/// Trials of single stages of one plan: there is nothing to rank.
fn of_stages(trials: &[TrialRecord]) -> Compared {
    let measured = trials.iter().find(|trial| trial.measured.is_some());
    let rows = trials.iter().map(|trial| row(trial, 0, None)).collect();
    Compared {
        message: v1::Trials { trials: rows, ranking_quantity: String::new() },
        best: measured.map(|trial| trial.plan.clone()),
    }
}

/// What the plans were chosen for, and whether they were compared as shares of the devices.
fn goal(content: &Plan) -> (Objective, bool) {
    (content.asked.objective.unwrap_or_default(), content.asked.memory_unit == MemoryUnit::Share)
}

fn row(trial: &TrialRecord, predicted_rank: i32, place: Option<u32>) -> v1::Trial {
    let TrialRecord { run, plan, content, stage, state, failure, measured, contended, oversubscribed } =
        trial;
    let alone = stage.and_then(|stage| content.stages.get(usize::try_from(stage).ok()?));
    let predicted_peak = alone.map_or_else(|| content.peak(), |stage| stage.predicted_peak);
    let measured_peak = measured.as_ref().and_then(|measured| measured.peak());
    // An iteration of one stage is none of the plan's.
    let of_all = measured.as_ref().filter(|_| stage.is_none());
    let predicted_seconds = content.iteration_seconds().filter(|_| stage.is_none());
    let measured_seconds = of_all.and_then(|measured| measured.iteration_seconds);
    let comparable = measured_peak.filter(|peak| peak.ledger == content.ledger);
    v1::Trial {
        plan: plan.to_string(),
        run: run.to_string(),
        state: state.to_wire(),
        failure_message: why(*state, failure.as_deref()),
        predicted_rank,
        measured_rank: place.map_or(0, messages::count),
        predicted_peak: Some(v1::MemoryFigure::predicted(predicted_peak, content.ledger, &content.predictor)),
        measured_peak: measured_peak.map(|peak| peak.to_wire(&run.to_string())),
        peak_error_ratio: comparable.and_then(|peak| error_ratio(predicted_peak as f64, peak.bytes.0 as f64)),
        predicted_iteration_seconds: predicted_seconds,
        measured_iteration_seconds: measured_seconds,
        iteration_error_ratio: predicted_seconds
            .zip(measured_seconds)
            .and_then(|(predicted, measured)| error_ratio(predicted, measured)),
        contended: *contended,
        oversubscribed: *oversubscribed,
        stage: *stage,
    }
}

/// Why there are no measurements and will be none.
fn why(state: RunState, failure: Option<&str>) -> String {
    match state {
        RunState::Queued | RunState::Running | RunState::Succeeded => String::new(),
        RunState::Cancelled => "cancelled".to_owned(),
        RunState::OutOfMemory | RunState::Failed => failure.unwrap_or("failed").to_owned(),
    }
}
