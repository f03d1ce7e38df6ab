"""Rejected calls as exceptions, by reason. `deploy/errors.md` lists the reasons."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from ._infeasible import Remedy, remedies
from ._wire.remedies import REMEDIES
from ._wire.v1 import recommend_pb2

DOMAIN = "loadmaster.dev"
DETAILS = "grpc-status-details-bin"


@dataclass(frozen=True)
class FieldViolation:
    """A field of a request that is not valid."""

    #: Its path: `constraints.micro_batch_sizes[0]`.
    field: str
    #: The expected value, human-readable.
    description: str


class LoadmasterError(Exception):
    """A call or an operation that failed."""

    #: Human-readable explanation.
    message: str
    #: Stable identifier of the cause: `NOT_FOUND`. Empty for errors that are not of a planner.
    reason: str
    #: gRPC's code.
    code: grpc.StatusCode
    #: The fields that are not valid.
    fields: list[FieldViolation]
    #: Details by key.
    metadata: dict[str, str]
    #: Time before the call may be repeated, seconds; None if the planner returned none.
    retry_seconds: float | None

    def __init__(
        self,
        message: str,
        *,
        code: grpc.StatusCode = grpc.StatusCode.UNKNOWN,
        reason: str = "",
        fields: list[FieldViolation] | None = None,
        metadata: dict[str, str] | None = None,
        retry_seconds: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason
        self.fields = fields or []
        self.metadata = metadata or {}
        self.retry_seconds = retry_seconds

    @property
    def remedy(self) -> str:
        """How to remove the cause, human-readable; empty where it is not known."""
        # Without `remedies` in the metadata, the rest of the sentence remains.
        usual = (
            REMEDIES.get(self.reason, "")
            .replace("Apply one of the `remedies`, or ", "")
            .replace("Apply one of the `remedies`, ", "")
        )
        return self.metadata.get("remedies") or usual[:1].upper() + usual[1:]

    def __str__(self) -> str:
        said = f"{self.reason}: {self.message}" if self.reason else self.message
        # The message often contains the description of a field.
        unsaid = [f"{of.field}: {of.description}" for of in self.fields if of.description not in said]
        return "\n  ".join([said, *unsaid])


class InvalidField(LoadmasterError):
    """A value of the request is not valid: see `fields`."""


class NotFound(LoadmasterError):
    """No resource has this name."""


class AlreadyExists(LoadmasterError):
    """Another resource has this id."""


class NoFeasiblePlan(LoadmasterError):
    """No plan satisfies the request: see `infeasible` and `remedies`."""

    #: The planner's whole response: `missing_bytes`, `device`, `layer`, `cause` and others. Empty where an error has no
    #: response.
    infeasible: recommend_pb2.Infeasible
    #: Changes of the request that lead to a plan, the cheapest first.
    remedies: list[Remedy]

    @classmethod
    def of(cls, infeasible: recommend_pb2.Infeasible) -> NoFeasiblePlan:
        """The exception of a response."""
        error = cls(infeasible.message, code=grpc.StatusCode.FAILED_PRECONDITION, reason="NO_FEASIBLE_PLAN")
        error.infeasible, error.remedies = infeasible, remedies(infeasible.remedies)
        return error

    def __init__(self, message: str, **more: Any) -> None:
        super().__init__(message, **more)
        self.infeasible, self.remedies = recommend_pb2.Infeasible(), []

    @property
    def remedy(self) -> str:
        """The remedies in one line, or the usual one."""
        return "; ".join(remedy.description for remedy in self.remedies) or super().remedy

    def __str__(self) -> str:
        return "\n  ".join([super().__str__(), *(f"remedy: {remedy}" for remedy in self.remedies)])


class PlanUnsupportedByFramework(LoadmasterError):
    """The framework cannot train such a plan."""


class ProfileNotReady(LoadmasterError):
    """The profile is not complete, or it has no measurements that the request needs."""


class NoWorker(LoadmasterError):
    """No worker is connected, or none is large enough."""


class Busy(LoadmasterError):
    """The planner is at one of its limits: call again later."""


class Unavailable(LoadmasterError):
    """The planner cannot be reached or is stopping. The call was repeated for 10 seconds."""


class DeadlineExceeded(LoadmasterError, TimeoutError):
    """The deadline passed before there was a response."""


class Cancelled(LoadmasterError):
    """The operation was cancelled."""


class OutOfMemory(LoadmasterError):
    """A run needed more memory than its device has."""


class RunFailed(LoadmasterError):
    """A run failed as often as it is tried."""


BY_REASON: dict[str, type[LoadmasterError]] = {
    "INVALID_FIELD": InvalidField,
    "NOT_FOUND": NotFound,
    "ALREADY_EXISTS": AlreadyExists,
    "NO_FEASIBLE_PLAN": NoFeasiblePlan,
    "PLAN_UNSUPPORTED_BY_FRAMEWORK": PlanUnsupportedByFramework,
    "PROFILE_NOT_READY": ProfileNotReady,
    "PROFILE_INCOMPLETE": ProfileNotReady,
    "PROFILE_UNUSABLE": ProfileNotReady,
    "NO_WORKER": NoWorker,
    "NO_WORKER_FITS": NoWorker,
    "OUT_OF_MEMORY": OutOfMemory,
    "RUN_FAILED": RunFailed,
}
BY_CODE: dict[grpc.StatusCode, type[LoadmasterError]] = {
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Busy,
    grpc.StatusCode.CANCELLED: Cancelled,
}
CODES: dict[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}


class CallError(Protocol):
    """An exception of gRPC: an RpcError whose class is not public."""

    def code(self) -> grpc.StatusCode | None: ...
    def details(self) -> str | None: ...
    def trailing_metadata(self) -> Iterable[tuple[str, str | bytes]] | None: ...


def from_call(error: CallError, address: str) -> LoadmasterError:
    """The exception of a failed call to the planner at `address`."""
    code = error.code() or grpc.StatusCode.UNKNOWN
    for key, value in error.trailing_metadata() or ():
        if key == DETAILS and isinstance(value, bytes):
            try:
                return from_status(status_pb2.Status.FromString(value))
            except DecodeError:
                break
    said = error.details() or code.name
    if code is grpc.StatusCode.UNAVAILABLE:
        return Unavailable(
            f"the planner at {address} cannot be reached ({said}); is `loadmaster serve` running there? address= or "
            "LOADMASTER_ADDRESS names another",
            code=code,
        )
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return DeadlineExceeded("no response in time; timeout= or LOADMASTER_TIMEOUT allows more", code=code)
    return BY_CODE.get(code, LoadmasterError)(said, code=code)


def from_status(status: status_pb2.Status) -> LoadmasterError:
    """The exception of a status, of a call or of an operation."""
    code = CODES.get(status.code, grpc.StatusCode.UNKNOWN)
    info = error_details_pb2.ErrorInfo()
    bad = error_details_pb2.BadRequest()
    retry = error_details_pb2.RetryInfo()
    for detail in status.details:
        for known in (info, bad, retry):
            if detail.Is(known.DESCRIPTOR):
                detail.Unpack(known)
    reason = info.reason if info.domain == DOMAIN else ""
    kind = BY_REASON.get(reason) or BY_CODE.get(code, LoadmasterError)
    return kind(
        status.message,
        code=code,
        reason=reason,
        fields=[FieldViolation(of.field, of.description) for of in bad.field_violations],
        metadata=dict(info.metadata),
        retry_seconds=retry.retry_delay.ToTimedelta().total_seconds() if retry.HasField("retry_delay") else None,
    )
