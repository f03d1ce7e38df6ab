"""Written by Loadmaster for plans/golden. Do not edit. Export the plan instead.

In train.py, with batches of 2 samples for each of 8 micro-batches:

    accelerator = Accelerator(megatron_lm_plugin=loadmaster_plan.plugin())
"""

from typing import Any

from accelerate.utils import MegatronLMPlugin


def plugin(**settings: Any) -> MegatronLMPlugin:
    """The plan; `settings` are the plugin's others."""
    return MegatronLMPlugin(
        pp_degree=4,
        tp_degree=2,
        context_parallel_size=1,
        num_micro_batches=8,
        attention_dropout=0.1,
        hidden_dropout=0.1,
        use_distributed_optimizer=True,
        decoder_seq_length=128,
        use_rotary_position_embeddings=False,
        other_megatron_args={
            "ffn_hidden_size": 256,
            "kv_channels": 16,
            "group_query_attention": False,
            "position_embedding_type": "learned_absolute",
            "normalization": "LayerNorm",
            "norm_epsilon": 1e-5,
            "layernorm_epsilon": 1e-5,
            "qk_layernorm": False,
            "swiglu": False,
            "add_bias_linear": True,
            "add_qkv_bias": False,
            "untie_embeddings_and_output_weights": False,
            "pipeline_model_parallel_layout": "Ett|tttt|ttttt|tL",
            "recompute_granularity": None,
            "recompute_method": None,
            "recompute_num_layers": None,
        },
        **settings,
    )
