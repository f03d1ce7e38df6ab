//! A planner and a worker of its own, and the models that were profiled on it.

use std::cell::RefCell;
use std::collections::BTreeMap;

use anyhow::{Context, Result};
use loadmaster_proto::training::stage::Partitioning;
use loadmaster_proto::wire::v1;
use loadmaster_tests::{Caller, Planner, Refused, Worker, WorkerOptions, whole};
use serde_json::Value;

/// Both run until this is dropped, the worker's end first.
#[derive(Debug)]
pub(crate) struct Scene {
    _worker: Worker,
    planner: Planner,
    profiles: RefCell<BTreeMap<String, Profiled>>,
}

/// A model that has a profile.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Profiled {
    pub(crate) layers: usize,
    pub(crate) parameters: u64,
}

/// A plan, or why there is none.
pub(crate) type Answer = Result<Value, Refused>;

impl Scene {
    /// A worker with these slots, and more arguments of `loadmaster-worker`.
    pub(crate) fn start(slots: &str, arguments: &[&str]) -> Self {
        let planner = Planner::start_with(&[]);
        let arguments = arguments.iter().map(ToString::to_string).collect();
        let options = WorkerOptions { slots: slots.to_owned(), arguments, ..WorkerOptions::default() };
        Self { _worker: Worker::start(&planner, &options), planner, profiles: RefCell::default() }
    }

    pub(crate) fn caller(&self) -> Caller<'_> {
        Caller::new(&self.planner)
    }

    /// Profiles a model by these options of `profile run`, unless that is done.
    pub(crate) fn profile(&self, id: &str, options: &str) -> Result<Profiled> {
        if let Some(known) = self.profiles.borrow().get(id) {
            return Ok(*known);
        }
        let command = ["profile", "run", "--id", id].into_iter().chain(options.split_whitespace());
        let profile = self.caller().get(&command.collect::<Vec<_>>())?;
        let name = profile["model"].as_str().context("a profile has a model")?;
        let model = self.caller().get(&["model", "show", name])?;
        let layers = model["layers"].as_array().context("a model has layers")?.len();
        let profiled = Profiled { layers, parameters: whole(&model["parameterCount"]) };
        self.profiles.borrow_mut().insert(id.to_owned(), profiled);
        Ok(profiled)
    }

    /// Asks for a plan of a profile on these devices.
    pub(crate) fn recommend(&self, profile: &str, devices: &str, more: &[&str]) -> Result<Answer> {
        let asked = ["plan", "recommend", "--profile", profile, "--devices", devices];
        self.caller().ask(&[&asked, more].concat())
    }
}

/// The stages of a plan as people write them.
pub(crate) fn stages_of(plan: &Value) -> Result<String> {
    let stages = plan["stages"].as_array().context("a plan has stages")?;
    partitioning(&stages.iter().map(|stage| stage["config"].clone()).collect())
}

/// Stages as people write them, from messages in JSON.
pub(crate) fn partitioning(stages: &Value) -> Result<String> {
    let number = |value: &Value| i32::try_from(value.as_i64().unwrap_or(0)).unwrap_or(0);
    let stages = stages.as_array().context("a partitioning has stages")?;
    let stages = stages.iter().map(|stage| v1::StageConfig {
        first_layer: number(&stage["firstLayer"]),
        last_layer: number(&stage["lastLayer"]),
        data_parallel_size: number(&stage["dataParallelSize"]),
        tensor_parallel_size: number(&stage["tensorParallelSize"]),
        ..Default::default()
    });
    let partitioning: Partitioning = v1::PipelineLayout { stages: stages.collect() }.try_into()?;
    Ok(partitioning.to_string())
}
