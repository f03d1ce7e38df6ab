//! Megatron-Bridge, which `NeMo` trains with: a file that goes over a recipe.
//!
//! Where the file says nothing the recipe's own value stays, not Megatron-Core's: whatever decides which plan or model is trained is
//! said, switched off too.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};

use loadmaster_proto::model::layer::NormKind;
use loadmaster_proto::plan::objective::Framework;
use loadmaster_proto::training::Precision;
use loadmaster_proto::warning::{Warning, WarningCode};

use super::memory::held;
use super::model::{Biases, Gpt, MegatronScaling, Positions, Rule};
use super::{BRIDGE, Recomputation, check_turns, is_said, layout};
use crate::StageRefusal;
use crate::cut::Cut;
use crate::export_parts::{ExportedFile, Proof, Verified};
use crate::framework::{Exporter, Written, target};
use crate::grid::{AxisOrder, Grid};
use crate::manifest::Torchrun;
use crate::memory::Held;
use crate::question::{ExportQuestion, Refused};
use crate::transformer::Transformer;

pub(in crate::framework) const EXPORTER: Exporter = Exporter {
    target: target(Framework::MegatronBridge, 0, 6),
    writes: "plan.yaml: the model, the pipeline layout and the batches, as overrides of a Megatron-Bridge recipe",
    verified: Verified::Built,
    proof: Some(Proof::beneath("megatron-core", "0.19.2")),
    write,
};

const PROGRAM: [&str; 2] = ["pretrain.py", "--config-file=plan.yaml"];

fn write(question: &ExportQuestion<'_>) -> Result<Written, Refused> {
    question.check_schedule(BRIDGE.schedules)?;
    let grid = question.grid()?;
    check_turns(question, &grid)?;
    let (transformer, cut) = question.transformer()?;
    let gpt = Gpt::of(&transformer)?;
    if let Positions::Learned(positions) = gpt.positions
        && positions != transformer.sequence_length
    {
        let why = format!(
            "has a model with {positions} learned positions, but samples of {} tokens. Megatron-Bridge needs equal \
             numbers. Profile the model with samples of {positions} tokens",
            transformer.sequence_length
        );
        return Err(vec![StageRefusal::of_plan(why)]);
    }
    if grid.stages > 1 && question.plan.training.precision == Precision::Fp32 {
        let why = "sends fp32 activations between its stages. Megatron-Bridge sends bf16 activations, and plan.yaml \
            cannot set another format. Request a plan in bf16";
        return Err(vec![StageRefusal::of_plan(why)]);
    }
    let recomputed = Recomputation::of(question, &cut)?;
    let ranks = grid.places(question.plan, AxisOrder::StagesFirst);
    let command: Vec<String> =
        Torchrun::of(&ranks)?.words().into_iter().chain(PROGRAM.map(str::to_owned)).collect();
    let mut environment = BTreeMap::new();
    let mut start = command.join(" ");
    if grid.shards > 1 {
        environment.insert("CUDA_DEVICE_MAX_CONNECTIONS".to_owned(), "1".to_owned());
        start.insert_str(0, "CUDA_DEVICE_MAX_CONNECTIONS=1 ");
    }
    let held = held(&BRIDGE, question, &transformer, &grid);
    let mut yaml = Yaml(String::new());
    describe(&mut yaml, question, &transformer, gpt);
    plan(&mut yaml, question, &grid, &cut, recomputed);
    let file = format!(
        "# {}.\n# Blocks of the stages{}: {}. It goes over your recipe:\n# {start}\n{}",
        question.head_line(),
        grid.turns(),
        cut.listed_blocks(),
        yaml.0
    );
    Ok(Written {
        files: vec![ExportedFile::new("plan.yaml", file)],
        command,
        environment,
        ranks,
        warnings: warnings(gpt, &held),
        held: Some(held),
        sets_numerics: true,
        ..Written::default()
    })
}

/// Sections of keys, one below the other.
struct Yaml(String);

impl Yaml {
    fn section(&mut self, name: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "{name}:");
    }

    fn say(&mut self, name: &str, value: impl Display) {
        let _ = writeln!(self.0, "  {name}: {value}");
    }

    /// What the recipe may have, and the plan has not.
    fn say_none(&mut self, names: &[&str]) {
        names.iter().for_each(|name| self.say(name, "null"));
    }
}

fn describe(yaml: &mut Yaml, question: &ExportQuestion<'_>, transformer: &Transformer, gpt: Gpt) {
    let Transformer { embedding, block, .. } = transformer;
    yaml.section("model");
    yaml.say("num_layers", transformer.block_count());
    yaml.say("hidden_size", block.hidden_size);
    yaml.say("ffn_hidden_size", block.feed_forward_size);
    yaml.say("num_attention_heads", block.heads);
    yaml.say("num_query_groups", block.key_value_heads());
    yaml.say("kv_channels", block.head_size());
    yaml.say_none(&["window_size", "num_moe_experts", "mtp_num_layers"]);
    yaml.say("seq_length", transformer.sequence_length);
    yaml.say("vocab_size", embedding.vocabulary_size);
    yaml.say("should_pad_vocab", true);
    yaml.say("share_embeddings_and_output_weights", transformer.has_tied_head);
    match gpt.positions {
        Positions::None => yaml.say("position_embedding_type", "none"),
        Positions::Learned(_) => yaml.say("position_embedding_type", "learned_absolute"),
        Positions::Rotary(base) => {
            yaml.say("position_embedding_type", "rope");
            yaml.say("rotary_base", base);
            yaml.say("rotary_percent", "1.0");
            let scaling = MegatronScaling::of(question.model);
            yaml.say("rope_scaling", matches!(scaling, Some(MegatronScaling::Llama3(_))));
            if let Some(MegatronScaling::Llama3(factor)) = scaling {
                yaml.say("rope_scaling_factor", format_args!("{factor:?}"));
            }
            match scaling {
                Some(MegatronScaling::Interpolated(factor)) => {
                    yaml.say("seq_len_interpolation_factor", factor)
                }
                _ => yaml.say_none(&["seq_len_interpolation_factor"]),
            }
        }
    }
    yaml.say("normalization", if block.norm == NormKind::RmsNorm { "RMSNorm" } else { "LayerNorm" });
    yaml.say("layernorm_epsilon", with_point(block.epsilon));
    yaml.say("qk_layernorm", block.query_key_norm);
    yaml.say("gated_linear_unit", gpt.is_gated);
    yaml.say("add_bias_linear", gpt.biases == Biases::All);
    yaml.say("add_qkv_bias", gpt.biases == Biases::Queries);
    yaml.say("attention_dropout", format_args!("{:?}", block.attention_dropout()));
    yaml.say("hidden_dropout", format_args!("{:?}", block.dropout));
    if let Some(range) = question.model.and_then(|model| model.numerics().initializer_range) {
        yaml.say("init_method_std", format_args!("{range:?}"));
    }
}

fn plan(
    yaml: &mut Yaml,
    question: &ExportQuestion<'_>,
    grid: &Grid,
    cut: &Cut,
    recomputed: Option<Recomputation>,
) {
    yaml.say("pipeline_model_parallel_size", grid.stages);
    if is_said(cut, grid) {
        yaml.say("pipeline_model_parallel_layout", format_args!("\"{}\"", layout(cut)));
    } else {
        yaml.say_none(&["pipeline_model_parallel_layout"]);
    }
    if grid.is_interleaved() {
        yaml.say("virtual_pipeline_model_parallel_size", grid.virtual_stages);
        // As Megatron-LM does by itself: two places would wait for each other otherwise.
        yaml.say("overlap_p2p_comm", true);
        yaml.say("batch_p2p_comm", false);
        yaml.say("overlap_p2p_comm_warmup_flush", false);
        yaml.say("microbatch_group_size_per_vp_stage", grid.stages);
    } else {
        yaml.say_none(&["virtual_pipeline_model_parallel_size"]);
    }
    // Other ways to cut, which it takes beside none.
    yaml.say_none(&["num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage"]);
    yaml.say("account_for_embedding_in_pipeline_split", false);
    yaml.say("account_for_loss_in_pipeline_split", false);
    yaml.say("tensor_model_parallel_size", grid.shards);
    yaml.say("sequence_parallel", question.is_sequence_parallel());
    yaml.say("context_parallel_size", 1);
    yaml.say("expert_model_parallel_size", 1);
    match recomputed {
        Some(Recomputation { method, blocks }) => {
            yaml.say("recompute_granularity", "full");
            yaml.say("recompute_method", method);
            yaml.say("recompute_num_layers", blocks);
        }
        None => yaml.say_none(&["recompute_granularity", "recompute_method", "recompute_num_layers"]),
    }
    optimizer(yaml, question);
    yaml.section("train");
    yaml.say("micro_batch_size", question.samples_per_replica(grid));
    yaml.say("global_batch_size", question.samples());
    // Recipes have one, which must give way.
    yaml.0.push_str(match question.plan.training.precision {
        Precision::Fp32 => "mixed_precision: null\n",
        Precision::Bf16 | Precision::Bf16Fp32Gradients => "mixed_precision: bf16_mixed\n",
    });
}

/// Bridge shards optimizer states where either section says so.
fn optimizer(yaml: &mut Yaml, question: &ExportQuestion<'_>) {
    yaml.section("ddp");
    yaml.say("use_distributed_optimizer", question.shards_optimizer());
    yaml.say("overlap_param_gather", false);
    yaml.section("optimizer");
    yaml.say("use_distributed_optimizer", question.shards_optimizer());
    yaml.say("overlap_param_gather", false);
    let rule = Rule::of(question.plan.training.optimizer);
    yaml.say("optimizer", rule.name);
    for (name, value) in rule.settings {
        // Others are read as they are by all.
        let text = format!("{value:?}");
        yaml.say(name, if text.contains('e') { with_point(value) } else { text });
    }
    yaml.say("decoupled_weight_decay", rule.decouples_decay);
}

/// A small number as every reader of YAML knows it: `1.0e-5`, which some take for a text without the point.
fn with_point(number: f64) -> String {
    let text = format!("{number:e}");
    match text.split_once('e') {
        Some((digits, power)) if !digits.contains('.') => format!("{digits}.0e{power}"),
        _ => text,
    }
}

fn warnings(gpt: Gpt, held: &Held) -> Vec<Warning> {
    let activation = if gpt.is_gated { "SiLU (Llama recipes)" } else { "GELU (GPT recipes)" };
    let recipe = format!(
        "the recipe, not plan.yaml, sets the activation function: use a recipe with {activation}. The recipe also sets \
         data, learning rate, training length and the maximum gradient norm (`optimizer.clip_grad`, default 1)"
    );
    let proved = "files like this plan.yaml were not tested with Megatron-Bridge itself. Tests loaded such \
        files into the Megatron-Core classes that Megatron-Bridge extends, and built the stage of every rank";
    let gradients = Some(held.wider_gradients).filter(|&bytes| bytes > 0).map(|bytes| {
        WarningCode::MemoryDiffers.says(format!(
            "bf16_mixed accumulates gradients in fp32: {bytes} bytes per parameter more than in the plan"
        ))
    });
    let padded = held.vocabulary.map(|vocabulary| vocabulary.warning("Megatron-Bridge"));
    let own = [WarningCode::SetupNeeded.says(recipe), WarningCode::ProofPartial.says(proved)];
    own.into_iter().chain(gradients).chain(padded).collect()
}
