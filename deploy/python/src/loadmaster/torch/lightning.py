"""Observes a training by Lightning."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from lightning.pytorch import Callback

from ._observer import Observer, Options, PlanLike, observe

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Observe(Callback):  # type: ignore[misc]
    """Measures the trainings of a plan: `Trainer(…, callbacks=[Observe("plans/7f3c")])`.

    Validations and checkpoints are left out of the seconds of iterations. See `loadmaster.torch.observe` for the options.
    """

    def __init__(self, plan: PlanLike, **options: Unpack[Options]) -> None:
        # What is misspelt is refused here, not when the training begins.
        inspect.signature(Observer).bind(plan, **options)
        self._plan = plan
        self._options = options
        self._options.setdefault("source", "lightning")
        self._steps = 0
        #: Of the training that began last.
        self.observer: Observer | None = None

    def on_train_start(self, trainer: Any, *arguments: Any) -> None:
        self.observer = observe(self._plan, **self._options)
        self._steps = trainer.global_step
        self.observer.start()

    def on_train_batch_end(self, trainer: Any, *arguments: Any, **keywords: Any) -> None:
        # Batches whose gradients are only added up are no iteration yet.
        if self.observer is not None and trainer.global_step != self._steps:
            self._steps = trainer.global_step
            self.observer.step()

    def _pause(self, *arguments: Any, **keywords: Any) -> None:
        if self.observer is not None:
            self.observer.pause()

    on_validation_start = on_save_checkpoint = _pause

    def on_train_end(self, *arguments: Any, **keywords: Any) -> None:
        if self.observer is not None:
            self.observer.close()
