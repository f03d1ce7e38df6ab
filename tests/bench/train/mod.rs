//! `make train-memory`: memory actions, trained.
//!
//! On CPU slots whose copies are as slow beside their computing as a server's, each rule that makes stages fit (nothing,
//! computing again, the host, peers, MPress's planner, all ways together) is asked for the largest GPT-2 that it trains, and
//! that model is trained. Blocks are added until no plan is found; that the next one does not fit is said by the planner's
//! refusal. A plan made by hand is held against the last rule: where that fits and ours found none, something was missed.
//! Where several rules fit, their plans are trained by turns and compared. PipeDream has a table, and so
//! has how much of copies that passes could hide is not hidden.

mod hidden;
mod models;
mod rule;

use anyhow::Result;
use hidden::Hidden;
use loadmaster_tests::Trial;
use models::{Models, QUICK, RATES, SLOTS, Setting, Slots, WHOLE};
use rule::{BY_HAND, Care, MPRESS, OURS, PIPEDREAM, RECOMPUTE, RULES, options, plan, plan_by_hand};
use serde_json::Value;

use crate::output::Common;
use crate::report::{Goal, Report};
use crate::stats::Distribution;
use crate::table::{mib, millions, percent, times};
use crate::trial::Rule;
use crate::trial::comparison::{Compared, Comparison, Rounds};
use crate::trial::largest::{Found, Largest, Sizes, largest, table};

/// Trains with memory actions: the largest model of every rule, their seconds side by side, PipeDream, and hidden copies.
///
/// Starts a planner and workers of its own. Timings mean something on a machine that does nothing else.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,

    /// How often plans whose seconds are compared are trained, by turns [default: 4; 1 with --quick].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
}

/// The largest model of every rule; seconds of all rules at a size that they train; PipeDream; copies that passes hide.
const PARTS: [&str; 4] = ["largest", "seconds", "pipedream", "hidden"];
/// As many slots as there are cores, and twice as many.
const COUNTS: [usize; 2] = [2, SLOTS];
/// With which each search begins that knows nothing better, and the fewest for which every stage has a layer.
const FIRST: u32 = 4;
const FEWEST: u32 = 2;

/// Of largest models: ours over recomputing alone.
const LARGER: f64 = 3.7;
/// Measured seconds of ours over those of MPress's plan.
const NOT_SLOWER: f64 = 1.02;
/// |predicted / measured − 1|, with as many slots as cores, and with twice as many on average.
const ERROR: f64 = 0.10;
const MEAN_ERROR: f64 = 0.20;

/// Trains what is wanted; whether all goals are met and every plan trains.
pub(crate) fn run(Options { common, rounds }: &Options) -> Result<bool> {
    let selected = common.select(&PARTS)?;
    let [with_largest, with_seconds, with_pipedream, with_hidden] =
        PARTS.map(|part| selected.contains(&part));
    let mut report = Report::new("train-memory", &common.output, common.quick)?;
    let setting: &Setting = if common.quick { &QUICK } else { &WHOLE };
    let [usual, iterations] = if common.quick { [1, 1] } else { [4, 2] };
    let rounds = Rounds { rounds: rounds.unwrap_or(usual), iterations };
    report.print(setting);
    let mut failed = 0;
    if with_largest || with_seconds || with_pipedream {
        let scene = setting.scene(setting.slots(SLOTS), RATES);
        let models = Models { scene: &scene, setting };
        let mut all = Vec::new();
        if with_largest || with_seconds {
            all = models.largest_of_all(iterations)?;
            failed += all.iter().filter(|row| !row.is_trained()).count();
            let title = format!("The largest GPT-2 that trains on slots of {}", mib(setting.capacity_bytes));
            report.keep("largest", &all, format!("{title}\n{}", table(&all, "blocks", RECOMPUTE)))?;
            report.judge(goals_of_largest(&all));
        }
        if with_seconds {
            let compared = models.compare(&all, rounds)?;
            failed += compared.iter().flat_map(|row| &row.plans).filter(|row| row.has_failed()).count();
            let tables: Vec<String> = compared.iter().map(Comparison::table).collect();
            report.keep("seconds", &compared, tables.join("\n"))?;
            report.judge(goals_of_seconds(&compared));
        }
        if with_pipedream {
            let all = models.largest_under_pipedream(iterations)?;
            report.keep("pipedream", &all, table(&all, "blocks", PIPEDREAM[0].name))?;
            let trials = all.iter().filter_map(|row| row.trial.as_ref());
            report.judge([Goal::exact("three ledgers under PipeDream", trials)]);
        }
    }
    if with_hidden {
        let found = Hidden::measure(setting, rounds)?;
        report.keep("hidden", &found, &found)?;
        report.judge([found.goal()]);
    }
    Ok(report.finish()? && failed == 0)
}

impl Models<'_> {
    /// The largest model of every rule, and of the plan made by hand where that trains more than ours.
    fn largest_of_all(&self, iterations: u32) -> Result<Vec<Largest>> {
        let slots = self.setting.slots(SLOTS);
        let mut all: Vec<Largest> = Vec::new();
        for rule in &RULES {
            // Whoever may do more trains no less.
            let most = all.iter().map(|row| row.size).max();
            let first = most.filter(|_| [MPRESS, OURS].contains(&rule.name)).unwrap_or(FIRST);
            // Ours trains little more than all others, and to find that much more does not fit takes long.
            let step = (rule.name == OURS).then_some(1);
            let found = self.search(rule.name, first, step, |blocks| self.first(rule, blocks, slots))?;
            let really = if rule.name == OURS { self.really(rule, found.size + 1)? } else { None };
            all.push(Largest { really, ..self.train(rule.name, found, iterations)? });
        }
        let most = all.last().map_or(0, |ours| ours.size);
        let found = self.search(BY_HAND, most.max(FIRST), None, |blocks| {
            let plan = plan_by_hand(self, blocks, slots)?;
            Ok(plan.ok_or_else(|| "even with all allowed offload and swap".to_owned()))
        })?;
        if found.size > most {
            all.push(self.train(BY_HAND, found, iterations)?);
        }
        Ok(all)
    }

    fn largest_under_pipedream(&self, iterations: u32) -> Result<Vec<Largest>> {
        let (slots, host) = (self.setting.slots(SLOTS), self.setting.host());
        let largest = |rule: &Rule| {
            let found = self.search(rule.name, FIRST, None, |blocks| {
                let answer = self.recommend(blocks, slots, &options(rule, &host))?;
                Ok(answer.map_err(|refused| refused.reason().to_owned()))
            })?;
            self.train(rule.name, found, iterations)
        };
        PIPEDREAM.iter().map(largest).collect()
    }

    /// The first plan of a rule, or why there is none.
    fn first(&self, rule: &Rule, blocks: u32, slots: Slots) -> Result<Result<Value, String>> {
        let answer = plan(self, rule, blocks, slots, Care::First)?;
        Ok(answer.map_err(|refused| refused.reason().to_owned()))
    }

    /// The most blocks with a plan, from a number of which nothing more is known, or a step below which it hardly is.
    fn search(
        &self,
        name: &str,
        first: u32,
        step: Option<u32>,
        mut plan: impl FnMut(u32) -> Result<Result<Value, String>>,
    ) -> Result<Found<Value>> {
        let step = step.unwrap_or_else(|| (first / 2).max(1));
        let sizes = Sizes { fewest: FEWEST, most: self.setting.most_blocks, first, step };
        largest(sizes, |blocks| {
            let answer = plan(blocks)?;
            eprintln!("{name}: {blocks} blocks {}", if answer.is_ok() { "fit" } else { "do not fit" });
            Ok(answer)
        })
    }

    fn train(&self, rule: &'static str, found: Found<Value>, iterations: u32) -> Result<Largest> {
        let parameters = self.parameters(found.size)?;
        Largest::train(self.scene, rule, found, parameters, iterations)
    }

    /// Plans so many blocks for slots that are half as large again, and asks for that to be trained on those that are there.
    fn really(&self, rule: &Rule, blocks: u32) -> Result<Option<String>> {
        let slots = self.setting.slots(SLOTS);
        let larger = Slots { capacity_bytes: slots.capacity_bytes / 2 * 3, ..slots };
        let Ok(plan) = self.first(rule, blocks, larger)? else { return Ok(None) };
        let trial = Trial::of(&self.scene.caller(), &plan, 1)?;
        Ok(Some(if trial.failure.is_empty() { "it trained".to_owned() } else { trial.failure }))
    }

    /// Compares at every size, first on two slots and then on four.
    fn compare(&self, known: &[Largest], rounds: Rounds) -> Result<Vec<Comparison>> {
        let mut all = Vec::new();
        for count in COUNTS {
            let slots = self.setting.slots(count);
            let mut sizes = Vec::new();
            for rule in RULES.iter().filter(|rule| self.setting.sized_by.contains(&rule.name)) {
                let known = known.iter().find(|row| count == SLOTS && row.rule == rule.name);
                let name = format!("{} on {count} slots", rule.name);
                let blocks = match known {
                    Some(known) => known.size,
                    None => self.search(&name, FIRST, None, |blocks| self.first(rule, blocks, slots))?.size,
                };
                if blocks > 0 && !sizes.contains(&blocks) {
                    sizes.push(blocks);
                }
            }
            for blocks in sizes {
                let parameters = millions(self.parameters(blocks)?);
                let title = format!("{blocks} blocks ({parameters} parameters) on {count} slots");
                let mut answers = Vec::new();
                for rule in &RULES {
                    eprintln!("{title}: planning {}", rule.name);
                    answers.push((rule.name.to_owned(), plan(self, rule, blocks, slots, Care::Fastest)?));
                }
                all.push(Comparison::train(self.scene, title, count, answers, rounds)?);
            }
        }
        Ok(all)
    }
}

fn goals_of_largest(all: &[Largest]) -> [Goal; 3] {
    let row = |rule| all.iter().find(|row| row.rule == rule).filter(|row| row.size > 0);
    let parameters = |rule| row(rule).filter(|row| row.is_trained()).map(|row| row.parameters as f64);
    // None where one of the two did not train, which is missed, too.
    let ratio = parameters(OURS).zip(parameters(RECOMPUTE)).map_or(0.0, |(ours, other)| ours / other);
    let ours = row(OURS).map_or(0, |ours| ours.size);
    let larger: Vec<&str> = all.iter().filter(|row| row.size > ours).map(|row| row.rule).collect();
    let reached = if larger.is_empty() { "none".to_owned() } else { larger.join(", ") };
    [
        Goal::at_least("largest model trained, of recompute-only's", LARGER, Some(ratio), times)
            .beside("6.2B / 1.67B"),
        Goal::new("rules, and plans by hand, that train more", "none", reached, Some(larger.is_empty())),
        Goal::exact("three ledgers of the largest models", all.iter().filter_map(|row| row.trial.as_ref())),
    ]
}

fn goals_of_seconds(all: &[Comparison]) -> [Goal; 4] {
    let ratio = |row: &Comparison| {
        let seconds = |rule| row.plans.iter().find(|row| row.rule == rule)?.measured_seconds();
        Some(seconds(OURS)? / seconds(MPRESS)?)
    };
    let worst = all.iter().filter_map(ratio).reduce(f64::max);
    let errors = |slots: usize| {
        let plans = all.iter().filter(|row| row.slots == slots).flat_map(|row| &row.plans);
        let own = plans.filter(|row| row.same_as.is_none());
        Distribution::of(&own.filter_map(Compared::error).collect::<Vec<_>>())
    };
    let [two, four] = COUNTS.map(errors);
    let trials = all.iter().flat_map(|row| &row.plans).filter_map(|row| row.trial.as_ref());
    [
        Goal::at_most("measured seconds, ours over MPress's plan", NOT_SLOWER, worst, times),
        Goal::at_most(
            "seconds, two slots on two cores: largest error",
            ERROR,
            two.map(|found| found.max),
            percent,
        )
        .among(two),
        Goal::at_most(
            "seconds, four slots on two cores: mean error",
            MEAN_ERROR,
            four.map(|found| found.mean),
            percent,
        )
        .among(four),
        Goal::exact("three ledgers of compared plans", trials),
    ]
}
