//! The largest AmoebaNet that still trains under a fixed capacity (mCAP's promise).
//!
//! Filters are tried by bisection. A size is taken to fit when its plan does by prediction; the largest one is
//! then trained for real. That the next one does not fit is said by its prediction alone.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use loadmaster_tests::Caller;
use serde::Serialize;
use serde_json::Value;

use crate::largest::{Sizes, largest};
use crate::quality::Options;
use crate::quality::measured::{bytes, partitioning, train};
use crate::table::mib;

/// Name on the command line.
pub(crate) const ID: &str = "largest";
/// Filters are a multiple of this.
const STEP: u32 = 8;

/// The largest model of one rule.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Found {
    /// How it is cut.
    pub(crate) rule: String,
    pub(crate) filters: u32,
    pub(crate) parameters: u64,
    pub(crate) capacity_bytes: u64,
    /// Of the trial.
    pub(crate) measured_bytes: Option<u64>,
    /// What the next size would need.
    pub(crate) beyond: String,
}

/// How the layers are cut.
#[derive(Clone, Copy)]
enum Rule {
    /// For the lowest peak.
    Ours,
    /// torchgpipe's balance by time.
    Time,
}

/// What one size comes to.
struct Size {
    plan: Option<Value>,
    needs: u64,
    parameters: u64,
}

/// Looks for the largest model of both rules.
pub(crate) fn search(caller: &Caller<'_>, options: &Options) -> Result<Vec<Found>> {
    let (cells, most, capacity) = if options.quick { (3, 64, 6 << 20) } else { (18, 512, 1 << 29) };
    [Rule::Ours, Rule::Time]
        .into_iter()
        .map(|rule| of_rule(caller, options, rule, cells, most, capacity))
        .collect()
}

fn of_rule(
    caller: &Caller<'_>,
    options: &Options,
    rule: Rule,
    cells: u32,
    most: u32,
    capacity: u64,
) -> Result<Found> {
    let at = |steps: u32| size(caller, options, rule, cells, steps * STEP, capacity);
    let sizes = Sizes { fewest: 1, most: most / STEP, first: 1, step: most / STEP / 2 };
    let found = largest(sizes, |steps| {
        let tried = at(steps)?;
        let (filters, fits) = (steps * STEP, tried.plan.is_some());
        eprintln!("{ID}: {filters} filters: {}", if fits { "fits" } else { "does not fit" });
        Ok(if fits { Ok(tried) } else { Err(format!("F {filters} needs {}", mib(tried.needs))) })
    })?;
    let best = found.answer.with_context(|| format!("not even {STEP} filters fit into {capacity} bytes"))?;
    let plan = best.plan.context("the largest size has a plan")?;
    let trained = train(caller, &plan, options, &mut BTreeMap::new())?;
    ensure!(trained.trial.failure.is_empty(), "the largest model did not train: {}", trained.trial.failure);
    let rule = match rule {
        Rule::Ours => "lowest peak (this planner)",
        Rule::Time => "balanced by time (torchgpipe)",
    };
    Ok(Found {
        rule: rule.to_owned(),
        filters: found.size * STEP,
        parameters: best.parameters,
        capacity_bytes: capacity,
        measured_bytes: trained.measured_bytes(),
        beyond: found.beyond,
    })
}

/// Profiles a size, once for both rules, and plans it.
fn size(
    caller: &Caller<'_>,
    options: &Options,
    rule: Rule,
    cells: u32,
    filters: u32,
    capacity: u64,
) -> Result<Size> {
    let id = format!("amoebanet-{cells}-{filters}");
    let (cells, filters_text, devices) =
        (cells.to_string(), filters.to_string(), options.devices.to_string());
    if caller.ask(&["profile", "show", &id])?.is_err() {
        let mut arguments = vec!["profile", "run", "--id", &id, "--model", "amoebanet_d", "--cells", &cells];
        arguments.extend(["--filters", &filters_text, "--image-size", "32", "--micro-batch-size", "4"]);
        arguments.extend(["--micro-batches", "4", "--devices", &devices, "--campaign", "minimal"]);
        caller.get(&arguments)?;
    }
    let profile = caller.get(&["profile", "show", &id])?;
    let model =
        caller.get(&["model", "show", profile["model"].as_str().context("a profile has a model")?])?;
    let parameters = model["parameterCount"].as_str().and_then(|text| text.parse().ok()).unwrap_or(0);
    // On devices that hold anything, to learn what it needs and how rules cut it.
    let roomy = options.slots();
    let free = caller.get(&["plan", "recommend", "--profile", &id, "--devices", &roomy, "--margin", "0"])?;
    let tight = format!("{}x{capacity}", options.devices);
    let mut arguments = vec!["plan", "recommend", "--profile", &id, "--devices", &tight, "--margin", "0"];
    let (needs, stages) = match rule {
        Rule::Ours => (bytes(&free["predictedPeak"]).unwrap_or(0), None),
        Rule::Time => {
            let rules = free["baselines"].as_array().context("an answer has baselines")?;
            let of_time = rules.iter().find(|rule| rule["name"] == "torchgpipe-time");
            let of_time = of_time.context("torchgpipe's balance is among the baselines")?;
            let stages = partitioning(&of_time["partitioning"]["stages"])?;
            (bytes(&of_time["predictedPeak"]).unwrap_or(0), Some(stages))
        }
    };
    if let Some(stages) = &stages {
        arguments.extend(["--partition", stages]);
    }
    let plan = caller.ask(&arguments)?.ok();
    Ok(Size { plan, needs, parameters })
}
