//! Plans of all rules for the same model, trained by turns: what the machine does meanwhile meets all of them.

use anyhow::Result;
use loadmaster_tests::Trial;
use serde::Serialize;
use serde_json::Value;

use crate::train::largest::{Begin, Largest, search};
use crate::train::options::Options;
use crate::train::rule::{Care, Rule};
use crate::train::scene::{SLOTS, Scene};

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

/// The middle one; of two in the middle their mean.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    let lower = *values.get(values.len().checked_sub(1)? / 2)?;
    Some(f64::midpoint(lower, upper))
}

/// Compares at every size, first on two slots and then on four.
///
/// # Errors
/// A command fails.
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
    let found = search(scene, &format!("{} on {count} slots", rule.name()), Begin::NOTHING, |blocks| {
        let answer = rule.plan(scene, blocks, scene.setting.slots(count), Care::First)?;
        Ok(answer.map_err(|refused| refused.reason().to_owned()))
    })?;
    Ok(found.blocks)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_in_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }
}
