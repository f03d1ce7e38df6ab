//! `StartTrial`: trials of a plan and its best alternatives.
//!
//! Each plan is one run of one operation. The plans are then ranked by their measured figures. A plan that no connected worker
//! could run, even when idle, is rejected before anything is queued (`holds_here`). Trials and `CreateReport` give pairs of
//! predicted and measured figures, which `ListPredictionErrors` sums up.

use loadmaster_proto::error::{Invalid, in_range};
use loadmaster_proto::measure::run::{RunSpec, SoloStage, Work};
use loadmaster_proto::name::{CommandName, PlanName};
use loadmaster_proto::plan::PlanStage;
use loadmaster_proto::plan::compatibility::{Setting, Settings};
use loadmaster_proto::training::strategy::Strategy;
use loadmaster_proto::wire::longrunning::Operation;
use loadmaster_proto::wire::v1;

use super::Plans;
use super::trials::MAX_CANDIDATES;
use crate::rpc::error::ApiError;
use crate::rpc::limits::{count_or, run_seconds};
use crate::rpc::messages::{Waiting, operation_message, request_key};
use crate::store::records::{NewRun, NewTrial, PlanRecord};

impl Plans {
    pub(super) async fn validate(&self, mut request: v1::StartTrialRequest) -> Result<Operation, ApiError> {
        let id = std::mem::take(&mut request.request_id);
        let key = request_key(&id, &request)?;
        let name = PlanName::parse("name", &request.name)?;
        let iterations = count_or(
            "iteration_count",
            request.iteration_count,
            RunSpec::DEFAULT_ITERATIONS,
            RunSpec::MAX_ITERATIONS,
        )?;
        let candidates = count_or("plan_count", request.plan_count, 1, MAX_CANDIDATES)?;
        Settings::default()
            .when(candidates > 1, Setting::Candidates)
            .when(!request.stage_indices.is_empty(), Setting::TriedStages)
            .check()?;
        let deadline_seconds = run_seconds(request.run_time_limit)?;
        // The same call gets the same answer, whichever workers have left since.
        let operation = match self.store.find_request(key.as_ref()).await? {
            Some(first) => first,
            None => {
                let mut trials = Vec::new();
                for plan in self.candidates(&name, candidates).await? {
                    let whole = self.trial_run(&plan, iterations, deadline_seconds).await?;
                    for run in asked_runs(whole, &plan, &request.stage_indices)? {
                        let trial = NewTrial { plan: plan.name.clone(), run };
                        self.check_holds_here(&trial, &plan.content).await?;
                        trials.push(trial);
                    }
                }
                self.store.create_validation(&name, &trials, key).await?
            }
        };
        let record = self.store.get_operation(&operation).await?;
        let trials = self.trials(&operation).await?.message;
        Ok(operation_message(&record, Waiting::default(), Some(trials), None))
    }

    /// The plan and the best of its alternatives, `count` in all; fewer where it has not so many.
    async fn candidates(&self, name: &PlanName, count: u32) -> Result<Vec<PlanRecord>, ApiError> {
        let plan = self.store.get_plan(name).await?;
        let others = plan.content.alternatives();
        if count > 1 && others.is_empty() {
            let why = format!(
                "{count} plans were requested, but {name} has no stored alternatives. Request the plan with \
                 `output.alternative_count`, or leave this field empty."
            );
            return Err(Invalid::field("plan_count", why).into());
        }
        let mut plans = vec![plan];
        for other in others.into_iter().take(count as usize - 1) {
            plans.push(self.store.get_plan(&other).await?);
        }
        Ok(plans)
    }

    /// What trains a plan as it was planned: its stages, their degrees and settings.
    async fn trial_run(
        &self,
        plan: &PlanRecord,
        iterations: u32,
        deadline_seconds: u32,
    ) -> Result<NewRun, ApiError> {
        plan.content.check_flat("name", "trained")?;
        let device_kind = only_kind(plan)?.to_owned();
        let plan = &plan.content;
        // A plan made from a command's measurements is validated by that command.
        let profile = self.store.get_profile(&plan.profile).await?;
        // Says of an opaque chain that it cannot be trained, before a run is queued.
        self.store.get_model(&plan.model).await?;
        let strategy = plan.strategy()?;
        if let Some(command) = &profile.settings.command {
            refuse_command(command, strategy.has_actions(), strategy.chunks().is_some())?;
        }
        Ok(NewRun {
            device_kind,
            device_count: strategy.device_count(),
            strategy,
            iterations,
            command: profile.settings.command,
            work_key: None,
            smallest_micro_batch_size: None,
            held_out: false,
            min_capacity: plan.stages.iter().map(|stage| stage.capacity).max().unwrap_or(0),
            deadline_seconds,
        })
    }
}

/// What Loadmaster's own rank alone does is not trained by a command.
fn refuse_command(command: &CommandName, has_actions: bool, is_in_chunks: bool) -> Result<(), Invalid> {
    let (does, without) = match (has_actions, is_in_chunks) {
        (true, _) => (
            "has memory optimizations, which custom profilers do not support",
            "without memory optimizations",
        ),
        (false, true) => ("trains in chunks, which custom profilers do not support", "without chunks"),
        (false, false) => return Ok(()),
    };
    let why = format!(
        "the plan {does}. Its profile was measured with the custom profiler {command}. Request a plan \
         {without}, or from a profile without a custom profiler."
    );
    Err(Invalid::field("name", why))
}

/// The runs of a plan that are asked for: that of all of its stages where none is named, else one for each that is.
///
/// # Errors
/// A stage that the plan does not have or that is named twice, memory actions, in which other stages take part, or chunks, which
/// are of the whole model.
fn asked_runs(whole: NewRun, plan: &PlanRecord, stages: &[i32]) -> Result<Vec<NewRun>, Invalid> {
    if stages.is_empty() {
        return Ok(vec![whole]);
    }
    if whole.strategy.has_actions() {
        let why = format!(
            "the memory optimizations of {} involve several stages. Leave this field empty.",
            plan.name
        );
        return Err(Invalid::field("stage_indices", why));
    }
    if whole.strategy.chunks().is_some() {
        let why = format!(
            "{} has a single stage, which trains the model in chunks. Leave this field empty.",
            plan.name
        );
        return Err(Invalid::field("stage_indices", why));
    }
    let count = plan.content.stages.len();
    in_range("stage_indices", stages.len(), 1..=(MAX_CANDIDATES as usize))?;
    let mut runs = Vec::with_capacity(stages.len());
    for (place, &asked) in stages.iter().enumerate() {
        let field = format!("stage_indices[{place}]");
        let found =
            usize::try_from(asked).ok().and_then(|index| Some((index, plan.content.stages.get(index)?)));
        let Some((index, stage)) = found else {
            let why =
                format!("{asked} is not a stage of {}. Use 0 to {}.", plan.name, count.saturating_sub(1));
            return Err(Invalid::field(field, why));
        };
        if stages.iter().take(place).any(|&other| other == asked) {
            return Err(Invalid::field(field, format!("{asked} is present twice. Name each stage once.")));
        }
        runs.push(alone(&whole, stage, index, count));
    }
    Ok(runs)
}

/// What trains one stage as it is in the whole, with neighbours made up: it holds as many micro-batches as there.
fn alone(whole: &NewRun, stage: &PlanStage, index: usize, count: usize) -> NewRun {
    let place = |place: usize| u32::try_from(place).unwrap_or(u32::MAX);
    let position = SoloStage { stage: stage.config, stage_count: place(count), stage_index: place(index) };
    NewRun {
        strategy: Strategy {
            work: Work::Solo(position),
            stages: vec![stage.strategy()],
            training: whole.strategy.training,
        },
        device_count: stage.config.devices(),
        min_capacity: stage.capacity,
        ..whole.clone()
    }
}

/// The kind of all devices of a plan.
///
/// # Errors
/// When they are of several: a run takes devices of one kind, so it would not train the plan as it was planned.
fn only_kind(plan: &PlanRecord) -> Result<&str, Invalid> {
    let devices = plan.content.stages.iter().flat_map(|stage| &stage.devices);
    let mut kinds = devices.map(|device| device.kind.as_str()).filter(|kind| !kind.is_empty());
    let Some(first) = kinds.next() else { return Ok(&plan.content.device_kind) };
    match kinds.find(|&kind| kind != first) {
        None => Ok(first),
        Some(other) => {
            let why = format!(
                "{} is for devices of the kinds {first:?} and {other:?}, but a trial runs on one kind. Train it yourself, and \
                 report its measurements with `loadmaster plan report`.",
                plan.name
            );
            Err(Invalid::field("name", why))
        }
    }
}
