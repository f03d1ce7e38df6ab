"""Written by Loadmaster for plans/golden. Do not edit. Export the plan instead.

In train.py, with batches of 2 samples for each of 8 micro-batches:

    accelerator = Accelerator(megatron_lm_plugin=loadmaster_plan.plugin())
"""

from typing import Any

from accelerate.utils import MegatronLMPlugin


def plugin(**settings: Any) -> MegatronLMPlugin:
    """The plan; `settings` are the plugin's others."""
    return MegatronLMPlugin(
        pp_degree=2,
        tp_degree=2,
        context_parallel_size=1,
        num_micro_batches=8,
        attention_dropout=0.0,
        hidden_dropout=0.0,
        sequence_parallelism=True,
        decoder_seq_length=128,
        use_rotary_position_embeddings=True,
        other_megatron_args={
            "ffn_hidden_size": 176,
            "kv_channels": 16,
            "group_query_attention": True,
            "num_query_groups": 2,
            "position_embedding_type": "rope",
            "rotary_base": 10000,
            "normalization": "RMSNorm",
            "norm_epsilon": 1e-5,
            "layernorm_epsilon": 1e-5,
            "qk_layernorm": False,
            "swiglu": True,
            "add_bias_linear": False,
            "add_qkv_bias": False,
            "untie_embeddings_and_output_weights": True,
            "pipeline_model_parallel_layout": "Ettt|tttttL",
            "recompute_granularity": None,
            "recompute_method": None,
            "recompute_num_layers": None,
        },
        **settings,
    )
