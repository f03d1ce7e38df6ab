"""A rank that trains for 5 iterations: rank.py PLAN [fails|silent].

`fails`: rank 1 ends with an error in the middle. `silent`: rank 0 waits a second for the others instead of half a minute.
"""

from __future__ import annotations

import logging
import sys
from datetime import timedelta

import torch
from torch import distributed

import loadmaster.torch
from loadmaster.torch import _ranks


def main() -> None:
    logging.basicConfig(format="%(name)s %(levelname)s %(message)s")
    plan, how = sys.argv[1], sys.argv[2:]
    if how:
        _ranks.PATIENCE = timedelta(seconds=1)
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    model = torch.nn.Linear(8, 8)
    with loadmaster.torch.observe(plan, warm_up=2) as observed:
        for iteration in range(5):
            model(torch.randn(4, 8)).square().mean().backward()
            if "fails" in how and rank == 1 and iteration == 3:
                raise RuntimeError("this rank ends")
            observed.step()
            if iteration == 3:
                observed.pause()
    print(f"rank {rank}: {observed.iterations} iterations, {observed.reported}", flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
