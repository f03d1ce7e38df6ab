"""Infeasible requests: changes of the request that lead to a plan."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from google.protobuf import struct_pb2

from ._wire.v1 import memory_pb2, recommend_pb2
from ._words import word_of


@dataclass(frozen=True)
class Remedy:
    """Changes of a request that lead to a plan. A search of the planner checked them."""

    #: New values by path of the field: `{"problem.micro_batch_count": 8}`. `recommend` accepts them as keywords, and they
    #: replace other values of the same fields: `recommend("gpt", **options, **remedy.changes)`. Empty where the cluster has to
    #: change.
    changes: dict[str, Any]
    #: Human-readable description.
    description: str
    #: Predicted peak of the resulting plan on the device with the highest peak; None where it is not known.
    peak_bytes: int | None
    #: Accounting of `peak_bytes`; empty without them.
    accounting: str
    #: Predicted seconds of one iteration of that plan; None where the profile has no times.
    iteration_seconds: float | None
    #: Ids of the frameworks that can run that plan.
    frameworks: list[str]

    def __str__(self) -> str:
        changes = ", ".join(f"{field}={value!r}" for field, value in self.changes.items())
        facts = [] if self.peak_bytes is None else [f"peak {self.peak_bytes / 2**20:.1f} MiB {self.accounting}"]
        facts += [] if self.iteration_seconds is None else [f"{self.iteration_seconds:.3g} s per iteration"]
        text = f"{self.description} ({changes})" if changes else self.description
        return f"{text}: {', '.join(facts)}" if facts else text


def remedies(messages: Iterable[recommend_pb2.Remedy]) -> list[Remedy]:
    """The remedies of a response, in its order."""
    return [
        Remedy(
            changes={change.field: _plain(change.value) for change in of.changes},
            description=of.description,
            peak_bytes=of.predicted_peak.bytes if of.HasField("predicted_peak") else None,
            accounting=accounting_of(of.predicted_peak) if of.HasField("predicted_peak") else "",
            iteration_seconds=of.iteration_seconds if of.HasField("iteration_seconds") else None,
            frameworks=list(of.frameworks),
        )
        for of in messages
    ]


def accounting_of(figure: memory_pb2.MemoryFigure) -> str:
    """The account that bytes belong to: `allocated`, `reserved`, `device` or `host`. Numbers of different accounts never
    compare."""
    return word_of(memory_pb2.MemoryAccounting.DESCRIPTOR, figure.accounting)


def _plain(value: struct_pb2.Value) -> Any:
    """A value of JSON. It has one type of number; whole numbers become an int."""
    kind = value.WhichOneof("kind")
    if kind in (None, "null_value"):
        return None
    if kind == "struct_value":
        return {name: _plain(of) for name, of in value.struct_value.fields.items()}
    if kind == "list_value":
        return [_plain(of) for of in value.list_value.values]
    if kind == "number_value" and value.number_value.is_integer():
        return int(value.number_value)
    return getattr(value, kind)
