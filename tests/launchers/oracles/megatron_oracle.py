"""Megatron-LM and Megatron-Core 0.19: its parser, its validation, and its model builders in every rank."""

import os
import sys
from argparse import Namespace
from typing import Any

import torch
from megatron.core import num_microbatches_calculator, parallel_state, tensor_parallel
from megatron.core.models.backends import LocalSpecProvider
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_submodules
from megatron.core.models.hybrid import hybrid_block
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.process_groups_config import ProcessGroupCollection
from megatron.core.ssm.mlp_layer import MLPLayer
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_config import TransformerConfig
from megatron.core.transformer.transformer_layer import TransformerLayer, TransformerLayerSubmodules
from megatron.training import arguments
from megatron.training.argument_utils import gpt_config_from_args, hybrid_config_from_args
from megatron.training.models.dist_utils import build_virtual_pipeline_stages
from megatron.training.models.gpt import GPTModelBuilder
from megatron.training.models.hybrid import HybridModelBuilder

import megatron_layers
import serving
from serving import Rank, Refused, Request

# What a check on CPUs needs besides an export, and why. None of it changes what a rank holds.
CPU_FLAGS = [
    # Transformer Engine, apex and the fused kernels are CUDA builds.
    "--transformer-impl", "local", "--no-persist-layer-norm", "--no-masked-softmax-fusion",
    "--no-gradient-accumulation-fusion", "--no-bias-swiglu-fusion", "--no-bias-gelu-fusion", "--no-rope-fusion",
    "--use-cpu-initialization",
    # The user's own: data, tokenizer, length of the run and step size.
    "--mock-data", "--tokenizer-type", "NullTokenizer", "--train-iters", "1", "--lr", "1e-4",
]  # fmt: skip

# Which script trains which of its two model classes.
SCRIPTS = {"pretrain_gpt.py": "gpt", "pretrain_hybrid.py": "hybrid"}

# CUDA tells the GPU's generation, and holds some buffers: facts about a machine that is not here.
arguments.get_device_arch_version = lambda: 9
torch.Tensor.cuda = lambda tensor, *_, **__: tensor


def answer(request: Request) -> serving.Answer:
    launch = serving.torchrun(request)
    if launch.script not in SCRIPTS:
        raise Refused(f"Megatron-LM has no {launch.script}; it has {', '.join(SCRIPTS)}")
    args = resolve([launch.script, *launch.arguments], request.world)
    if (args.hybrid_layer_pattern is not None) != (SCRIPTS[launch.script] == "hybrid"):
        raise Refused(f"{launch.script} does not train the model that --hybrid-layer-pattern says or lacks")
    return serving.each_rank(lambda rank: build(args, rank), request.world, launch.local_world)


def resolve(argv: list[str], world: int) -> Namespace:
    """Megatron's own reading of its flags."""
    sys.argv = argv + CPU_FLAGS
    os.environ.update(WORLD_SIZE=str(world), RANK="0", LOCAL_RANK="0")
    args = arguments.parse_args()
    arguments.validate_args(args, {})
    return args


def build(args: Namespace, rank: int) -> tuple[Rank, dict[str, Any]]:
    """Builds what this rank trains, without memory for it."""
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=args.tensor_model_parallel_size,
        pipeline_model_parallel_size=args.pipeline_model_parallel_size,
        virtual_pipeline_model_parallel_size=args.virtual_pipeline_model_parallel_size,
        context_parallel_size=args.context_parallel_size,
        order="tp-cp-ep-pp-dp" if args.use_tp_pp_dp_mapping else "tp-cp-ep-dp-pp",
        create_gloo_process_groups=False,
    )
    tensor_parallel.random.initialize_rng_tracker(force_reset=True)
    # Torch's norms, which are all that CPUs have, refuse it. It changes nothing that a rank holds.
    sequence_parallel, args.sequence_parallel = args.sequence_parallel, False
    groups, each = ProcessGroupCollection.use_mpu_process_groups(), args.virtual_pipeline_model_parallel_size
    with torch.device("meta"):
        chunks = build_virtual_pipeline_stages(builder(args).build_model, groups, each)
    args.sequence_parallel = sequence_parallel
    name = megatron_layers.gpt if args.hybrid_layer_pattern is None else megatron_layers.hybrid
    built = Rank(
        rank=rank,
        stage=parallel_state.get_pipeline_model_parallel_rank(),
        replica=parallel_state.get_data_parallel_rank(),
        shard=parallel_state.get_tensor_model_parallel_rank(),
        layers=megatron_layers.each(name, chunks),
        parameters=sum(parameter.numel() for chunk in chunks for parameter in chunk.parameters()),
    )
    return built, facts(args, chunks[0].config)


def builder(args: Namespace) -> GPTModelBuilder | HybridModelBuilder:
    if args.hybrid_layer_pattern is None:
        return GPTModelBuilder(gpt_config_from_args(args))
    config = hybrid_config_from_args(args)
    norm = LocalSpecProvider().layer_norm(rms_norm=args.normalization == "RMSNorm", for_qk=False)
    # The hybrid model has a final norm of Transformer Engine alone, whatever --transformer-impl says.
    hybrid_block.TENorm = norm
    config.hybrid_stack_spec = local_hybrid_stack(args.normalization, args.qk_layernorm)
    return HybridModelBuilder(config)


def local_hybrid_stack(normalization: str, norms_heads: bool) -> ModuleSpec:
    """The hybrid model's attention and perceptron in Megatron's own modules rather than Transformer Engine's."""
    parts = get_gpt_layer_local_submodules(normalization=normalization, qk_layernorm=norms_heads)
    attention = TransformerLayerSubmodules(
        input_layernorm=parts.input_layernorm,
        self_attention=parts.self_attention,
        self_attn_bda=parts.self_attn_bda,
    )
    perceptron = TransformerLayerSubmodules(
        pre_mlp_layernorm=parts.pre_mlp_layernorm, mlp=parts.mlp, mlp_bda=parts.mlp_bda
    )
    return ModuleSpec(
        module=hybrid_block.HybridStack,
        submodules=hybrid_block.HybridStackSubmodules(
            attention_layer=ModuleSpec(module=TransformerLayer, submodules=attention),
            mlp_layer=ModuleSpec(module=MLPLayer, submodules=perceptron),
        ),
    )


def facts(args: Namespace, config: TransformerConfig) -> dict[str, Any]:
    num_microbatches_calculator.init_num_microbatches_calculator(
        0, args.rampup_batch_size, args.global_batch_size, args.micro_batch_size, args.data_parallel_size
    )
    stages = args.pipeline_model_parallel_size
    chosen = get_forward_backward_func(pp_size=stages, vp_size=args.virtual_pipeline_model_parallel_size).__name__
    length = args.recompute_num_layers
    if length is not None and args.hybrid_layer_pattern is not None:
        length /= 2  # attention and perceptron of a block are layers of their own
    recompute = megatron_layers.recomputed(args.recompute_granularity, args.recompute_method, length)
    return {
        "schedule": megatron_layers.SCHEDULES.get(chosen, chosen),
        "turns": megatron_layers.turns(chosen, config),
        "micro_batch": args.micro_batch_size,
        "micro_batches": num_microbatches_calculator.get_num_microbatches(),
        "global_batch": args.global_batch_size,
        "recompute": recompute,
        "precision": {torch.bfloat16: "bf16", torch.float32: "fp32"}.get(args.params_dtype, str(args.params_dtype)),
        "tied": not args.untie_embeddings_and_output_weights,
        "dropout": [args.attention_dropout, args.hidden_dropout],
        "transformer": megatron_layers.transformer(args, config),
        "optimizer": megatron_layers.rule(args),
        "zero_stage": int(args.use_distributed_optimizer),
        "sequence_parallel": args.sequence_parallel,
        "gradients": "fp32" if args.accumulate_allreduce_grads_in_fp32 else "as parameters",
    }


if __name__ == "__main__":
    serving.serve(answer)
