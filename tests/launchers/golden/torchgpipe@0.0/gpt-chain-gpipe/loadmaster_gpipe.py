"""Written by Loadmaster for plans/golden; do not edit: export again.

Blocks of the stages: 1, 2, 2, 1. In train.py, with batches of 16 samples (8 micro-batches of 2):

    model = loadmaster_gpipe.gpipe(nn.Sequential(embedding, …6 blocks…, norm, head))
"""

from typing import Any

from torch import nn
from torchgpipe import GPipe

# Layers of each device.
BALANCE = [2, 2, 2, 3]


def gpipe(model: nn.Sequential, **settings: Any) -> GPipe:
    """The plan; `settings` are GPipe's others, `devices` for one."""
    return GPipe(model, balance=BALANCE, chunks=8, checkpoint="never", **settings)
