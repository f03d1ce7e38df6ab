//! What is meant to be reached, and whether it is.

use loadmaster_tests::Trial;

use crate::train::hidden::Hidden;
use crate::train::largest::Largest;
use crate::train::pipedream::Row;
use crate::train::rule::Rule;
use crate::train::side_by_side::Comparison;

/// Of largest models: ours over recomputing alone.
const LARGER: f64 = 3.7;
/// Measured seconds of ours over those of MPress's plan.
const NOT_SLOWER: f64 = 1.02;
/// |predicted / measured − 1|, with as many slots as cores, and with twice as many on average.
const ERROR: f64 = 0.10;
const MEAN_ERROR: f64 = 0.20;
/// Share of copies that is not hidden, of what could be.
const NOT_HIDDEN: f64 = 0.05;

/// A line of the table of goals.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Goal {
    pub(crate) what: &'static str,
    pub(crate) wanted: String,
    pub(crate) reached: String,
    /// None where nothing was measured that would tell.
    pub(crate) met: Option<bool>,
}

pub(crate) fn of_largest(all: &[Largest]) -> Vec<Goal> {
    let of = |rule| all.iter().find(|of| of.rule == Some(rule)).filter(|of| of.blocks > 0);
    let parameters = |rule| of(rule).filter(|of| of.is_trained()).map(|of| of.parameters as f64);
    let ratio = parameters(Rule::Ours).zip(parameters(Rule::RecomputeOnly)).map(|(ours, of)| ours / of);
    let ours = of(Rule::Ours).map_or(0, |ours| ours.blocks);
    let larger: Vec<&str> = all.iter().filter(|of| of.blocks > ours).map(Largest::name).collect();
    let or_none = |text: String| if text.is_empty() { "none".to_owned() } else { text };
    vec![
        Goal {
            what: "largest model trained, of recompute-only's",
            wanted: format!("≥ {LARGER}× (6.2B / 1.67B)"),
            reached: ratio
                .map_or_else(|| "one of the two did not train".to_owned(), |of| format!("{of:.2}×")),
            met: Some(ratio.is_some_and(|ratio| ratio >= LARGER)),
        },
        Goal {
            what: "rules, and plans by hand, that train more",
            wanted: "none".to_owned(),
            reached: or_none(larger.join(", ")),
            met: Some(larger.is_empty()),
        },
        exact("three ledgers of the largest models", all.iter().filter_map(|of| of.trial.as_ref())),
    ]
}

pub(crate) fn of_seconds(all: &[Comparison]) -> Vec<Goal> {
    let ratio = |of: &Comparison| {
        let seconds = |rule| of.plans.iter().find(|of| of.rule == rule)?.measured_seconds();
        Some(seconds(Rule::Ours)? / seconds(Rule::Mpress)?)
    };
    let worst = all.iter().filter_map(ratio).reduce(f64::max);
    let errors = |slots: usize| -> Vec<f64> {
        let plans = all.iter().filter(|of| of.slots == slots).flat_map(|of| &of.plans);
        let once = plans.filter(|of| of.same_as.is_none());
        once.filter_map(|of| Some(of.trial.as_ref()?.predicted_seconds / of.measured_seconds()? - 1.0))
            .collect()
    };
    let (two, four) = (errors(2), errors(4));
    let largest = two.iter().map(|error| error.abs()).reduce(f64::max);
    let mean =
        (!four.is_empty()).then(|| four.iter().map(|error| error.abs()).sum::<f64>() / four.len() as f64);
    let percent =
        |of: Option<f64>| of.map_or_else(|| "not measured".to_owned(), |of| format!("{:.1} %", 100.0 * of));
    vec![
        Goal {
            what: "measured seconds, ours over MPress's plan",
            wanted: format!("≤ {NOT_SLOWER}"),
            reached: worst.map_or_else(|| "not measured".to_owned(), |of| format!("{of:.3} at most")),
            met: worst.map(|of| of <= NOT_SLOWER),
        },
        Goal {
            what: "seconds, two slots on two cores",
            wanted: format!("≤ {:.0} %", 100.0 * ERROR),
            reached: format!("{} at most of {} plans", percent(largest), two.len()),
            met: largest.map(|of| of <= ERROR),
        },
        Goal {
            what: "seconds, four slots on two cores",
            wanted: format!("mean ≤ {:.0} %", 100.0 * MEAN_ERROR),
            reached: format!("{} on average of {} plans", percent(mean), four.len()),
            met: mean.map(|of| of <= MEAN_ERROR),
        },
        exact(
            "three ledgers of compared plans",
            all.iter().flat_map(|of| &of.plans).filter_map(|of| of.trial.as_ref()),
        ),
    ]
}

pub(crate) fn of_pipedream(rows: &[Row]) -> Vec<Goal> {
    vec![exact("three ledgers under PipeDream", rows.iter().filter_map(|row| row.trial.as_ref()))]
}

pub(crate) fn of_hidden(found: &Hidden) -> Goal {
    Goal {
        what: "copies that windows hide, a core idle",
        wanted: format!("≤ {:.0} % not hidden", 100.0 * NOT_HIDDEN),
        reached: format!(
            "{:.1} %{}",
            100.0 * found.share(),
            if found.trial.contended { ", but others used the cores" } else { "" }
        ),
        // An idle core is what it is about.
        met: (!found.trial.contended).then_some(found.share() <= NOT_HIDDEN),
    }
}

/// How many of these are as predicted, to the byte. One that did not train is not.
fn exact<'a>(what: &'static str, trials: impl Iterator<Item = &'a Trial>) -> Goal {
    let exact: Vec<bool> = trials.map(Trial::is_exact).collect();
    let right = exact.iter().filter(|&&is| is).count();
    Goal {
        what,
        wanted: "to the byte".to_owned(),
        reached: format!("{right} of {} trials", exact.len()),
        met: (!exact.is_empty()).then_some(right == exact.len()),
    }
}
