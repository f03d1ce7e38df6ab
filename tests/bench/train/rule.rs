//! Who makes stages fit, and how a chain of blocks is cut.

use anyhow::{Context, Result};
use loadmaster_tests::whole;
use serde_json::Value;

use crate::train::models::{Models, RATES, Slots};
use crate::trial::Rule;
use crate::trial::scene::Answer;

pub(crate) const RECOMPUTE: &str = "recompute-only";
pub(crate) const PEER: &str = "peer-only";
pub(crate) const MPRESS: &str = "MPress's planner";
pub(crate) const OURS: &str = "ours, all ways";
pub(crate) const BY_HAND: &str = "by hand, all away";

/// Ways to hold less: none, each alone, all as MPress's planner chooses them, and all. Whoever may do more comes later.
pub(crate) const RULES: [Rule; 6] = [
    Rule { name: "keep-only", options: "" },
    Rule { name: RECOMPUTE, options: "--optimizations recompute" },
    Rule {
        name: "host-only",
        options: "--optimizations cpu-offload memory.blocks=[MEMORY_BLOCK_ACTIVATIONS,MEMORY_BLOCK_INPUTS,MEMORY_BLOCK_WEIGHTS,MEMORY_BLOCK_GRADIENTS,MEMORY_BLOCK_OPTIMIZER]",
    },
    Rule {
        name: PEER,
        options: "--optimizations peer-swap memory.blocks=[MEMORY_BLOCK_ACTIVATIONS,MEMORY_BLOCK_INPUTS,MEMORY_BLOCK_WEIGHTS,MEMORY_BLOCK_GRADIENTS,MEMORY_BLOCK_OPTIMIZER]",
    },
    Rule {
        name: MPRESS,
        options: "--optimizations recompute,cpu-offload,peer-swap memory.blocks=[MEMORY_BLOCK_ACTIVATIONS,MEMORY_BLOCK_INPUTS,MEMORY_BLOCK_WEIGHTS,MEMORY_BLOCK_GRADIENTS,MEMORY_BLOCK_OPTIMIZER] \
                  --search-mode mpress",
    },
    Rule {
        name: OURS,
        options: "--optimizations recompute,cpu-offload,peer-swap memory.blocks=[MEMORY_BLOCK_ACTIVATIONS,MEMORY_BLOCK_INPUTS,MEMORY_BLOCK_WEIGHTS,MEMORY_BLOCK_GRADIENTS,MEMORY_BLOCK_OPTIMIZER]",
    },
];

/// The same under PipeDream, which keeps a version of the weights for each micro-batch in flight.
pub(crate) const PIPEDREAM: [Rule; 3] = [
    Rule {
        name: "pipedream, keep-only",
        options: "--schedule pipedream --objective min-peak-memory --recompute none --layout single-pipeline",
    },
    Rule {
        name: "pipedream, every layer again",
        options: "--schedule pipedream --objective min-peak-memory --recompute layer --layout single-pipeline",
    },
    Rule {
        name: "pipedream, all ways",
        options: "--schedule pipedream --optimizations recompute,cpu-offload,peer-swap memory.blocks=[MEMORY_BLOCK_ACTIVATIONS,MEMORY_BLOCK_INPUTS,MEMORY_BLOCK_VERSIONS,MEMORY_BLOCK_OPTIMIZER]",
    },
];

/// How long is looked for a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Care {
    /// The first that fits.
    First,
    /// The fastest of all cuts.
    Fastest,
}

/// Options of a rule, with the rates of copies and the host's memory where it may use them.
pub(crate) fn options<'a>(rule: &Rule, host: &'a str) -> Vec<&'a str> {
    let mut options: Vec<&str> = rule.options.split_whitespace().collect();
    if options.contains(&"--optimizations") {
        options.extend(["--copy-rates", RATES]);
    }
    if rule.options.contains("host") {
        options.extend(["--host-memory", host]);
    }
    options
}

/// A rule's plan for the model of so many blocks: over the blocks as evenly as can be, or over stages that the planner finds.
pub(crate) fn plan(
    models: &Models<'_>,
    rule: &Rule,
    blocks: u32,
    slots: Slots,
    care: Care,
) -> Result<Answer> {
    let host = models.setting.host();
    let options = options(rule, &host);
    let cuts = partitionings(blocks, slots.count);
    let free: &[&str] = match rule.options {
        "" => &["--objective", "min-iteration-time", "--layout", "single-pipeline", "--schedule", "1f1b"],
        _ => &[],
    };
    let named = cuts.iter().map(|cut| vec!["--pipeline-layout", cut]);
    let mut found: Option<Answer> = None;
    // Stages that nobody named come last: why these do not fit says least.
    for more in named.chain([free.to_vec()]) {
        let answer = models.plan(blocks, slots, &[&options[..], &more].concat())?;
        let is_enough = care == Care::First && answer.is_ok();
        found = Some(better(found, answer));
        if is_enough {
            break;
        }
    }
    found.context("no cut and no search was asked for")
}

/// The faster plan; where there is none, why the first one asked for does not fit.
fn better(known: Option<Answer>, answer: Answer) -> Answer {
    let seconds = |answer: &Answer| {
        let plan = answer.as_ref().ok();
        plan.and_then(|plan| plan["iteration"]["iterationSeconds"].as_f64()).unwrap_or(f64::INFINITY)
    };
    match known {
        Some(known) if known.is_ok() || answer.is_err() => {
            if seconds(&answer) < seconds(&known) {
                answer
            } else {
                known
            }
        }
        _ => answer,
    }
}

/// What stages have of blocks, the later stages first to have one more: they hold fewer micro-batches.
fn shares(blocks: u32, stages: u32) -> Vec<Vec<u32>> {
    let (each, over) = (blocks / stages, blocks % stages);
    let with_one_more = |mask: &u32| mask.count_ones() == over;
    let share = |mask: u32| (0..stages).map(|stage| each + (mask >> stage & 1)).collect();
    (0..1_u32 << stages).rev().filter(with_one_more).map(share).collect()
}

/// Partitionings of GPT-2: an embedding, blocks, a norm and a head. None where a stage would be empty.
fn partitionings(blocks: u32, stages: usize) -> Vec<String> {
    let Ok(count @ 1..) = u32::try_from(stages) else { return Vec::new() };
    let text = |mut share: Vec<u32>| {
        share[0] += 1;
        share[stages - 1] += 2;
        share
            .iter()
            .all(|&layers| layers > 0)
            .then(|| share.iter().map(ToString::to_string).collect::<Vec<_>>().join("-"))
    };
    shares(blocks, count).into_iter().filter_map(text).collect()
}

const LASTING: [&str; 4] = ["inputs", "weights", "gradients", "optimizer"];

/// The plan of so many blocks, if it fits the slots and the host: every layer is computed again by itself, and all that may leave
/// is on the host. It is slow. But a planner that finds no room where this fits has missed something.
pub(crate) fn plan_by_hand(models: &Models<'_>, blocks: u32, slots: Slots) -> Result<Option<Value>> {
    for cut in partitionings(blocks, slots.count) {
        let actions = actions(&cut);
        let mut more = vec!["--pipeline-layout", &cut, "--copy-rates", RATES];
        more.extend(actions.iter().flat_map(|action| ["--stage-optimization", action]));
        let answer = models.plan(blocks, slots, &more)?;
        let fits = |plan: &Value| {
            let stages = plan["stages"].as_array().into_iter().flatten();
            stages.map(|stage| whole(&stage["offloadTraffic"]["hostPeakBytes"])).sum::<u64>()
                <= models.setting.host_bytes()
        };
        if let Some(plan) = answer.ok().filter(fits) {
            return Ok(Some(plan));
        }
    }
    Ok(None)
}

fn actions(cut: &str) -> Vec<String> {
    let mut actions = Vec::new();
    let mut first = 0;
    for (stage, layers) in cut.split('-').filter_map(|layers| layers.parse::<u32>().ok()).enumerate() {
        let last = first + layers - 1;
        actions.extend((first..=last).map(|layer| format!("{stage}/{layer}=recompute")));
        actions.extend(LASTING.map(|block| format!("{stage}/{first}..{last}={block}:host:0,0")));
        first = last + 1;
    }
    actions
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every stage has as many as any other or one more, wherever that is.
    #[test]
    fn blocks_are_shared_evenly_and_every_layer_is_named() {
        assert_eq!(partitionings(4, 4), ["2-1-1-3"]);
        assert_eq!(partitionings(5, 4), ["2-1-1-4", "2-1-2-3", "2-2-1-3", "3-1-1-3"]);
        assert_eq!(partitionings(6, 4).len(), 6);
        assert_eq!(partitionings(3, 2), ["2-4", "3-3"]);
        assert_eq!(partitionings(2, 4), ["1-1-1-2"], "the stages in the middle have nothing else");
        assert!(partitionings(1, 4).is_empty(), "one of them has nothing");
        // Layers are those of the model, block by block and stage by stage.
        let actions = actions("2-3");
        assert_eq!(actions[..3], ["0/0=recompute", "0/1=recompute", "0/0..1=inputs:host:0,0"]);
        assert!(actions.contains(&"1/2..4=optimizer:host:0,0".to_owned()));
        assert_eq!(actions.len(), 5 + 2 * LASTING.len());
    }
}
