"""Requests from the arguments of callers."""

from __future__ import annotations

import datetime
import json
import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Union

from . import _notation
from ._fill import fill, fill_request, name
from ._wire.v1 import export_pb2, history_pb2, model_pb2, placement_pb2, plan_pb2, profile_pb2, recommend_pb2

if TYPE_CHECKING:
    from ._profile import Profile

#: Longest search of a call, seconds.
LONGEST_SEARCH = 50.0

R = TypeVar(
    "R",
    plan_pb2.StartRecommendationRequest,
    plan_pb2.StartTrialRequest,
    plan_pb2.CreateReportRequest,
    profile_pb2.CreateProfileRequest,
    history_pb2.PurgeHistoryRequest,
)


class HuggingFaceConfig(Protocol):
    """The configuration of a model of transformers."""

    def to_json_string(self) -> str:
        """Its `config.json`."""


#: `profiles/ID`, the id alone, a profile, or the path of a profile's document.
ProfileLike = Union[str, "os.PathLike[str]", "Profile"]
#: `models/ID`; the family of a model of the zoo; fields of a ZooModel; a source; the path of a `config.json` or a list of
#: layers; a configuration of transformers.
ModelLike = Union[str, "os.PathLike[str]", Mapping[str, Any], model_pb2.ModelSource, HuggingFaceConfig]


#: `90d`, `12h`, `1w 2d`; or how long.
AgeLike = Union[str, "datetime.timedelta"]
#: A hostlist (`gpu[001-004],big7`), or names one by one.
NodesLike = Union[str, "Sequence[str]"]


def recommend(profile: ProfileLike | None, options: Mapping[str, Any]) -> recommend_pb2.RecommendPlanRequest:
    """See `Client.recommend`."""
    return fill_request(recommend_pb2.RecommendPlanRequest(), {**_profile(profile), **options})


def start_recommendation(request: recommend_pb2.RecommendPlanRequest) -> plan_pb2.StartRecommendationRequest:
    """The request of an operation with the same search."""
    return _repeatable(plan_pb2.StartRecommendationRequest(request=request))


def is_long(request: recommend_pb2.RecommendPlanRequest, timeout: float) -> bool:
    """Whether a search takes longer than a call of so many seconds. A planner leaves a tenth of them for the response."""
    limit = request.search.time_limit
    return limit.ToNanoseconds() > min(LONGEST_SEARCH, 0.9 * timeout) * 1e9


def predict(profile: ProfileLike | None, options: Mapping[str, Any]) -> plan_pb2.PredictPlanRequest:
    """See `Client.predict`."""
    return fill_request(plan_pb2.PredictPlanRequest(), {**_profile(profile), **options})


def plans(**options: Any) -> plan_pb2.ListPlansRequest:
    """See `Client.plans`."""
    return fill(plan_pb2.ListPlansRequest(), options)


def profiles(**options: Any) -> profile_pb2.ListProfilesRequest:
    """See `Client.profiles`."""
    return fill(profile_pb2.ListProfilesRequest(), options)


def export(plan: str, version: str, placement: str | None, options: Mapping[str, Any]) -> export_pb2.ExportPlanRequest:
    """See `Plan.export`."""
    named = {"name": plan, "framework_version": version, "placement": placement}
    return fill(export_pb2.ExportPlanRequest(), {**named, **options})


def place(plan: str, node_list: NodesLike | None, options: Mapping[str, Any]) -> placement_pb2.CreatePlacementRequest:
    """See `Plan.place`."""
    return fill(placement_pb2.CreatePlacementRequest(), {"plan": plan, "node_list": _hostlist(node_list), **options})


def trial(plan: str, options: Mapping[str, Any]) -> plan_pb2.StartTrialRequest:
    """See `Plan.trial`."""
    return _repeatable(fill(plan_pb2.StartTrialRequest(name=plan), options))


def run_profile(model: ModelLike, options: Mapping[str, Any]) -> profile_pb2.CreateProfileRequest:
    """See `Client.profile`."""
    return _repeatable(fill(profile_pb2.CreateProfileRequest(), {**_model(model), **options}))


def report(plan: str, report: Mapping[str, Any]) -> plan_pb2.CreateReportRequest:
    """The request that reports a training of a plan."""
    return _repeatable(fill(plan_pb2.CreateReportRequest(), {"parent": plan, "report": report}))


def purge(older_than: AgeLike, options: Mapping[str, Any]) -> history_pb2.PurgeHistoryRequest:
    """See `Client.purge_history`."""
    request = _repeatable(fill(history_pb2.PurgeHistoryRequest(), options))
    if not isinstance(older_than, (str, datetime.timedelta)):
        raise TypeError(f"older_than: give a text, for example '90d', or a timedelta, not {older_than!r}")
    try:
        request.older_than.FromTimedelta(_notation.age(older_than) if isinstance(older_than, str) else older_than)
    except ValueError as error:
        raise ValueError(f"older_than: {error}") from None
    return request


def _repeatable(request: R) -> R:
    """The request with an id: called again it begins nothing twice."""
    request.request_id = request.request_id or str(uuid.uuid4())
    return request


def _profile(profile: ProfileLike | None) -> dict[str, Any]:
    if profile is None or isinstance(profile, str):
        return {"profile": profile}
    if isinstance(profile, os.PathLike):
        return {"profile_document": Path(profile).read_text(encoding="utf-8")}
    if not isinstance(getattr(profile, "name", None), str):
        raise TypeError(f"profile: give profiles/ID, the ID alone, a profile or the path of its document, not {profile!r}")
    return {"profile": profile.name}


def _hostlist(nodes: NodesLike | None) -> str | None:
    if nodes is None or isinstance(nodes, str):
        return nodes
    if not isinstance(nodes, Sequence) or not all(isinstance(node, str) for node in nodes):
        raise TypeError(f"node_list: give a hostlist, for example 'gpu[001-004]', or a list of names, not {nodes!r}")
    return ",".join(nodes)


def _model(model: ModelLike) -> dict[str, Any]:
    if isinstance(model, str):
        if model.startswith("models/"):
            return {"model": name("models", model)}
        return {"source": {"zoo": {"family": model}}}
    if isinstance(model, os.PathLike):
        return {"source": _file(Path(model).read_text(encoding="utf-8"))}
    if isinstance(model, Mapping):
        return {"source": {"zoo": model}}
    if isinstance(model, model_pb2.ModelSource):
        return {"source": model}
    if not hasattr(model, "to_json_string"):
        raise TypeError(
            f"model: give models/ID, a family, fields of one, the path of a config.json or a configuration, not {model!r}"
        )
    return {"source": {"hugging_face": {"config": model.to_json_string()}}}


def _file(text: str) -> dict[str, Any]:
    """The source of a model in a file. A configuration has a `model_type`, a list of layers has none."""
    try:
        said = json.loads(text)
    except ValueError:
        said = None
    if isinstance(said, dict) and "model_type" in said:
        return {"hugging_face": {"config": text}}
    return {"layer_list": {"document": text}}
