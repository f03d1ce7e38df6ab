//! How much of copies is not hidden that passes could hide.
//!
//! One slot of a worker with two, so that a core is idle: what layers saved goes to the host and comes back, one step of
//! another layer beside each copy. An iteration with copies is held against one without, by turns.

use anyhow::{Context, Result};
use loadmaster_tests::{Caller, Planner, Trial, Worker, WorkerOptions};
use serde::Serialize;

use crate::train::options::Options;
use crate::train::scene::{Scene, Setting, Slots};
use crate::train::side_by_side::median;

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

/// Measures it.
///
/// # Errors
/// A command fails, or what is planned does not train.
pub(crate) fn measure(planner: &Planner, setting: &Setting, options: &Options) -> Result<Hidden> {
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
