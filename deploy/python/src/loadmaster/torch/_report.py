"""The measurements of all ranks as a report of the plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from .. import _calls, _requests
from .._client import Client
from .._fill import name
from .._plan import Plan
from .._wire.v1 import plan_pb2
from ..errors import LoadmasterError
from ._ranks import Measured

if TYPE_CHECKING:
    from ._observer import PlanLike

#: Longest wait for an answer, and for a planner that is away, seconds: a job that has ended should not stay for this.
TIMEOUT, PATIENCE = 10.0, 3.0
#: The planner's limit.
LONGEST_SOURCE = 1000


def report(plan: PlanLike, client: Client | None, ranks: Sequence[Measured], stages: Sequence[int] | None, source: str) -> str:
    """Reports a training, and returns the report's name.

    Raises ValueError where the ranks are not those of the plan, LoadmasterError where the planner rejects it.
    """
    client = client or (plan._client if isinstance(plan, Plan) else Client(timeout=TIMEOUT))
    full = _plan(plan, client)
    stages = list(stages) if stages is not None else _stages(full, client)
    places = _places(full)
    if len(stages) != len(ranks) or set(stages) != set(range(places)):
        why = f"{len(ranks)} ranks trained, and {full.name} has {len(full.stages)} stages on {len(stages)}"
        raise ValueError(f"{why}: name the stage of each rank, from 0 to {places - 1} (stages=)")
    accounting = full.peak_accounting if full.peak_accounting == "reserved" else "allocated"
    other = "allocated" if accounting == "reserved" else "reserved"
    peaks, others = _peaks(ranks, stages, accounting), _peaks(ranks, stages, other)
    said = [source or f"torch {torch.__version__}, {len(ranks)} ranks"]
    if others:
        said.append(f"peaks {other}: {', '.join(str(peak) for peak in others)} bytes")
    request = _requests.report(
        full.name,
        {
            "iteration_seconds": max(rank.iteration_seconds for rank in ranks),
            "iteration_count": min(rank.iterations for rank in ranks),
            "stage_peaks": [{"bytes": peak, "accounting": accounting} for peak in peaks],
            "device_kind": ranks[0].device_kind,
            "source": "; ".join(said)[:LONGEST_SOURCE],
        },
    )
    return client.call(_calls.CREATE_REPORT, request, timeout=TIMEOUT, patience=PATIENCE).name


def _plan(plan: PlanLike, client: Client) -> Plan:
    """The plan with its stages, which lists leave out."""
    if isinstance(plan, Plan) and plan.stages:
        return plan
    request = plan_pb2.GetPlanRequest(name=plan.name if isinstance(plan, Plan) else name("plans", plan))
    return client.plan_of(client.call(_calls.GET_PLAN, request, timeout=TIMEOUT, patience=PATIENCE))


def _places(plan: Plan) -> int:
    """How many places along the pipeline there are: stages that take turns on their devices share one, and its peak."""
    return len(plan.stages) // max(plan.message.virtual_stage_count, 1)


def _stages(plan: Plan, client: Client) -> list[int]:
    """The stage of each rank, of several in turn the first, as its framework numbers them; without one stage by stage."""
    if plan.framework:
        try:
            request = _requests.export(plan.name, "", None, {})
            export = client.call(_calls.EXPORT_PLAN, request, timeout=TIMEOUT, patience=PATIENCE)
            return [place.stage for place in export.ranks]
        except LoadmasterError as error:
            if error.reason != "PLAN_UNSUPPORTED_BY_FRAMEWORK":
                raise
    return [number for number, stage in enumerate(plan.stages[: _places(plan)]) for _ in range(stage.devices)]


def _peaks(ranks: Sequence[Measured], stages: Sequence[int], accounting: str) -> list[int]:
    """The highest peak of each stage; none where a rank has none."""
    found = [rank.reserved_bytes if accounting == "reserved" else rank.allocated_bytes for rank in ranks]
    known = [peak for peak in found if peak is not None]
    if len(known) < len(found):
        return []
    return [max(peak for peak, of in zip(known, stages) if of == stage) for stage in range(max(stages) + 1)]
