"""The client for asyncio: `Client`, with calls that are awaited."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import TYPE_CHECKING, cast

import grpc

from . import _calls, _plan, _requests
from ._calls import A, Attempts, Method, Q
from ._fill import name
from ._history import Purged
from ._operation import AsyncOperation, Progress
from ._plan import AsyncPlan, Prediction
from ._profile import Profile
from ._requests import AgeLike, ModelLike, ProfileLike
from ._settings import Settings
from ._wire.v1 import history_pb2, plan_pb2, profile_pb2
from .errors import CallError, from_call

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from ._wire.options import PredictOptions, ProfileOptions, PurgeOptions, RecommendOptions


class AsyncClient:
    """See `Client`. It belongs to the event loop of its first call."""

    def __init__(self, address: str | None = None, *, timeout: float | None = None) -> None:
        self.settings = Settings.read(address, timeout)
        self._channel: grpc.aio.Channel | None = None

    async def recommend(
        self,
        profile: ProfileLike | None = None,
        *,
        progress: Callable[[Progress], object] | None = None,
        **options: Unpack[RecommendOptions],
    ) -> AsyncPlan:
        """See `Client.recommend`. A task that is cancelled cancels the search of an operation."""
        request = _requests.recommend(profile, options)
        if not _requests.is_long(request, self.settings.timeout):
            return self._recommended(await self.call(_calls.RECOMMEND_PLAN, request))
        begun = await self.call(_calls.START_RECOMMENDATION, _requests.start_recommendation(request))
        operation = AsyncOperation(begun, self, plan_pb2.RecommendPlanResponse, self._recommended)
        return await operation.wait(progress=progress)

    def _recommended(self, response: plan_pb2.RecommendPlanResponse) -> AsyncPlan:
        return self.plan_of(_plan.recommended(response))

    async def predict(self, profile: ProfileLike | None = None, **options: Unpack[PredictOptions]) -> Prediction:
        """See `Client.predict`."""
        return Prediction(await self.call(_calls.PREDICT_PLAN, _requests.predict(profile, options)))

    async def profile(
        self, model: ModelLike, **options: Unpack[ProfileOptions]
    ) -> AsyncOperation[profile_pb2.Profile, Profile]:
        """See `Client.profile`."""
        begun = await self.call(_calls.CREATE_PROFILE, _requests.run_profile(model, options))
        return AsyncOperation(begun, self, profile_pb2.Profile, Profile)

    async def plan(self, plan: str) -> AsyncPlan:
        """A plan by its name or id."""
        return self.plan_of(await self.call(_calls.GET_PLAN, plan_pb2.GetPlanRequest(name=name("plans", plan))))

    async def plans(
        self, *, filter: str = "", order_by: str = "", page_size: int = 0, view: str = "basic"
    ) -> AsyncIterator[AsyncPlan]:
        """See `Client.plans`."""
        request = _requests.plans(filter=filter, order_by=order_by, page_size=page_size, view=view)
        while True:
            page = await self.call(_calls.LIST_PLANS, request)
            for plan in page.plans:
                yield self.plan_of(plan)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def stored_profile(self, profile: str) -> Profile:
        """A profile by its name or id."""
        request = profile_pb2.GetProfileRequest(name=name("profiles", profile))
        return Profile(await self.call(_calls.GET_PROFILE, request))

    async def profiles(
        self, *, filter: str = "", order_by: str = "", page_size: int = 0, view: str = "basic"
    ) -> AsyncIterator[Profile]:
        """See `Client.profiles`."""
        request = _requests.profiles(filter=filter, order_by=order_by, page_size=page_size, view=view)
        while True:
            page = await self.call(_calls.LIST_PROFILES, request)
            for profile in page.profiles:
                yield Profile(profile)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def purge_history(
        self, older_than: AgeLike, **options: Unpack[PurgeOptions]
    ) -> AsyncOperation[history_pb2.PurgeHistoryResponse, Purged]:
        """See `Client.purge_history`."""
        begun = await self.call(_calls.PURGE_HISTORY, _requests.purge(older_than, options))
        return AsyncOperation(begun, self, history_pb2.PurgeHistoryResponse, Purged)

    def plan_of(self, message: plan_pb2.Plan) -> AsyncPlan:
        """A plan's message as a plan of this client."""
        return AsyncPlan(message, self)

    async def call(
        self, method: Method[Q, A], request: Q, *, timeout: float | None = None, patience: float = _calls.PATIENCE
    ) -> A:
        """See `Client.call`."""
        attempts = Attempts(time.monotonic(), timeout or self.settings.timeout, patience)
        if self._channel is None:
            # Not earlier: a channel belongs to the loop that runs.
            self._channel = grpc.aio.insecure_channel(self.settings.target, options=_calls.CHANNEL)
        made = self._channel.unary_unary(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.answer.FromString,
        )
        while True:
            try:
                answer: A = await made(request, timeout=attempts.left(time.monotonic()))
                return answer
            except grpc.RpcError as error:
                failure = from_call(cast(CallError, error), self.settings.address)
                pause = attempts.pause(failure, time.monotonic())
                if pause is None:
                    raise failure from error
            await asyncio.sleep(pause)

    async def close(self) -> None:
        """Ends the connection."""
        if self._channel is not None:
            await self._channel.close()
            self._channel = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
