"""Requests plans from a Loadmaster planner, and reports trainings to it.

    import loadmaster

    plan = loadmaster.recommend("gpt", cluster="pod1", framework="deepspeed")
    plan.export(to="plan")

The functions call the planner that LOADMASTER_ADDRESS names; `Client` and `AsyncClient` call others.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ._aio import AsyncClient
from ._client import Client
from ._history import Purged, Referenced
from ._infeasible import Remedy
from ._operation import AsyncOperation, Operation, Progress
from ._plan import AsyncPlan, Export, Placement, Plan, Prediction, Stage
from ._profile import Profile
from ._requests import AgeLike, ModelLike, ProfileLike
from ._version import VERSION as __version__
from ._warning import PlanWarning
from ._wire.v1 import history_pb2, profile_pb2
from .errors import (
    AlreadyExists,
    Busy,
    Cancelled,
    DeadlineExceeded,
    FieldViolation,
    InvalidField,
    LoadmasterError,
    NoFeasiblePlan,
    NotFound,
    NoWorker,
    OutOfMemory,
    PlanUnsupportedByFramework,
    ProfileNotReady,
    RunFailed,
    Unavailable,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._wire.options import PredictOptions, ProfileOptions, PurgeOptions, RecommendOptions

__all__ = [
    "AlreadyExists",
    "AsyncClient",
    "AsyncOperation",
    "AsyncPlan",
    "Busy",
    "Cancelled",
    "Client",
    "DeadlineExceeded",
    "Export",
    "FieldViolation",
    "InvalidField",
    "LoadmasterError",
    "NoFeasiblePlan",
    "NoWorker",
    "NotFound",
    "Operation",
    "OutOfMemory",
    "Placement",
    "Plan",
    "PlanUnsupportedByFramework",
    "PlanWarning",
    "Prediction",
    "Profile",
    "ProfileNotReady",
    "Progress",
    "Purged",
    "Referenced",
    "Remedy",
    "RunFailed",
    "Stage",
    "Unavailable",
    "__version__",
    "plan",
    "plans",
    "predict",
    "profile",
    "profiles",
    "purge_history",
    "recommend",
]


@functools.lru_cache(maxsize=1)
def _client_of(process: int) -> Client:
    return Client()


def _client() -> Client:
    # A connection does not survive a fork.
    return _client_of(os.getpid())


def recommend(
    profile: ProfileLike | None = None,
    *,
    progress: Callable[[Progress], object] | None = None,
    **options: Unpack[RecommendOptions],
) -> Plan:
    """See `Client.recommend`."""
    return _client().recommend(profile, progress=progress, **options)


def predict(profile: ProfileLike | None = None, **options: Unpack[PredictOptions]) -> Prediction:
    """See `Client.predict`."""
    return _client().predict(profile, **options)


def profile(model: ModelLike, **options: Unpack[ProfileOptions]) -> Operation[profile_pb2.Profile, Profile]:
    """See `Client.profile`."""
    return _client().profile(model, **options)


def plan(name: str) -> Plan:
    """See `Client.plan`."""
    return _client().plan(name)


def plans(*, filter: str = "", order_by: str = "", page_size: int = 0, view: str = "basic") -> Iterator[Plan]:
    """See `Client.plans`."""
    return _client().plans(filter=filter, order_by=order_by, page_size=page_size, view=view)


def profiles(*, filter: str = "", order_by: str = "", page_size: int = 0, view: str = "basic") -> Iterator[Profile]:
    """See `Client.profiles`."""
    return _client().profiles(filter=filter, order_by=order_by, page_size=page_size, view=view)


def purge_history(older_than: AgeLike, **options: Unpack[PurgeOptions]) -> Operation[history_pb2.PurgeHistoryResponse, Purged]:
    """See `Client.purge_history`."""
    return _client().purge_history(older_than, **options)
