//! The flags of `pretrain_gpt.py`, or of `pretrain_hybrid.py`.

use std::collections::BTreeMap;

use loadmaster_proto::model::layer::NormKind;
use loadmaster_proto::plan::objective::Framework;
use loadmaster_proto::training::Precision;
use loadmaster_proto::warning::WarningCode;

use super::memory::held;
use super::model::{Biases, Gpt, MegatronScaling, Positions, Rule};
use super::{MEGATRON, Recomputation, check_turns, is_said, layout};
use crate::cut::Cut;
use crate::export_parts::{ExportedFile, Proof, Verified};
use crate::framework::{Exporter, Written, target};
use crate::grid::{AxisOrder, Grid};
use crate::manifest::{Flag, Torchrun, flag, switch};
use crate::question::{ExportQuestion, Refused};
use crate::target::Variant;
use crate::transformer::Transformer;

pub(in crate::framework) const EXPORTER: Exporter = Exporter {
    target: target(Framework::Megatron, 0, 17),
    writes: "train.sh: starts pretrain_gpt.py with the model, the pipeline layout and the environment",
    verified: Verified::Built,
    proof: Some(Proof::of("megatron-core", "0.19.2")),
    write,
};

/// Layers of the hybrid model in a block.
const HALVES: usize = 2;

/// Megatron's default gradient clipping, as a warning.
const CLIPPING: &str = "Megatron clips gradients to a norm of 1, which a plan does not set. Pass --clip-grad 0 to switch clipping off";

fn write(question: &ExportQuestion<'_>) -> Result<Written, Refused> {
    question.check_schedule(MEGATRON.schedules)?;
    let grid = question.grid()?;
    check_turns(question, &grid)?;
    let (transformer, cut) = question.transformer()?;
    let gpt = Gpt::of(&transformer)?;
    let is_hybrid = question.variant == Variant::Hybrid;
    let (layers, program) = if is_hybrid {
        (flag("hybrid-layer-pattern", pattern(&cut)), "pretrain_hybrid.py")
    } else {
        (flag("num-layers", transformer.block_count()), "pretrain_gpt.py")
    };
    let mut model = model_flags(&transformer, gpt, layers);
    if !is_hybrid {
        model.extend(numerics_flags(question));
    }
    let mut plan = parallel_flags(question, &grid, &cut);
    plan.extend(precision_flags(question));
    plan.extend(recompute_flags(question, &cut)?);
    let rule = Rule::of(question.plan.training.optimizer);
    plan.extend(rule_flags(&rule));
    let ranks = grid.places(question.plan, AxisOrder::StagesFirst);
    let held = held(&MEGATRON, question, &transformer, &grid);
    let yours = "set the tokenizer, the data, the learning rate and the training length: a plan does not contain them";
    let mut warnings =
        vec![WarningCode::SetupNeeded.says(yours), WarningCode::TrainingDiffers.says(CLIPPING)];
    if !rule.is_said_by_flags() {
        let decoupled = "Megatron's Adam decouples weight decay as AdamW does, but the plan's Adam adds weight decay \
            to the gradients. Memory is equal, training differs";
        warnings.push(WarningCode::TrainingDiffers.says(decoupled));
    }
    warnings.extend(held.vocabulary.map(|vocabulary| vocabulary.warning("Megatron")));
    if is_hybrid {
        let halves = "Megatron's hybrid model counts attention and MLP as two layers. Megatron makes initial weights \
            smaller for a model of more layers, so losses differ from those of the GPT model";
        warnings.push(WarningCode::TrainingDiffers.says(halves));
    }
    let torchrun = Torchrun::of(&ranks)?;
    let mut environment = BTreeMap::new();
    let mut exports = String::new();
    if grid.shards > 1 {
        environment.insert("CUDA_DEVICE_MAX_CONNECTIONS".to_owned(), "1".to_owned());
        exports.push_str(
            "# Tensor shards need their kernels and collectives in order.\nexport CUDA_DEVICE_MAX_CONNECTIONS=1\n",
        );
    }
    let about = format!(
        "Blocks of the stages{}: {}. Set data, learning rate and output yourself: ./train.sh --train-iters 1000 …",
        grid.turns(),
        cut.listed_blocks()
    );
    let script = torchrun.script(
        (&question.head_line(), &about),
        None,
        &exports,
        &[("MODEL", &model), ("PLAN", &plan)],
        program,
    );
    let flags = model.iter().chain(&plan).flatten().cloned();
    let command = torchrun.words().into_iter().chain([program.to_owned()]).chain(flags).collect();
    let files = vec![ExportedFile::new("train.sh", script)];
    let held = Some(held);
    // The hybrid program builds another model, of whose positions its flags say less.
    let sets_numerics = !is_hybrid;
    Ok(Written { files, command, environment, ranks, warnings, held, sets_numerics, ..Written::default() })
}

fn model_flags(transformer: &Transformer, gpt: Gpt, layers: Flag) -> Vec<Flag> {
    let Transformer { embedding, block, .. } = transformer;
    let mut flags = vec![
        layers,
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
    let (most, kind) = match gpt.positions {
        Positions::None => (transformer.sequence_length, "none"),
        Positions::Learned(positions) => (positions, "learned_absolute"),
        Positions::Rotary(_) => (transformer.sequence_length, "rope"),
    };
    flags.push(flag("max-position-embeddings", most));
    flags.push(flag("position-embedding-type", kind));
    if let Positions::Rotary(base) = gpt.positions {
        flags.push(flag("rotary-base", base));
    }
    flags.push(flag("normalization", if block.norm == NormKind::RmsNorm { "RMSNorm" } else { "LayerNorm" }));
    flags.push(flag("norm-epsilon", format!("{:e}", block.epsilon)));
    if block.query_key_norm {
        flags.push(switch("qk-layernorm"));
    }
    if gpt.is_gated {
        flags.push(switch("swiglu"));
    }
    match gpt.biases {
        Biases::All => {}
        Biases::None => flags.push(switch("disable-bias-linear")),
        Biases::Queries => flags.extend([switch("disable-bias-linear"), switch("add-qkv-bias")]),
    }
    flags.push(flag("attention-dropout", share(block.attention_dropout())));
    flags.push(flag("hidden-dropout", share(block.dropout)));
    if !transformer.has_tied_head {
        flags.push(switch("untie-embeddings-and-output-weights"));
    }
    flags.push(flag("vocab-size", embedding.vocabulary_size));
    flags
}

/// What changes values alone.
fn numerics_flags(question: &ExportQuestion<'_>) -> Vec<Flag> {
    let mut flags = match MegatronScaling::of(question.model) {
        Some(MegatronScaling::Llama3(factor)) => {
            vec![switch("use-rope-scaling"), flag("rope-scaling-factor", factor)]
        }
        Some(MegatronScaling::Interpolated(factor)) => {
            vec![flag("rotary-seq-len-interpolation-factor", factor)]
        }
        None => Vec::new(),
    };
    let range = question.model.and_then(|model| model.numerics().initializer_range);
    flags.extend(range.map(|range| flag("init-method-std", range)));
    flags
}

/// A share with its point: `0.0`.
fn share(share: f64) -> String {
    format!("{share:?}")
}

fn parallel_flags(question: &ExportQuestion<'_>, grid: &Grid, cut: &Cut) -> Vec<Flag> {
    let mut flags = vec![flag("pipeline-model-parallel-size", grid.stages)];
    // The hybrid model's pattern has the cut, and the GPT model is cut evenly by itself, a stage for each device.
    if question.variant == Variant::Usual && is_said(cut, grid) {
        flags.push(flag("pipeline-model-parallel-layout", layout(cut)));
    }
    flags.push(flag("tensor-model-parallel-size", grid.shards));
    if question.is_sequence_parallel() {
        flags.push(switch("sequence-parallel"));
    }
    if question.shards_optimizer() {
        flags.push(switch("use-distributed-optimizer"));
    }
    flags.push(flag("micro-batch-size", question.samples_per_replica(grid)));
    flags.push(flag("global-batch-size", question.samples()));
    flags
}

/// The cut as the hybrid model's pattern, attention and MLP of each block: `*-*-|*-`.
fn pattern(cut: &Cut) -> String {
    let stages: Vec<String> = cut.stages.iter().map(|part| "*-".repeat(part.blocks.len())).collect();
    stages.join("|")
}

fn recompute_flags(question: &ExportQuestion<'_>, cut: &Cut) -> Result<Vec<Flag>, Refused> {
    let Some(Recomputation { method, blocks }) = Recomputation::of(question, cut)? else {
        return Ok(Vec::new());
    };
    let length = if question.variant == Variant::Hybrid { HALVES * blocks } else { blocks };
    Ok(vec![
        flag("recompute-granularity", "full"),
        flag("recompute-method", method),
        flag("recompute-num-layers", length),
    ])
}

/// The rule whose state is among the plan's bytes: Megatron's own is Adam.
fn rule_flags(rule: &Rule) -> Vec<Flag> {
    let settings = rule.settings.iter().map(|(name, value)| flag(&name.replace('_', "-"), share(*value)));
    [flag("optimizer", rule.name)].into_iter().chain(settings).collect()
}

/// Returns the flags of number formats. Megatron accumulates gradients of bf16 in fp32 unless a flag switches that off.
fn precision_flags(question: &ExportQuestion<'_>) -> Vec<Flag> {
    match question.plan.training.precision {
        Precision::Fp32 => Vec::new(),
        Precision::Bf16 => vec![switch("bf16"), switch("grad-reduce-in-bf16")],
        Precision::Bf16Fp32Gradients => vec![switch("bf16")],
    }
}
