"""Trains by DeepSpeed: deepspeed_engine.py PLAN"""

from __future__ import annotations

import sys

import deepspeed
import torch

from loadmaster.torch.deepspeed import observe


def main() -> None:
    model = torch.nn.Linear(8, 1)
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 2,
        "optimizer": {"type": "SGD", "params": {"lr": 0.01}},
    }
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    with observe(engine, sys.argv[1], source="deepspeed") as observed:
        for _ in range(12):
            engine.backward(engine(torch.randn(2, 8)).square().mean())
            engine.step()
    assert "step" not in vars(engine)
    print(f"observed {observed.iterations} iterations, {observed.reported}")


if __name__ == "__main__":
    main()
