//! `draw-exports`: random plans, exported, a line of JSON each, for `oracles/check_random.py` to ask launchers about.
//!
//! A line has the plan in plain words, from which the oracles' side says what every rank must hold, the export, and how many
//! parameters each rank has by the arithmetic that predictions are made with.

use std::io::Write;

use anyhow::{Context, Result, bail};
use clap::Parser;
use loadmaster_export::{ExportQuestion, Target, export};
use loadmaster_proto::model::Model;
use loadmaster_proto::name::PlanName;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::objective::Launcher;
use loadmaster_proto::training::shard::Shard;
use loadmaster_samples::{CutTransformer, DescribedTransformer};
use serde_json::json;

/// Draws random plans and prints their exports, a line of JSON each.
#[derive(Debug, Parser)]
#[command(name = "draw-exports")]
struct Options {
    /// The launcher with its version, for example megatron@0.19.
    #[arg(value_name = "LAUNCHER@VERSION")]
    target: String,

    /// How many.
    #[arg(long, value_name = "N", default_value_t = 100)]
    plans: u32,

    /// The same seed draws the same plans.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

fn main() -> Result<()> {
    let Options { target, plans, seed } = Options::parse();
    let (launcher, version) = target.split_once('@').context("write LAUNCHER@VERSION")?;
    let target = Target::of(launcher.parse()?, version)?;
    let mut out = std::io::stdout().lock();
    for index in 0..u64::from(plans) {
        let mut lots = Lots(seed.wrapping_mul(1 << 32).wrapping_add(index));
        let case = drawn(target.launcher, &mut lots);
        let (plan, model) = (case.plan(), case.model());
        let name = PlanName::from_id(&format!("drawn-{index}"))?;
        let question = ExportQuestion { name: &name, plan: &plan, model: Some(&model), target };
        let Ok(made) = export(&question) else { bail!("{case:?} is refused: draw others") };
        let files: serde_json::Map<String, serde_json::Value> =
            made.files.into_iter().map(|file| (file.name, file.contents.into())).collect();
        let parameters: Vec<u64> =
            made.ranks.iter().map(|place| parameters(&plan, &model, place.stage, place.shard)).collect();
        let request = json!({ "files": files, "command": made.command, "env": made.environment, "world": made.ranks.len() });
        let line = json!({ "case": case, "request": request, "parameters": parameters });
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// A plan that this launcher can express.
fn drawn(launcher: Launcher, lots: &mut Lots) -> CutTransformer {
    let is_llama = launcher == Launcher::Torchtitan || lots.below(2) == 0;
    let tensor = 1 << lots.below(3);
    let data = 1 + lots.below(3) as u32;
    let mut stages: Vec<usize> = (0..1 + lots.below(4)).map(|_| 1 + lots.below(5) as usize).collect();
    // Ends of a model may be all that a stage has.
    let last = stages.len() - 1;
    if last > 0 && lots.below(4) == 0 {
        stages[last] = 0;
    }
    let heads = 4 * (1 + lots.below(2) as i64);
    let hidden = 16 * heads;
    let tied = !is_llama && lots.below(2) == 0;
    let sequence = 32 * (1 + lots.below(3) as i64);
    let model = DescribedTransformer {
        family: if is_llama { "llama" } else { "gpt2" }.to_owned(),
        blocks: stages.iter().sum::<usize>() as i64,
        hidden,
        heads,
        key_value_heads: if is_llama {
            heads >> lots.below(2).min(if tensor == 4 { u64::from(heads == 8) } else { 1 })
        } else {
            0
        },
        feed_forward: if is_llama { 3 * hidden } else { 0 },
        sequence,
        positions: if is_llama { 0 } else { sequence },
        vocabulary: 4 * (100 + lots.below(400) as i64),
        rotary_base: if is_llama { 10_000 } else { 0 },
        tied,
        dropout: if is_llama { 0.0 } else { 0.1 },
    };
    let micro_batches = stages.len() as u32 * (1 + lots.below(3) as u32);
    CutTransformer {
        model,
        tensor,
        data,
        nodes: 1,
        devices_per_node: tensor * data * stages.len() as u32,
        stages,
        micro_batch: 1 + lots.below(3) as u32,
        micro_batches,
        schedule: "1F1B".to_owned(),
        precision: "bf16".to_owned(),
        recompute: if lots.below(2) == 0 { "none" } else { "layer" }.to_owned(),
    }
}

/// Parameters on a shard of a stage.
fn parameters(plan: &Plan, model: &Model, stage: usize, shard: u32) -> u64 {
    let config = plan.stages[stage].config;
    let shard = Shard { index: shard, degree: config.tensor_degree };
    let layers = config.layers().filter_map(|index| model.layers().get(index));
    let own = layers.clone().flat_map(|layer| layer.kind.shard_parameters(shard));
    // A tied head is a copy of the table where that is on another stage.
    let shared = layers
        .filter(|_| config.first_layer > 0)
        .filter_map(|layer| layer.kind.shard_shared_parameter(shard));
    own.chain(shared).map(|parameter| parameter.elements()).sum()
}

/// Numbers that look random (`SplitMix64`).
struct Lots(u64);

impl Lots {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % end
    }
}
