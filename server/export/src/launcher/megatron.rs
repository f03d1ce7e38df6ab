//! Megatron-LM with Megatron-Core: the flags of `pretrain_gpt.py`.
//!
//! The cut is the layout (`--pipeline-model-parallel-layout`), which says any of them: `E` the embedding, `t` a block, `L` the
//! final norm with the head and the loss, `|` between stages.

use std::collections::BTreeMap;

use loadmaster_proto::model::layer::{Activation, NormKind, NormPosition, Perceptron};
use loadmaster_proto::plan::objective::{Launcher, PlanShape};
use loadmaster_proto::training::{Precision, RecomputePolicy, Schedule};

use super::{Exporter, Written, target};
use crate::cut::{Cut, StagePart};
use crate::envelope::{Flag, Torchrun, flag, switch};
use crate::exported::{ExportedFile, Verified};
use crate::grid::{AxisOrder, Grid};
use crate::question::{ExportQuestion, Refused};
use crate::refusal::StageRefusal;
use crate::transformer::Transformer;

pub(super) const EXPORTER: Exporter = Exporter {
    target: target(Launcher::Megatron, 0, 17),
    shape: PlanShape::UniformGrid,
    writes: "train.sh: pretrain_gpt.py with the model, the layout of the cut and the environment",
    verified: Verified::Built,
    write,
};

/// Rows of the vocabulary that Megatron pads to, for each shard.
const PADDED_TO: i64 = 128;

fn write(question: &ExportQuestion<'_>) -> Result<Written, Refused> {
    question.check_nothing_leaves()?;
    question.check_schedule(&[Schedule::OneFOneB])?;
    let grid = question.grid()?;
    let (transformer, cut) = question.transformer()?;
    let model = model_flags(&transformer).map_err(|why| vec![StageRefusal::of_plan(why)])?;
    let mut plan = parallel_flags(question, &grid, &cut);
    plan.extend(precision_flags(question));
    plan.extend(recompute_flags(question, &cut)?);
    let ranks = grid.places(question.plan, AxisOrder::StagesFirst);
    let torchrun = Torchrun::of(&ranks)?;
    let mut environment = BTreeMap::new();
    let mut exports = String::new();
    if grid.shards > 1 {
        environment.insert("CUDA_DEVICE_MAX_CONNECTIONS".to_owned(), "1".to_owned());
        exports.push_str(
            "# Tensor shards need their kernels and collectives in order.\nexport CUDA_DEVICE_MAX_CONNECTIONS=1\n",
        );
    }
    let blocks: Vec<String> = cut.block_counts().iter().map(ToString::to_string).collect();
    let about = format!(
        "Blocks of the stages: {}. Data, optimizer and output are yours: ./train.sh --train-iters 1000 …",
        blocks.join(", ")
    );
    let script = torchrun.script(
        (&question.head_line(), &about),
        None,
        &exports,
        &[("MODEL", &model), ("PLAN", &plan)],
        "pretrain_gpt.py",
    );
    let flags = model.iter().chain(&plan).flatten().cloned();
    let command = torchrun.words().into_iter().chain(["pretrain_gpt.py".to_owned()]).chain(flags).collect();
    Ok(Written {
        files: vec![ExportedFile::new("train.sh", script)],
        command,
        environment,
        ranks,
        warnings: warnings(&transformer, &grid),
    })
}

/// # Errors
/// What Megatron's GPT model cannot be, for people: it follows `the plan`.
fn model_flags(transformer: &Transformer) -> Result<Vec<Flag>, String> {
    let Transformer { embedding, block, .. } = transformer;
    let cannot = |what: &str| Err(format!("is of a model {what}, which Megatron's GPT model has not"));
    if block.norm_position == NormPosition::Post || block.bidirectional {
        return cannot("with norms behind residuals, or without causal attention");
    }
    if embedding.token_types > 0 || embedding.norm_epsilon.is_some() {
        return cannot("with token types, or a norm behind the embedding");
    }
    if block.norm != transformer.norm || block.epsilon != transformer.norm_epsilon {
        return cannot("whose final norm is another than its blocks'");
    }
    let mut flags = vec![
        flag("num-layers", transformer.block_count()),
        flag("hidden-size", block.hidden_size),
        flag("ffn-hidden-size", block.feed_forward_size),
        flag("num-attention-heads", block.heads),
    ];
    if block.key_value_heads() != block.heads {
        flags.push(switch("group-query-attention"));
        flags.push(flag("num-query-groups", block.key_value_heads()));
    }
    if block.head_size.is_some() {
        flags.push(flag("kv-channels", block.head_size()));
    }
    flags.push(flag("seq-length", transformer.sequence_length));
    match (block.rotary_base, embedding.positions) {
        (Some(base), 0) => {
            flags.push(flag("max-position-embeddings", transformer.sequence_length));
            flags.push(flag("position-embedding-type", "rope"));
            flags.push(flag(
                "rotary-base",
                whole(base).ok_or("with rotary positions whose base is no whole number")?,
            ));
        }
        (None, 0) => {
            flags.push(flag("max-position-embeddings", transformer.sequence_length));
            flags.push(flag("position-embedding-type", "none"));
        }
        (None, positions) => {
            flags.push(flag("max-position-embeddings", positions));
            flags.push(flag("position-embedding-type", "learned_absolute"));
        }
        (Some(_), _) => return cannot("with learned and rotary positions at once"),
    }
    flags.push(flag("normalization", if block.norm == NormKind::RmsNorm { "RMSNorm" } else { "LayerNorm" }));
    flags.push(flag("norm-epsilon", format!("{:e}", block.epsilon)));
    if block.query_key_norm {
        flags.push(switch("qk-layernorm"));
    }
    match (block.perceptron, block.activation) {
        (Perceptron::Gated, Activation::Silu) => flags.push(switch("swiglu")),
        (Perceptron::TwoLayer, Activation::Gelu | Activation::GeluTanh) => {}
        _ => return cannot("whose perceptrons are neither SwiGLU nor of two layers with GELU"),
    }
    match (block.qkv_bias, block.attention_out_bias, block.mlp_bias) {
        (true, true, true) => {}
        (false, false, false) => flags.push(switch("disable-bias-linear")),
        (true, false, false) => flags.extend([switch("disable-bias-linear"), switch("add-qkv-bias")]),
        _ => return cannot("with biases in some of a block's maps"),
    }
    flags.push(flag("attention-dropout", share(block.attention_dropout())));
    flags.push(flag("hidden-dropout", share(block.dropout)));
    if !transformer.has_tied_head {
        flags.push(switch("untie-embeddings-and-output-weights"));
    }
    flags.push(flag("vocab-size", embedding.vocabulary_size));
    Ok(flags)
}

/// A number that is whole, as Megatron reads it.
fn whole(number: f64) -> Option<i64> {
    // Below 2^53 every whole number is one.
    (number.fract() == 0.0 && (0.0..9e15).contains(&number)).then_some(number as i64)
}

/// A share with its point: `0.0`.
fn share(share: f64) -> String {
    format!("{share:?}")
}

fn parallel_flags(question: &ExportQuestion<'_>, grid: &Grid, cut: &Cut) -> Vec<Flag> {
    let mut flags = vec![flag("pipeline-model-parallel-size", grid.stages)];
    // It cuts evenly by itself.
    if !cut.is_even() || cut.has_ends_elsewhere() {
        flags.push(flag("pipeline-model-parallel-layout", layout(cut)));
    }
    flags.push(flag("tensor-model-parallel-size", grid.shards));
    flags.push(flag("micro-batch-size", question.samples_per_replica(grid)));
    flags.push(flag("global-batch-size", question.samples()));
    flags
}

/// The cut as Megatron writes it, one letter a block: `Ett|tttt|tL`.
pub(crate) fn layout(cut: &Cut) -> String {
    let stage = |part: &StagePart| {
        let end = |has: bool, letter: &'static str| if has { letter } else { "" };
        format!(
            "{}{}{}",
            end(part.has_embedding, "E"),
            "t".repeat(part.blocks.len()),
            end(part.has_head, "L")
        )
    };
    let stages: Vec<String> = cut.stages.iter().map(stage).collect();
    stages.join("|")
}

fn recompute_flags(question: &ExportQuestion<'_>, cut: &Cut) -> Result<Vec<Flag>, Refused> {
    let Some(length) = recomputed_length(question, cut)? else { return Ok(Vec::new()) };
    Ok(vec![
        flag("recompute-granularity", "full"),
        flag("recompute-method", "uniform"),
        flag("recompute-num-layers", length),
    ])
}

/// How many blocks are computed again at once; none where nothing is.
///
/// # Errors
/// Stages that compute other things again, or all of themselves where that is several lengths of blocks.
pub(super) fn recomputed_length(question: &ExportQuestion<'_>, cut: &Cut) -> Result<Option<usize>, Refused> {
    match question.recompute()? {
        RecomputePolicy::None => Ok(None),
        RecomputePolicy::Layer => Ok(Some(1)),
        RecomputePolicy::Stage if cut.is_even() => {
            Ok(Some(cut.block_counts().first().copied().unwrap_or(1).max(1)))
        }
        RecomputePolicy::Stage => {
            let why = "computes whole stages again, whose numbers of blocks differ, and Megatron has one for all: recommend \
                       `layer`";
            Err(vec![StageRefusal::of_plan(why)])
        }
    }
}

/// Megatron adds gradients of bf16 up in fp32 unless it is told not to.
fn precision_flags(question: &ExportQuestion<'_>) -> Vec<Flag> {
    match question.plan.training.precision {
        Precision::Fp32 => Vec::new(),
        Precision::Bf16 => vec![switch("bf16"), switch("grad-reduce-in-bf16")],
        Precision::Bf16Fp32Gradients => vec![switch("bf16")],
    }
}

fn warnings(transformer: &Transformer, grid: &Grid) -> Vec<String> {
    let yours =
        "name the tokenizer, the data, the learning rate and how long to train: they are no part of a plan";
    [yours.to_owned()].into_iter().chain(padding_warning(transformer, grid.shards, "Megatron")).collect()
}

/// What is held besides where the vocabulary is no multiple of what it is padded to.
pub(super) fn padding_warning(transformer: &Transformer, shards: u32, who: &str) -> Option<String> {
    let vocabulary = transformer.embedding.vocabulary_size;
    let shards = i64::from(shards);
    let multiple = PADDED_TO * shards;
    let padded = (vocabulary + multiple - 1) / multiple * multiple;
    (padded > vocabulary).then(|| {
        format!(
            "{who} pads the vocabulary from {vocabulary} to {padded} rows: each end of the model has {} parameters more than \
             the plan says",
            (padded - vocabulary) * transformer.block.hidden_size / shards
        )
    })
}
