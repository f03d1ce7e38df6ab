//! Plans of one model, trained.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use loadmaster_proto::training::stage::Partitioning;
use loadmaster_proto::wire::v1;
use loadmaster_tests::{Caller, NO_PLAN};
use serde::Serialize;
use serde_json::Value;

use crate::quality::contender::{Aim, CONTENDERS};
use crate::quality::options::Options;
use crate::quality::subject::Subject;

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

/// A plan and what its training needed. Bytes are of the allocated ledger.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Trained {
    pub(crate) name: String,
    /// Its stages, as people write them.
    pub(crate) stages: String,
    /// Samples of one pass of a whole stage.
    pub(crate) micro_batch_size: i64,
    pub(crate) predicted_bytes: u64,
    /// None where the trial failed.
    pub(crate) measured_bytes: Option<u64>,
    pub(crate) predicted_seconds: Option<f64>,
    pub(crate) measured_seconds: Option<f64>,
    /// Why the trial failed.
    pub(crate) failure: String,
}

/// Profiles the model, and trains the plan of each contender.
///
/// # Errors
/// The profile cannot be made, or a command fails in another way than by having no plan.
pub(crate) fn study(caller: &Caller<'_>, subject: &Subject, options: &Options) -> Result<Vec<Outcome>> {
    profile(caller, subject, options)?;
    let devices = options.slots();
    let mut outcomes = Vec::new();
    let mut trained = BTreeMap::new();
    let mut rules: Option<Value> = None;
    for contender in &CONTENDERS {
        eprintln!("{}: {}", subject.id, contender.name);
        let mut arguments = vec!["plan", "recommend", "--profile", subject.id, "--devices", &devices];
        arguments.extend(contender.arguments);
        let (plan, note) = match caller.ask(&arguments)? {
            Ok(plan) => (Some(train(caller, &plan, options, &mut trained)?), String::new()),
            Err(refused) if refused.code == NO_PLAN => (None, refused.message),
            Err(refused) => (None, format!("refused: {}", refused.message)),
        };
        if rules.is_none()
            && let Some(found) = &plan
        {
            rules = Some(caller.get(&["plan", "show", &found.name])?);
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
    trained: &mut BTreeMap<String, Trained>,
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
    trained: &mut BTreeMap<String, Trained>,
) -> Result<Trained> {
    let name = plan["name"].as_str().context("a plan has a name")?;
    let stages = partitioning(&Value::Array(
        plan["stages"]
            .as_array()
            .context("a plan has stages")?
            .iter()
            .map(|stage| stage["config"].clone())
            .collect(),
    ))?;
    let micro_batch_size = plan["training"]["microBatchSize"].as_i64().unwrap_or(0);
    let schedule = plan["training"]["schedule"].as_str().unwrap_or_default();
    // Equal plans have equal trials, whoever made them; predictions are the plan's own.
    let key = format!("{} {stages} {micro_batch_size} {schedule}", plan["profile"]);
    let mut outcome = Trained {
        name: name.to_owned(),
        stages,
        micro_batch_size,
        predicted_bytes: bytes(&plan["predictedPeak"]).context("a plan has a predicted peak")?,
        measured_bytes: None,
        predicted_seconds: plan["iteration"]["iterationSeconds"].as_f64(),
        measured_seconds: None,
        failure: String::new(),
    };
    if let Some(before) = trained.get(&key) {
        outcome.measured_bytes = before.measured_bytes;
        outcome.measured_seconds = before.measured_seconds;
        outcome.failure.clone_from(&before.failure);
        return Ok(outcome);
    }
    let iterations = options.iterations.to_string();
    match caller.ask(&["plan", "validate", name, "--iterations", &iterations])? {
        Err(refused) => outcome.failure = refused.message,
        Ok(plan) => {
            let trial = &plan["validations"][0];
            outcome.failure = trial["failure"].as_str().unwrap_or_default().to_owned();
            let peaks = trial["measuredPeaks"].as_array().into_iter().flatten();
            outcome.measured_bytes = peaks.filter_map(bytes).max();
            outcome.measured_seconds = trial["iterationSeconds"].as_f64();
        }
    }
    trained.insert(key, outcome.clone());
    Ok(outcome)
}

/// A figure's bytes.
pub(crate) fn bytes(figure: &Value) -> Option<u64> {
    figure["bytes"].as_str()?.parse().ok()
}

/// Stages as people write them, from messages in JSON.
///
/// # Errors
/// There are none.
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
