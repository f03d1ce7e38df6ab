//! Plans for one model, trained by turns: each of those that are equal once.

use anyhow::Result;
use loadmaster_tests::Trial;
use serde::Serialize;
use serde_json::Value;

use crate::report::Progress;
use crate::stats::median;
use crate::table::{Table, or_dash, ratio};
use crate::trial::scene::{Answer, Scene, stages_of};
use crate::trial::{cells, titles};

/// Plans for one model.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Comparison {
    pub(crate) title: String,
    pub(crate) slots: usize,
    pub(crate) plans: Vec<Compared>,
}

/// A plan, and what its training took.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Compared {
    /// Who made it.
    pub(crate) rule: String,
    /// With their degrees.
    stages: String,
    /// Samples of one pass of a whole stage.
    micro_batch_size: i64,
    /// The last of its trials; none where there is no plan.
    pub(crate) trial: Option<Trial>,
    /// Of an iteration, of every trial.
    pub(crate) seconds: Vec<f64>,
    /// Who has the same plan, which was trained for both.
    pub(crate) same_as: Option<String>,
    /// Why there is no plan.
    note: String,
}

impl Compared {
    /// The median of its trials.
    pub(crate) fn measured_seconds(&self) -> Option<f64> {
        median(&self.seconds)
    }

    /// Predicted over measured seconds, less one.
    pub(crate) fn error(&self) -> Option<f64> {
        Some(self.trial.as_ref()?.predicted_seconds / self.measured_seconds()? - 1.0)
    }

    /// Bytes of the fullest device.
    fn measured_bytes(&self) -> Option<f64> {
        Some(self.trial.as_ref()?.measured.as_ref()?.most()[0] as f64)
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.trial.as_ref().is_some_and(|trial| !trial.failure.is_empty())
    }
}

/// How often plans are trained, and how many iterations of each are measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rounds {
    pub(crate) rounds: u32,
    pub(crate) iterations: u32,
}

/// All that makes two plans the same training.
fn content(plan: &Value) -> Vec<Value> {
    let stages = plan["stages"].as_array().into_iter().flatten();
    let stages = stages
        .flat_map(|stage| [stage["config"].clone(), stage["memoryOptimizations"]["optimizations"].clone()]);
    stages.chain([plan["profile"].clone(), plan["training"].clone()]).collect()
}

impl Comparison {
    /// Trains the plans of all that have one.
    pub(crate) fn train(
        scene: &Scene,
        title: String,
        slots: usize,
        answers: Vec<(String, Answer)>,
        Rounds { rounds, iterations }: Rounds,
    ) -> Result<Self> {
        let mut known: Vec<(Compared, Option<Value>)> = Vec::new();
        for (rule, answer) in answers {
            let mut compared = Compared {
                rule,
                stages: String::new(),
                micro_batch_size: 0,
                trial: None,
                seconds: Vec::new(),
                same_as: None,
                note: String::new(),
            };
            match answer {
                Err(refused) => {
                    refused.reason().clone_into(&mut compared.note);
                    known.push((compared, None));
                }
                Ok(plan) => {
                    let is_same = |other: &Option<Value>| {
                        other.as_ref().is_some_and(|other| content(other) == content(&plan))
                    };
                    let same = known.iter().find(|(_, other)| is_same(other));
                    compared.same_as = same.map(|(row, _)| row.rule.clone());
                    compared.stages = stages_of(&plan)?;
                    compared.micro_batch_size = plan["training"]["microBatchSize"].as_i64().unwrap_or(0);
                    compared.trial = Some(Trial::predicted(&plan)?);
                    known.push((compared, Some(plan)));
                }
            }
        }
        let mut own: Vec<(&mut Compared, &Value)> = known
            .iter_mut()
            .filter(|(compared, _)| compared.same_as.is_none())
            .filter_map(|(compared, plan)| Some((compared, plan.as_ref()?)))
            .collect();
        let mut progress = Progress::new(own.len() * rounds as usize);
        for round in 1..=rounds {
            for (compared, plan) in &mut own {
                progress.step(format!("training {} on {slots} slots, round {round}", compared.rule));
                if compared.has_failed() {
                    continue;
                }
                let trial = Trial::of(&scene.caller(), plan, iterations)?;
                compared.seconds.extend(trial.measured_seconds);
                compared.trial = Some(trial);
            }
        }
        let mut plans: Vec<Compared> = known.into_iter().map(|(compared, _)| compared).collect();
        for index in 0..plans.len() {
            let Some(same) = plans[index].same_as.clone() else { continue };
            let Some(trained) = plans.iter().find(|row| row.rule == same).cloned() else { continue };
            let compared = &mut plans[index];
            compared.seconds = trained.seconds;
            // Equal plans have equal trials, whoever made them; predictions are the plan's own.
            compared.trial = compared.trial.take().zip(trained.trial).map(|(own, trained)| {
                let Trial { plan, predicted, predicted_seconds, .. } = own;
                Trial { plan, predicted, predicted_seconds, ..trained }
            });
        }
        Ok(Self { title, slots, plans })
    }

    /// The plans, beside the smallest and the fastest of them.
    pub(crate) fn table(&self) -> String {
        let least = self.plans.iter().filter_map(Compared::measured_bytes).reduce(f64::min);
        let fastest = self.plans.iter().filter_map(Compared::measured_seconds).reduce(f64::min);
        let own = titles(&["plan", "with degrees", "B"]);
        let mut table = Table::new(&[&own[..], &["× fewest bytes", "× fastest"]].concat());
        for compared in &self.plans {
            let mut line = vec![compared.rule.clone()];
            if compared.trial.is_none() {
                line.push(format!("no plan: {}", compared.note));
                table.row(line);
                continue;
            }
            let seconds = compared.measured_seconds();
            line.extend([compared.stages.clone(), compared.micro_batch_size.to_string()]);
            line.extend(cells(compared.trial.as_ref(), seconds));
            if !compared.has_failed() {
                line.push(or_dash(compared.measured_bytes(), |bytes| ratio(bytes, least)));
                line.push(or_dash(seconds, |seconds| ratio(seconds, fastest)));
            }
            line.extend(compared.same_as.as_ref().map(|same| format!("the plan of {same}")));
            table.row(line);
        }
        format!("{}\n{table}{}", self.title, self.rank())
    }

    /// Which place the truly fastest plan has among the predictions.
    fn rank(&self) -> String {
        let different = self.plans.iter().filter(|row| row.same_as.is_none());
        let plans: Vec<(f64, f64, &str)> = different
            .filter_map(|row| {
                Some((row.measured_seconds()?, row.trial.as_ref()?.predicted_seconds, row.stages.as_str()))
            })
            .collect();
        let Some(fastest) = plans.iter().min_by(|a, b| a.0.total_cmp(&b.0)) else { return String::new() };
        let place = 1 + plans.iter().filter(|row| row.1 < fastest.1).count();
        let (stages, all) = (fastest.2, plans.len());
        format!("the truly fastest plan, {stages}, is predicted to be number {place} of {all}\n")
    }
}
