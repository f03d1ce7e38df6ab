//! A plan that was trained: three ledgers and seconds, predicted and measured.

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::Value;

use crate::answer::whole;
use crate::caller::Caller;

/// Highest bytes by stage, and those that its memory actions move in an iteration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Ledgers {
    /// Of the allocated ledger.
    pub device: Vec<u64>,
    /// In the host's memory.
    pub host: Vec<u64>,
    /// Set aside for other stages.
    pub peer_pools: Vec<u64>,
    /// That leave, and that come back, over all links.
    pub moved: Vec<[u64; 2]>,
}

/// What became of a plan.
#[derive(Debug, Clone, Serialize)]
pub struct Trial {
    pub plan: String,
    /// Layers of each stage.
    pub stages: String,
    pub predicted: Ledgers,
    /// None where it did not train.
    pub measured: Option<Ledgers>,
    pub predicted_seconds: f64,
    /// Of an iteration.
    pub measured_seconds: Option<f64>,
    /// Seconds for which its devices wait for copies, all together.
    pub predicted_waits: f64,
    pub measured_waits: f64,
    /// Bytes that leave and come back.
    pub copied_bytes: u64,
    /// Whether others used the cores meanwhile.
    pub contended: bool,
    /// Why it did not train.
    pub failure: String,
}

impl Ledgers {
    /// Of a plan's stages: what is predicted or what was measured, by these keys.
    fn of(stages: &[Value], [peak, offload]: [&str; 2]) -> Self {
        let all = |of: &dyn Fn(&Value) -> u64| stages.iter().map(of).collect();
        Self {
            device: all(&|stage| whole(&stage[peak]["bytes"])),
            host: all(&|stage| whole(&stage[offload]["hostPeakBytes"])),
            peer_pools: all(&|stage| whole(&stage[offload]["peerPoolPeakBytes"])),
            moved: stages
                .iter()
                .map(|stage| ["sentBytes", "receivedBytes"].map(|way| moved(&stage[offload], way)))
                .collect(),
        }
    }

    /// The fullest device, the host, and what others set aside.
    pub fn most(&self) -> [u64; 3] {
        let sum = |of: &[u64]| of.iter().fold(0, |sum: u64, &bytes| sum.saturating_add(bytes));
        [self.device.iter().copied().max().unwrap_or(0), sum(&self.host), sum(&self.peer_pools)]
    }
}

impl Trial {
    /// Trains a plan.
    ///
    /// # Errors
    /// After an interruption, or when an answer makes no sense.
    pub fn of(caller: &Caller<'_>, plan: &Value, iterations: u32) -> Result<Self> {
        let name = plan["name"].as_str().context("a plan has a name")?;
        let mut trial = Self::predicted(plan)?;
        let asked = ["plan", "trial", name, "--iterations", &iterations.to_string()];
        match caller.ask(&asked)? {
            Err(refused) => refused.reason().clone_into(&mut trial.failure),
            Ok(_) => trial.note(&caller.get(&["plan", "show", name])?)?,
        }
        Ok(trial)
    }

    /// What is predicted.
    ///
    /// # Errors
    /// It is no plan.
    pub fn predicted(plan: &Value) -> Result<Self> {
        let stages = plan["stages"].as_array().context("a plan has stages")?;
        Ok(Self {
            plan: plan["name"].as_str().unwrap_or_default().to_owned(),
            stages: stage_sizes(plan),
            predicted: Ledgers::of(stages, ["predictedPeak", "offloadTraffic"]),
            measured: None,
            predicted_seconds: plan["iteration"]["iterationSeconds"].as_f64().unwrap_or(f64::NAN),
            measured_seconds: None,
            predicted_waits: copies(stages, "offloadTraffic", |copy| {
                copy["waitedSeconds"].as_f64().unwrap_or(0.0)
            }),
            measured_waits: 0.0,
            copied_bytes: copies(stages, "offloadTraffic", |copy| {
                (whole(&copy["sentBytes"]) + whole(&copy["receivedBytes"])) as f64
            }) as u64,
            contended: false,
            failure: String::new(),
        })
    }

    /// Takes what was measured last.
    fn note(&mut self, tried: &Value) -> Result<()> {
        let stages = tried["stages"].as_array().context("a plan has stages")?;
        let newest = &tried["trials"][0];
        newest["failureMessage"].as_str().unwrap_or_default().clone_into(&mut self.failure);
        if self.failure.is_empty() {
            self.measured = Some(Ledgers::of(stages, ["measuredPeak", "measuredOffloadTraffic"]));
            self.measured_seconds = newest["iterationSeconds"].as_f64();
            let waited = |copy: &Value| copy["waitedSeconds"].as_f64().unwrap_or(0.0);
            self.measured_waits = copies(stages, "measuredOffloadTraffic", waited);
        }
        self.contended = newest["contended"] == true;
        Ok(())
    }

    /// Predicted over measured seconds, less one: below zero where too little was predicted.
    pub fn error(&self) -> Option<f64> {
        Some(self.predicted_seconds / self.measured_seconds? - 1.0)
    }

    /// Whether every ledger of every stage, and what it moves, was predicted to the byte.
    pub fn is_exact(&self) -> bool {
        self.measured.as_ref() == Some(&self.predicted)
    }
}

/// The layers of a plan's stages, such as `4-3-3-5`.
pub fn stage_sizes(plan: &Value) -> String {
    let layers = |stage: &Value| {
        let [first, last] = ["firstLayer", "lastLayer"].map(|key| stage["config"][key].as_i64().unwrap_or(0));
        (last - first + 1).to_string()
    };
    let stages = plan["stages"].as_array().into_iter().flatten();
    stages.map(layers).collect::<Vec<_>>().join("-")
}

/// Bytes that an offload's copies move one way.
fn moved(offload: &Value, way: &str) -> u64 {
    let copies = offload["copyTraffic"].as_array().into_iter().flatten();
    copies.map(|copy| whole(&copy[way])).fold(0, u64::saturating_add)
}

/// Of all copies together.
fn copies(stages: &[Value], offload: &str, of: impl Fn(&Value) -> f64) -> f64 {
    let copies = stages.iter().filter_map(|stage| stage[offload]["copyTraffic"].as_array()).flatten();
    copies.map(of).sum()
}
