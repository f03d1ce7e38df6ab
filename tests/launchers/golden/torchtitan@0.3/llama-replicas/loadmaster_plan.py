"""Written by Loadmaster for plans/golden. Do not edit. Export the plan instead.

Blocks of the stages: 3, 5. Set data and optimizer in the caller of this file, or pass them as arguments of
`./train.sh`.
"""

from torchtitan.components.loss import CrossEntropyLoss
from torchtitan.config import ParallelismConfig, TrainingConfig
from torchtitan.distributed.activation_checkpoint import FullAC
from torchtitan.distributed.pipeline_parallel import pipeline_llm
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
        dim=64,
        vocab_size=1000,
        tok_embeddings=Embedding.Config(num_embeddings=1000, embedding_dim=64, param_init=_EMBEDDING_INIT),
        layers=_build_llama3_layers(
            n_layers=8,
            dim=64,
            n_heads=4,
            n_kv_heads=2,
            hidden_dim=176,
            rope=ComplexRoPE.Config(dim=16, max_seq_len=128, theta=10000.0),
            attn_backend="flex",
        ),
        norm=RMSNorm.Config(normalized_shape=64, param_init=_NORM_INIT),
        lm_head=Linear.Config(in_features=64, out_features=1000, param_init=_output_linear_init(64)),
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
        loss=CrossEntropyLoss.Config(global_vocab_size=1000),
        parallelism=ParallelismConfig(
            pipeline_parallel_degree=2,
            pipeline_parallel_schedule="1F1B",
            pipeline_parallel_microbatch_size=2,
            module_fqns_per_model_part=[
                ["tok_embeddings", "layers.0", "layers.1", "layers.2"],
                ["layers.3", "layers.4", "layers.5", "layers.6", "layers.7", "norm", "lm_head"],
            ],
            tensor_parallel_degree=2,
            data_parallel_replicate_degree=2,
            data_parallel_shard_degree=1,
        ),
        training=TrainingConfig(
            local_batch_size=16,
            global_batch_size=32,
            seq_len=128,
            mixed_precision_param="bfloat16",
            disable_cuda_graphs=True,  # they do not go with a pipeline yet
        ),
        activation_checkpoint=FullAC.Config(),
    )
