//! Whether a connected worker could train a plan, and what could be trained here instead.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::name::PlanName;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::training::stage::StageConfig;

use super::Plans;
use crate::rpc::error::{ApiError, NoRoom};
use crate::store::records::{NearestWorker, NewTrial, RunNeed};

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
            host_memory: trial.run.host_memory(),
            command: trial.run.command.clone(),
        };
        match self.store.nearest_worker(&need).await? {
            Some(nearest) if !nearest.holds(&need) => {
                Err(ApiError::NoWorkerFits(Box::new(no_room(&trial.plan, plan, need, nearest))))
            }
            Some(_) | None => Ok(()),
        }
    }
}

fn no_room(plan: &PlanName, content: &Plan, need: RunNeed, nearest: NearestWorker) -> NoRoom {
    let RunNeed { device_kind: kind, device_count, min_capacity, host_memory, command } = need;
    let (here, enough) = (nearest.capacities.len(), nearest.devices_of(min_capacity));
    let largest = Bytes(nearest.capacities.first().copied().unwrap_or(0));
    let asked = Bytes(min_capacity);
    let lacks_memory = nearest.host_memory < host_memory;
    let lacks = match &command {
        Some(command) if !nearest.offers_command => format!("does not offer the custom profiler {command}"),
        _ if here < device_count as usize => format!("has {here} such devices"),
        _ if enough < device_count => {
            format!("has {enough} such devices with enough memory; its largest device has {largest}")
        }
        _ => format!("offers {} of CPU (host) memory", Bytes(nearest.host_memory)),
    };
    // Stages that hold less because of what they do with others' memory are too large without it.
    let alone = if nearest.offers_command && host_memory == 0 && content.stage_actions().is_empty() {
        alone(content, &nearest)
    } else {
        Vec::new()
    };
    let mut remedies = Vec::new();
    if !alone.is_empty() {
        let stages: Vec<String> = alone.iter().take(MOST_STAGES).map(ToString::to_string).collect();
        remedies.push(format!(
            "train single stages (`stage_indices`): {} of {} stages fit alone, for example {}",
            alone.len(),
            content.stages.len(),
            stages.join(", "),
        ));
    }
    // What the worker has of the plan's size, or else all that it has.
    let offer = if enough > 0 { (enough as usize, asked) } else { (here, largest) };
    if nearest.offers_command {
        // What stages do with the host's memory they may do with what it has.
        let host = match (host_memory, nearest.host_memory) {
            (0, _) | (_, 0) => String::new(),
            (_, there) => format!(", with {} of CPU (host) memory", Bytes(there)),
        };
        remedies.push(format!(
            "request a plan for the devices of this worker: {} × {} each{host}",
            offer.0, offer.1,
        ));
    }
    let only_memory = nearest.offers_command && enough >= device_count && lacks_memory;
    let memory = if host_memory > 0 {
        format!(" with {} of CPU (host) memory", Bytes(host_memory))
    } else {
        String::new()
    };
    remedies.push(if only_memory {
        format!("start {}{memory}, or another worker like it", nearest.worker)
    } else {
        let offering =
            command.map_or_else(String::new, |command| format!(" that offers the custom profiler {command}"));
        format!("start a worker with {device_count} × {kind} of at least {asked} each{offering}{memory}")
    });
    remedies.push(format!(
        "train {} with your own framework, and report its measurements (CreateReport)",
        plan.id()
    ));
    NoRoom {
        plan: plan.to_string(),
        device_kind: kind,
        device_count,
        capacity: asked,
        host_memory: Bytes(host_memory),
        worker: nearest.worker.to_string(),
        worker_devices: here,
        worker_capacity: largest,
        worker_host_memory: Bytes(nearest.host_memory),
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

#[cfg(test)]
mod tests {
    use loadmaster_proto::name::WorkerName;

    use super::*;

    /// Two stages of a GiB.
    fn plan() -> Plan {
        let stage = |layer| loadmaster_samples::plan_stage(StageConfig::single(layer, layer));
        loadmaster_samples::plan(vec![stage(0), stage(1)])
    }

    fn told(slots: usize, offered: u64, taken: u64) -> NoRoom {
        let (device_kind, min_capacity) = ("cpu".to_owned(), 1 << 30);
        let need = RunNeed { device_kind, device_count: 2, min_capacity, host_memory: taken, command: None };
        let nearest = NearestWorker {
            worker: WorkerName::from_id("small").unwrap(),
            capacities: vec![1 << 30; slots],
            offers_command: true,
            host_memory: offered,
        };
        assert!(!nearest.holds(&need));
        no_room(&PlanName::from_id("p").unwrap(), &plan(), need, nearest)
    }

    #[test]
    fn a_worker_that_lacks_memory_of_its_host_alone_is_to_be_started_with_more() {
        let no_room = told(2, 1 << 20, 3 << 30);
        let message = no_room.to_string();
        for words in [
            "needs 2 × cpu of 1.00 GiB and 3.00 GiB of CPU (host) memory on one worker",
            "workers/small, offers 1.00 MiB of CPU (host) memory.",
            "2 × 1.00 GiB each, with 1.00 MiB of CPU (host) memory",
            "start workers/small with 3.00 GiB of CPU (host) memory, or another worker like it",
        ] {
            assert!(message.contains(words), "{words}: {message}");
        }
        assert!(no_room.stages.is_empty(), "alone and without the host's memory they hold more");
        assert_eq!((no_room.host_memory, no_room.worker_host_memory), (Bytes(3 << 30), Bytes(1 << 20)));
    }

    #[test]
    fn a_worker_that_lacks_devices_too_is_told_both() {
        let message = told(1, 0, 1 << 30).to_string();
        assert!(message.contains("has 1 such devices"), "{message}");
        let remedy =
            "start a worker with 2 × cpu of at least 1.00 GiB each with 1.00 GiB of CPU (host) memory";
        assert!(message.contains(remedy), "{message}");
        let without = told(1, 0, 0).to_string();
        assert!(!without.contains("CPU (host) memory"), "{without}");
        let command = "(`stage_indices`): 2 of 2 stages fit alone, for example 0, 1";
        assert!(without.contains(command), "{without}");
    }
}
