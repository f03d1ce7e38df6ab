"""accelerate 1.15: its launcher's reading of the YAML file, the environment that it makes of it, and its plugin of
Megatron-LM; that launcher's own classes say what the plugin's arguments mean on every rank."""

import importlib
import os
from typing import Any

import torch
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils.launch import prepare_multi_gpu_env
from megatron.core import parallel_state
from megatron.core.transformer.pipeline_parallel_layer_layout import PipelineParallelLayerLayout
from megatron.core.transformer.transformer_block import get_num_layers_to_build
from megatron.core.transformer.transformer_config import TransformerConfig
from megatron.core.transformer.transformer_layer import get_transformer_layer_offset

import expectation
import megatron_layers
import serving
from expectation import Model
from serving import Rank, Refused, Request

# The user's own: which node this is, and where the first one listens.
NODE_FLAGS = ["--machine_rank=0", "--main_process_ip=localhost", "--main_process_port=29500"]


def answer(request: Request) -> serving.Answer:
    model = Model(**request.model)
    args = read(request)
    if not args.use_megatron_lm:
        return serving.each_rank(lambda rank: replicate(args, model, rank), request.world, local_world(args))
    for name, value in prepare_multi_gpu_env(args).items():
        if name.startswith("MEGATRON_LM_"):
            os.environ[name] = value
    return serving.each_rank(lambda rank: build(args, model, rank), request.world, local_world(args))


def read(request: Request) -> Any:
    """What accelerate's launcher makes of the command and its file."""
    if request.command[:2] != ["accelerate", "launch"]:
        raise Refused(f"the command starts {request.command[:2]}, not accelerate launch")
    args, _, _ = _validate_launch_command(launch_command_parser().parse_args([*NODE_FLAGS, *request.command[2:]]))
    if args.num_processes != request.world:
        raise Refused(f"accelerate starts {args.num_processes} ranks, and the plan has {request.world}")
    return args


def local_world(args: Any) -> int:
    return args.num_processes // args.num_machines


def replicate(args: Any, model: Model, rank: int) -> tuple[Rank, dict[str, Any]]:
    """Data parallelism alone: the whole model is on every rank."""
    if not args.multi_gpu and args.num_processes > 1:
        raise Refused("the ranks do not train together")
    accelerator = importlib.import_module("loadmaster_plan").accelerator(cpu=True)
    return Rank(rank, 0, rank, 0, expectation.layer_names(model), None), {
        "micro_batches": accelerator.gradient_accumulation_steps,
        "precision": precision(args, accelerator.mixed_precision),
        "recompute": "none",
    }


def build(args: Any, model: Model, rank: int) -> tuple[Rank, dict[str, Any]]:
    """What the plugin tells Megatron-LM, and what that makes of it."""
    chosen = importlib.import_module("loadmaster_plan").plugin()
    agree(chosen)
    told = chosen.megatron_lm_default_args
    # Megatron-LM's own validation asks for it, accelerate does not set it.
    if told["tensor_model_parallel_size"] > 1 and os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS") != "1":
        raise Refused("Using tensor model parallelism requires setting CUDA_DEVICE_MAX_CONNECTIONS to 1")
    stages = told["pipeline_model_parallel_size"]
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=told["tensor_model_parallel_size"],
        pipeline_model_parallel_size=stages,
        context_parallel_size=told["context_parallel_size"],
        create_gloo_process_groups=False,
    )
    layout = told.get("pipeline_model_parallel_layout")
    config = TransformerConfig(
        num_layers=model.blocks,
        hidden_size=model.hidden,
        num_attention_heads=model.heads,
        tensor_model_parallel_size=told["tensor_model_parallel_size"],
        pipeline_model_parallel_size=stages,
        pipeline_dtype=torch.bfloat16,
        pipeline_model_parallel_layout=PipelineParallelLayerLayout.from_str(layout, stages) if layout else None,
    )
    first = 1 + get_transformer_layer_offset(config)
    names = expectation.layer_names(model)
    layers = names[first : first + get_num_layers_to_build(config)]
    if parallel_state.is_pipeline_first_stage():
        layers = names[:1] + layers
    if parallel_state.is_pipeline_last_stage():
        layers = layers + names[-2:]
    recompute = tuple(told[f"recompute_{what}"] for what in ("granularity", "method", "num_layers"))
    return Rank(
        rank=rank,
        stage=parallel_state.get_pipeline_model_parallel_rank(),
        replica=parallel_state.get_data_parallel_rank(),
        shard=parallel_state.get_tensor_model_parallel_rank(),
        layers=layers,
        parameters=None,
    ), {
        "micro_batches": told["num_micro_batches"],
        "precision": precision(args, args.mixed_precision),
        "recompute": megatron_layers.recomputed(*recompute),
        "dropout": [told["attention_dropout"], told["hidden_dropout"]],
    }


def agree(chosen: Any) -> None:
    """The file and the plugin say the same: accelerate takes the plugin's word without a look at the file."""
    from_file = type(chosen)()
    for name in ("pp_degree", "tp_degree", "context_parallel_size", "num_micro_batches", "attention_dropout"):
        if getattr(from_file, name) != getattr(chosen, name):
            said = getattr(from_file, name), getattr(chosen, name)
            raise Refused(f"{name} is {said[0]} by the file and {said[1]} by the plugin")


def precision(args: Any, of_python: str) -> str:
    if args.mixed_precision != of_python:
        raise Refused(f"mixed_precision is {args.mixed_precision} by the file and {of_python} in Python")
    return {"no": "fp32"}.get(of_python, of_python)


if __name__ == "__main__":
    serving.serve(answer)
