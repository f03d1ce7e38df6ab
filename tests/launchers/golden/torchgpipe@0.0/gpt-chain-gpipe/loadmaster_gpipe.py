"""Written by Loadmaster for plans/golden. Do not edit. Export the plan instead.

Blocks of the stages: 1, 2, 2, 1. In train.py, whose model is an nn.Sequential of one module for each layer of the plan (embedding, 6 blocks, norm, head),
and whose batches have 16 samples (8 micro-batches of 2):

    model = loadmaster_gpipe.gpipe(nn.Sequential(…))
    model(batch.to(model.devices[0]))  # the loss is computed on model.devices[-1]
"""

from collections.abc import Sequence
from typing import Any

from torch import nn
from torchgpipe import GPipe

# Layers of each device.
BALANCE = [2, 2, 2, 3]
DEVICES = ["cuda:0", "cuda:1", "cuda:2", "cuda:3"]


def gpipe(model: nn.Sequential, devices: Sequence[str] = DEVICES, **settings: Any) -> GPipe:
    """The plan; `settings` are GPipe's others."""
    return GPipe(model, balance=BALANCE, devices=devices, chunks=8, checkpoint="never", **settings)
