"""Plans: pipeline layouts on devices, with their predicted memory and times."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from . import _answers, _calls, _files, _requests
from ._fill import name
from ._infeasible import Remedy, accounting_of, remedies
from ._warning import PlanWarning, warnings
from ._wire.v1 import export_pb2, memory_pb2, placement_pb2, plan_pb2, recommend_pb2, stage_pb2, summary_pb2
from ._words import short
from .errors import NoFeasiblePlan

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._aio import AsyncClient
    from ._client import Client
    from ._operation import AsyncOperation, Operation
    from ._requests import NodesLike
    from ._wire.options import ExportOptions, PlaceOptions, TrialOptions


def recommended(response: plan_pb2.RecommendPlanResponse) -> plan_pb2.Plan:
    """The plan of a response. Raises NoFeasiblePlan where it has none."""
    if response.HasField("infeasible"):
        raise NoFeasiblePlan.of(response.infeasible)
    return response.plan


@dataclass(frozen=True)
class Stage:
    """A stage: consecutive layers on their devices."""

    #: First and last layer, both included.
    first_layer: int
    last_layer: int
    data_parallel_size: int
    tensor_parallel_size: int
    #: Predicted peak of its device with the highest peak.
    peak_bytes: int
    #: Accounting of `peak_bytes`: `allocated`, `reserved` or `device`.
    accounting: str
    #: Usable bytes of each of its devices; None where they are not known.
    capacity_bytes: int | None

    @classmethod
    def of(cls, config: stage_pb2.StageConfig, peak: memory_pb2.MemoryFigure, capacity_bytes: int | None) -> Stage:
        """A stage of messages."""
        return cls(
            first_layer=config.first_layer,
            last_layer=config.last_layer,
            data_parallel_size=config.data_parallel_size or 1,
            tensor_parallel_size=config.tensor_parallel_size or 1,
            peak_bytes=peak.bytes,
            accounting=accounting_of(peak),
            capacity_bytes=capacity_bytes,
        )

    @property
    def devices(self) -> int:
        """Number of its devices."""
        return self.data_parallel_size * self.tensor_parallel_size


@dataclass(frozen=True, repr=False)
class _Plan:
    #: The planner's whole message. In the view `basic`, that of lists, it has no stages.
    message: plan_pb2.Plan

    def __repr__(self) -> str:
        seconds = None if self.seconds is None else f"{self.seconds:.4g} s"
        return short(self, self.name, self.layout, f"{self.peak_bytes} bytes {self.peak_accounting}", seconds)

    @property
    def name(self) -> str:
        """`plans/ID`."""
        return self.message.name

    @property
    def summary(self) -> summary_pb2.PlanSummary:
        """Fit, tokens/s, MFU, parallel sizes, optimality and price. `headline_lines` has them as text."""
        return self.message.summary

    @property
    def headline(self) -> str:
        """The summary as text of at most five lines; empty in the view `basic`."""
        return "\n".join(self.message.summary.headline_lines)

    @property
    def profile(self) -> str:
        """The profile behind the predictions: `profiles/ID`."""
        return self.message.profile

    @property
    def layout(self) -> str:
        """Its stages in the notation of the command line: `8-8d2-7t4`."""
        return self.message.layout_notation

    @property
    def framework(self) -> str:
        """Id of the training framework that it is for; empty without one."""
        return self.message.framework

    @property
    def seconds(self) -> float | None:
        """Predicted seconds of one iteration; None where the profile has no times."""
        return self.message.iteration.iteration_seconds if self.message.HasField("iteration") else None

    @property
    def peak_bytes(self) -> int:
        """Predicted peak of the device with the highest peak, bytes of `peak_accounting`."""
        return self.message.predicted_peak.bytes

    @property
    def peak_accounting(self) -> str:
        """The account that the peak belongs to: `allocated`, `reserved` or `device`."""
        return accounting_of(self.message.predicted_peak)

    @property
    def device_count(self) -> int:
        """Devices of all stages."""
        return self.message.device_count

    @property
    def stages(self) -> list[Stage]:
        """Its stages in order; empty in the view `basic`."""
        return [Stage.of(of.config, of.predicted_peak, of.capacity_bytes or None) for of in self.message.stages]

    @property
    def warnings(self) -> list[PlanWarning]:
        """Limits of the numbers."""
        return warnings(self.message.warnings)


@dataclass(frozen=True, repr=False)
class Plan(_Plan):
    """A plan and its methods."""

    _client: Client = field(repr=False, compare=False)

    def export(
        self,
        to: str | os.PathLike[str] | None = None,
        *,
        version: str = "",
        placement: Placement | str | None = None,
        overwrite: bool = False,
        **options: Unpack[ExportOptions],
    ) -> Export:
        """The plan as files, flags and environment of a framework, by default its own; written into the folder `to`. Keywords
        are the fields of ExportPlanRequest; `version` is the framework's.

        Raises PlanUnsupportedByFramework where the framework cannot express the plan, FileExistsError where a file of another
        content is there, ValueError where the planner returns names of files, nodes or variables that are none. Links in the
        folder are replaced, never followed.
        """
        request = _requests.export(self.name, version, _name_of(placement), options)
        return Export.written(request, self._client.call(_calls.EXPORT_PLAN, request), to, overwrite)

    def place(self, node_list: NodesLike | None = None, **options: Unpack[PlaceOptions]) -> Placement:
        """Puts it on the nodes that a scheduler gave, in the order that makes an iteration shortest: a hostlist
        (`gpu[001-004]`), a list of names, or `nodes=` with more about each. Keywords are the fields of CreatePlacementRequest.

        Raises LoadmasterError with the reason PLACEMENT_IMPOSSIBLE where the nodes have too few devices, others, or too little
        memory.
        """
        return Placement(self._client.call(_calls.CREATE_PLACEMENT, _requests.place(self.name, node_list, options)))

    def trial(self, **options: Unpack[TrialOptions]) -> Operation[plan_pb2.Plan, Plan]:
        """Trains it on the connected workers; keywords are the fields of StartTrialRequest."""
        from ._operation import Operation

        begun = self._client.call(_calls.START_TRIAL, _requests.trial(self.name, options))
        return Operation(begun, self._client, plan_pb2.Plan, self._client.plan_of)


@dataclass(frozen=True, repr=False)
class AsyncPlan(_Plan):
    """A plan and its methods, for asyncio."""

    _client: AsyncClient = field(repr=False, compare=False)

    async def export(
        self,
        to: str | os.PathLike[str] | None = None,
        *,
        version: str = "",
        placement: Placement | str | None = None,
        overwrite: bool = False,
        **options: Unpack[ExportOptions],
    ) -> Export:
        """See `Plan.export`."""
        request = _requests.export(self.name, version, _name_of(placement), options)
        return Export.written(request, await self._client.call(_calls.EXPORT_PLAN, request), to, overwrite)

    async def place(self, node_list: NodesLike | None = None, **options: Unpack[PlaceOptions]) -> Placement:
        """See `Plan.place`."""
        return Placement(await self._client.call(_calls.CREATE_PLACEMENT, _requests.place(self.name, node_list, options)))

    async def trial(self, **options: Unpack[TrialOptions]) -> AsyncOperation[plan_pb2.Plan, AsyncPlan]:
        """See `Plan.trial`."""
        from ._operation import AsyncOperation

        begun = await self._client.call(_calls.START_TRIAL, _requests.trial(self.name, options))
        return AsyncOperation(begun, self._client, plan_pb2.Plan, self._client.plan_of)


@dataclass(frozen=True, repr=False)
class Placement:
    """Which device runs which rank of a plan."""

    #: The planner's whole message.
    message: placement_pb2.Placement

    def __repr__(self) -> str:
        return short(self, self.name, f"{len(self.nodes)} nodes")

    @property
    def name(self) -> str:
        """`placements/ID`."""
        return self.message.name

    @property
    def nodes(self) -> list[str]:
        """The nodes that have ranks, in the order of these."""
        return list(self.message.nodes)

    @property
    def seconds(self) -> float | None:
        """Predicted seconds of one iteration on these nodes; None where it is not known; `warnings` contain the reason."""
        return self.message.iteration_seconds if self.message.HasField("iteration_seconds") else None

    @property
    def planned_seconds(self) -> float | None:
        """The same as it was planned."""
        return self.message.planned_iteration_seconds if self.message.HasField("planned_iteration_seconds") else None

    @property
    def warnings(self) -> list[PlanWarning]:
        """Limits of the placement."""
        return warnings(self.message.warnings)


def _name_of(placement: Placement | str | None) -> str | None:
    return placement.name if isinstance(placement, Placement) else placement and name("placements", placement)


@dataclass(frozen=True, repr=False)
class Export:
    """A plan as the files, flags and environment of a framework."""

    #: The planner's whole message.
    message: export_pb2.ExportPlanResponse
    #: Where its files were written; empty where no folder was named.
    paths: list[Path]

    def __repr__(self) -> str:
        return short(self, self.message.plan, *self.files)

    @classmethod
    def written(
        cls,
        request: export_pb2.ExportPlanRequest,
        message: export_pb2.ExportPlanResponse,
        to: str | os.PathLike[str] | None,
        overwrite: bool,
    ) -> Export:
        """The export, with its files in a folder, if one is named. Raises ValueError where its names are none."""
        _answers.check_export(request, message)
        return cls(message, _files.write(to, message.files, overwrite) if to is not None else [])

    @property
    def files(self) -> dict[str, str]:
        """Contents by name, the most important file first."""
        return {file.name: file.contents for file in self.message.files}

    @property
    def command(self) -> list[str]:
        """The command for each node, or for one node if `once` is true, from the folder of the files. The caller sets the words
        in capitals behind a `$`."""
        return list(self.message.command)

    @property
    def once(self) -> bool:
        """Whether the command is run once rather than on each node."""
        return self.message.run_once

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables of the framework's processes."""
        return dict(self.message.environment)

    @property
    def warnings(self) -> list[PlanWarning]:
        """Limits of the export, and settings that are left to the user."""
        return warnings(self.message.warnings)


@dataclass(frozen=True, repr=False)
class Prediction:
    """Whether training fits, of a stage, a pipeline layout or a plan."""

    #: The planner's whole message.
    message: plan_pb2.PredictPlanResponse

    def __repr__(self) -> str:
        fits = {None: "capacity not given", True: "fits", False: "does not fit"}[self.fits]
        return short(self, self.message.profile, f"{len(self.message.stages)} stages", fits)

    @property
    def fits(self) -> bool | None:
        """Whether all stages fit with their margins; None where that is uncertain, or no capacity was given."""
        return {memory_pb2.VERDICT_FITS: True, memory_pb2.VERDICT_DOES_NOT_FIT: False}.get(self.message.verdict)

    @property
    def stages(self) -> list[Stage]:
        """The stages in order."""
        return [
            Stage.of(of.config, of.peak, of.capacity_bytes if of.HasField("capacity_bytes") else None)
            for of in self.message.stages
        ]

    @property
    def infeasible(self) -> recommend_pb2.Infeasible | None:
        """Why a training in chunks does not fit; None where it fits, and for other trainings."""
        return self.message.infeasible if self.message.HasField("infeasible") else None

    @property
    def remedies(self) -> list[Remedy]:
        """Changes of the request with which a training in chunks fits."""
        return remedies(self.message.infeasible.remedies)

    @property
    def warnings(self) -> list[PlanWarning]:
        """Limits of the numbers."""
        return warnings(self.message.warnings)
