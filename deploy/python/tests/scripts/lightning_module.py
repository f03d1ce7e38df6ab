"""Trains by Lightning: lightning_module.py PLAN"""

from __future__ import annotations

import sys

import torch
from lightning.pytorch import LightningModule, Trainer

from loadmaster.torch.lightning import Observe


class Module(LightningModule):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
        return self.layer(batch).square().mean()

    validation_step = training_step

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def main() -> None:
    data = torch.utils.data.DataLoader(torch.randn(24, 8), batch_size=2)
    observe = Observe(sys.argv[1])
    # 12 batches, two of them an iteration, with a validation behind the third iteration.
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = Trainer(
        max_epochs=1, accumulate_grad_batches=2, val_check_interval=6, callbacks=[observe], accelerator="cpu", **quiet
    )
    trainer.fit(Module(), data, data)
    assert observe.observer is not None
    print(f"observed {observe.observer.iterations} iterations, {observe.observer.reported}")


if __name__ == "__main__":
    main()
