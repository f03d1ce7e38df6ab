"""The methods that are called, and the repetition of calls."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Generic, TypeVar

import grpc
from google.longrunning import operations_pb2
from google.protobuf import empty_pb2
from google.protobuf.message import Message

from ._version import VERSION
from ._wire.v1 import export_pb2, history_pb2, placement_pb2, plan_pb2, profile_pb2, recommend_pb2, report_pb2
from .errors import LoadmasterError

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)

#: The largest message that a planner sends.
LARGEST_MESSAGE = 16 << 20
#: Options of a channel. As on the command line, it uses no proxy and reconnects soon after a planner returns.
CHANNEL = (
    ("grpc.max_receive_message_length", LARGEST_MESSAGE),
    ("grpc.max_send_message_length", LARGEST_MESSAGE),
    ("grpc.enable_http_proxy", 0),
    ("grpc.primary_user_agent", f"loadmaster-python/{VERSION}"),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
)
#: First and longest pause before another attempt, and the longest pause that a planner may request, seconds.
FIRST_PAUSE, LONGEST_PAUSE, LONGEST_ASKED = 0.1, 2.0, 5.0
#: Time after which a call to an unavailable planner fails, seconds. A planner restarts in less.
PATIENCE = 10.0


@dataclass(frozen=True)
class Method(Generic[Q, A]):
    """A method of the planner. All of these may be repeated. Reads and predictions change nothing, and a search returns the
    same plan or placement. Calls that start or store something have a request id, and deleted resources stay deleted."""

    path: str
    request: type[Q]
    answer: type[A]


PLANS = "/loadmaster.v1.PlanService"
PROFILES = "/loadmaster.v1.ProfileService"
HISTORY = "/loadmaster.v1.HistoryService"
OPERATIONS = "/google.longrunning.Operations"

RECOMMEND_PLAN = Method(f"{PLANS}/RecommendPlan", recommend_pb2.RecommendPlanRequest, plan_pb2.RecommendPlanResponse)
START_RECOMMENDATION = Method(f"{PLANS}/StartRecommendation", plan_pb2.StartRecommendationRequest, operations_pb2.Operation)
PREDICT_PLAN = Method(f"{PLANS}/PredictPlan", plan_pb2.PredictPlanRequest, plan_pb2.PredictPlanResponse)
GET_PLAN = Method(f"{PLANS}/GetPlan", plan_pb2.GetPlanRequest, plan_pb2.Plan)
LIST_PLANS = Method(f"{PLANS}/ListPlans", plan_pb2.ListPlansRequest, plan_pb2.ListPlansResponse)
EXPORT_PLAN = Method(f"{PLANS}/ExportPlan", export_pb2.ExportPlanRequest, export_pb2.ExportPlanResponse)
CREATE_PLACEMENT = Method(f"{PLANS}/CreatePlacement", placement_pb2.CreatePlacementRequest, placement_pb2.Placement)
START_TRIAL = Method(f"{PLANS}/StartTrial", plan_pb2.StartTrialRequest, operations_pb2.Operation)
CREATE_REPORT = Method(f"{PLANS}/CreateReport", plan_pb2.CreateReportRequest, report_pb2.Report)
CREATE_PROFILE = Method(f"{PROFILES}/CreateProfile", profile_pb2.CreateProfileRequest, operations_pb2.Operation)
GET_PROFILE = Method(f"{PROFILES}/GetProfile", profile_pb2.GetProfileRequest, profile_pb2.Profile)
LIST_PROFILES = Method(f"{PROFILES}/ListProfiles", profile_pb2.ListProfilesRequest, profile_pb2.ListProfilesResponse)
PURGE_HISTORY = Method(f"{HISTORY}/PurgeHistory", history_pb2.PurgeHistoryRequest, operations_pb2.Operation)
GET_OPERATION = Method(f"{OPERATIONS}/GetOperation", operations_pb2.GetOperationRequest, operations_pb2.Operation)
WAIT_OPERATION = Method(f"{OPERATIONS}/WaitOperation", operations_pb2.WaitOperationRequest, operations_pb2.Operation)
CANCEL_OPERATION = Method(f"{OPERATIONS}/CancelOperation", operations_pb2.CancelOperationRequest, empty_pb2.Empty)


class Attempts:
    """When a call is repeated while a planner is unavailable. Times are of one clock, seconds."""

    def __init__(self, now: float, timeout: float, patience: float = PATIENCE) -> None:
        self._deadline = now + timeout
        self._give_up = min(self._deadline, now + patience)
        self._pause = FIRST_PAUSE

    def left(self, now: float) -> float:
        """Until the call must be over."""
        return max(self._deadline - now, 0.001)

    def pause(self, error: LoadmasterError, now: float) -> float | None:
        """How long to pause before the next attempt; None where there is none."""
        if error.code is not grpc.StatusCode.UNAVAILABLE:
            return None
        # Clients that lost the same planner do not come back at once.
        pause = max(self._pause * random.uniform(0.8, 1.2), min(error.retry_seconds or 0.0, LONGEST_ASKED))
        self._pause = min(self._pause * 2, LONGEST_PAUSE)
        return pause if now + pause < self._give_up else None
