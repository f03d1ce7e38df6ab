//! Plans of one model, trained.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use loadmaster_proto::training::stage::Partitioning;
use loadmaster_proto::wire::v1;
use loadmaster_tests::{Caller, NO_PLAN, Trial};
use serde::Serialize;
use serde_json::Value;

use crate::quality::Options;
use crate::quality::subject::{Aim, CONTENDERS, Subject};

/// What one contender's plan came to.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Outcome {
    /// Who made it.
    pub(crate) contender: String,
    /// Whether it was made for memory or for time; rules are made for neither.
    pub(crate) for_memory: bool,
    pub(crate) for_time: bool,
    /// The plan; none where there is none.
    pub(crate) plan: Option<Trained>,
    /// Why there is none.
    pub(crate) note: String,
}

/// A plan and what its training needed.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Trained {
    /// Its stages, as people write them.
    pub(crate) stages: String,
    /// Samples of one pass of a whole stage.
    pub(crate) micro_batch_size: i64,
    pub(crate) trial: Trial,
}

impl Trained {
    /// Bytes of the fullest device, of the allocated ledger.
    pub(crate) fn predicted_bytes(&self) -> u64 {
        self.trial.predicted.most()[0]
    }

    /// The same as measured; none where the trial failed.
    pub(crate) fn measured_bytes(&self) -> Option<u64> {
        self.trial.measured.as_ref().map(|measured| measured.most()[0])
    }
}

/// Profiles the model, and trains the plan of each contender.
pub(crate) fn study(caller: &Caller<'_>, subject: &Subject, options: &Options) -> Result<Vec<Outcome>> {
    profile(caller, subject, options)?;
    let devices = options.slots();
    let mut outcomes = Vec::new();
    let mut trained = BTreeMap::new();
    let mut rules: Option<Value> = None;
    for contender in &CONTENDERS {
        eprintln!("{}: {}", subject.id, contender.name);
        let mut arguments = vec!["plan", "recommend", "--profile", subject.id, "--devices", &devices];
        arguments.extend(contender.arguments());
        let (plan, note) = match caller.ask(&arguments)? {
            Ok(plan) => (Some(train(caller, &plan, options, &mut trained)?), String::new()),
            Err(refused) if refused.code == NO_PLAN => (None, refused.message),
            Err(refused) => (None, format!("refused: {}", refused.message)),
        };
        if rules.is_none()
            && let Some(found) = &plan
        {
            rules = Some(caller.get(&["plan", "show", &found.trial.plan])?);
        }
        outcomes.push(Outcome {
            contender: contender.name.to_owned(),
            for_memory: contender.aim == Aim::Memory,
            for_time: contender.aim == Aim::Time,
            plan,
            note,
        });
    }
    for rule in rules.as_ref().and_then(|plan| plan["baselines"].as_array()).into_iter().flatten() {
        outcomes.push(baseline(caller, subject, rule, options, &mut trained)?);
    }
    Ok(outcomes)
}

fn profile(caller: &Caller<'_>, subject: &Subject, options: &Options) -> Result<()> {
    eprintln!("{}: profile", subject.id);
    let (size, count, devices) = (
        subject.micro_batch_size.to_string(),
        subject.micro_batches.to_string(),
        options.devices.to_string(),
    );
    let mut arguments = vec!["profile", "run", "--id", subject.id];
    arguments.extend(&subject.model);
    arguments.extend(["--micro-batch-size", &size, "--micro-batches", &count, "--devices", &devices]);
    arguments.extend(["--campaign", "minimal", "--parallelism", "data,tensor", "--degrees", "2,4"]);
    caller.get(&arguments).map(drop)
}

fn baseline(
    caller: &Caller<'_>,
    subject: &Subject,
    rule: &Value,
    options: &Options,
    trained: &mut BTreeMap<String, Trial>,
) -> Result<Outcome> {
    let name = rule["name"].as_str().unwrap_or_default();
    eprintln!("{}: {name}", subject.id);
    let outcome = |plan, note: &str| Outcome {
        contender: name.to_owned(),
        for_memory: false,
        for_time: false,
        plan,
        note: note.to_owned(),
    };
    let Ok(stages) = partitioning(&rule["partitioning"]["stages"]) else {
        return Ok(outcome(None, rule["note"].as_str().unwrap_or("no plan")));
    };
    let devices = options.slots();
    let size = rule["microBatchSize"].as_i64().filter(|&size| size > 0);
    let size = size.unwrap_or_else(|| i64::from(subject.micro_batch_size));
    let count = i64::from(subject.micro_batch_size) * i64::from(subject.micro_batches) / size;
    let (size, count) = (size.to_string(), count.to_string());
    let mut arguments = vec!["plan", "recommend", "--profile", subject.id, "--devices", &devices];
    arguments.extend(["--partition", &stages, "--micro-batch-size", &size, "--micro-batches", &count]);
    match caller.ask(&arguments)? {
        Ok(plan) => Ok(outcome(Some(train(caller, &plan, options, trained)?), "")),
        Err(refused) => Ok(outcome(None, &refused.message)),
    }
}

/// Trains a plan, unless an equal one was trained before.
pub(crate) fn train(
    caller: &Caller<'_>,
    plan: &Value,
    options: &Options,
    trained: &mut BTreeMap<String, Trial>,
) -> Result<Trained> {
    let stages = plan["stages"].as_array().context("a plan has stages")?;
    let stages = partitioning(&stages.iter().map(|stage| stage["config"].clone()).collect())?;
    let micro_batch_size = plan["training"]["microBatchSize"].as_i64().unwrap_or(0);
    let schedule = plan["training"]["schedule"].as_str().unwrap_or_default();
    // Equal plans have equal trials, whoever made them; predictions are the plan's own.
    let key = format!("{} {stages} {micro_batch_size} {schedule}", plan["profile"]);
    let trial = match trained.get(&key) {
        Some(before) => {
            let Trial { plan, predicted, predicted_seconds, .. } = Trial::predicted(plan)?;
            Trial { plan, predicted, predicted_seconds, ..before.clone() }
        }
        None => Trial::of(caller, plan, options.iterations)?,
    };
    trained.insert(key, trial.clone());
    Ok(Trained { stages, micro_batch_size, trial })
}

/// A figure's bytes.
pub(crate) fn bytes(figure: &Value) -> Option<u64> {
    figure["bytes"].as_str()?.parse().ok()
}

/// Stages as people write them, from messages in JSON.
pub(crate) fn partitioning(stages: &Value) -> Result<String> {
    let number = |value: &Value| i32::try_from(value.as_i64().unwrap_or(0)).unwrap_or(0);
    let stages = stages.as_array().context("a partitioning has stages")?;
    let stages = stages.iter().map(|stage| v1::StageConfig {
        first_layer: number(&stage["firstLayer"]),
        last_layer: number(&stage["lastLayer"]),
        data_degree: number(&stage["dataDegree"]),
        tensor_degree: number(&stage["tensorDegree"]),
    });
    let partitioning: Partitioning = v1::Partitioning { stages: stages.collect() }.try_into()?;
    Ok(partitioning.to_string())
}
