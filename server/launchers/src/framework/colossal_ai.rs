//! Colossal-AI: the plugin of its booster, which cuts the models that it has policies for between blocks.

use loadmaster_proto::plan::objective::Framework;
use loadmaster_proto::training::{Precision, RecomputePolicy};
use loadmaster_proto::warning::{Warning, WarningCode};

use super::{Exporter, Written, number_format, target};
use crate::StageRefusal;
use crate::cut::{Cut, listed};
use crate::export_parts::{ExportedFile, Proof, Verified};
use crate::grid::{AxisOrder, Grid};
use crate::manifest::Torchrun;
use crate::memory::{EdgeTensors, Held, MicroBatches, PaddedVocabulary, padding};
use crate::question::{ExportQuestion, Refused, all_or};
use crate::recompute::{Recomputing, not_counted};
use crate::rules::{Engine, InChunks, LAYERS, Rules};
use crate::transformer::Transformer;

pub(super) const RULES: Rules = Rules {
    framework: Framework::ColossalAi,
    recomputing: Recomputing::FirstBlocksOfEach,
    policies: LAYERS,
    recompute_per_stage: true,
    chunks: InChunks::AsPublished,
    engine: Some(Engine::blocking(
        "colossal",
        "Colossal-AI waits for sends and receives before the next pass",
    )),
    note: || {
        format!(
            "Colossal-AI {}. Its default rank order differs from the plan's: set dp_outside=False",
            padding(PADDED_TO)
        )
    },
    ..Rules::USUAL
};

pub(super) const EXPORTER: Exporter = Exporter {
    target: target(Framework::ColossalAi, 0, 5),
    writes: "loadmaster_plan.py: HybridParallelPlugin with the pipeline layout, the parallel sizes and the blocks to \
        recompute",
    verified: Verified::Parsed,
    proof: Some(Proof::of("colossalai", "0.5.0")),
    write,
};

/// Rows of the vocabulary that it pads to, for each shard.
const PADDED_TO: u64 = 64;

fn write(question: &ExportQuestion<'_>) -> Result<Written, Refused> {
    question.check_schedule(RULES.schedules)?;
    let grid = question.grid()?;
    let (transformer, cut) = question.transformer()?;
    let again = recomputed(question, &transformer, &cut)?;
    let ranks = grid.places(question.plan, AxisOrder::StagesFirst);
    let command: Vec<String> =
        Torchrun::of(&ranks)?.words().into_iter().chain(["train.py".to_owned()]).collect();
    let held = held(&transformer, &grid);
    let text = plugin(question, &grid, &cut, &again, &command.join(" "));
    Ok(Written {
        files: vec![ExportedFile::new("loadmaster_plan.py", text)],
        command,
        ranks,
        warnings: warnings(question, &held),
        held: Some(held),
        ..Written::default()
    })
}

/// How many blocks of each stage are recomputed, the first ones: each stage may have a number of its own where they are read.
///
/// # Errors
/// Stages that compute all of themselves once more at once, or others than their first blocks, or a part where it is
/// all or nothing.
fn recomputed(
    question: &ExportQuestion<'_>,
    transformer: &Transformer,
    cut: &Cut,
) -> Result<Vec<usize>, Refused> {
    let reads_numbers = reads_numbers(question, transformer);
    let can = if reads_numbers { "recomputes the first blocks of each stage one by one" } else { ALL };
    if let Some(recomputed) = question.recomputed(RULES.recomputing, can)? {
        return Ok(recomputed.runs.iter().map(Vec::len).collect());
    }
    let stages = &question.plan.stages;
    let whole =
        stages.iter().enumerate().filter(|(_, stage)| stage.recompute == RecomputePolicy::Stage).map(|(index, _)| {
            let why = "recomputes the whole stage at once, but Colossal-AI recomputes blocks one by one. Recommend a \
                plan with the recompute policy `layer` or `none`";
            StageRefusal::of_stage(index, why)
        });
    all_or(whole.collect())?;
    let blocks = cut.block_counts();
    let again: Vec<usize> = blocks
        .iter()
        .zip(stages)
        .map(|(&blocks, stage)| if stage.recompute == RecomputePolicy::Layer { blocks } else { 0 })
        .collect();
    if !reads_numbers && again.iter().any(|&blocks| blocks > 0) {
        let fewer = again.iter().zip(&blocks).enumerate().filter(|(_, (again, blocks))| again < blocks);
        all_or(fewer.map(|(index, _)| not_counted(index, &[], ALL)).collect())?;
    }
    Ok(again)
}

/// What it recomputes where no one reads numbers.
const ALL: &str = "recomputes either every block of this plan, one by one, or no block";

/// Whether numbers of blocks are read: by the forward passes of its Llama, Mistral and Qwen2 in a pipeline. GPT-2's reads none, and
/// in one stage the model's own pass runs, which is transformers'.
fn reads_numbers(question: &ExportQuestion<'_>, transformer: &Transformer) -> bool {
    transformer.block.rotary_base.is_some() && question.plan.stages.len() > 1
}

fn plugin(question: &ExportQuestion<'_>, grid: &Grid, cut: &Cut, again: &[usize], command: &str) -> String {
    let (size, count) = (question.samples_per_replica(grid), question.plan.training.micro_batches);
    let blocks = cut.listed_blocks();
    let is_pipeline = grid.stages > 1;
    let mut notes = String::new();
    let step = if is_pipeline {
        let samples = question.samples() / u64::from(grid.replicas.max(1));
        format!(
            "booster.execute_pipeline(…)  # with {samples} samples per replica: {count} micro-batches of {size} samples"
        )
    } else {
        notes +=
            &format!("\nAccumulate gradients over {count} micro-batches of {size} samples before a step.\n");
        "booster.backward(…)".to_owned()
    };
    let (mut import, mut settings) = ("", String::new());
    if is_pipeline {
        settings += &format!(
            "        num_layers_per_stage=[{blocks}],\n        pp_style=\"1f1b\",\n        num_microbatches={count},\n"
        );
    }
    let precision = number_format(question.plan.training.precision);
    settings += &format!("        precision=\"{precision}\",\n        zero_stage=0,\n");
    settings += "        dp_outside=False,  # replicas of a stage are neighbours, as in the plan\n";
    if again.iter().any(|&blocks| blocks > 0) {
        notes += "\nRecomputation is switched on by the model: call model.gradient_checkpointing_enable().\n";
        import = "from colossalai.shardformer import PipelineGradientCheckpointConfig\n";
        settings += &format!(
            "        gradient_checkpoint_config=PipelineGradientCheckpointConfig(num_ckpt_layers_per_stage=[{}]),\n",
            listed(again)
        );
    }
    format!(
        r#""""{head}.

Blocks of the stages: {blocks}. In train.py, which every node starts with

    {command}

take the plugin from here:

    booster = Booster(plugin=loadmaster_plan.plugin())
    {step}
{notes}"""

from typing import Any

from colossalai.booster.plugin import HybridParallelPlugin
{import}

def plugin(**settings: Any) -> HybridParallelPlugin:
    """The plan; `settings` are the plugin's others."""
    return HybridParallelPlugin(
        tp_size={shards},
        pp_size={stages},
{settings}        **settings,
    )
"#,
        head = question.head_line(),
        shards = grid.shards,
        stages = grid.stages,
    )
}

/// Returns the bytes that its 1F1B and its vocabulary hold. Without shards it pads a table that both ends share, and no other.
fn held(transformer: &Transformer, grid: &Grid) -> Held {
    let is_padded = grid.shards > 1 || transformer.has_tied_head;
    Held {
        tensors: EdgeTensors {
            outputs: MicroBatches::InFlightAnd(0),
            gradients: MicroBatches::Some(1),
            ..EdgeTensors::NONE
        },
        vocabulary: PaddedVocabulary::of(transformer, PADDED_TO * u64::from(grid.shards), grid.shards)
            .filter(|_| is_padded),
        ..Held::default()
    }
}

fn warnings(question: &ExportQuestion<'_>, held: &Held) -> Vec<Warning> {
    let mut warnings = vec![WarningCode::SetupNeeded.says(
        "write train.py yourself. Colossal-AI splits and shards only the transformers models that it has a policy for, \
         such as GPT-2, Llama, Mistral and Qwen2",
    )];
    warnings.extend(held.vocabulary.map(|vocabulary| vocabulary.warning("Colossal-AI")));
    if question.plan.training.precision == Precision::Bf16Fp32Gradients {
        let why = "Colossal-AI holds bf16 gradients in bf16: 2 bytes per parameter less than in the plan";
        warnings.push(WarningCode::MemoryDiffers.says(why));
    }
    warnings
}
