#!/usr/bin/env python3
"""Trains a small model, and tells the planner what the training of a plan needed.

torchrun --nproc-per-node 2 observe.py PLAN [ITERATIONS]
"""

from __future__ import annotations

import os
import sys

import torch
from torch import distributed

import loadmaster.torch


def main() -> None:
    plan, iterations = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 10
    on_gpu = torch.cuda.is_available()
    distributed.init_process_group("nccl" if on_gpu else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with loadmaster.torch.observe(plan, source="examples/observe.py") as observed:
        for _ in range(iterations):
            loss = model(torch.randn(8, 64, device=device)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            observed.step()
    if distributed.get_rank() == 0:
        print(f"{observed.iterations} iterations, reported as {observed.reported}")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
