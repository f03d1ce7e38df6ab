"""DeepSpeed 0.19: its launcher's parser, and its engine on every rank; the smallest case trains on CPUs."""

import argparse
import functools
import importlib
import json
import itertools
import os
from typing import Any

os.environ["DS_ACCELERATOR"] = "cpu"  # there is no other here

import deepspeed  # noqa: E402
import torch  # noqa: E402
from deepspeed.launcher import runner  # noqa: E402
from deepspeed.pipe import LayerSpec, TiedLayerSpec  # noqa: E402
from deepspeed.runtime.pipe.engine import PipelineEngine  # noqa: E402
from deepspeed.runtime.pipe.schedule import TrainSchedule  # noqa: E402
from torch.nn import functional  # noqa: E402

import expectation  # noqa: E402
import models  # noqa: E402
import serving  # noqa: E402
from expectation import Model  # noqa: E402
from serving import Rank, Refused, Request  # noqa: E402

PIPELINE = "loadmaster_pipeline.py"


def answer(request: Request) -> serving.Answer:
    hosts, local_world, config = start(request)
    model = Model(**request.model)

    def engine_of() -> Any:
        return engine(request, config, model)

    if request.mode == "build":
        ranks, facts = serving.each_rank(lambda rank: describe(engine_of(), model, rank), request.world, local_world)
        return ranks, facts | {"hosts": hosts}
    trained = serving.real_ranks(lambda rank: train(engine_of(), model, rank), request.world)
    uncut = models.train(model, trained[0][1]["global_batch"])
    for rank, (_, _, losses) in enumerate(trained):
        if not models.agree(losses, uncut):
            raise Refused(f"rank {rank} has losses {losses}, and the uncut model {uncut}")
    return [rank for rank, _, _ in trained], trained[0][1] | {"hosts": hosts}


def start(request: Request) -> tuple[list[list[Any]], int, str]:
    """What DeepSpeed's launcher makes of the command: hosts with their slots, ranks of each, and the configuration's file."""
    if request.command[0] != "deepspeed":
        raise Refused(f"the command starts {request.command[0]}, not deepspeed")
    args = runner.parse_args(request.command[1:])
    hosts, started = resources(args)
    world = sum(map(len, started.values()))
    if world != request.world:
        raise Refused(f"deepspeed starts {world} ranks, and the plan has {request.world}")
    own = deepspeed.add_config_arguments(argparse.ArgumentParser()).parse_args(args.user_args)
    if not own.deepspeed or own.deepspeed_config not in request.files:
        raise Refused(f"{args.user_script} is given no configuration of DeepSpeed")
    return hosts, args.num_gpus, own.deepspeed_config


def resources(args: argparse.Namespace) -> tuple[list[list[Any]], dict[str, list[int]]]:
    """The hosts that the launcher finds, and the slots of each that it starts ranks in: main() asks so before it starts them."""
    pool = runner.fetch_hostfile(args.hostfile)
    if pool is None and args.num_nodes > 1:
        # main()'s own words.
        raise Refused("Num nodes is >1 but no extra nodes available via hostfile")
    # Without a hostfile it counts the GPUs here, and there are none.
    pool = pool or {"localhost": args.num_gpus}
    active = runner.parse_inclusion_exclusion(pool, args.include, args.exclude)
    started = runner.apply_num_nodes_and_gpus(active, args.num_nodes, args.num_gpus)
    return [[host, slots] for host, slots in pool.items()], started


def engine(request: Request, config: str, model: Model) -> Any:
    """DeepSpeed's engine with the model of this rank."""
    deepspeed.init_distributed(dist_backend="gloo")
    if PIPELINE in request.files:
        exported = importlib.import_module("loadmaster_pipeline")
        net = exported.cut(layers(model, exported.TOPOLOGY.get_dim("model")), loss_fn=models.loss)
    else:
        net = models.whole(model)
    is_sharded = json.loads(request.files["ds_config.json"])["zero_optimization"]["stage"] > 0
    # Of other optimizers than Adam its ZeRO says that they are not tested.
    optimizer = (torch.optim.AdamW if is_sharded else torch.optim.SGD)(net.parameters(), lr=models.STEP)
    return deepspeed.initialize(model=net, config=config, optimizer=optimizer)[0]


def layers(model: Model, shards: int) -> list[LayerSpec]:
    """A user's model as DeepSpeed takes it; a tied head is the embedding once more."""
    specs = [LayerSpec(kind, model, shards) for kind in models.classes(model)]
    if model.tied:
        tied = functools.partial(TiedLayerSpec, "embedding", models.Embedding, model, shards, tied_weight_attr="weight")
        specs[0], specs[-1] = tied(), tied(forward_fn=project)
    return specs


def project(embedding: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    return functional.linear(x, embedding.weight)


def describe(built: Any, model: Model, rank: int) -> tuple[Rank, dict[str, Any]]:
    names, net = expectation.layer_names(model), built.module
    if isinstance(built, PipelineEngine):
        grid = built.grid
        place = grid.get_stage_id(), grid.get_data_parallel_id(), grid.get_slice_parallel_rank()
        names = names[net._local_start : net._local_stop]
        stages, recompute = grid.pipe_parallel_size, recomputed(net)
    else:
        place, stages, recompute = (0, rank, 0), 1, "none"
    parameters = sum(parameter.numel() for parameter in net.parameters())
    micro_batches = built.gradient_accumulation_steps()
    return Rank(rank, *place, names, parameters), {
        "schedule": order(stages, micro_batches),
        "micro_batch": built.train_micro_batch_size_per_gpu(),
        "micro_batches": micro_batches,
        "global_batch": built.train_batch_size(),
        "recompute": recompute,
        "precision": "bf16" if built.bfloat16_enabled() else "fp16" if built.fp16_enabled() else "fp32",
        "zero_stage": built.zero_optimization_stage(),
    }


def recomputed(net: Any) -> str:
    """Runs of layers are computed again at once, and begin anew on every stage."""
    interval = net.activation_checkpoint_interval
    if interval >= max(stop - start for start, stop in itertools.pairwise(net.parts)):
        return "stage"
    return {0: "none", 1: "layer"}.get(interval, f"every {interval} layers")


def order(stages: int, micro_batches: int) -> str:
    """1F1B is where a stage holds as many micro-batches as there are stages from it on."""
    if stages == 1:
        return "none"
    held = [TrainSchedule(micro_batches, stages, stage).num_pipe_buffers() for stage in range(stages)]
    # DeepSpeed has two buffers even where one would do.
    return "1F1B" if held == [max(2, min(stages - stage, micro_batches)) for stage in range(stages)] else str(held)


def train(built: Any, model: Model, rank: int) -> tuple[Rank, dict[str, Any], list[float]]:
    """The losses of some iterations from the parameters of the uncut model."""
    net, whole = built.module, models.whole(model)
    for index in range(net._local_start, net._local_stop):
        tied = model.tied and index in (0, len(whole) - 1)
        layer = net.tied_modules["embedding"] if tied else getattr(net, str(index))
        layer.load_state_dict(whole[0 if tied else index].state_dict())
    described = describe(built, model, rank)
    losses = []
    for iteration in range(models.ITERATIONS):
        tokens, labels = models.batch(model, built.train_batch_size(), iteration)
        size = built.train_micro_batch_size_per_gpu()
        micro_batches = zip(tokens.split(size), labels.split(size), strict=True)
        losses.append(float(built.train_batch(data_iter=iter(micro_batches))))
    return *described, losses


if __name__ == "__main__":
    serving.serve(answer)
