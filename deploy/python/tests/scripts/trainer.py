"""Trains by the Trainer of transformers: trainer.py PLAN FOLDER"""

from __future__ import annotations

import sys
from typing import Any

import torch
from transformers import Trainer, TrainingArguments

from loadmaster.torch.trainer import Observe


class Model(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        return {"loss": self.layer(x).square().mean()}


def main() -> None:
    data = [{"x": torch.randn(8)} for _ in range(24)]
    # 24 samples in micro-batches of 2, of which two make an iteration: 6 iterations, with a checkpoint behind the third.
    arguments = TrainingArguments(
        output_dir=sys.argv[2], per_device_train_batch_size=2, gradient_accumulation_steps=2, num_train_epochs=1,
        save_steps=3, report_to=[], use_cpu=True,
    )  # fmt: skip
    observe = Observe(sys.argv[1])
    Trainer(model=Model(), args=arguments, train_dataset=data, callbacks=[observe]).train()
    assert observe.observer is not None
    print(f"observed {observe.observer.iterations} iterations, {observe.observer.reported}")


if __name__ == "__main__":
    main()
