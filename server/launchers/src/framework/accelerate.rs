//! accelerate: its YAML file with Megatron-LM, and what only Python can tell it.
//!
//! With nothing said it trains with context parallelism and recomputation, and the file cannot say "none", nor where a model is
//! cut. So both are written: the file for the framework, the plugin for the program. Of the program's model
//! accelerate reports Megatron some sizes alone, so the plugin has the others. One stage of one shard is plain
//! replication.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use loadmaster_proto::model::layer::NormKind;
use loadmaster_proto::plan::objective::Framework;
use loadmaster_proto::training::Precision;
use loadmaster_proto::warning::{Warning, WarningCode};

use super::megatron::memory::held;
use super::megatron::model::{Biases, Gpt, MegatronScaling, Positions};
use super::megatron::{MEGATRON, Recomputation, WAITS, is_said, layout};
use super::{Exporter, Written, number_format, target};
use crate::cut::Cut;
use crate::export_parts::{ExportedFile, Proof, Verified};
use crate::grid::{AxisOrder, Grid};
use crate::manifest::nodes;
use crate::memory::Held;
use crate::question::{ExportQuestion, Refused};
use crate::rules::{Engine, Rules};
use crate::transformer::Transformer;

pub(super) const RULES: Rules = Rules {
    framework: Framework::Accelerate,
    takes_turns: false,
    engine: Some(Engine::blocking("accelerate", WAITS)),
    note: || {
        "accelerate accepts uneven stages only as `MegatronLMPlugin(other_megatron_args={\"pipeline_model_parallel_layout\": \
         …})`. Unless context parallelism and recomputation are set, accelerate turns both on"
            .to_owned()
    },
    ..MEGATRON
};

pub(super) const EXPORTER: Exporter = Exporter {
    target: target(Framework::Accelerate, 1, 15),
    writes: "accelerate.yaml, and loadmaster_plan.py, which creates the Megatron-LM plugin or the Accelerator",
    verified: Verified::Parsed,
    proof: Some(Proof::of("accelerate", "1.15.0")),
    write,
};

struct AccelerateSetup<'a> {
    question: &'a ExportQuestion<'a>,
    grid: Grid,
    transformer: Transformer,
    cut: Cut,
    /// The model as Megatron's; none where replicas are all there is: that is not needed for them, unless something
    /// is recomputed or sharded.
    gpt: Option<Gpt>,
    /// What is recomputed; none where nothing is.
    recomputed: Option<Recomputation>,
    nodes: usize,
    precision: &'static str,
}

fn write(question: &ExportQuestion<'_>) -> Result<Written, Refused> {
    question.check_schedule(RULES.schedules)?;
    let grid = question.grid()?;
    let (transformer, cut) = question.transformer()?;
    let recomputed = Recomputation::of(question, &cut)?;
    let is_plain = recomputed.is_none() && !question.shards_optimizer();
    let is_replicated = grid.stages == 1 && grid.shards == 1 && is_plain;
    let gpt = if is_replicated { None } else { Some(Gpt::of(&transformer)?) };
    let ranks = grid.places(question.plan, AxisOrder::StagesFirst);
    let (nodes, _) = nodes(&ranks)?;
    let precision = match question.plan.training.precision {
        Precision::Fp32 => "no",
        casting => number_format(casting),
    };
    let asked = AccelerateSetup { question, grid, transformer, cut, gpt, recomputed, nodes, precision };
    let mut environment = BTreeMap::new();
    if grid.shards > 1 {
        environment.insert("CUDA_DEVICE_MAX_CONNECTIONS".to_owned(), "1".to_owned());
    }
    let words = ["accelerate", "launch", "--config_file=accelerate.yaml", "train.py"];
    Ok(Written {
        files: vec![
            ExportedFile::new("accelerate.yaml", asked.yaml()),
            ExportedFile::new(
                "loadmaster_plan.py",
                asked.gpt.map_or_else(|| asked.accelerator(), |gpt| asked.plugin(gpt)),
            ),
        ],
        command: words.map(str::to_owned).to_vec(),
        environment,
        ranks,
        warnings: asked.warnings(),
        held: asked.held(),
        sets_numerics: !asked.is_replicated(),
        ..Written::default()
    })
}

impl AccelerateSetup<'_> {
    fn is_replicated(&self) -> bool {
        self.gpt.is_none()
    }

    fn yaml(&self) -> String {
        let Self { question, grid, .. } = self;
        let before = if grid.shards > 1 { "CUDA_DEVICE_MAX_CONNECTIONS=1 " } else { "" };
        let (kind, taken) = if self.is_replicated() {
            // Its word for several processes is wrong of one.
            (if grid.ranks() > 1 { "MULTI_GPU" } else { "'NO'" }, "accelerator")
        } else {
            ("MEGATRON_LM", "plugin")
        };
        let each = if self.nodes > 1 {
            "# On each node add its --machine_rank, and --main_process_ip and --main_process_port of the first.\n"
        } else {
            ""
        };
        let mut yaml = format!(
            "# {head}.\n# Blocks of the stages: {blocks}. Start: {before}accelerate launch --config_file=accelerate.yaml \
             train.py\n{each}# This file cannot contain all settings: train.py takes the {taken} from \
             loadmaster_plan.py.\ncompute_environment: LOCAL_MACHINE\ndistributed_type: {kind}\nnum_machines: \
             {nodes}\nnum_processes: {ranks}\nmixed_precision: {precision}\n",
            head = question.head_line(),
            blocks = self.cut.listed_blocks(),
            nodes = self.nodes,
            ranks = grid.ranks(),
            // A bare `no` is a truth value.
            precision = if self.precision == "no" { "'no'" } else { self.precision },
        );
        if self.is_replicated() {
            return yaml;
        }
        yaml.push_str("megatron_lm_config:\n");
        for (name, value) in self.settings() {
            // Writing to a string does not fail.
            let _ = writeln!(yaml, "  megatron_lm_{name}: {value}");
        }
        for name in self.switches() {
            let _ = writeln!(yaml, "  megatron_lm_{name}: true");
        }
        if let Some(again) = self.recomputed {
            for (name, value) in recomputation(again) {
                let _ = writeln!(yaml, "  megatron_lm_{name}: {}", value.trim_matches('"'));
            }
        }
        yaml
    }

    /// Settings that the file and the plugin both turn on; others are off by default.
    fn switches(&self) -> impl Iterator<Item = &'static str> {
        let sequence = self.question.is_sequence_parallel().then_some("sequence_parallelism");
        let sharded = self.question.shards_optimizer().then_some("use_distributed_optimizer");
        sequence.into_iter().chain(sharded)
    }

    /// What the file and the plugin both say.
    fn settings(&self) -> Vec<(&'static str, String)> {
        let block = self.transformer.block;
        vec![
            ("pp_degree", self.grid.stages.to_string()),
            ("tp_degree", self.grid.shards.to_string()),
            ("context_parallel_size", "1".to_owned()),
            ("num_micro_batches", self.question.plan.training.micro_batches.to_string()),
            ("attention_dropout", format!("{:?}", block.attention_dropout())),
            ("hidden_dropout", format!("{:?}", block.dropout)),
        ]
    }

    fn plugin(&self, gpt: Gpt) -> String {
        let mut arguments = String::new();
        let mut say = |name: &str, value: &str| {
            let _ = writeln!(arguments, "        {name}={value},");
        };
        for (name, value) in self.settings() {
            say(name, &value);
        }
        for name in self.switches() {
            say(name, truth(true));
        }
        // Its sample is as long as its model has positions where no one says how long.
        say("decoder_seq_length", &self.transformer.sequence_length.to_string());
        say("use_rotary_position_embeddings", truth(matches!(gpt.positions, Positions::Rotary(_))));
        let mut others = described(&self.transformer, gpt);
        others.extend(scaled(self.question));
        if is_said(&self.cut, &self.grid) {
            others.push(("pipeline_model_parallel_layout", format!("\"{}\"", layout(&self.cut))));
        }
        if self.question.plan.training.precision == Precision::Bf16 {
            others.push(("grad_reduce_in_bf16", "True".to_owned()));
        }
        match self.recomputed {
            Some(again) => recomputation(again).iter().for_each(|(name, value)| say(name, value)),
            None => others
                .extend(recomputation(Recomputation::uniform(1)).map(|(name, _)| (name, "None".to_owned()))),
        }
        let lines: Vec<String> =
            others.iter().map(|(name, value)| format!("            \"{name}\": {value},\n")).collect();
        say("other_megatron_args", &format!("{{\n{}        }}", lines.concat()));
        let training = self.question.plan.training;
        let samples = counted(self.question.samples_per_replica(&self.grid), "sample");
        let rounds = match training.micro_batches {
            1 => String::new(),
            count => format!(" for each of {count} micro-batches"),
        };
        format!(
            r#""""{head}.

In train.py, with batches of {samples}{rounds}:

    accelerator = Accelerator(megatron_lm_plugin=loadmaster_plan.plugin())
"""

from typing import Any

from accelerate.utils import MegatronLMPlugin


def plugin(**settings: Any) -> MegatronLMPlugin:
    """The plan; `settings` are the plugin's others."""
    return MegatronLMPlugin(
{arguments}        **settings,
    )
"#,
            head = self.question.head_line(),
        )
    }

    fn accelerator(&self) -> String {
        format!(
            r#""""{head}.

In train.py, with batches of {samples}:

    accelerator = loadmaster_plan.accelerator()
"""

from typing import Any

from accelerate import Accelerator


def accelerator(**settings: Any) -> Accelerator:
    """The plan; `settings` are the accelerator's others."""
    return Accelerator(gradient_accumulation_steps={steps}, mixed_precision="{precision}", **settings)
"#,
            head = self.question.head_line(),
            samples = counted(self.question.samples_per_replica(&self.grid), "sample"),
            steps = self.question.plan.training.micro_batches,
            precision = self.precision,
        )
    }

    /// Megatron's, or of replicas nothing besides, unless they cast for computing: no one counts what a cast leaves.
    fn held(&self) -> Option<Held> {
        if !self.is_replicated() {
            return Some(held(&RULES, self.question, &self.transformer, &self.grid));
        }
        (self.question.plan.training.precision == Precision::Fp32).then(Held::default)
    }

    fn warnings(&self) -> Vec<Warning> {
        if !self.is_replicated() {
            let yours = "in train.py, use a GPT-2 or Llama model (`model_type` of its configuration). accelerate \
                rejects other models, such as Mistral and Qwen2. The model must have the plan's blocks, hidden size, \
                heads, positions and vocabulary, which accelerate reads from it. The plugin sets the rest";
            let clipping = "accelerate's Megatron-LM clips gradients to a norm of 1, but a plan has no gradient \
                clipping. Set `gradient_clipping=0` in the plugin to turn clipping off";
            let held = self.held().and_then(|held| held.vocabulary);
            let padded = held.map(|vocabulary| vocabulary.warning("accelerate's Megatron-LM"));
            let own = [WarningCode::SetupNeeded.says(yours), WarningCode::TrainingDiffers.says(clipping)];
            return own.into_iter().chain(padded).collect();
        }
        let casts = self.precision == "bf16";
        let why = "accelerate keeps the weights and gradients of each replica in fp32 and casts them to bf16 for \
            computing. They take 8 bytes per parameter, without the optimizer state";
        casts.then(|| WarningCode::MemoryDiffers.says(why)).into_iter().collect()
    }
}

/// As Python writes it.
fn truth(is_so: bool) -> &'static str {
    if is_so { "True" } else { "False" }
}

/// What accelerate does not ask of the program's model, whose place Megatron's own values would take.
fn described(transformer: &Transformer, gpt: Gpt) -> Vec<(&'static str, String)> {
    let block = transformer.block;
    let python = |is_so: bool| truth(is_so).to_owned();
    let norm = if block.norm == NormKind::RmsNorm { "\"RMSNorm\"" } else { "\"LayerNorm\"" };
    let mut said = vec![
        ("ffn_hidden_size", block.feed_forward_size.to_string()),
        ("kv_channels", block.head_size().to_string()),
    ];
    let is_grouped = block.key_value_heads() != block.heads;
    said.push(("group_query_attention", python(is_grouped)));
    if is_grouped {
        said.push(("num_query_groups", block.key_value_heads().to_string()));
    }
    let (kind, base) = match gpt.positions {
        Positions::None => ("\"none\"", None),
        Positions::Learned(_) => ("\"learned_absolute\"", None),
        Positions::Rotary(base) => ("\"rope\"", Some(base)),
    };
    said.push(("position_embedding_type", kind.to_owned()));
    said.extend(base.map(|base| ("rotary_base", base.to_string())));
    said.extend([
        ("normalization", norm.to_owned()),
        // Megatron's older versions keep the flag by the first name, its newer ones by the second.
        ("norm_epsilon", format!("{:e}", block.epsilon)),
        ("layernorm_epsilon", format!("{:e}", block.epsilon)),
        ("qk_layernorm", python(block.query_key_norm)),
        ("swiglu", python(gpt.is_gated)),
        ("add_bias_linear", python(gpt.biases == Biases::All)),
        ("add_qkv_bias", python(gpt.biases == Biases::Queries)),
        ("untie_embeddings_and_output_weights", python(!transformer.has_tied_head)),
    ]);
    said
}

/// What changes values alone.
fn scaled(question: &ExportQuestion<'_>) -> Vec<(&'static str, String)> {
    let mut said = match MegatronScaling::of(question.model) {
        Some(MegatronScaling::Llama3(factor)) => {
            vec![("use_rope_scaling", truth(true).to_owned()), ("rope_scaling_factor", format!("{factor:?}"))]
        }
        Some(MegatronScaling::Interpolated(factor)) => {
            vec![("rotary_seq_len_interpolation_factor", factor.to_string())]
        }
        None => Vec::new(),
    };
    let range = question.model.and_then(|model| model.numerics().initializer_range);
    said.extend(range.map(|range| ("init_method_std", format!("{range:?}"))));
    said
}

/// What is recomputed, as Python says it.
fn recomputation(of: Recomputation) -> [(&'static str, String); 3] {
    [
        ("recompute_granularity", "\"full\"".to_owned()),
        ("recompute_method", format!("\"{}\"", of.method)),
        ("recompute_num_layers", of.blocks.to_string()),
    ]
}

fn counted(number: u32, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
