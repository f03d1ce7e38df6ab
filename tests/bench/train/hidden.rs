//! Copies that passes could hide, and how much of them is not hidden.

use std::fmt;

use anyhow::{Context, Result, anyhow};
use loadmaster_tests::Trial;
use serde::Serialize;

use crate::report::{Goal, Progress};
use crate::stats::median;
use crate::train::models::{Models, Setting, Slots};
use crate::trial::comparison::Rounds;

/// Share of copies that is not hidden, of what could be.
const NOT_HIDDEN: f64 = 0.05;
/// Bytes per second of these copies.
const RATE: u64 = 1_500_000_000;

/// Seconds of an iteration.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Hidden {
    /// Of all copies, at the rate of the link.
    copy_seconds: f64,
    /// By how much copies make it longer.
    predicted_seconds: f64,
    measured_seconds: f64,
    /// Without copies, measured.
    without_seconds: f64,
    /// The last trial with copies.
    trial: Trial,
}

impl Hidden {
    /// One slot of a worker with two, so that a core is idle: what layers saved goes to the host and comes back, one step of
    /// another layer beside each copy. An iteration with copies is held against one without, by turns.
    pub(crate) fn measure(setting: &Setting, Rounds { rounds, iterations }: Rounds) -> Result<Self> {
        let rates = format!("host={RATE}B/s");
        // An untouched stage under GPipe holds what all micro-batches saved.
        let slots = Slots { count: 2, capacity_bytes: setting.host_bytes() };
        let scene = setting.scene(slots, &rates);
        let models = Models { scene: &scene, setting };
        let blocks = setting.hidden_blocks;
        let layers = models.profile(blocks)?.layers;
        let (cut, all) = (layers.to_string(), format!("0/0..{}=activations:host:1,1", layers - 1));
        let plan = |more: &[&str]| {
            let asked = ["--pipeline-layout", &cut, "--schedule", "gpipe"];
            let answer =
                models.recommend(blocks, Slots { count: 1, ..slots }, &[&asked[..], more].concat())?;
            answer.map_err(|refused| {
                anyhow!("the copies that are to be hidden have no plan: {}", refused.message)
            })
        };
        let plans = [plan(&[])?, plan(&["--stage-optimization", &all, "--copy-rates", &rates])?];
        let mut seconds = [Vec::new(), Vec::new()];
        let mut last = None;
        let mut progress = Progress::new(rounds as usize);
        for _ in 0..rounds {
            progress.step("hidden copies");
            for (plan, seconds) in plans.iter().zip(&mut seconds) {
                let trial = Trial::of(&scene.caller(), plan, iterations)?;
                seconds.push(trial.measured_seconds.with_context(|| trial.failure.clone())?);
                last = Some(trial);
            }
        }
        let trial = last.context("there is a round")?;
        let [without, with] = seconds.map(|seconds| median(&seconds).unwrap_or(f64::NAN));
        Ok(Self {
            copy_seconds: trial.copied_bytes as f64 / RATE as f64,
            predicted_seconds: trial.predicted_seconds - Trial::predicted(&plans[0])?.predicted_seconds,
            measured_seconds: with - without,
            without_seconds: without,
            trial,
        })
    }

    /// The part that is not hidden, of what windows could hide.
    fn share(&self) -> f64 {
        let could = self.copy_seconds - self.predicted_seconds.max(0.0);
        (self.measured_seconds - self.predicted_seconds.max(0.0)) / could
    }

    /// Nothing is said where others used the cores.
    pub(crate) fn goal(&self) -> Goal {
        let text = |share| format!("{:.1} % not hidden", 100.0 * share);
        let share = self.share();
        let goal = Goal::at_most("copies that windows hide, a core idle", NOT_HIDDEN, Some(share), text);
        if self.trial.contended { goal.decided(None) } else { goal }
    }
}

impl fmt::Display for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { copy_seconds, predicted_seconds, measured_seconds, without_seconds, trial } = self;
        let contended = if trial.contended { "; but others used the cores" } else { "" };
        writeln!(
            f,
            "Copies to the host and back, one slot and an idle core: {copy_seconds:.3} s per iteration; the iteration takes \
             {without_seconds:.3} s without them, and {measured_seconds:+.4} s with them ({predicted_seconds:+.4} s predicted, \
             {:.4} s waited): {:.1} % of what passes could hide is not hidden{contended}",
            trial.measured_waits,
            100.0 * self.share()
        )
    }
}
