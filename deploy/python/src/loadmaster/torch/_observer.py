"""Measures a training."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, TypedDict, Union

import torch

from . import _ranks, _report

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from .._client import Client
    from .._plan import Plan

log = logging.getLogger("loadmaster")

#: A plan, its name or its id.
PlanLike = Union["Plan", str]


class Options(TypedDict, total=False):
    """Options of an observer."""

    #: The client with which rank 0 reports. Default: the plan's client, else the planner that LOADMASTER_ADDRESS names.
    client: Client | None
    #: The first iterations, which are left out. Default 1.
    warm_up: int
    #: The stage of each rank, of several in turn the first. Default: those of the export of the plan.
    stages: Sequence[int] | None
    #: Origin of the numbers, human-readable. Default: torch and its version.
    source: str


class Observer:
    """Measures iterations and the peaks of a rank, and reports them once."""

    # The keywords of `Options`, each by its name: Python itself refuses one that there is not, before anything is measured.
    def __init__(
        self,
        plan: PlanLike,
        *,
        client: Client | None = None,
        warm_up: int = 1,
        stages: Sequence[int] | None = None,
        source: str = "",
    ) -> None:
        self._plan = plan
        self._client = client
        self._warm_up = warm_up
        self._stages = stages
        self._source = source
        self._number = _ranks.next_number()
        self._last: float | None = None
        self._over = False
        #: Iterations that were measured, and the seconds of all of them.
        self.iterations = 0
        self.seconds = 0.0
        #: `plans/ID/reports/ID` that rank 0 has reported; None before, and elsewhere.
        self.reported: str | None = None

    def start(self) -> None:
        """The first iteration begins. Entering the context does this."""
        self._last = time.perf_counter()

    def step(self) -> None:
        """An iteration has ended, and the next one begins."""
        now = time.perf_counter()
        if self._last is not None:
            if self._warm_up > 0:
                self._warm_up -= 1
                if self._warm_up == 0:
                    self._forget_peaks()
            else:
                self.iterations += 1
                self.seconds += now - self._last
        self._last = now

    def pause(self) -> None:
        """Something else than training happens, an evaluation say: the iteration that contains this is not measured."""
        self._last = None

    def close(self) -> None:
        """Training has ended well: rank 0 reports the measurements of all ranks. Leaving the context does this.

        It must come before the process group is destroyed. Rank 0 waits for the others no longer than half a minute.
        """
        if self._over:
            return
        self._over = True
        try:
            if self.iterations == 0:
                raise RuntimeError("no iteration was measured: call step() behind each, also after the warm-up")
            everyone = _ranks.gather(self._own(), self._number)
            if everyone is not None:
                self.reported = _report.report(self._plan, self._client, everyone, self._stages, self._source)
        except Exception as error:
            self._warn(error)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self.close()
        # A training that failed has nothing to tell, and its other ranks may be gone.
        self._over = True

    def _own(self) -> _ranks.Measured:
        on_gpu = torch.cuda.is_available() and torch.cuda.is_initialized()
        return _ranks.Measured(
            iterations=self.iterations,
            iteration_seconds=self.seconds / self.iterations,
            allocated_bytes=torch.cuda.max_memory_allocated() if on_gpu else None,
            reserved_bytes=torch.cuda.max_memory_reserved() if on_gpu else None,
            device_kind=torch.cuda.get_device_name() if on_gpu else "cpu",
        )

    def _forget_peaks(self) -> None:
        """Memory of loading a model is no part of an iteration."""
        try:
            if torch.cuda.is_available() and torch.cuda.is_initialized():
                torch.cuda.reset_peak_memory_stats()
        except Exception as error:
            self._over = True
            self._warn(error)

    def _warn(self, error: Exception) -> None:
        log.warning("the training was not reported to the planner: %s", error)


def observe(plan: PlanLike, **options: Unpack[Options]) -> Observer:
    """Measures a training of a plan, as a context, with `step()` behind each iteration. `Options` has the keywords.

    Peaks are of the allocator of the rank's current GPU, from the warm-up's end on: the most that live tensors took (allocated)
    and the most that it held (reserved); on CPUs there are none. The report has those of the accounting of the
    plan's prediction; its `source` contains the others as a text.
    """
    return Observer(plan, **options)
