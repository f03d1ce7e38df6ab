//! Seconds: plans of all rules for the same model, trained by turns, and copies that passes hide.

use anyhow::{Context, Result};
use loadmaster_tests::{Caller, Planner, Trial, Worker, WorkerOptions};
use serde::Serialize;
use serde_json::Value;

use crate::stats::median;
use crate::train::largest::{Largest, NOTHING, search};
use crate::train::rule::{Care, Rule};
use crate::train::scene::{Options, SLOTS, Scene, Setting, Slots};

/// As many slots as there are cores, and twice as many.
const COUNTS: [usize; 2] = [2, SLOTS];

/// Plans for one model.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Comparison {
    pub(crate) slots: usize,
    pub(crate) blocks: u32,
    pub(crate) parameters: u64,
    pub(crate) plans: Vec<Compared>,
}

/// What one rule's plan came to.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Compared {
    pub(crate) rule: Rule,
    /// The last of its trials; none where there is no plan.
    pub(crate) trial: Option<Trial>,
    /// Of an iteration, of every trial.
    pub(crate) seconds: Vec<f64>,
    /// Who has the same plan and was trained for both.
    pub(crate) same_as: Option<Rule>,
    /// Why there is no plan.
    pub(crate) note: String,
}

impl Compared {
    /// The median of its trials.
    pub(crate) fn measured_seconds(&self) -> Option<f64> {
        median(&self.seconds)
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.trial.as_ref().is_some_and(|trial| !trial.failure.is_empty())
    }
}

/// Compares at every size, first on two slots and then on four.
pub(crate) fn all(scene: &Scene<'_>, known: &[Largest], options: &Options) -> Result<Vec<Comparison>> {
    let mut all = Vec::new();
    for count in COUNTS {
        let mut sizes = Vec::new();
        for &rule in scene.setting.sized_by {
            let of = known.iter().find(|of| count == SLOTS && of.rule == Some(rule));
            let blocks = match of {
                Some(of) => of.blocks,
                None => largest_on(scene, rule, count)?,
            };
            if blocks > 0 && !sizes.contains(&blocks) {
                sizes.push(blocks);
            }
        }
        for blocks in sizes {
            all.push(compare(scene, blocks, count, options)?);
        }
    }
    Ok(all)
}

fn largest_on(scene: &Scene<'_>, rule: Rule, count: usize) -> Result<u32> {
    let found = search(scene, &format!("{} on {count} slots", rule.name()), NOTHING, |blocks| {
        let answer = rule.plan(scene, blocks, scene.setting.slots(count), Care::First)?;
        Ok(answer.map_err(|refused| refused.reason().to_owned()))
    })?;
    Ok(found.size)
}

fn compare(scene: &Scene<'_>, blocks: u32, count: usize, options: &Options) -> Result<Comparison> {
    let mut plans: Vec<(Compared, Option<Value>)> = Vec::new();
    for rule in Rule::ALL {
        eprintln!("{blocks} blocks on {count} slots: planning {}", rule.name());
        let answer = rule.plan(scene, blocks, scene.setting.slots(count), Care::Fastest)?;
        let mut compared =
            Compared { rule, trial: None, seconds: Vec::new(), same_as: None, note: String::new() };
        match answer {
            Err(refused) => {
                refused.reason().clone_into(&mut compared.note);
                plans.push((compared, None));
            }
            Ok(plan) => {
                let same =
                    plans.iter().find(|(_, known)| known.as_ref().is_some_and(|of| is_same(of, &plan)));
                compared.same_as = same.map(|(of, _)| of.same_as.unwrap_or(of.rule));
                compared.trial = Some(Trial::predicted(&plan)?);
                plans.push((compared, Some(plan)));
            }
        }
    }
    for round in 1..=options.rounds() {
        for (compared, plan) in &mut plans {
            let Some(plan) = plan.as_ref().filter(|_| compared.same_as.is_none() && !compared.has_failed())
            else {
                continue;
            };
            let (name, rounds) = (compared.rule.name(), options.rounds());
            eprintln!("{blocks} blocks on {count} slots: training {name}, round {round} of {rounds}");
            let trial = Trial::of(&scene.caller, plan, options.iterations())?;
            compared.seconds.extend(trial.measured_seconds);
            compared.trial = Some(trial);
        }
    }
    let trained: Vec<Compared> = plans.iter().map(|(compared, _)| compared.clone()).collect();
    let share = |(mut compared, _): (Compared, Option<Value>)| {
        if let Some(of) = trained.iter().find(|of| Some(of.rule) == compared.same_as) {
            compared.seconds.clone_from(&of.seconds);
            compared.trial.clone_from(&of.trial);
        }
        compared
    };
    let plans = plans.into_iter().map(share).collect();
    Ok(Comparison { slots: count, blocks, parameters: scene.parameters(blocks), plans })
}

/// Whether both have the same stages do the same.
fn is_same(one: &Value, other: &Value) -> bool {
    let of = |plan: &Value| -> Vec<Value> {
        let stages = plan["stages"].as_array().into_iter().flatten();
        stages.flat_map(|stage| [stage["config"].clone(), stage["actions"]["actions"].clone()]).collect()
    };
    of(one) == of(other)
}

/// What was found. Seconds are of an iteration.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Hidden {
    /// Of all copies, at the rate of the link.
    pub(crate) copy_seconds: f64,
    /// By how much copies make it longer.
    pub(crate) predicted_seconds: f64,
    pub(crate) measured_seconds: f64,
    /// Without copies, measured.
    pub(crate) without_seconds: f64,
    /// The last trial with copies.
    pub(crate) trial: Trial,
}

impl Hidden {
    /// What is not hidden, of what windows could hide.
    pub(crate) fn share(&self) -> f64 {
        let could = self.copy_seconds - self.predicted_seconds.max(0.0);
        (self.measured_seconds - self.predicted_seconds.max(0.0)) / could
    }
}

/// Measures how much of copies is not hidden that passes could hide.
///
/// One slot of a worker with two, so that a core is idle: what layers saved goes to the host and comes back, one step of
/// another layer beside each copy. An iteration with copies is held against one without, by turns.
pub(crate) fn hidden(planner: &Planner, setting: &Setting, options: &Options) -> Result<Hidden> {
    let rates = format!("host={}B/s", setting.hidden_rate);
    // An untouched stage under GPipe holds what all micro-batches saved.
    let slots = Slots { count: 2, capacity_bytes: setting.host_bytes };
    let arguments = ["--host-memory", &format!("{}B", setting.host_bytes), "--cpu-links", &rates];
    let worker = WorkerOptions {
        name: "hidden".to_owned(),
        slots: slots.to_string(),
        arguments: arguments.map(str::to_owned).to_vec(),
        ..WorkerOptions::default()
    };
    let _worker = Worker::start(planner, &worker);
    let scene = Scene::new(Caller::new(planner), setting, "hidden");
    let blocks = setting.hidden_blocks;
    let layers = blocks + 3;
    let (cut, all) = (layers.to_string(), format!("0/0..{}=activations:host:1,1", layers - 1));
    let plan = |more: &[&str]| {
        let ask = ["--partition", &cut, "--schedule", "gpipe"];
        let one = Slots { count: 1, ..slots };
        scene.recommend(blocks, one, &[&ask[..], more].concat())?.map_err(|refused| {
            anyhow::anyhow!("the copies that are to be hidden have no plan: {}", refused.message)
        })
    };
    let plans = [plan(&[])?, plan(&["--action", &all, "--copy-rates", &rates])?];
    let mut seconds = [Vec::new(), Vec::new()];
    let mut last = None;
    for round in 1..=options.rounds() {
        eprintln!("hidden copies: round {round} of {}", options.rounds());
        for (plan, seconds) in plans.iter().zip(&mut seconds) {
            let trial = Trial::of(&scene.caller, plan, options.iterations())?;
            seconds.push(trial.measured_seconds.with_context(|| trial.failure.clone())?);
            last = Some(trial);
        }
    }
    let trial = last.context("there is a round")?;
    let [without, with] = [median(&seconds[0]), median(&seconds[1])].map(|of| of.unwrap_or(f64::NAN));
    Ok(Hidden {
        copy_seconds: trial.copied_bytes as f64 / setting.hidden_rate as f64,
        predicted_seconds: trial.predicted_seconds - Trial::predicted(&plans[0])?.predicted_seconds,
        measured_seconds: with - without,
        without_seconds: without,
        trial,
    })
}
