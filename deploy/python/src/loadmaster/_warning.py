"""Warnings of responses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ._wire.v1 import warning_pb2
from ._words import word_of


@dataclass(frozen=True)
class PlanWarning:
    """A limit of a valid response."""

    #: Stable identifier: `EXTRAPOLATED`. `deploy/errors.md` lists all of them.
    code: str
    #: `info`, `warning` or `error`.
    severity: str
    #: Index of the stage that it is about, from 0; None if it is about the whole response.
    stage: int | None
    #: Human-readable text. It can change between releases.
    message: str

    def __str__(self) -> str:
        return self.message


def warnings(messages: Iterable[warning_pb2.Warning]) -> list[PlanWarning]:
    """The warnings of a response, in its order."""
    severity = warning_pb2.Severity.DESCRIPTOR
    return [
        PlanWarning(of.code, word_of(severity, of.severity), of.stage if of.HasField("stage") else None, of.message)
        for of in messages
    ]
