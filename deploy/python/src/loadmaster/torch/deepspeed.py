"""Observes a training by DeepSpeed."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

from ._observer import Observer, Options, PlanLike

if TYPE_CHECKING:
    from typing_extensions import Unpack


class DeepSpeedObserver(Observer):
    """An observer whose steps are those of an engine."""

    _engine: Any
    _method: str
    #: What the engine itself had in place of its class's method: another observer's.
    _before: Any
    _hooked = False

    def hook(self, engine: Any) -> None:
        """Counts an iteration whenever the engine has updated its weights."""
        # Of the class: an engine also answers for the methods of its module.
        self._engine, self._method = engine, "train_batch" if hasattr(type(engine), "train_batch") else "step"
        self._before = vars(engine).get(self._method)
        whole = getattr(engine, self._method)

        def counted(*arguments: Any, **keywords: Any) -> Any:
            before = engine.global_steps
            answer = whole(*arguments, **keywords)
            if engine.global_steps != before:
                self.step()
            return answer

        setattr(engine, self._method, counted)
        self._hooked = True

    def close(self) -> None:
        """See `Observer.close`. The engine is as it was before."""
        self._unhook()
        super().close()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._unhook()
        super().__exit__(kind, error, trace)

    def _unhook(self) -> None:
        if not self._hooked:
            return
        self._hooked = False
        if self._before is None:
            vars(self._engine).pop(self._method, None)
        else:
            setattr(self._engine, self._method, self._before)


def observe(engine: Any, plan: PlanLike, **options: Unpack[Options]) -> DeepSpeedObserver:
    """Measures a training of a plan by a DeepSpeedEngine or PipelineEngine: as `loadmaster.torch.observe`, without `step()`."""
    observer = DeepSpeedObserver(plan, **options)
    observer.hook(engine)
    return observer
