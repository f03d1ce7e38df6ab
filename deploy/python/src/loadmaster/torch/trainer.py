"""Observes a training by the Trainer of transformers."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from ._observer import Observer, Options, PlanLike, observe

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Observe(TrainerCallback):  # type: ignore[misc]
    """Measures the trainings of a plan: `Trainer(…, callbacks=[Observe("plans/7f3c")])`.

    Evaluations and checkpoints are left out of the seconds of iterations. See `loadmaster.torch.observe` for the options.
    """

    def __init__(self, plan: PlanLike, **options: Unpack[Options]) -> None:
        # What is misspelt is refused here, not when the training begins.
        inspect.signature(Observer).bind(plan, **options)
        self._plan = plan
        self._options = options
        self._options.setdefault("source", "transformers")
        #: Of the training that began last.
        self.observer: Observer | None = None

    def on_train_begin(self, *arguments: Any, **keywords: Any) -> None:
        self.observer = observe(self._plan, **self._options)
        self.observer.start()

    def on_step_end(self, *arguments: Any, **keywords: Any) -> None:
        if self.observer is not None:
            self.observer.step()

    def _pause(self, *arguments: Any, **keywords: Any) -> None:
        if self.observer is not None:
            self.observer.pause()

    on_evaluate = on_predict = on_save = _pause

    def on_train_end(self, *arguments: Any, **keywords: Any) -> None:
        if self.observer is not None:
            self.observer.close()
