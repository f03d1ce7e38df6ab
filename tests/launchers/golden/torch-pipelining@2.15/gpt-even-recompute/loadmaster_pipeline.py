"""Written by Loadmaster for plans/golden. Do not edit. Export the plan instead.

Blocks of the stages: 6, 6. In train.py, which every node starts with

    torchrun --standalone --nproc-per-node=8 train.py

give it one function for each layer of the plan (embedding, 12 blocks, norm, head) that makes the layer:

    mesh = loadmaster_pipeline.mesh("cuda")
    schedule = loadmaster_pipeline.schedule(layers, mesh, device, loss_fn)
    schedule.step(batch)  # 16 samples of this replica, on the first stage; step() between
    schedule.step(target=labels, losses=losses)  # on the last stage

The head shares the embedding's table, which is on the first and the last stage. Sum the gradients of both
after every step, because torch does not.

Parameters and gradients are bf16. The plan also counts fp32 master weights: use an optimizer that keeps them.
"""

import json
import pathlib
from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleSingle, get_schedule_class
from torch.nn.parallel import DistributedDataParallel

PLAN = json.loads(pathlib.Path(__file__).with_name("plan.json").read_text())
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


def mesh(device_type: str) -> DeviceMesh:
    """The grid of ranks, the last axis varying fastest."""
    return init_device_mesh(device_type, tuple(PLAN["mesh"].values()), mesh_dim_names=tuple(PLAN["mesh"]))


def schedule(
    layers: Sequence[Callable[[], nn.Module]],
    mesh: DeviceMesh,
    device: torch.device,
    loss_fn: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> PipelineScheduleSingle:
    """Returns the schedule that runs the stage of this rank. Only the layers of this stage are built."""
    bounds, stage = PLAN["bounds"], mesh["pp"].get_local_rank()
    if len(layers) != bounds[-1]:
        raise ValueError(f"the plan is for {bounds[-1]} layers, and the model has {len(layers)}")
    own = [make() for make in layers[bounds[stage] : bounds[stage + 1]]]
    if PLAN["recompute"] == "layer":
        own = [checkpoint_wrapper(layer) for layer in own]
    net = nn.Sequential(*own).to(device, DTYPES[PLAN["precision"]])
    if PLAN["recompute"] == "stage":
        net = checkpoint_wrapper(net)
    if mesh["dp"].size() > 1:  # gradients of replicas are averaged behind the last micro-batch
        net = DistributedDataParallel(net, process_group=mesh["dp"].get_group(), gradient_as_bucket_view=True)
    part = PipelineStage(net, stage, len(bounds) - 1, device, group=mesh["pp"].get_group())
    return get_schedule_class(PLAN["schedule"])(part, n_microbatches=PLAN["micro_batches"], loss_fn=loss_fn)
