"""torch.distributed.pipelining: its stages and schedules on every rank; the smallest cases train on CPUs."""

import functools
import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointWrapper
from torch.distributed.pipelining import schedules
from torch.nn.parallel import DistributedDataParallel

import expectation
import models
import serving
from expectation import Model
from serving import Rank, Refused, Request

PRECISIONS = {torch.bfloat16: "bf16", torch.float32: "fp32"}
SCHEDULES = {schedules.Schedule1F1B: "1F1B", schedules.ScheduleGPipe: "GPipe"}


def answer(request: Request) -> serving.Answer:
    launch = serving.torchrun(request)
    model = Model(**request.model)
    if request.mode == "build":
        return serving.each_rank(lambda rank: build(model, rank)[1:], request.world, launch.local_world)
    trained = serving.real_ranks(lambda rank: train(model, rank), request.world)
    facts, ends = trained[0][1], [losses for _, _, losses in trained if losses]
    uncut = models.train(model, facts["micro_batch"] * facts["micro_batches"] * len(ends))
    # Each replica of the last stage has the losses of its own samples.
    losses = [sum(step) / len(ends) for step in zip(*ends, strict=True)]
    if not models.agree(losses, uncut):
        raise Refused(f"the last stage has losses {losses}, and the uncut model {uncut}")
    return [rank for rank, _, _ in trained], facts


def build(model: Model, rank: int) -> tuple[Any, Rank, dict[str, Any]]:
    """The schedule of a rank, and what is in it."""
    exported = importlib.import_module("loadmaster_pipeline")
    mesh = exported.mesh("cpu")
    shards = mesh["tp"].size()
    schedule = exported.schedule(layers(model, shards), mesh, torch.device("cpu"), models.loss)
    stage, (own, recompute) = schedule._stage, unwrapped(schedule._stage.submod)
    described = Rank(
        rank=rank,
        stage=stage.stage_index,
        replica=mesh["dp"].get_local_rank(),
        shard=mesh["tp"].get_local_rank(),
        layers=names(model, own, exported.PLAN["bounds"][stage.stage_index]),
        parameters=sum(parameter.numel() for parameter in stage.submod.parameters()),
    )
    return (
        schedule,
        described,
        {
            "schedule": "none" if stage.num_stages == 1 else SCHEDULES.get(type(schedule), type(schedule).__name__),
            "micro_batch": exported.PLAN["micro_batch_size"],
            "micro_batches": schedule._n_microbatches,
            "recompute": recompute,
            "precision": PRECISIONS[{parameter.dtype for parameter in stage.submod.parameters()}.pop()],
        },
    )


def layers(model: Model, shards: int) -> list[Callable[[], torch.nn.Module]]:
    """A user's functions; a tied head uses the embedding's table where that is on the same stage."""
    made: list[torch.nn.Module] = []

    def make(kind: type[torch.nn.Module]) -> torch.nn.Module:
        layer = kind(model, shards)
        if model.tied and made and kind is models.Head and isinstance(made[0], models.Embedding):
            layer.weight = made[0].weight
        made.append(layer)
        return layer

    return [functools.partial(make, kind) for kind in models.classes(model)]


def unwrapped(net: torch.nn.Module) -> tuple[list[torch.nn.Module], str]:
    """The layers of a stage without what is around them, and what of them is computed again."""
    if isinstance(net, DistributedDataParallel):
        net = net.module
    if isinstance(net, CheckpointWrapper):
        return list(net._checkpoint_wrapped_module), "stage"
    wrapped = {isinstance(layer, CheckpointWrapper) for layer in net}
    bare = [layer._checkpoint_wrapped_module if isinstance(layer, CheckpointWrapper) else layer for layer in net]
    return bare, {(True,): "layer", (False,): "none"}.get(tuple(wrapped), "some layers")


def names(model: Model, own: list[torch.nn.Module], first: int) -> list[str]:
    """The names of a stage's layers, which must be of the classes that the model has there."""
    own_classes = [type(layer) for layer in own]
    if models.classes(model)[first : first + len(own)] != own_classes:
        raise Refused(f"the layers from {first} on are {own_classes}")
    return expectation.layer_names(model)[first : first + len(own)]


def train(model: Model, rank: int) -> tuple[Rank, dict[str, Any], list[float]]:
    """The losses of some iterations from the parameters of the uncut model."""
    schedule, described, facts = build(model, rank)
    net, whole = schedule._stage.submod, models.whole(model)
    for name, layer in zip(described.layers, unwrapped(net)[0], strict=True):
        layer.load_state_dict(whole[expectation.layer_names(model).index(name)].state_dict())
    replicas = torch.distributed.get_world_size() // schedule._stage.num_stages
    own = slice(described.replica, None, replicas)  # which samples is all the same
    optimizer = torch.optim.SGD(net.parameters(), lr=models.STEP)
    losses = []
    for iteration in range(models.ITERATIONS):
        samples = facts["micro_batch"] * facts["micro_batches"] * replicas
        tokens, labels = (part[own].contiguous() for part in models.batch(model, samples, iteration))
        parts: list[torch.Tensor] = []
        optimizer.zero_grad()
        if schedule._stage.is_first:
            schedule.step(tokens)
        elif schedule._stage.is_last:
            schedule.step(target=labels, losses=parts)
            losses.append(torch.stack(parts).mean().item())
        else:
            schedule.step()
        optimizer.step()
    return described, facts, losses


if __name__ == "__main__":
    serving.serve(answer)
