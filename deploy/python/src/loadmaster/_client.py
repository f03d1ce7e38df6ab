"""The client."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, cast

import grpc

from . import _calls, _plan, _requests
from ._calls import A, Attempts, Method, Q
from ._fill import name
from ._history import Purged
from ._operation import Operation, Progress
from ._plan import Plan, Prediction
from ._profile import Profile
from ._requests import AgeLike, ModelLike, ProfileLike
from ._settings import Settings
from ._wire.v1 import history_pb2, plan_pb2, profile_pb2
from .errors import CallError, from_call

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from ._wire.options import PredictOptions, ProfileOptions, PurgeOptions, RecommendOptions


class Client:
    """A connection to one planner, made at the first call. Threads may share it.

    `address` is as LOADMASTER_ADDRESS, by default http://127.0.0.1:7433, and `timeout` is the longest wait for the response to
    one call in seconds, as LOADMASTER_TIMEOUT, by default 30. Calls are repeated while a planner is unavailable for a
    moment. Raises ValueError or TypeError for an invalid address or timeout.
    """

    def __init__(self, address: str | None = None, *, timeout: float | None = None) -> None:
        self.settings = Settings.read(address, timeout)
        self._channel = grpc.insecure_channel(self.settings.target, options=_calls.CHANNEL)

    def recommend(
        self,
        profile: ProfileLike | None = None,
        *,
        progress: Callable[[Progress], object] | None = None,
        **options: Unpack[RecommendOptions],
    ) -> Plan:
        """The best plan by an objective on the devices of a cluster; keywords are the fields of RecommendPlanRequest.

        A field inside of a group is a keyword by its own name: `micro_batch_count=8` sets `problem.micro_batch_count`. A group
        is a keyword, too: `constraints={"min_stage_count": 2}`. Raises NoFeasiblePlan, whose `remedies` lead to a plan,
        InvalidField, whose `fields` name invalid values, and ValueError for an unknown name.

        A search that takes longer than a call (`time_limit="10m"`) is an operation of the planner. `progress` is then called
        about twice a second, and Ctrl-C cancels the search.
        """
        request = _requests.recommend(profile, options)
        if not _requests.is_long(request, self.settings.timeout):
            return self._recommended(self.call(_calls.RECOMMEND_PLAN, request))
        begun = self.call(_calls.START_RECOMMENDATION, _requests.start_recommendation(request))
        return Operation(begun, self, plan_pb2.RecommendPlanResponse, self._recommended).wait(progress=progress)

    def _recommended(self, response: plan_pb2.RecommendPlanResponse) -> Plan:
        return self.plan_of(_plan.recommended(response))

    def predict(self, profile: ProfileLike | None = None, **options: Unpack[PredictOptions]) -> Prediction:
        """Memory and times of a pipeline layout, a stage or a plan; keywords are the fields of PredictPlanRequest, as of
        `recommend`."""
        return Prediction(self.call(_calls.PREDICT_PLAN, _requests.predict(profile, options)))

    def profile(self, model: ModelLike, **options: Unpack[ProfileOptions]) -> Operation[profile_pb2.Profile, Profile]:
        """Starts the profiling of a model on the connected workers; keywords are the fields of CreateProfileRequest.

        `wait()` for the operation that this returns.
        """
        begun = self.call(_calls.CREATE_PROFILE, _requests.run_profile(model, options))
        return Operation(begun, self, profile_pb2.Profile, Profile)

    def plan(self, plan: str) -> Plan:
        """A plan by its name or id."""
        return self.plan_of(self.call(_calls.GET_PLAN, plan_pb2.GetPlanRequest(name=name("plans", plan))))

    def plans(self, *, filter: str = "", order_by: str = "", page_size: int = 0, view: str = "basic") -> Iterator[Plan]:
        """Plans that fit a filter, by default all, newest first. Pages are fetched on the way.

        ListPlansRequest describes filters and orders: `profile = vgg AND predicted_seconds < 1.5s`. Plans have no stages unless
        `view` is `full`.
        """
        request = _requests.plans(filter=filter, order_by=order_by, page_size=page_size, view=view)
        while True:
            page = self.call(_calls.LIST_PLANS, request)
            yield from map(self.plan_of, page.plans)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def stored_profile(self, profile: str) -> Profile:
        """A profile by its name or id."""
        return Profile(self.call(_calls.GET_PROFILE, profile_pb2.GetProfileRequest(name=name("profiles", profile))))

    def profiles(self, *, filter: str = "", order_by: str = "", page_size: int = 0, view: str = "basic") -> Iterator[Profile]:
        """Profiles, as `plans` has plans."""
        request = _requests.profiles(filter=filter, order_by=order_by, page_size=page_size, view=view)
        while True:
            page = self.call(_calls.LIST_PROFILES, request)
            yield from map(Profile, page.profiles)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def purge_history(
        self, older_than: AgeLike, **options: Unpack[PurgeOptions]
    ) -> Operation[history_pb2.PurgeHistoryResponse, Purged]:
        """Deletes resources that are older (`90d`, or a timedelta of at least a day) and that no remaining resource references.

        Keywords are the fields of PurgeHistoryRequest: `filter="NOT labels:keep"`, `collections=["plans"]`. Without
        `force=True` it is a dry run, which deletes nothing. `wait()` for the operation that this returns; deleted resources
        stay deleted when it is cancelled.
        """
        begun = self.call(_calls.PURGE_HISTORY, _requests.purge(older_than, options))
        return Operation(begun, self, history_pb2.PurgeHistoryResponse, Purged)

    def plan_of(self, message: plan_pb2.Plan) -> Plan:
        """A plan's message as a plan of this client."""
        return Plan(message, self)

    def call(self, method: Method[Q, A], request: Q, *, timeout: float | None = None, patience: float = _calls.PATIENCE) -> A:
        """One call, repeated while the planner is unavailable, for no longer than `patience` and `timeout` seconds."""
        attempts = Attempts(time.monotonic(), timeout or self.settings.timeout, patience)
        made = self._channel.unary_unary(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.answer.FromString,
        )
        while True:
            try:
                answer: A = made(request, timeout=attempts.left(time.monotonic()))
                return answer
            except grpc.RpcError as error:
                failure = from_call(cast(CallError, error), self.settings.address)
                pause = attempts.pause(failure, time.monotonic())
                if pause is None:
                    raise failure from error
            time.sleep(pause)

    def close(self) -> None:
        """Ends the connection."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
