//! torchtitan, which has two surfaces: TOML up to 0.2, a Python configuration from 0.3 on.
//!
//! The cut is names of modules per stage. A name that is misspelt is dropped by torchtitan in silence, so they are made here
//! from blocks alone.

mod memory;
mod python;
mod toml;

use loadmaster_proto::model::layer::{Activation, NormKind, NormPosition, Perceptron};
use loadmaster_proto::plan::objective::Framework;
use loadmaster_proto::training::Precision;
use loadmaster_proto::warning::WarningCode;

use super::{Written, torch_pipelining};
use crate::StageRefusal;
use crate::cut::Cut;
use crate::export_parts::ExportedFile;
use crate::grid::{AxisOrder, Grid};
use crate::manifest::Torchrun;
use crate::memory::Held;
use crate::question::{ExportQuestion, Refused};
use crate::recompute::{Counted, Recomputing};
use crate::rules::{BOTH, CutUnit, Engine, LAYERS, Rules};
use crate::transformer::Transformer;

pub(super) use python::EXPORTER as PYTHON;
pub(super) use toml::EXPORTER as TOML;

pub(super) const RULES: Rules = Rules {
    framework: Framework::Torchtitan,
    recomputing: Recomputing::Alike(&[Counted::AllBlocks]),
    policies: LAYERS,
    cut: CutUnit::Layer,
    schedules: BOTH,
    engine: Some(Engine::blocking("torchtitan", torch_pipelining::WAITS)),
    ways: memory::ways,
    // It has no tensor parallelism without.
    sequence_parallel: true,
    ..Rules::USUAL
};

/// What both surfaces say.
struct TorchtitanSetup<'a> {
    question: &'a ExportQuestion<'a>,
    transformer: Transformer,
    cut: Cut,
    grid: Grid,
    schedule: &'static str,
    recomputes_blocks: bool,
}

impl<'a> TorchtitanSetup<'a> {
    fn of(question: &'a ExportQuestion<'a>) -> Result<Self, Refused> {
        let schedule = torch_pipelining::torch_schedule(question.check_schedule(RULES.schedules)?);
        question.check_fills_torch_pipeline()?;
        let grid = question.grid()?;
        let (transformer, cut) = question.transformer()?;
        check_is_llama(&transformer)
            .and_then(|()| check_shards(&transformer, grid.shards))
            .map_err(|why| vec![StageRefusal::of_plan(why)])?;
        let why = "recomputes whole stages, but torchtitan recomputes blocks one by one. Request a plan with the recompute \
                policy `layer` or `none`";
        let recomputes_blocks = question.recomputes_blocks(|| StageRefusal::of_plan(why))?;
        Ok(Self { question, transformer, cut, grid, schedule, recomputes_blocks })
    }

    /// What it calls a local batch: samples of an iteration on each replica, which its pipeline parts into micro-batches.
    /// Without a pipeline that is a micro-batch, and gradients of several are added up.
    fn local_samples(&self) -> u64 {
        if self.grid.stages == 1 {
            return self.question.samples_per_replica(&self.grid).into();
        }
        self.question.samples() / u64::from(self.grid.replicas.max(1))
    }

    /// How it calls the format that is computed in.
    fn dtype(&self) -> &'static str {
        if self.question.plan.training.precision == Precision::Fp32 { "float32" } else { "bfloat16" }
    }

    /// The modules of each stage, where the head is called so.
    fn modules(&self, head: &str) -> Vec<Vec<String>> {
        let of = |part: &crate::cut::StagePart| {
            let mut names = Vec::new();
            names.extend(part.has_embedding.then(|| "tok_embeddings".to_owned()));
            names.extend(part.blocks.clone().map(|block| format!("layers.{block}")));
            names.extend(part.has_norm.then(|| "norm".to_owned()));
            names.extend(part.has_head.then(|| head.to_owned()));
            names
        };
        self.cut.stages.iter().map(of).collect()
    }

    /// Each stage's modules as a line of a list, in Python as in TOML.
    fn module_lines(&self, head: &str, indent: &str) -> String {
        let quoted = |names: &Vec<String>| {
            let names: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
            format!("{indent}[{}],\n", names.join(", "))
        };
        self.modules(head).iter().map(quoted).collect()
    }

    /// Returns the files with the script that starts them; `differs` is a warning about what is otherwise than the plan says.
    fn written(
        &self,
        files: Vec<ExportedFile>,
        arguments: &[&str],
        differs: Option<String>,
        held: Held,
    ) -> Result<Written, Refused> {
        let ranks = self.grid.places(self.question.plan, AxisOrder::StagesFirst);
        let torchrun = Torchrun::of(&ranks)?;
        let about = "Set data, optimizer and output yourself: ./train.sh --training.steps 1000 …";
        let program = format!("-m torchtitan.train {}", arguments.join(" "));
        let here = "cd \"$(dirname \"${BASH_SOURCE[0]}\")\"\n";
        let script = torchrun.script((&self.question.head_line(), about), Some(here), "", &[], &program);
        let words = ["-m", "torchtitan.train"].into_iter().chain(arguments.iter().copied());
        let command = torchrun.words().into_iter().chain(words.map(str::to_owned)).collect();
        let files = files.into_iter().chain([ExportedFile::new("train.sh", script)]).collect();
        let yours = "set data, optimizer and training length as arguments of ./train.sh: a plan does not contain them. \
            torchtitan clips gradients to a norm of 1 unless --training.max_norm sets another norm";
        let warnings = std::iter::once(WarningCode::SetupNeeded.says(yours))
            .chain(differs.map(|why| WarningCode::MemoryDiffers.says(why)))
            .collect();
        Ok(Written { files, command, ranks, warnings, held: Some(held), ..Written::default() })
    }
}

/// # Errors
/// What its Llama cannot be, human-readable: it follows `the plan`.
fn check_is_llama(transformer: &Transformer) -> Result<(), String> {
    let Transformer { embedding, block, .. } = transformer;
    let cannot = |what: &str| Err(format!("has a model {what}, which torchtitan's Llama does not support"));
    if embedding.positions > 0 || embedding.token_types > 0 || embedding.norm_epsilon.is_some() {
        return cannot("with learned positions, token types or a norm after the embedding");
    }
    if block.norm != NormKind::RmsNorm
        || transformer.norm != NormKind::RmsNorm
        || block.norm_position == NormPosition::Post
    {
        return cannot("without RMS norms before attention and MLP");
    }
    if (block.perceptron, block.activation) != (Perceptron::Gated, Activation::Silu) {
        return cannot("whose MLPs are not SwiGLU");
    }
    if block.qkv_bias
        || block.attention_out_bias
        || block.mlp_bias
        || block.query_key_norm
        || block.bidirectional
    {
        return cannot("with biases, normalized queries and keys, or without causal attention");
    }
    if block.rotary_base.is_none() || block.head_size.is_some() {
        return cannot("without rotary positions, or with a head size other than hidden size / heads");
    }
    if block.dropout > 0.0 || block.attention_dropout() > 0.0 {
        return cannot("with dropout");
    }
    if block.epsilon != transformer.norm_epsilon {
        return cannot("whose final norm has another epsilon than the norms of its blocks");
    }
    if transformer.has_tied_head {
        return cannot("with tied embeddings");
    }
    Ok(())
}

/// # Errors
/// Shards that its Llama does not divide into, human-readable: it follows `the plan`.
fn check_shards(transformer: &Transformer, shards: u32) -> Result<(), String> {
    let of = [
        ("heads", transformer.block.heads),
        ("heads of keys and values", transformer.block.key_value_heads()),
        ("tokens of a sample", transformer.sequence_length),
    ];
    match of.iter().find(|(_, count)| count % i64::from(shards.max(1)) != 0) {
        None => Ok(()),
        Some((what, count)) => Err(format!(
            "splits {count} {what} over {shards} devices, which torchtitan can do only evenly. Use fewer shards"
        )),
    }
}
