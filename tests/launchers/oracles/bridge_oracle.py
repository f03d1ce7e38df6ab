"""Megatron-Bridge 0.6 (NeMo): Megatron-Core's configuration classes, which Bridge's derive from, read the file over a
recipe that has everything otherwise, strictly, and Megatron-Core builds every rank from both. Bridge itself imports
only with a CUDA build of Transformer Engine, so its own reading is not checked."""

import pathlib
from dataclasses import fields
from typing import Any

import torch
import yaml
from megatron.core import num_microbatches_calculator, parallel_state, tensor_parallel
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.process_groups_config import ProcessGroupCollection
from megatron.core.transformer.transformer_config import TransformerConfig
from megatron.training.config.container import PretrainConfigContainer
from megatron.training.config.instantiate_utils import InstantiationMode
from megatron.training.models.dist_utils import build_virtual_pipeline_stages
from megatron.training.models.gpt import GPTModelBuilder

import megatron_layers
import serving
from serving import Rank, Refused, Request

# What a check on CPUs needs besides an export, and why: Transformer Engine and the fused kernels are CUDA builds.
CPU_MODEL = {
    "transformer_impl": "local",
    "persist_layer_norm": False,
    "masked_softmax_fusion": False,
    "gradient_accumulation_fusion": False,
    "bias_activation_fusion": False,
    "apply_rope_fusion": False,
    "use_cpu_initialization": True,
}

# Bridge's own key, which Megatron-Core has not: the data types of everything.
PRECISIONS = {"bf16_mixed": torch.bfloat16}

# A recipe of another plan and another model: what a file leaves out of these stays.
OTHERS = {
    "model": {
        "context_parallel_size": 2,
        "expert_model_parallel_size": 2,
        "virtual_pipeline_model_parallel_size": 5,
        "pipeline_model_parallel_layout": "Et*3|tL",
        "microbatch_group_size_per_vp_stage": 7,
        "num_layers_in_first_pipeline_stage": 1,
        "account_for_loss_in_pipeline_split": True,
        "sequence_parallel": True,
        "recompute_granularity": "full",
        "recompute_method": "block",
        "recompute_num_layers": 1,
        "num_query_groups": 8,
        "kv_channels": 256,
        "qk_layernorm": True,
        "gated_linear_unit": True,
        "add_bias_linear": False,
        "add_qkv_bias": True,
        "window_size": [16, 0],
        "num_moe_experts": 4,
        "mtp_num_layers": 1,
        "rotary_percent": 0.5,
        "rope_scaling": True,
        "share_embeddings_and_output_weights": True,
    },
    "ddp": {"use_distributed_optimizer": True, "overlap_param_gather": True},
    "optimizer": {
        "use_distributed_optimizer": True,
        "overlap_param_gather": True,
        "optimizer": "lion",
        "weight_decay": 0.1,
        "adam_beta2": 0.95,
        "sgd_momentum": 0.5,
    },
}

# Sections that the container wants; recipes fill them.
SECTIONS = "megatron.training.config.training_config"
RECIPE = {
    "ddp": "megatron.core.distributed.distributed_data_parallel_config.DistributedDataParallelConfig",
    "optimizer": "megatron.core.optimizer.OptimizerConfig",
    "scheduler": f"{SECTIONS}.SchedulerConfig",
    "logger": f"{SECTIONS}.LoggerConfig",
    "checkpoint": f"{SECTIONS}.CheckpointConfig",
}

torch.Tensor.cuda = lambda tensor, *_, **__: tensor  # some buffers of the model


def answer(request: Request) -> serving.Answer:
    launch = serving.torchrun(request)
    files = [argument.removeprefix("--config-file=") for argument in launch.arguments]
    if len(files) != 1 or files[0] not in request.files:
        raise Refused(f"{launch.script} is given {launch.arguments}, not the one file of the plan")
    config = read(yaml.safe_load(pathlib.Path(files[0]).read_text()))
    return serving.each_rank(lambda rank: build(config, rank, request.world), request.world, launch.local_world)


def read(said: dict[str, Any]) -> PretrainConfigContainer:
    """Megatron-Core's strict reading: every key must be a field of the class of its section."""
    precision = said.pop("mixed_precision", None)
    if precision is not None and precision not in PRECISIONS:
        raise Refused(f"mixed_precision is {precision}, not one of {', '.join(PRECISIONS)}")
    model = OTHERS["model"] | said.pop("model", {}) | CPU_MODEL
    names = {field.name for field in fields(TransformerConfig)}
    transformer = {name: model.pop(name) for name in list(model) if name in names}
    container: dict[str, Any] = {
        name: {"_target_": kind} | OTHERS.get(name, {}) | said.pop(name, {}) for name, kind in RECIPE.items()
    }
    container["_target_"] = f"{PretrainConfigContainer.__module__}.PretrainConfigContainer"
    container["model"] = {
        "_target_": "megatron.training.models.gpt.GPTModelConfig",
        "transformer": {"_target_": f"{TransformerConfig.__module__}.TransformerConfig"} | transformer,
        **model,
    }
    if precision is not None:
        dtype = {"_target_": "torch.bfloat16", "_call_": False}
        container["model"]["transformer"] |= {"bf16": True, "params_dtype": dtype, "pipeline_dtype": dtype}
    container["train"] = {"_target_": f"{SECTIONS}.TrainingConfig"} | said.pop("train", {})
    return PretrainConfigContainer.from_dict(container | said, InstantiationMode.STRICT)


def build(config: PretrainConfigContainer, rank: int, world: int) -> tuple[Rank, dict[str, Any]]:
    model = config.model.transformer
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=model.tensor_model_parallel_size,
        pipeline_model_parallel_size=model.pipeline_model_parallel_size,
        virtual_pipeline_model_parallel_size=model.virtual_pipeline_model_parallel_size,
        context_parallel_size=model.context_parallel_size,
        create_gloo_process_groups=False,
    )
    tensor_parallel.random.initialize_rng_tracker(force_reset=True)
    config.model.finalize()
    groups, each = ProcessGroupCollection.use_mpu_process_groups(), model.virtual_pipeline_model_parallel_size
    # Torch's norms, which are all that CPUs have, refuse it. It changes nothing that a rank holds.
    sequence_parallel, model.sequence_parallel = model.sequence_parallel, False
    with torch.device("meta"):
        chunks = build_virtual_pipeline_stages(GPTModelBuilder(config.model).build_model, groups, each)
    built = Rank(
        rank=rank,
        stage=parallel_state.get_pipeline_model_parallel_rank(),
        replica=parallel_state.get_data_parallel_rank(),
        shard=parallel_state.get_tensor_model_parallel_rank(),
        layers=megatron_layers.each(megatron_layers.gpt, chunks),
        parameters=sum(parameter.numel() for chunk in chunks for parameter in chunk.parameters()),
    )
    replicas = parallel_state.get_data_parallel_world_size()
    train = config.train
    num_microbatches_calculator.init_num_microbatches_calculator(
        0, None, train.global_batch_size, train.micro_batch_size, replicas
    )
    chosen = get_forward_backward_func(
        pp_size=model.pipeline_model_parallel_size, vp_size=model.virtual_pipeline_model_parallel_size
    )
    rotary = (config.model.rotary_percent, config.model.rope_scaling)
    if model.window_size is not None or (config.model.position_embedding_type == "rope" and rotary != (1.0, False)):
        raise Refused("attention is the recipe's, not the plan's")
    recompute = model.recompute_granularity, model.recompute_method, model.recompute_num_layers
    return built, {
        "schedule": megatron_layers.SCHEDULES.get(chosen.__name__, chosen.__name__),
        "turns": megatron_layers.turns(chosen.__name__, model),
        "micro_batch": train.micro_batch_size,
        "micro_batches": num_microbatches_calculator.get_num_microbatches(),
        "global_batch": train.global_batch_size,
        "recompute": megatron_layers.recomputed(*recompute),
        "precision": {torch.bfloat16: "bf16", torch.float32: "fp32"}[model.params_dtype],
        "tied": config.model.share_embeddings_and_output_weights,
        "dropout": [model.attention_dropout, model.hidden_dropout],
        "transformer": megatron_layers.transformer(config.model, model),
        # Bridge shares the state out where either section says so.
        "zero_stage": int(config.ddp.use_distributed_optimizer or config.optimizer.use_distributed_optimizer),
        "sequence_parallel": sequence_parallel,
        "optimizer": megatron_layers.rule(config.optimizer),
    }


if __name__ == "__main__":
    serving.serve(answer)
