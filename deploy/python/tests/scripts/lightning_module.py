"""Trains by Lightning: lightning_module.py PLAN FOLDER [RANKS]"""

from __future__ import annotations

import logging
import os
import sys

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

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
    logging.basicConfig(format="%(name)s %(levelname)s %(message)s")
    plan, folder, ranks = sys.argv[1], sys.argv[2], int(sys.argv[3]) if sys.argv[3:] else 1
    data = torch.utils.data.DataLoader(torch.randn(32 * ranks, 8), batch_size=2)
    observe = Observe(plan)
    # 16 batches of each rank, two of them an iteration, with a validation behind the fourth iteration and the last one, and a
    # checkpoint behind the sixth.
    saver = ModelCheckpoint(folder, every_n_train_steps=6, save_on_train_epoch_end=False)
    spread = {"strategy": "ddp", "devices": ranks} if ranks > 1 else {"devices": 1}
    trainer = Trainer(
        max_epochs=1, accumulate_grad_batches=2, val_check_interval=8, limit_val_batches=1, callbacks=[saver, observe],
        accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False, **spread,
    )  # fmt: skip
    trainer.fit(Module(), data, data)
    assert observe.observer is not None and trainer.global_step == 8
    # At once, for the ranks share the output.
    rank = os.environ.get("LOCAL_RANK", "0")
    os.write(1, f"rank {rank}: {observe.observer.iterations} iterations, {observe.observer.reported}\n".encode())


if __name__ == "__main__":
    main()
