"""accelerate 1.15: its launcher's reading of the YAML file, the environment that it makes of it, and its plugin of
Megatron-LM, which asks the program's model what it asks; Megatron's validation and its builder make every rank of what
the plugin says."""

import importlib
import os
import sys
from argparse import Namespace
from types import SimpleNamespace
from typing import Any

import torch
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils.launch import prepare_multi_gpu_env
from megatron.training import arguments

import expectation
import megatron_layers
import megatron_oracle
import models
import serving
from expectation import Model
from serving import Rank, Refused, Request

# The user's own: which node this is, and where the first one listens.
NODE_FLAGS = ["--machine_rank=0", "--main_process_ip=localhost", "--main_process_port=29500"]

# What Megatron's older versions call what its newer ones call otherwise.
OLD_NAMES = {"norm_epsilon"}


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
    parameters = sum(parameter.numel() for parameter in models.whole(model).parameters())
    return Rank(rank, 0, rank, 0, expectation.layer_names(model), parameters), {
        "micro_batches": accelerator.gradient_accumulation_steps,
        "precision": precision(args, accelerator.mixed_precision),
        "recompute": "none",
        "zero_stage": 0,
        "sequence_parallel": False,
    }


def build(args_of_launcher: Any, model: Model, rank: int) -> tuple[Rank, dict[str, Any]]:
    """What the plugin tells Megatron-LM, and what that makes of it."""
    chosen = importlib.import_module("loadmaster_plan").plugin()
    agree(chosen)
    told = chosen.megatron_lm_default_args
    # Megatron-LM's own validation asks for it, accelerate does not set it.
    if told["tensor_model_parallel_size"] > 1 and os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS") != "1":
        raise Refused("Using tensor model parallelism requires setting CUDA_DEVICE_MAX_CONNECTIONS to 1")
    args = resolve(chosen, model, args_of_launcher.mixed_precision)
    built, facts = megatron_oracle.build(args, rank)
    check(args, model)
    return built, facts | {
        "micro_batches": told["num_micro_batches"],
        "precision": precision(args_of_launcher, args_of_launcher.mixed_precision),
    }


def check(args: Namespace, model: Model) -> None:
    """What neither layers nor parameters show."""
    rotary = model.rotary_base > 0
    for what, said, wanted in (
        ("the head's table is its own", args.untie_embeddings_and_output_weights, not model.tied),
        ("dropout", (args.attention_dropout, args.hidden_dropout), (model.dropout, model.dropout)),
        ("positions are", args.position_embedding_type, "rope" if rotary else "learned_absolute"),
        ("the base of positions", args.rotary_base if rotary else 0, model.rotary_base),
        ("a sample's tokens", args.seq_length, model.sequence),
        ("the perceptron is gated", args.swiglu, model.family == "llama"),
    ):
        if said != wanted:
            raise Refused(f"{what}: {said}, and the model has {wanted}")


def resolve(chosen: Any, model: Model, mixed_precision: str) -> Namespace:
    """What Megatron makes of the plugin's arguments and the model's: those of accelerate's `initialize`."""
    chosen.set_network_size_args(SimpleNamespace(config=hugging_face(model)))
    replicas = int(os.environ["WORLD_SIZE"]) // (chosen.tp_degree * chosen.pp_degree)
    chosen.set_training_args(1, replicas)
    chosen.set_mixed_precision(mixed_precision)
    sys.argv = ["train.py", *megatron_oracle.CPU_FLAGS]
    args = arguments.parse_args(ignore_unknown_args=True)
    unknown = set(chosen.other_megatron_args or {}) - set(vars(args)) - OLD_NAMES
    if unknown:
        raise Refused(f"Megatron has no {', '.join(sorted(unknown))}, and takes them without a word")
    for name, value in chosen.megatron_lm_default_args.items():
        setattr(args, name, value)
    args.vocab_size = args.orig_vocab_size
    # Of a machine with GPUs.
    args.tokenizer_type = "NullTokenizer"
    arguments.validate_args(args)
    return args


def hugging_face(model: Model) -> SimpleNamespace:
    """The configuration that accelerate asks, where nothing but what it asks is right."""
    if model.family == "gpt2":
        return SimpleNamespace(
            model_type="gpt2",
            n_layer=model.blocks,
            n_embd=model.hidden,
            n_head=model.heads,
            n_positions=model.positions,
            vocab_size=model.vocabulary,
            return_dict=True,
        )
    return SimpleNamespace(
        model_type="llama",
        num_hidden_layers=model.blocks,
        hidden_size=model.hidden,
        num_attention_heads=model.heads,
        max_position_embeddings=8 * model.sequence,
        vocab_size=model.vocabulary,
        return_dict=True,
    )


def agree(chosen: Any) -> None:
    """The file and the plugin say the same: accelerate takes the plugin's word without a look at the file."""
    from_file = type(chosen)()
    for name in (
        "pp_degree",
        "tp_degree",
        "context_parallel_size",
        "num_micro_batches",
        "attention_dropout",
        "use_distributed_optimizer",
        "sequence_parallelism",
    ):
        if getattr(from_file, name) != getattr(chosen, name):
            said = getattr(from_file, name), getattr(chosen, name)
            raise Refused(f"{name} is {said[0]} by the file and {said[1]} by the plugin")


def precision(args: Any, of_python: str) -> str:
    if args.mixed_precision != of_python:
        raise Refused(f"mixed_precision is {args.mixed_precision} by the file and {of_python} in Python")
    return {"no": "fp32"}.get(of_python, of_python)


if __name__ == "__main__":
    serving.serve(answer)
