//! The largest GPT-2 that trains, by rule and under PipeDream.
//!
//! Blocks are added until no plan is found; the largest model with a plan is trained. That the next one does not fit is said
//! by the planner's refusal. A plan made by hand is held against the last one: where that fits and ours found none, something
//! was missed.

use anyhow::Result;
use loadmaster_tests::{NO_PLAN, Trial};
use serde::Serialize;
use serde_json::Value;

use crate::largest::{Sizes, largest};
use crate::train::rule::{Care, Rule, plan_by_hand};
use crate::train::scene::{Options, SLOTS, Scene, Slots};

/// With which each search begins that knows nothing better.
const FIRST: u32 = 4;
/// Where a search begins that knows nothing.
pub(crate) const NOTHING: (u32, Option<u32>) = (FIRST, None);
/// Blocks with a plan, and why one more has none.
pub(crate) type Found = crate::largest::Largest<Value>;
/// Fewest blocks for which every stage has a layer.
const FEWEST: u32 = 2;

/// The largest model of a rule.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Largest {
    /// None of the plan made by hand.
    pub(crate) rule: Option<Rule>,
    /// 0 where not even the smallest has a plan.
    pub(crate) blocks: u32,
    pub(crate) parameters: u64,
    pub(crate) trial: Option<Trial>,
    /// Why one block more has no plan.
    pub(crate) beyond: String,
    /// What becomes of a plan of one block more, for larger devices, that is to be trained on these.
    pub(crate) really: Option<String>,
}

impl Largest {
    pub(crate) fn name(&self) -> &'static str {
        self.rule.map_or("by hand, all away", Rule::name)
    }

    /// Whether what was planned trains.
    pub(crate) fn is_trained(&self) -> bool {
        self.trial.as_ref().is_none_or(|trial| trial.failure.is_empty())
    }
}

/// That of every rule, and of the plan made by hand where that trains more than ours.
pub(crate) fn all(scene: &Scene<'_>, options: &Options) -> Result<Vec<Largest>> {
    let mut all: Vec<Largest> = Vec::new();
    for rule in Rule::ALL {
        // Whoever may do more trains no less.
        let start = match rule {
            Rule::Mpress | Rule::Ours => all.iter().map(|of| of.blocks).max().unwrap_or(FIRST),
            _ => FIRST,
        };
        // Ours trains little more than all others, and to find that much more does not fit takes long.
        let from = (start, (rule == Rule::Ours).then_some(1));
        let found = search(scene, rule.name(), from, |blocks| {
            let answer = rule.plan(scene, blocks, scene.setting.slots(SLOTS), Care::First)?;
            Ok(answer.map_err(|refused| refused.reason().to_owned()))
        })?;
        let really = if rule == Rule::Ours { really(scene, rule, found.size + 1)? } else { None };
        all.push(train(scene, Some(rule), found, really, options)?);
    }
    let most = all.last().map_or(0, |ours| ours.blocks);
    let found = search(scene, "by hand", (most.max(FIRST), None), |blocks| {
        let plan = plan_by_hand(scene, blocks, scene.setting.slots(SLOTS))?;
        Ok(plan.ok_or_else(|| "does not fit with all away".to_owned()))
    })?;
    if found.size > most {
        all.push(train(scene, None, found, None, options)?);
    }
    Ok(all)
}

/// The most blocks with a plan, from a number of which nothing more is known, or a step below which it hardly is.
pub(crate) fn search(
    scene: &Scene<'_>,
    name: &str,
    (first, step): (u32, Option<u32>),
    mut plan: impl FnMut(u32) -> Result<Result<Value, String>>,
) -> Result<Found> {
    let step = step.unwrap_or(if first < 2 { 1 } else { first / 2 });
    largest(Sizes { fewest: FEWEST, most: scene.setting.most_blocks, first, step }, |blocks| {
        let answer = plan(blocks)?;
        eprintln!("{name}: {blocks} blocks {}", if answer.is_ok() { "fit" } else { "do not fit" });
        Ok(answer)
    })
}

fn train(
    scene: &Scene<'_>,
    rule: Option<Rule>,
    found: Found,
    really: Option<String>,
    options: &Options,
) -> Result<Largest> {
    let parameters = scene.parameters(found.size);
    let mut largest =
        Largest { rule, blocks: found.size, parameters, trial: None, beyond: found.beyond, really };
    if let Some(plan) = &found.answer {
        eprintln!("{}: training {} blocks", largest.name(), found.size);
        largest.trial = Some(Trial::of(&scene.caller, plan, options.iterations())?);
    }
    Ok(largest)
}

/// Plans so many blocks for slots that are half as large again, and asks for that to be trained on those that are there.
fn really(scene: &Scene<'_>, rule: Rule, blocks: u32) -> Result<Option<String>> {
    let Slots { count, capacity_bytes } = scene.setting.slots(SLOTS);
    let larger = Slots { count, capacity_bytes: capacity_bytes / 2 * 3 };
    let Ok(plan) = rule.plan(scene, blocks, larger, Care::First)? else { return Ok(None) };
    let trial = Trial::of(&scene.caller, &plan, 1)?;
    Ok(Some(if trial.failure.is_empty() { "it trained".to_owned() } else { trial.failure }))
}

/// What may be done.
const WAYS: [(&str, &[&str]); 3] = [
    ("keep-only", &["--objective", "min-peak-memory", "--recompute", "none"]),
    ("every layer again", &["--objective", "min-peak-memory", "--recompute", "layer"]),
    ("all ways", &["--actions", "recompute,host,peer", "--swap", "activations,inputs,versions,optimizer"]),
];

/// The largest model of one of them.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub(crate) way: &'static str,
    pub(crate) blocks: u32,
    pub(crate) parameters: u64,
    pub(crate) trial: Option<Trial>,
    /// Why one block more has no plan.
    pub(crate) beyond: String,
    /// Why nobody does it at all.
    pub(crate) refused: Option<String>,
}

/// All of them under PipeDream, which keeps a version of the weights for each micro-batch in flight.
pub(crate) fn under_pipedream(scene: &Scene<'_>, options: &Options) -> Result<Vec<Row>> {
    WAYS.iter().map(|(way, more)| row(scene, way, more, options)).collect()
}

fn row(scene: &Scene<'_>, way: &'static str, more: &[&str], options: &Options) -> Result<Row> {
    let host = format!("{}B", scene.setting.host_bytes);
    let mut arguments = vec!["--schedule", "pipedream"];
    arguments.extend(more);
    if more.contains(&"--actions") {
        arguments.extend(["--host-memory", &host, "--copy-rates", scene.setting.rates]);
    } else {
        arguments.extend(["--shape", "single-pipeline"]);
    }
    let mut refused = None;
    let found = search(scene, &format!("pipedream, {way}"), NOTHING, |blocks| {
        let answer = scene.recommend(blocks, scene.setting.slots(SLOTS), &arguments)?;
        Ok(answer.map_err(|error| {
            let why = error.reason().to_owned();
            // Another size changes nothing about what is not supported.
            if error.code != NO_PLAN {
                refused.get_or_insert_with(|| why.clone());
            }
            why
        }))
    })?;
    let train = |plan: &Value| {
        eprintln!("pipedream, {way}: training {} blocks", found.size);
        Trial::of(&scene.caller, plan, options.iterations())
    };
    let trial = found.answer.as_ref().map(train).transpose()?;
    let parameters = scene.parameters(found.size);
    Ok(Row { way, blocks: found.size, parameters, trial, beyond: found.beyond, refused })
}
