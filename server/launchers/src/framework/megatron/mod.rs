//! Megatron-LM with Megatron-Core: the flags of `pretrain_gpt.py`, or of `pretrain_hybrid.py`.
//!
//! The cut is the layout (`--pipeline-model-parallel-layout`), which says any of them: `E` the embedding, `t` a block, `L` the
//! final norm with the head and the loss, `|` between stages. The hybrid model has it in `--hybrid-layer-pattern`. Of stages that
//! devices have in turn (its virtual pipeline stages) either one has all, in the order of the model: stage k is on the devices of
//! place k modulo the places along the pipeline, as in the plan.

pub(super) mod gpt;
pub(super) mod rule;

use std::collections::BTreeMap;

use loadmaster_proto::model::layer::NormKind;
use loadmaster_proto::plan::objective::{Launcher, PlanShape};
use loadmaster_proto::training::actions::Form;
use loadmaster_proto::training::{Precision, RecomputePolicy, Schedule};

use super::{Exporter, Written, target};
use crate::cut::{Cut, StagePart};
use crate::envelope::{Flag, Torchrun, flag, switch};
use crate::exported::{ExportedFile, Proof, Verified};
use crate::grid::{AxisOrder, Grid};
use crate::memory::{Held, MicroBatches, PaddedVocabulary};
use crate::numerics::MegatronScaling;
use crate::question::{ExportQuestion, Refused};
use crate::recomputed::Runs;
use crate::refusal::StageRefusal;
use crate::target::Variant;
use crate::transformer::Transformer;
use gpt::{Biases, Gpt, Positions};
use rule::Rule;

pub(super) const EXPORTER: Exporter = Exporter {
    target: target(Launcher::Megatron, 0, 17),
    shape: PlanShape::UniformGrid,
    writes: "train.sh: pretrain_gpt.py with the model, the layout of the cut and the environment",
    verified: Verified::Built,
    proof: Some(Proof::of("megatron-core", "0.19.2")),
    write,
};

/// Layers of the hybrid model in a block.
const HALVES: usize = 2;

/// What it does unless it is told otherwise.
const CLIPPING: &str =
    "Megatron clips gradients at a norm of 1, which is no part of a plan: --clip-grad 0 switches it off";

/// Rows of the vocabulary that Megatron pads to, for each shard.
const PADDED_TO: u64 = 128;

fn write(question: &ExportQuestion<'_>) -> Result<Written, Refused> {
    question.check_schedule(&[Schedule::OneFOneB])?;
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
    let step_gradients = step_gradients(question.plan.training.precision);
    let held = Held { step_gradients, ..held(&transformer, &grid) };
    let yours =
        "name the tokenizer, the data, the learning rate and how long to train: they are no part of a plan";
    let mut warnings = vec![yours.to_owned(), CLIPPING.to_owned()];
    if !rule.is_said_by_flags() {
        let decoupled = "Megatron's Adam lets weights decay beside the update, as AdamW does, and the plan's through the gradients: it \
                         holds the same and trains otherwise";
        warnings.push(decoupled.to_owned());
    }
    warnings.extend(held.vocabulary.map(|vocabulary| vocabulary.warning("Megatron")));
    if is_hybrid {
        let halves = "Megatron's hybrid model counts attention and perceptron as a layer each, so weights begin smaller than the \
                      GPT model's: losses are not the same";
        warnings.push(halves.to_owned());
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
        "Blocks of the stages{}: {}. Data, learning rate and output are yours: ./train.sh --train-iters 1000 …",
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

/// Refuses what Megatron's interleaved schedule does not run: places along the pipeline are two or more, and micro-batches go in groups
/// of as many.
///
/// # Errors
/// The plan's stages take turns otherwise.
pub(super) fn check_turns(question: &ExportQuestion<'_>, grid: &Grid) -> Result<(), Refused> {
    if !grid.is_interleaved() {
        return Ok(());
    }
    let micro_batches = question.plan.training.micro_batches;
    let why = if grid.stages < 2 {
        "has all stages in turn on the devices of one place, and Megatron takes turns on two or more along the pipeline: recommend one with \
         a single stage"
            .to_owned()
    } else if !micro_batches.is_multiple_of(grid.stages) {
        format!(
            "has {micro_batches} micro-batches for {} places along the pipeline, and Megatron's stages take turns with groups of as many: \
             recommend one with a multiple of it",
            grid.stages
        )
    } else {
        return Ok(());
    };
    Err(vec![StageRefusal::of_plan(why)])
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
    flags.push(flag("micro-batch-size", question.samples_per_replica(grid)));
    flags.push(flag("global-batch-size", question.samples()));
    flags
}

/// Whether Megatron is told where to cut: by itself each device has one stage, of as many blocks as the others.
pub(super) fn is_said(cut: &Cut, grid: &Grid) -> bool {
    grid.is_interleaved() || !cut.is_even() || cut.has_ends_elsewhere()
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

/// The cut as the hybrid model's pattern, attention and perceptron of each block: `*-*-|*-`.
fn pattern(cut: &Cut) -> String {
    let stages: Vec<String> = cut.stages.iter().map(|part| "*-".repeat(part.blocks.len())).collect();
    stages.join("|")
}

/// What is computed again, as Megatron's family counts it: blocks from the first of each stage on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Recomputation {
    /// `uniform`, where all blocks are, so many at once; `block`, where the first ones are, one by one.
    pub(super) method: &'static str,
    /// How many.
    pub(super) blocks: usize,
}

impl Recomputation {
    /// All blocks, so many at once.
    pub(super) const fn uniform(blocks: usize) -> Self {
        Self { method: "uniform", blocks }
    }

    /// That of a plan; none where nothing is computed again.
    ///
    /// # Errors
    /// Stages that compute other things again, or all of themselves where that is several lengths of blocks.
    pub(super) fn of(question: &ExportQuestion<'_>, cut: &Cut) -> Result<Option<Self>, Refused> {
        if let Some(runs) = question.recomputed_runs()? {
            return Self::counted(question, cut, &runs).map(Some);
        }
        match question.recompute()? {
            RecomputePolicy::None => Ok(None),
            RecomputePolicy::Layer => Ok(Some(Self::uniform(1))),
            RecomputePolicy::Stage if cut.is_even() => {
                Ok(Some(Self::uniform(cut.block_counts().first().copied().unwrap_or(1).max(1))))
            }
            RecomputePolicy::Stage => {
                let why = "computes whole stages again, whose numbers of blocks differ, and Megatron has one for all: recommend \
                           `layer`";
                Err(vec![StageRefusal::of_plan(why)])
            }
        }
    }

    fn counted(question: &ExportQuestion<'_>, cut: &Cut, runs: &[Runs]) -> Result<Self, Refused> {
        let counts = cut.block_counts();
        let most = counts.iter().copied().max().unwrap_or(0);
        // Layers of the hybrid model are halves of blocks, and one by one each would have its input kept.
        let is_hybrid = question.variant == Variant::Hybrid;
        let first = (1..if is_hybrid { 1 } else { most })
            .map(|blocks| (Form::FirstBlocks(blocks), Self { method: "block", blocks }));
        // Its older versions look for blocks behind the last where a stage has no multiple of them.
        let divides = |length: &usize| counts.iter().all(|blocks| blocks.is_multiple_of(*length));
        let all =
            (1..=most).filter(divides).map(|blocks| (Form::BlocksAtOnce(blocks), Self::uniform(blocks)));
        let can = if is_hybrid {
            "computes all blocks of every stage again, so many at once"
        } else {
            "computes the first blocks of every stage again one by one, as many in each, or all blocks so many at once, of which every stage has \
             a multiple"
        };
        question.counted(question.model()?, runs, first.chain(all), can)
    }
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

/// Megatron adds gradients of bf16 up in fp32 unless it is told not to. Then its optimizer copies all of them to fp32 for each step
/// (`_copy_model_grads_to_main_grads`), and lets go of the copies before the next iteration.
fn precision_flags(question: &ExportQuestion<'_>) -> Vec<Flag> {
    match question.plan.training.precision {
        Precision::Fp32 => Vec::new(),
        Precision::Bf16 => vec![switch("bf16"), switch("grad-reduce-in-bf16")],
        Precision::Bf16Fp32Gradients => vec![switch("bf16")],
    }
}

/// Bytes of a parameter that its optimizer's copy of the gradient has in fp32, where gradients are added up in bf16.
pub(super) fn step_gradients(precision: Precision) -> u64 {
    if precision == Precision::Bf16 { 4 } else { 0 }
}

/// What Megatron's pipelines and its vocabulary hold. Outputs that were sent are deallocated.
///
/// Where stages take turns, they send while they compute: an output goes in front of the next forward pass, whose input has come by
/// then, and the gradient that was sent last goes behind the next backward pass. And its schedule names the input that came last before
/// the first backward pass to the end of the iteration, so that this stays with its gradient.
pub(super) fn held(transformer: &Transformer, grid: &Grid) -> Held {
    let in_turn = |count: u32| match grid.is_interleaved() {
        true => MicroBatches::Some(count),
        false => MicroBatches::None,
    };
    Held {
        outputs: in_turn(1),
        inputs: in_turn(2),
        // Otherwise the gradient that was sent last keeps its name until the next backward pass is over.
        input_gradients: MicroBatches::Some(if grid.is_interleaved() { 2 } else { 1 }),
        gradients: MicroBatches::Some(1),
        vocabulary: PaddedVocabulary::of(transformer, PADDED_TO * u64::from(grid.shards), grid.shards),
        ..Held::default()
    }
}
