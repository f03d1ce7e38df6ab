//! Whether a connected worker could train a plan, and what could be trained here instead.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::name::PlanName;
use loadmaster_proto::training::stage::StageConfig;

use super::Plans;
use crate::rpc::error::{ApiError, NoRoom};
use crate::store::records::{NearestWorker, NewTrial, RunNeed};
use loadmaster_proto::plan::Plan;

/// Most stages that are named.
const MOST_STAGES: usize = 16;

impl Plans {
    /// Refuses a trial that would wait for ever: workers with devices of its kind are connected, and none of them
    /// could hold it, were it idle. Without any the trial waits for one.
    pub(super) async fn check_holds_here(&self, trial: &NewTrial, plan: &Plan) -> Result<(), ApiError> {
        let need = RunNeed {
            device_kind: trial.run.device_kind.clone(),
            device_count: trial.run.device_count,
            min_capacity: trial.run.min_capacity,
            command: trial.run.command.clone(),
        };
        match self.store.nearest_worker(&need).await? {
            Some(nearest) if !holds(&nearest, &need) => {
                Err(ApiError::NoWorkerFits(Box::new(no_room(&trial.plan, plan, need, nearest))))
            }
            Some(_) | None => Ok(()),
        }
    }
}

fn holds(nearest: &NearestWorker, need: &RunNeed) -> bool {
    nearest.offers_command && nearest.devices_of(need.min_capacity) >= need.device_count
}

fn no_room(plan: &PlanName, content: &Plan, need: RunNeed, nearest: NearestWorker) -> NoRoom {
    let RunNeed { device_kind: kind, device_count, min_capacity, command } = need;
    let (here, enough) = (nearest.capacities.len(), nearest.devices_of(min_capacity));
    let largest = Bytes(nearest.capacities.first().copied().unwrap_or(0));
    let asked = Bytes(min_capacity);
    let lacks = match &command {
        Some(command) if !nearest.offers_command => format!("does not offer the command {command}"),
        _ if here < device_count as usize => format!("has {here} of them"),
        _ => format!("has {enough} that are large enough, the largest with {largest}"),
    };
    let alone = if nearest.offers_command { alone(content, &nearest) } else { Vec::new() };
    let mut remedies = Vec::new();
    if !alone.is_empty() {
        let stages: Vec<String> = alone.iter().take(MOST_STAGES).map(ToString::to_string).collect();
        let more = if alone.len() > MOST_STAGES { ", …" } else { "" };
        remedies.push(format!(
            "train single stages: {} of its {} would fit alone ({}{more}), and `loadmaster profile run --campaign \
             stages` trains stages one by one",
            alone.len(),
            content.stages.len(),
            stages.join(", "),
        ));
    }
    // What the worker has of the plan's size, or else all that it has.
    let offer = if enough > 0 { (enough as usize, asked) } else { (here, largest) };
    if nearest.offers_command {
        remedies.push(format!(
            "plan for what is here: `loadmaster plan recommend --profile {} --devices {}x{}`",
            content.profile.id(),
            offer.0,
            offer.1.0,
        ));
    }
    let offering = command.map_or_else(String::new, |command| format!(" that offers the command {command}"));
    remedies.push(format!("start a worker with {device_count} × {kind} of {asked} or more{offering}"));
    remedies.push(format!(
        "train it with your own launcher, and tell what it needed with `loadmaster plan report {}`",
        plan.id()
    ));
    NoRoom {
        plan: plan.to_string(),
        device_kind: kind,
        device_count,
        capacity: asked,
        worker: nearest.worker.to_string(),
        worker_devices: here,
        worker_capacity: largest,
        lacks,
        stages: alone,
        remedies,
    }
}

/// The stages that the worker could hold one at a time.
fn alone(content: &Plan, nearest: &NearestWorker) -> Vec<usize> {
    let fits = |stage: &StageConfig, capacity| nearest.devices_of(capacity) >= stage.devices();
    let stages = content.stages.iter().enumerate();
    stages.filter(|(_, stage)| fits(&stage.config, stage.capacity)).map(|(index, _)| index).collect()
}
