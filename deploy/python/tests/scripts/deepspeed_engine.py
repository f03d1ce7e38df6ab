"""Trains by DeepSpeed: deepspeed_engine.py PLAN [pipeline]"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

import deepspeed
import torch
from deepspeed.pipe import PipelineModule

from loadmaster.torch.deepspeed import observe

CONFIG = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 2,
    "optimizer": {"type": "SGD", "params": {"lr": 0.01}},
}


def engine_of(model: torch.nn.Module) -> deepspeed.DeepSpeedEngine:
    return deepspeed.initialize(model=model, model_parameters=model.parameters(), config=CONFIG)[0]


def batches() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    while True:
        yield torch.randn(2, 8), torch.randn(2, 1)


def main() -> None:
    layer = torch.nn.Linear(8, 1)
    if sys.argv[2:] == ["pipeline"]:
        deepspeed.init_distributed("gloo")
        engine = engine_of(PipelineModule([layer], num_stages=1, loss_fn=torch.nn.functional.mse_loss))
        with observe(engine, sys.argv[1], source="deepspeed") as observed:
            for _ in range(6):
                engine.train_batch(batches())
    else:
        engine = engine_of(layer)
        with observe(engine, sys.argv[1], source="deepspeed") as observed:
            for _ in range(12):
                engine.backward(engine(torch.randn(2, 8)).square().mean())
                engine.step()
    # A training that fails leaves its engine as it was, too, and observers within each other the ones around them.
    outer = observe(engine, sys.argv[1])
    around = dict(vars(engine))
    with contextlib.suppress(InterruptedError), observe(engine, sys.argv[1]):
        raise InterruptedError
    assert vars(engine) == around
    outer.__exit__(InterruptedError, None, None)
    assert not {"step", "train_batch"} & set(vars(engine))
    print(f"observed {observed.iterations} iterations, {observed.reported}")


if __name__ == "__main__":
    main()
