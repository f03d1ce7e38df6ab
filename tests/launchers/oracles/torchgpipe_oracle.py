"""torchgpipe 0.0.7: its own split of the user's model, which then trains; one process drives every device."""

import importlib

import torch
from torchgpipe import GPipe

import expectation
import models
import serving
from expectation import Model
from serving import Rank, Refused, Request

POLICIES = {"always": "stage", "never": "none"}


def answer(request: Request) -> serving.Answer:
    model = Model(**request.model)
    exported = importlib.import_module("loadmaster_gpipe")
    named = {torch.device(name) for name in exported.DEVICES}
    if len(named) != request.world or {device.type for device in named} != {"cuda"}:
        raise Refused(f"the devices are {exported.DEVICES}, and the plan has {request.world}")
    # Devices that are here: as many as the plan has.
    net = exported.gpipe(models.whole(model), devices=["cpu"] * request.world)
    samples = request.samples
    if request.mode == "train":
        losses, uncut = train(net, model, samples), models.train(model, samples)
        if not models.agree(losses, uncut):
            raise Refused(f"the losses are {losses}, and the uncut model has {uncut}")
    return describe(net, model), {
        "schedule": "GPipe" if len(net.partitions) > 1 else "none",
        "micro_batches": net.chunks,
        "recompute": POLICIES.get(net.checkpoint, net.checkpoint),
    }


def describe(net: GPipe, model: Model) -> list[Rank]:
    """The parts as if each were a rank: the device that it is on."""
    names, ranks, first = expectation.layer_names(model), [], 0
    for stage, part in enumerate(net.partitions):
        layers = names[first : first + len(part)]
        first += len(part)
        ranks.append(Rank(stage, stage, 0, 0, layers, sum(parameter.numel() for parameter in part.parameters())))
    return ranks


def train(net: GPipe, model: Model, samples: int) -> list[float]:
    optimizer = torch.optim.SGD(net.parameters(), lr=models.STEP)
    losses = []
    for iteration in range(models.ITERATIONS):
        tokens, labels = models.batch(model, samples, iteration)
        value = models.loss(net(tokens), labels)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return losses


if __name__ == "__main__":
    serving.serve(answer)
