//! torchtitan from 0.3 on: a function that returns its configuration.

use loadmaster_proto::plan::objective::Framework;

use super::TorchtitanSetup;
use super::memory::held;
use crate::StageRefusal;
use crate::export_parts::{ExportedFile, Proof, Verified};
use crate::framework::{Exporter, Written, target};
use crate::question::{ExportQuestion, Refused};

pub(in crate::framework) const EXPORTER: Exporter = Exporter {
    target: target(Framework::Torchtitan, 0, 3),
    writes: "loadmaster_plan.py: the model and the plan as torchtitan's configuration, and train.sh",
    verified: Verified::Built,
    proof: Some(Proof::of("torchtitan", "0.3.0")),
    write,
};

/// The default epsilon of `RMSNorm.Config`, which the exported configuration does not set.
const NORM_EPSILON: f64 = 1e-5;

fn write(question: &ExportQuestion<'_>) -> Result<Written, Refused> {
    let asked = TorchtitanSetup::of(question)?;
    let epsilon = asked.transformer.block.epsilon;
    if epsilon != NORM_EPSILON {
        let why = format!(
            "has a model whose norms have an epsilon of {epsilon:e}, but torchtitan's Llama has {NORM_EPSILON:e}. \
             Export to torchtitan 0.2, which has a setting for the epsilon"
        );
        return Err(vec![StageRefusal::of_plan(why)]);
    }
    let held = held(&asked, true);
    let differs = Some(held.wider_gradients).filter(|&bytes| bytes > 0).map(|bytes| {
        format!("torchtitan accumulates gradients in fp32: {bytes} bytes per parameter more than in the plan")
    });
    let file = ExportedFile::new("loadmaster_plan.py", configuration(&asked));
    asked.written(vec![file], &["--module=loadmaster_plan", "--config=plan"], differs, held)
}

fn configuration(asked: &TorchtitanSetup<'_>) -> String {
    let TorchtitanSetup { question, transformer, grid, .. } = asked;
    let block = transformer.block;
    let (hidden, vocabulary) = (block.hidden_size, transformer.embedding.vocabulary_size);
    let (checkpoint_import, checkpoint) = match asked.recomputes_blocks {
        false => ("", "None"),
        true => ("from torchtitan.distributed.activation_checkpoint import FullAC\n", "FullAC.Config()"),
    };
    let mut parallelism = format!("            pipeline_parallel_degree={},\n", grid.stages);
    let mut graphs = "";
    if grid.stages > 1 {
        parallelism += &format!(
            "            pipeline_parallel_schedule=\"{}\",\n            pipeline_parallel_microbatch_size={},\n            \
             module_fqns_per_model_part=[\n{}            ],\n",
            asked.schedule,
            question.samples_per_replica(grid),
            asked.module_lines("lm_head", "                "),
        );
        graphs = "            disable_cuda_graphs=True,  # they do not go with a pipeline yet\n";
    }
    format!(
        r#""""{head}.

Blocks of the stages: {blocks}. Set data and optimizer in the caller of this file, or pass them as arguments of
`./train.sh`.
"""

from torchtitan.components.loss import CrossEntropyLoss
from torchtitan.config import ParallelismConfig, TrainingConfig
{checkpoint_import}from torchtitan.distributed.pipeline_parallel import pipeline_llm
from torchtitan.models.common import ComplexRoPE, Embedding, Linear, RMSNorm
from torchtitan.models.llama3 import (
    _EMBEDDING_INIT,
    _NORM_INIT,
    Llama3Model,
    Llama3StateDictAdapter,
    _build_llama3_layers,
    _output_linear_init,
    parallelize_llama,
)
from torchtitan.protocols.model_spec import ModelSpec
from torchtitan.trainer import Trainer


def model() -> Llama3Model.Config:
    return Llama3Model.Config(
        dim={hidden},
        vocab_size={vocabulary},
        tok_embeddings=Embedding.Config(num_embeddings={vocabulary}, embedding_dim={hidden}, param_init=_EMBEDDING_INIT),
        layers=_build_llama3_layers(
            n_layers={layers},
            dim={hidden},
            n_heads={heads},
            n_kv_heads={key_value_heads},
            hidden_dim={width},
            rope=ComplexRoPE.Config(dim={head_size}, max_seq_len={tokens}, theta={base:?}),
            attn_backend="flex",
        ),
        norm=RMSNorm.Config(normalized_shape={hidden}, param_init=_NORM_INIT),
        lm_head=Linear.Config(in_features={hidden}, out_features={vocabulary}, param_init=_output_linear_init({hidden})),
    )


def plan() -> Trainer.Config:
    return Trainer.Config(
        model_spec=ModelSpec(
            name="llama3",
            flavor="plan",
            model=model(),
            parallelize_fn=parallelize_llama,
            pipelining_fn=pipeline_llm,
            post_optimizer_build_fn=None,
            state_dict_adapter=Llama3StateDictAdapter,
        ),
        loss=CrossEntropyLoss.Config(global_vocab_size={vocabulary}),
        parallelism=ParallelismConfig(
{parallelism}            tensor_parallel_degree={shards},
            data_parallel_replicate_degree={replicas},
            data_parallel_shard_degree=1,
        ),
        training=TrainingConfig(
            local_batch_size={local},
            global_batch_size={samples},
            seq_len={tokens},
            mixed_precision_param="{precision}",
{graphs}        ),
        activation_checkpoint={checkpoint},
    )
"#,
        head = question.head_line(),
        blocks = asked.cut.listed_blocks(),
        layers = transformer.block_count(),
        heads = block.heads,
        key_value_heads = block.key_value_heads(),
        width = block.feed_forward_size,
        head_size = block.head_size(),
        tokens = transformer.sequence_length,
        base = block.rotary_base.unwrap_or_default(),
        shards = grid.shards,
        replicas = grid.replicas,
        local = asked.local_samples(),
        precision = asked.dtype(),
        samples = question.samples(),
    )
}
