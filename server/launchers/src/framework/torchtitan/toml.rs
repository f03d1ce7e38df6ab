//! torchtitan up to 0.2: a TOML file, and a module that registers the model.

use loadmaster_proto::plan::objective::Framework;
use loadmaster_proto::training::Precision;

use super::TorchtitanSetup;
use super::memory::held;
use crate::StageRefusal;
use crate::export_parts::{ExportedFile, Proof, Verified};
use crate::framework::{Exporter, Written, target};
use crate::grid::Grid;
use crate::question::{ExportQuestion, Refused};

pub(in crate::framework) const EXPORTER: Exporter = Exporter {
    target: target(Framework::Torchtitan, 0, 2),
    writes: "plan.toml, loadmaster_model.py, which registers the model, and train.sh",
    verified: Verified::Built,
    proof: Some(Proof::of("torchtitan", "0.2.2")),
    write,
};

fn write(question: &ExportQuestion<'_>) -> Result<Written, Refused> {
    let asked = TorchtitanSetup::of(question)?;
    let replicas = Replicas::of(asked.grid);
    let multiple = multiple_of(&asked).map_err(|why| vec![StageRefusal::of_plan(why)])?;
    let files = vec![
        ExportedFile::new("plan.toml", plan(&asked, replicas)),
        ExportedFile::new("loadmaster_model.py", model(&asked, multiple)),
    ];
    let is_bf16 = question.plan.training.precision != Precision::Fp32;
    let differs = match replicas {
        Replicas::Sharing(_) => Some(
            "with pipeline or tensor parallelism, torchtitan 0.2 shards parameters, gradients and optimizer state over \
             the replicas. Each device needs less memory for this state than in the plan",
        ),
        Replicas::Whole(_) if is_bf16 => Some(
            "torchtitan 0.2 trains this plan in bf16 without fp32 weights, and accumulates gradients in bf16. This \
             needs less memory than the plan predicts, but rounding errors are larger",
        ),
        Replicas::Whole(_) => None,
    };
    let held = held(&asked, false);
    asked.written(files, &["--job.config_file=plan.toml"], differs.map(str::to_owned), held)
}

/// How replicas hold the parameters.
#[derive(Debug, Clone, Copy)]
enum Replicas {
    /// Each of them all, as in the plan.
    Whole(u32),
    /// A part each. Others are refused beside shards or stages.
    Sharing(u32),
}

impl Replicas {
    fn of(Grid { stages, replicas, shards, .. }: Grid) -> Self {
        if replicas > 1 && (stages > 1 || shards > 1) {
            Self::Sharing(replicas)
        } else {
            Self::Whole(replicas)
        }
    }

    /// Its two degrees.
    fn lines(self) -> String {
        let (whole, sharing, why) = match self {
            Self::Whole(replicas) => (replicas, 1, ""),
            Self::Sharing(replicas) => (
                1,
                replicas,
                "  # torchtitan rejects more with tensor shards or stages: data shards are used instead",
            ),
        };
        format!("data_parallel_replicate_degree = {whole}{why}\ndata_parallel_shard_degree = {sharing}\n")
    }
}

/// What its rule makes the MLP's width of: 8/3 of the hidden size, rounded up to a multiple.
///
/// # Errors
/// No multiple makes it so.
fn multiple_of(asked: &TorchtitanSetup<'_>) -> Result<i64, String> {
    let block = asked.transformer.block;
    let least = 8 * block.hidden_size / 3;
    // Rounded up, the least becomes the width where nothing between them is a multiple.
    if block.feed_forward_size >= least && least > 0 {
        return Ok(block.feed_forward_size);
    }
    Err(format!(
        "has a model with MLPs of width {}, but torchtitan 0.2 makes them at least {least} wide for a hidden size of {}. \
         Export to torchtitan 0.3",
        block.feed_forward_size, block.hidden_size
    ))
}

fn plan(asked: &TorchtitanSetup<'_>, replicas: Replicas) -> String {
    let TorchtitanSetup { question, grid, transformer, .. } = asked;
    let mut parallelism = format!("pipeline_parallel_degree = {}\n", grid.stages);
    if grid.stages > 1 {
        parallelism += &format!(
            "pipeline_parallel_schedule = \"{}\"\npipeline_parallel_microbatch_size = {}\n\
             module_fqns_per_model_part = [\n{}]\n",
            asked.schedule,
            question.samples_per_replica(grid),
            asked.module_lines("output", "    "),
        );
    }
    let precision = match (replicas, question.plan.training.precision) {
        (Replicas::Whole(_), Precision::Bf16 | Precision::Bf16Fp32Gradients) => {
            "dtype = \"bfloat16\"  # mixed precision needs more than one data shard here".to_owned()
        }
        _ => format!("mixed_precision_param = \"{}\"", asked.dtype()),
    };
    let recompute = if asked.recomputes_blocks { "full" } else { "none" };
    format!(
        r#"# {head}.
# Blocks of the stages: {blocks}. Set data, optimizer and output yourself: ./train.sh --training.steps 1000 …

[job]
custom_config_module = "loadmaster_model"  # registers the model

[model]
name = "loadmaster"
flavor = "plan"

[parallelism]
{parallelism}tensor_parallel_degree = {shards}
{replicas}
[training]
local_batch_size = {local}
global_batch_size = {samples}
seq_len = {tokens}
{precision}

[activation_checkpoint]
mode = "{recompute}"
"#,
        head = question.head_line(),
        blocks = asked.cut.listed_blocks(),
        shards = grid.shards,
        replicas = replicas.lines(),
        local = asked.local_samples(),
        samples = question.samples(),
        tokens = transformer.sequence_length,
    )
}

fn model(asked: &TorchtitanSetup<'_>, multiple: i64) -> String {
    let block = asked.transformer.block;
    format!(
        r#""""{head}.

The model of the plan, registered under the name that plan.toml contains.
"""

import dataclasses

from torchtitan.config import JobConfig  # plan.toml names this module as one that extends it
from torchtitan.models.llama3 import TransformerModelArgs, get_train_spec
from torchtitan.models.llama3.model.args import RoPEScalingArgs
from torchtitan.protocols.train_spec import register_train_spec

__all__ = ["JobConfig"]

MODEL = TransformerModelArgs(
    dim={hidden},
    n_layers={layers},
    n_heads={heads},
    n_kv_heads={key_value_heads},
    multiple_of={multiple},  # the width of the MLP is 8/3 of dim, rounded up to a multiple of this
    vocab_size={vocabulary},
    norm_eps={epsilon:e},
    rope_theta={base:?},
    rope_scaling_args={scaling}
)

register_train_spec("loadmaster", dataclasses.replace(get_train_spec(), model_args={{"plan": MODEL}}))
"#,
        head = asked.question.head_line(),
        hidden = block.hidden_size,
        layers = asked.transformer.block_count(),
        heads = block.heads,
        key_value_heads = block.key_value_heads(),
        vocabulary = asked.transformer.embedding.vocabulary_size,
        epsilon = block.epsilon,
        base = block.rotary_base.unwrap_or_default(),
        scaling = scaling(asked),
    )
}

/// How rotary positions are scaled: Llama 3's way is the one that this version has.
fn scaling(asked: &TorchtitanSetup<'_>) -> String {
    let scaling = asked.question.model.and_then(|model| model.numerics().rotary_scaling.as_ref());
    let Some(scaling) = scaling.filter(|scaling| scaling.kind == "llama3") else {
        return "RoPEScalingArgs(scaling_factor=1.0),  # none: factor 1 leaves the frequencies as they are"
            .to_owned();
    };
    let said = [
        ("scaling_factor", "factor"),
        ("low_freq_factor", "low_freq_factor"),
        ("high_freq_factor", "high_freq_factor"),
    ];
    let mut said: Vec<String> =
        said.iter().filter_map(|(name, own)| Some(format!("{name}={:?}", scaling.parameter(own)?))).collect();
    let original = scaling.parameter("original_max_position_embeddings");
    said.extend(original.map(|original| format!("original_max_position_embeddings={original}")));
    format!("RoPEScalingArgs({}),", said.join(", "))
}
