"""Operations: long work of the planner."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import grpc
from google.longrunning import operations_pb2
from google.protobuf import duration_pb2
from google.protobuf.message import Message

from . import _calls
from ._settings import must_be_seconds
from ._wire.v1 import history_pb2, plan_pb2, profile_pb2
from ._words import short
from .errors import DeadlineExceeded, LoadmasterError, from_status

if TYPE_CHECKING:
    from ._aio import AsyncClient
    from ._client import Client

log = logging.getLogger("loadmaster")

M = TypeVar("M", bound=Message)
R = TypeVar("R")
#: Interval of progress reports, seconds. The end is reported at once.
POLL = 0.5
#: Time after which a wait for an unavailable planner fails, seconds. It is longer than for a call, because hours of work may be
#: lost.
PATIENCE = 120.0
#: Time by which a response may exceed the requested wait, seconds.
GRACE = 5.0


@dataclass(frozen=True, repr=False)
class Progress:
    """How far an operation is."""

    #: The planner's whole message.
    message: profile_pb2.RunMetadata

    def __repr__(self) -> str:
        return short(self, f"{self.share:.0%}", "{} of {} runs".format(*self.runs), self.text)

    @property
    def share(self) -> float:
        """Share of the work done, 0 to 1, running runs included."""
        return self.message.progress

    @property
    def runs(self) -> tuple[int, int]:
        """Runs that have ended, and all."""
        runs = self.message.run_counts
        return runs.total_count - runs.queued_count - runs.running_count, runs.total_count

    @property
    def remaining_seconds(self) -> float | None:
        """Estimate for the rest of the work; None without one."""
        return self.message.remaining_seconds if self.message.HasField("remaining_seconds") else None

    @property
    def text(self) -> str:
        """The run or the reason that it waits for, human-readable."""
        return self.message.message


def _begin(timeout: float | None) -> float:
    """Now, from which on `timeout` counts."""
    if timeout is not None:
        must_be_seconds(timeout)
    return time.monotonic()


class _Operation(Generic[M, R]):
    def __init__(self, message: operations_pb2.Operation, kind: type[M], made: Callable[[M], R]) -> None:
        #: The planner's newest message.
        self.message = message
        self._kind = kind
        self._made = made

    @property
    def name(self) -> str:
        """`operations/ID`."""
        return str(self.message.name)

    @property
    def done(self) -> bool:
        """Whether it had ended at the newest message."""
        return bool(self.message.done)

    @property
    def progress(self) -> Progress:
        """Its progress at the newest message."""
        metadata = profile_pb2.RunMetadata()
        if not self.message.metadata.Unpack(metadata):
            purge = history_pb2.PurgeHistoryMetadata()
            if self.message.metadata.Unpack(purge):
                examined = purge.purge_count + purge.referenced_count
                metadata.progress = 1.0 if self.done else examined / max(purge.candidate_count, examined, 1)
                metadata.message = f"{purge.purge_count} purged, {purge.referenced_count} referenced"
            search = plan_pb2.StartRecommendationMetadata()
            if self.message.metadata.Unpack(search):
                elapsed, limit = search.elapsed.ToNanoseconds(), search.time_limit.ToNanoseconds()
                metadata.progress = 1.0 if self.done else min(elapsed / max(limit, 1), 1.0)
                metadata.message = f"{search.state_count} states"
                if search.HasField("value"):
                    metadata.message += f", best plan {search.value:.4g} s"
                if search.HasField("bound"):
                    metadata.message += f", bound {search.bound:.4g} s"
        return Progress(metadata)

    @property
    def result(self) -> R:
        """Its result. Raises the error of a failed operation, and LoadmasterError while it runs."""
        if self.message.HasField("error"):
            raise from_status(self.message.error)
        made = self._kind()
        if not self.done or not self.message.response.Unpack(made):
            raise LoadmasterError(f"{self.name} has no result yet: wait() for it", reason="OPERATION_NOT_DONE")
        return self._made(made)

    def _wait_request(self) -> operations_pb2.WaitOperationRequest:
        timeout = duration_pb2.Duration(nanos=int(POLL * 1e9))
        return operations_pb2.WaitOperationRequest(name=self.name, timeout=timeout)

    def _patience(self, begin: float, timeout: float | None) -> float:
        """Longest wait for the next response. Raises DeadlineExceeded after the timeout."""
        left = math.inf if timeout is None else begin + timeout - time.monotonic()
        if left <= 0:
            raise DeadlineExceeded(f"{self.name} still runs after {timeout} s", code=grpc.StatusCode.DEADLINE_EXCEEDED)
        return min(PATIENCE, left + GRACE)

    def _not_cancelled(self, error: LoadmasterError) -> None:
        log.warning("%s could not be cancelled, and runs on: %s", self.name, error)


class Operation(_Operation[M, R]):
    """Long work of the planner. It runs without a waiting client."""

    def __init__(self, message: operations_pb2.Operation, client: Client, kind: type[M], made: Callable[[M], R]) -> None:
        super().__init__(message, kind, made)
        self._client = client

    def wait(
        self,
        *,
        timeout: float | None = None,
        progress: Callable[[Progress], object] | None = None,
        cancel_on_interrupt: bool = True,
    ) -> R:
        """Waits for its end, and returns its result.

        `progress` is called about twice a second. Ctrl-C cancels the operation at the planner, unless `cancel_on_interrupt` is
        False. Raises the error of a failed operation, and DeadlineExceeded after `timeout` seconds. It then runs on, and `wait`
        can be called again.
        """
        begin = _begin(timeout)
        try:
            while not self.done:
                patience = self._patience(begin, timeout)
                self.message = self._client.call(
                    _calls.WAIT_OPERATION, self._wait_request(), timeout=patience, patience=patience
                )
                if progress is not None:
                    progress(self.progress)
        except KeyboardInterrupt:
            if cancel_on_interrupt:
                try:
                    self.cancel()
                except LoadmasterError as error:
                    self._not_cancelled(error)
            raise
        return self.result

    def refresh(self) -> None:
        """Reads its progress."""
        request = operations_pb2.GetOperationRequest(name=self.name)
        self.message = self._client.call(_calls.GET_OPERATION, request)

    def cancel(self) -> None:
        """Cancels it. Stored measurements stay."""
        self._client.call(_calls.CANCEL_OPERATION, operations_pb2.CancelOperationRequest(name=self.name))


class AsyncOperation(_Operation[M, R]):
    """Long work of the planner, for asyncio."""

    def __init__(self, message: operations_pb2.Operation, client: AsyncClient, kind: type[M], made: Callable[[M], R]) -> None:
        super().__init__(message, kind, made)
        self._client = client

    async def wait(
        self,
        *,
        timeout: float | None = None,
        progress: Callable[[Progress], object] | None = None,
        cancel_on_interrupt: bool = True,
    ) -> R:
        """See `Operation.wait`. A task that is cancelled cancels the operation at the planner, as Ctrl-C does.

        So do `asyncio.wait_for` and `asyncio.timeout` when their time is up, as they cancel the task. `timeout=` leaves the
        operation alone, and so do all of these with `cancel_on_interrupt=False`.
        """
        begin = _begin(timeout)
        try:
            while not self.done:
                patience = self._patience(begin, timeout)
                self.message = await self._client.call(
                    _calls.WAIT_OPERATION, self._wait_request(), timeout=patience, patience=patience
                )
                if progress is not None:
                    progress(self.progress)
        except asyncio.CancelledError:
            if cancel_on_interrupt:
                try:
                    await asyncio.shield(self.cancel())
                except LoadmasterError as error:
                    self._not_cancelled(error)
            raise
        return self.result

    async def refresh(self) -> None:
        """Reads its progress."""
        request = operations_pb2.GetOperationRequest(name=self.name)
        self.message = await self._client.call(_calls.GET_OPERATION, request)

    async def cancel(self) -> None:
        """Cancels it. Stored measurements stay."""
        await self._client.call(_calls.CANCEL_OPERATION, operations_pb2.CancelOperationRequest(name=self.name))
