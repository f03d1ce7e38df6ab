//! The largest model that can be trained, found by asking about few of them.

use anyhow::Result;
use loadmaster_tests::Trial;
use serde::Serialize;
use serde_json::Value;

use crate::table::{Table, millions, ratio};
use crate::trial::scene::Scene;
use crate::trial::{cells, titles};

/// The largest size, and why the next one is none.
pub(crate) struct Found<T> {
    /// 0 where not even the smallest is possible.
    pub(crate) size: u32,
    /// What was found for it.
    pub(crate) answer: Option<T>,
    /// Why one more is not possible.
    pub(crate) beyond: String,
}

/// The sizes that are looked at, and where to begin.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) fewest: u32,
    pub(crate) most: u32,
    pub(crate) first: u32,
    /// The first step up.
    pub(crate) step: u32,
}

/// The largest size with an answer: steps up, each twice as long as the last one, then halves.
pub(crate) fn largest<T>(
    Sizes { fewest, most, first, mut step }: Sizes,
    mut ask: impl FnMut(u32) -> Result<Result<T, String>>,
) -> Result<Found<T>> {
    let mut found = Found { size: 0, answer: None, beyond: "no larger one was tried".to_owned() };
    let mut too_many = most + 1;
    let mut asked = first.clamp(fewest, most);
    loop {
        match ask(asked)? {
            Ok(answer) => (found.size, found.answer) = (asked, Some(answer)),
            Err(why) => (too_many, found.beyond) = (asked, why),
        }
        asked = match (found.size, too_many) {
            (0, too_many) if too_many == fewest => return Ok(found),
            (0, _) => (asked / 2).max(fewest),
            (fit, too_many) if too_many - fit == 1 => return Ok(found),
            (fit, too_many) if too_many > most => {
                let next = (fit + step).min(most);
                step *= 2;
                next
            }
            (fit, too_many) => fit.midpoint(too_many),
        };
    }
}

/// The largest model that a rule trains.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Largest {
    pub(crate) rule: &'static str,
    /// 0 where not even the smallest has a plan.
    pub(crate) size: u32,
    pub(crate) parameters: u64,
    pub(crate) trial: Option<Trial>,
    /// Why one more has no plan.
    pub(crate) beyond: String,
    /// What becomes of a plan of one more, for larger devices, that is to be trained on these.
    pub(crate) really: Option<String>,
}

impl Largest {
    /// Trains the largest model with a plan.
    pub(crate) fn train(
        scene: &Scene,
        rule: &'static str,
        found: Found<Value>,
        parameters: u64,
        iterations: u32,
    ) -> Result<Self> {
        let Found { size, answer, beyond } = found;
        eprintln!("{rule}: training size {size}");
        let trial = answer.map(|plan| Trial::of(&scene.caller(), &plan, iterations)).transpose()?;
        Ok(Self { rule, size, parameters, trial, beyond, really: None })
    }

    /// Whether the plan trains, if there is one.
    pub(crate) fn is_trained(&self) -> bool {
        self.trial.as_ref().is_none_or(|trial| trial.failure.is_empty())
    }
}

/// The largest models of all rules, in parameters also beside that of a baseline; then why they are no larger.
pub(crate) fn table(all: &[Largest], unit: &str, baseline: &str) -> String {
    let parameters = all.iter().find(|row| row.rule == baseline).map(|row| row.parameters as f64);
    let beside = format!("of {baseline}'s");
    let mut table = Table::new(&titles(&["rule", unit, "parameters", &beside]));
    let mut text = String::new();
    for Largest { rule, size, parameters: own, trial, beyond, really } in all {
        let mut line = vec![(*rule).to_owned(), size.to_string(), millions(*own)];
        line.push(ratio(*own as f64, parameters));
        line.extend(cells(trial.as_ref(), trial.as_ref().and_then(|trial| trial.measured_seconds)));
        table.row(line);
        text.push_str(&format!("one more, {rule}: {beyond}\n"));
        if let Some(really) = really {
            let first = really.split(". ").next().unwrap_or_default();
            text.push_str(&format!("  planned for larger slots and sent to these: {first}\n"));
        }
    }
    format!("{table}{text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever the limit is, and wherever the search begins, it is found.
    #[test]
    fn the_largest_size_is_found() {
        for limit in 0..=9 {
            for (first, step) in [(1, 1), (4, 2), (9, 1)] {
                let sizes = Sizes { fewest: 2, most: 8, first, step };
                let ask =
                    |size| Ok(if size <= limit { Ok(size) } else { Err(format!("{size} is too many")) });
                let found = largest(sizes, ask).unwrap();
                let size = if limit < 2 { 0 } else { limit.min(8) };
                assert_eq!((found.size, found.answer), (size, Some(size).filter(|&size| size > 0)));
                let next = if size == 0 { 2 } else { size + 1 };
                assert_eq!(found.beyond == format!("{next} is too many"), size < 8);
            }
        }
    }
}
