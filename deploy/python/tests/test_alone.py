"""What the package does by itself: reading what people write, errors, and when a call is made again."""

from __future__ import annotations

import asyncio
import itertools
import pickle
import random
import re
import subprocess
import sys
from typing import Any

import grpc
import pytest
from google.longrunning import operations_pb2
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc import error_details_pb2, status_pb2

import loadmaster
from loadmaster import _calls, _flat, _notation, _plan, _profile, _requests, _settings, _words, errors
from loadmaster._fill import fill_request
from loadmaster._settings import Settings
from loadmaster._wire.remedies import REMEDIES
from loadmaster._wire.v1 import (
    export_pb2,
    history_pb2,
    memory_pb2,
    placement_pb2,
    plan_pb2,
    profile_pb2,
    recommend_pb2,
    stage_pb2,
    training_pb2,
    warning_pb2,
)

METHODS = [value for value in vars(_calls).values() if isinstance(value, _calls.Method)]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: str(method.path).rpartition("/")[2])
def test_methods_are_those_of_the_protocol_and_may_be_called_again(method: _calls.Method) -> None:  # type: ignore[type-arg]
    service, name = method.path.strip("/").split("/")
    files = (history_pb2.DESCRIPTOR, plan_pb2.DESCRIPTOR, profile_pb2.DESCRIPTOR, operations_pb2.DESCRIPTOR)
    services = {of.full_name: of for file in files for of in file.services_by_name.values()}
    described = services[service].methods_by_name[name]
    assert (described.input_type, described.output_type) == (method.request.DESCRIPTOR, method.answer.DESCRIPTOR)
    # Plans and placements are named by their content: the second is the first. What was deleted is not deleted again.
    changes_nothing = name.startswith(
        ("Get", "List", "Predict", "Recommend", "CreatePlacement", "Export", "Wait", "Cancel", "Prune")
    )
    assert changes_nothing or "request_id" in method.request.DESCRIPTOR.fields_by_name


@pytest.mark.parametrize(
    ("given", "full"),
    [
        ("localhost", "http://localhost:7433"),
        (" http://localhost", "http://localhost:7433"),
        ("http://node1/", "http://node1:7433/"),
        ("[::1]", "http://[::1]:7433"),
        ("[::1]:80", "http://[::1]:80"),
        ("10.0.0.1:80", "http://10.0.0.1:80"),
        ("http://node1:1/", "http://node1:1/"),
        ("[fe80::1%eth0]:65535", "http://[fe80::1%eth0]:65535"),
    ],
)
def test_an_address_needs_neither_scheme_nor_port(given: str, full: str) -> None:
    assert _settings.url(given) == full
    assert Settings.read(given, None).target == full.removeprefix("http://").strip("/")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        # gRPC would call port 34463.
        ("127.0.0.1:99999", "'99999' is not a port. Use 1 to 65535."),
        ("127.0.0.1:65536", "'65536' is not a port"),
        ("http://node1:0", "'0' is not a port"),
        ("[::1]:-1", "'-1' is not a port"),
        ("node1:", "'' is not a port"),
        ("node1:http", "'http' is not a port"),
        ("node1:７４３３", "is not a port"),
        (f"node1:{'9' * 5000}", "is not a port"),
        ("https://node1", "TLS is not supported. Use http://."),
        ("grpc://node1:7433", "the scheme grpc:// is not supported. Use http://."),
        ("dns:///node1:7433", "the scheme dns:// is not supported"),
        ("http://node1:7433/foo", "the address of a planner must not have a path. Remove '/foo'."),
        ("node1//", "the address of a planner must not have a path"),
        ("http://:7433", "has no host"),
        ("http:///foo", "has no host"),
        ("::1", "and brackets for IPv6"),
        ("me@node1", "has no host"),
        ("http://node1:80?x", "is not a port"),
    ],
)
def test_an_address_that_would_not_be_called_as_written_is_refused(given: str, said: str) -> None:
    for make in (loadmaster.Client, loadmaster.AsyncClient):
        with pytest.raises(ValueError, match=f"^address '.*{re.escape(said)}"):
            make(given)


def test_arguments_of_another_type_are_named() -> None:
    for make in (loadmaster.Client, loadmaster.AsyncClient):
        with pytest.raises(TypeError, match=r"^timeout: give seconds as a number, for example 2\.5, not '3s'"):
            make("node1", timeout="3s")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"^address: give a text, for example 'planner:7433', not 7$"):
            make(7)  # type: ignore[arg-type]
    assert Settings.read("node1", 3) == Settings("http://node1:7433", 3)
    begun = operations_pb2.Operation(name="operations/7")
    with loadmaster.Client("node1") as client, pytest.raises(TypeError, match=r"^timeout: give seconds"):
        loadmaster.Operation(begun, client, profile_pb2.Profile, loadmaster.Profile).wait(timeout="3s")  # type: ignore[arg-type]
    waiting = loadmaster.AsyncOperation(begun, loadmaster.AsyncClient("node1"), profile_pb2.Profile, loadmaster.Profile)
    with pytest.raises(TypeError, match=r"^timeout: give seconds"):
        asyncio.run(waiting.wait(timeout="3s"))  # type: ignore[arg-type]


def test_nodes_are_a_hostlist_or_a_list_of_names() -> None:
    for nodes in ("gpu001,big7", ["gpu001", "big7"], ("gpu001", "big7")):
        assert _requests.place("plans/a", nodes, {}).node_list == "gpu001,big7"
    assert _requests.place("plans/a", ["gpu[001-004]", "big7"], {}).node_list == "gpu[001-004],big7"
    assert _requests.place("plans/a", None, {"nodes": [{"name": "a"}]}).nodes[0].name == "a"
    wrong: tuple[object, ...] = (7, ["gpu001", 2], [{"name": "gpu001"}], {"gpu001": 1}, b"gpu001")
    for nodes_of in wrong:
        with pytest.raises(TypeError, match=r"^node_list: give a hostlist, for example 'gpu\[001-004\]', or a list of names"):
            _requests.place("plans/a", nodes_of, {})  # type: ignore[arg-type]


def test_settings_are_given_or_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings.read(None, None) == Settings("http://127.0.0.1:7433", 30.0)
    monkeypatch.setenv("LOADMASTER_ADDRESS", "node7")
    monkeypatch.setenv("LOADMASTER_TIMEOUT", "1h 30m")
    assert Settings.read(None, None) == Settings("http://node7:7433", 5400.0)
    assert Settings.read("node8:1", 2.5) == Settings("http://node8:1", 2.5)
    for wrong in ("soon", "-1s", "1 parsec", "1s2"):
        monkeypatch.setenv("LOADMASTER_TIMEOUT", wrong)
        with pytest.raises(ValueError, match="LOADMASTER_TIMEOUT"):
            Settings.read(None, None)
    monkeypatch.delenv("LOADMASTER_TIMEOUT")
    for address in ("https://node1", "", "http://"):
        with pytest.raises(ValueError, match="address"):
            Settings.read(address, None)
    with pytest.raises(ValueError, match="timeout"):
        Settings.read(None, 0.0)


@pytest.mark.parametrize(
    ("text", "count"), [("2GiB", 2 << 30), ("2g", 2 << 30), ("1.5 MiB", 3 << 19), ("3MB", 3_000_000), ("17B", 17), ("0", 0)]
)
def test_bytes_have_units(text: str, count: int) -> None:
    assert _notation.bytes_of(text) == count


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1..2MiB", "5 parsecs", "99999999999TiB", "80"])
def test_nonsense_is_no_number_of_bytes(text: str) -> None:
    with pytest.raises(ValueError, match="byte"):
        _notation.bytes_of(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90d", 7_776_000), ("2w", 1_209_600), ("1h30m", 5_400), (" 1w 2d ", 777_600), ("90 s", 90)]
)
def test_ages_are_weeks_days_and_hours(text: str, seconds: int) -> None:
    assert _notation.age(text).total_seconds() == seconds
    assert _requests.purge(text, {}).older_than.seconds == seconds


@pytest.mark.parametrize("text", ["", "90", "d", "0d", "-1d", "1 month", "1ms", "1d!", "99999999999w"])
def test_nonsense_is_no_age(text: str) -> None:
    with pytest.raises(ValueError, match=r"older_than: .* write a time above 0"):
        _requests.purge(text, {})


def test_collections_of_a_purge_add_up() -> None:
    response = history_pb2.PurgeHistoryResponse(dry_run=True)
    for collection, sample, referenced_count in (("plans", ["plans/a"], 60), ("runs", ["runs/b"], 70)):
        response.collections.add(
            collection=collection, purge_sample=sample, purge_count=len(sample), referenced_count=referenced_count
        )
    response.collections[0].referenced_sample.add(name="plans/c", referrers=["plans/d"], reference_count=5)
    purged = loadmaster.Purged(response)
    assert (purged.purge_sample, purged.purge_count, purged.referenced_count) == (["plans/a", "runs/b"], 2, 130)
    assert purged.referenced_sample == [loadmaster.Referenced("plans/c", ["plans/d"], 5)] and purged.dry_run


def test_devices_are_groups_in_order() -> None:
    groups = [(of.count, of.capacity_bytes, of.kind) for of in _notation.devices("4x2GiB,512MiB, 8x80GiB:NVIDIA H200")]
    assert groups == [(4, 2 << 30, ""), (1, 512 << 20, ""), (8, 80 << 30, "NVIDIA H200")]
    assert [(of.count, of.capacity_bytes, of.kind) for of in _notation.devices("8xH100")] == [(8, 0, "H100")]
    for wrong in ("", "4x", "x2GiB", "0x2GiB", "4x2GiB,", "4x0", "8", "8x80", "99999999999x1GiB", "axb"):
        with pytest.raises(ValueError):
            _notation.devices(wrong)


def test_stages_that_are_printed_are_read_again() -> None:
    draw = random.Random(5)
    for _ in range(200):
        stages = [(draw.randint(1, 50), draw.randint(1, 20), 1 << draw.randint(0, 6)) for _ in range(draw.randint(1, 10))]
        text = "-".join(
            f"{layers}{f'd{data}' if data > 1 else ''}{f't{shards}' if shards > 1 else ''}" for layers, data, shards in stages
        )
        read = _notation.layout(text).stages
        assert [(of.last_layer - of.first_layer + 1, of.data_parallel_size, of.tensor_parallel_size) for of in read] == stages
        assert read[0].first_layer == 0 and all(
            one.last_layer + 1 == next_.first_layer for one, next_ in itertools.pairwise(read)
        )
    for wrong in ("8,8", "", "0-1", "8t2d2", "8-"):
        with pytest.raises(ValueError):
            _notation.layout(wrong)
    of = _notation.stage("3..9d2t4")
    assert (of.first_layer, of.last_layer, of.data_parallel_size, of.tensor_parallel_size) == (3, 9, 2, 4)
    [plain, both] = _notation.layout("2t4-8d2t4sz1").stages
    assert both == _notation.stage("2..9/data2/tensor4/sequence/zero1")
    assert both.sequence_parallel and both.state_sharding == stage_pb2.STATE_SHARDING_OPTIMIZER
    assert not plain.sequence_parallel and not plain.state_sharding


def test_words_stand_for_values() -> None:
    assert _words.number(training_pb2.Schedule.DESCRIPTOR, "1f1b") == training_pb2.SCHEDULE_ONE_F_ONE_B
    assert _words.number(recommend_pb2.SearchMode.DESCRIPTOR, "SEARCH_MODE_AMP") == recommend_pb2.SEARCH_MODE_AMP
    assert _words.word_of(profile_pb2.Profile.State.DESCRIPTOR, 99) == "99"
    with pytest.raises(ValueError, match="min-peak-memory"):
        _words.number(recommend_pb2.Objective.DESCRIPTOR, "fast")


def test_keywords_become_a_request() -> None:
    request = fill_request(
        recommend_pb2.RecommendPlanRequest(),
        {
            "profile": "gpt", "cluster": "clusters/pod1", "framework": "deepspeed", "host_memory_bytes": "64GiB",
            "safety_margin": 0.0, "max_stage_count": 4,
            "constraints": {"schedules": ["1f1b", "gpipe"], "layer_pins": [{"layer": 3, "device": "n1/0"}]},
            "hourly_prices": {"NVIDIA H200": 3.5}, "copy_bandwidth": {}, "skip_comparisons": None, "other_profiles": ["h100"],
            "objective": "min-cost", "recompute": "layer", "recompute_policies": ["none"], "memory_mode": "best",
            "search_mode": "amp", "time_limit": "1m 30s", "max_iteration_time": 0.25,
        },
    )  # fmt: skip
    problem = request.problem
    assert (problem.profile, problem.cluster, list(problem.other_profiles)) == (
        "profiles/gpt",
        "clusters/pod1",
        ["profiles/h100"],
    )
    assert problem.framework == "deepspeed" and request.memory.host_memory_bytes == 64 << 30
    assert problem.HasField("safety_margin") and request.memory.HasField("copy_bandwidth") and not request.HasField("output")
    assert request.objective.kind == recommend_pb2.OBJECTIVE_MIN_COST and request.objective.hourly_prices["NVIDIA H200"] == 3.5
    assert list(request.constraints.schedules) == [2, 1] and request.constraints.layer_pins[0].device == "n1/0"
    assert (request.constraints.max_stage_count, problem.recompute, list(request.constraints.recompute_policies)) == (4, 3, [1])
    assert request.search.mode == recommend_pb2.SEARCH_MODE_AMP and request.search.time_limit.seconds == 90
    assert request.memory.mode == 3 and request.constraints.max_iteration_time.nanos == 250_000_000


@pytest.mark.parametrize("request_type", [recommend_pb2.RecommendPlanRequest, plan_pb2.PredictPlanRequest])
def test_each_field_of_a_group_has_one_keyword(request_type: Any) -> None:
    paths = _flat.paths(request_type.DESCRIPTOR)
    groups = {path[0]: request_type.DESCRIPTOR.fields_by_name[path[0]].message_type for path in paths.values() if len(path) > 1}
    fields = {(name, field.name) for name, group in groups.items() for field in group.fields} - {("objective", "kind")}
    assert len(set(paths.values())) == len(paths) and fields <= set(paths.values())
    assert {"profile": ("problem", "profile"), "memory_mode": ("memory", "mode")}.items() <= paths.items()


def test_paths_with_values_in_json_form_replace_keywords() -> None:
    asked = {"devices": "2x1GiB", "micro_batch_count": 4, "schedule": "gpipe", "host_memory_bytes": "1GiB"}
    changes = {
        "problem.devices": [{"count": 4, "capacityBytes": str(1 << 30)}],
        "problem.micro_batch_count": 8,
        "problem.schedule": "SCHEDULE_ONE_F_ONE_B",
        "constraints.max_iteration_time": "3.5s",
        "memory.host_memory_bytes": None,
        "memory.chunk_options.chunk_elements": [],
    }
    request = fill_request(recommend_pb2.RecommendPlanRequest(), {**asked, **changes})
    assert [(of.count, of.capacity_bytes) for of in request.problem.devices] == [(4, 1 << 30)]
    assert (request.problem.micro_batch_count, request.problem.schedule) == (8, 2)
    assert request.constraints.max_iteration_time.ToTimedelta().total_seconds() == 3.5
    assert request.memory.host_memory_bytes == 0
    for path, value, said in (
        ("problem.framewrk", "x", "Did you mean 'framework'"),
        ("problem.framework.id", "x", "framework is a value"),
        ("problem.schedule", "SCHEDULE_FAST", "problem.schedule: .*SCHEDULE_FAST"),
    ):
        with pytest.raises(ValueError, match=said):
            fill_request(recommend_pb2.RecommendPlanRequest(), {path: value})


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        (
            {"framewrk": "x"},
            ValueError,
            r"Did you mean 'framework'\? Valid names: problem, .*micro_batch_count.*skip_comparisons",
        ),
        ({"constraints": {"min_stage": 1}}, ValueError, r"constraints\.min_stage: .*Did you mean 'min_stage_count'"),
        ({"constraints": {"min_stage_count": 1}, "min_stage_count": 1}, ValueError, "constraints.min_stage_count: set twice"),
        ({"constraints": 3}, TypeError, "constraints: give a mapping or a Constraints"),
        ({"objective": "fast"}, ValueError, "objective.kind: .*min-iteration-time"),
        ({"profile": "plans/x"}, ValueError, "problem.profile: .*profiles/ID"),
        ({"host_memory_bytes": "much"}, ValueError, "memory.host_memory_bytes: .*2GiB"),
        ({"other_profiles": "h100"}, TypeError, "problem.other_profiles: give a list"),
        ({"micro_batch_count": "four"}, TypeError, "problem.micro_batch_count: give a number, not 'four'"),
        ({"host_memory_bytes": "9" * 400 + ".5GiB"}, ValueError, "memory.host_memory_bytes: .* is more than"),
        ({"profile_document": "a\udcff"}, ValueError, "problem.profile_document: .*surrogates not allowed"),
        ({"skip_comparisons": "yes"}, TypeError, "output.skip_comparisons: give True or False, not 'yes'"),
        ({"cluster": 5}, TypeError, "problem.cluster: give a text, not 5"),
        ({"devices": 7}, TypeError, "problem.devices: give a list, not 7"),
        ({"other_profiles": [3]}, TypeError, "problem.other_profiles: give a text, not 3"),
        ({"time_limit": "soon"}, ValueError, "search.time_limit: 'soon' is not a duration"),
        ({"time_limit": -1}, ValueError, "search.time_limit: -1 is not a duration"),
    ],
)
def test_what_cannot_be_meant_names_the_field(options: dict[str, object], kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        fill_request(recommend_pb2.RecommendPlanRequest(), options)


def test_an_infeasible_response_is_an_exception_with_its_remedies() -> None:
    infeasible = recommend_pb2.Infeasible(message="stage 1 needs 2 GiB more", missing_bytes=2 << 30, device="n1/0")
    remedy = infeasible.remedies.add(description="use 1F1B and a micro-batch of 4 samples", frameworks=["megatron"])
    remedy.predicted_peak.bytes, remedy.predicted_peak.accounting = 3 << 20, memory_pb2.MEMORY_ACCOUNTING_ALLOCATED
    remedy.iteration_seconds = 0.5
    remedy.changes.add(field="problem.schedule").value.string_value = "SCHEDULE_ONE_F_ONE_B"
    remedy.changes.add(field="problem.micro_batch_size").value.number_value = 4
    infeasible.remedies.add(description="use larger devices")
    with pytest.raises(loadmaster.NoFeasiblePlan) as refused:
        _plan.recommended(plan_pb2.RecommendPlanResponse(infeasible=infeasible))
    error = refused.value
    first, second = error.remedies
    assert first.changes == {"problem.schedule": "SCHEDULE_ONE_F_ONE_B", "problem.micro_batch_size": 4}
    assert (first.peak_bytes, first.accounting, first.iteration_seconds, first.frameworks) == (
        3 << 20,
        "allocated",
        0.5,
        ["megatron"],
    )
    assert (second.changes, second.peak_bytes, second.iteration_seconds) == ({}, None, None)
    assert error.infeasible.missing_bytes == 2 << 30 and error.reason == "NO_FEASIBLE_PLAN"
    assert str(error).splitlines() == [
        "NO_FEASIBLE_PLAN: stage 1 needs 2 GiB more",
        "  remedy: use 1F1B and a micro-batch of 4 samples "
        "(problem.schedule='SCHEDULE_ONE_F_ONE_B', problem.micro_batch_size=4): "
        "peak 3.0 MiB allocated, 0.5 s per iteration",
        "  remedy: use larger devices",
    ]
    assert error.remedy == "use 1F1B and a micro-batch of 4 samples; use larger devices"
    copied = pickle.loads(pickle.dumps(error))
    assert str(copied) == str(error) and copied.remedies == error.remedies


def test_warnings_have_a_code_a_severity_and_a_stage() -> None:
    plan = plan_pb2.Plan()
    plan.warnings.add(code="EXTRAPOLATED", severity=warning_pb2.SEVERITY_WARNING, stage=0, message="stage 0 is extrapolated")
    plan.warnings.add(code="OF_TOMORROW", severity=9, message="more")
    first, second = _plan.Plan(plan, _client=None).warnings  # type: ignore[arg-type]
    assert first == loadmaster.PlanWarning("EXTRAPOLATED", "warning", 0, "stage 0 is extrapolated")
    assert (str(second), second.severity, second.stage) == ("more", "9", None)


def test_things_that_are_nothing_known_are_named() -> None:
    with loadmaster.Client("127.0.0.1:1", timeout=1) as client:
        for ask in (client.recommend, client.predict):
            with pytest.raises(TypeError, match="^profile: give profiles/ID, .*, not 7$"):
                ask(7)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"^model: give models/ID, .*, not 4$"):
            client.profile(4)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="^give a text, plans/ID or the ID alone, not 7$"):
            client.plan(7)  # type: ignore[arg-type]


def status(code: int, *details: object) -> status_pb2.Status:
    packed = []
    for detail in details:
        packed.append(AnyMessage())
        packed[-1].Pack(detail)  # type: ignore[arg-type]
    return status_pb2.Status(code=code, message="because", details=packed)


def test_errors_are_read_by_reason_then_by_code() -> None:
    info = error_details_pb2.ErrorInfo(reason="TOO_MANY_SEARCHES", domain="loadmaster.dev")
    retry = error_details_pb2.RetryInfo()
    retry.retry_delay.FromMilliseconds(1500)
    busy = errors.from_status(status(8, info, retry))
    assert isinstance(busy, loadmaster.Busy) and busy.retry_seconds == 1.5 and busy.remedy == "Retry after `RetryInfo`."
    # Reasons are of our own planner: those of others mean something else.
    other = error_details_pb2.ErrorInfo(reason="NOT_FOUND", domain="example.com")
    assert type(errors.from_status(status(5, other))) is loadmaster.LoadmasterError
    unheard = error_details_pb2.ErrorInfo(reason="OF_TOMORROW", domain="loadmaster.dev")
    assert errors.from_status(status(9, unheard)).reason == "OF_TOMORROW"
    assert errors.from_status(status(77)).code is grpc.StatusCode.UNKNOWN
    bad = error_details_pb2.BadRequest()
    bad.field_violations.add(field="micro_batch_count", description="must be above 0")
    assert "micro_batch_count: must be above 0" in str(errors.from_status(status(3, bad)))


@pytest.mark.parametrize("reason", sorted(REMEDIES))
def test_what_helps_speaks_of_remedies_only_where_there_are_some(reason: str) -> None:
    refused = errors.LoadmasterError("no", reason=reason, metadata={"remedies": ""})
    assert refused.remedy and "remedies" not in refused.remedy
    assert errors.LoadmasterError("no", reason=reason, metadata={"remedies": "fewer stages"}).remedy == "fewer stages"


def test_what_helps_without_remedies_is_the_rest_of_the_table() -> None:
    assert errors.NoFeasiblePlan("no", reason="NO_FEASIBLE_PLAN").remedy == "Use more devices, or reduce the memory that each device needs."
    assert errors.NoWorker("no", reason="NO_WORKER_FITS").remedy == "Start a larger worker."
    assert errors.LoadmasterError("no", reason="OF_TOMORROW").remedy == ""


def test_a_call_is_made_again_while_that_may_help() -> None:
    away = errors.Unavailable("away", code=grpc.StatusCode.UNAVAILABLE)
    attempts, now, pauses = _calls.Attempts(0.0, timeout=30.0), 0.0, []
    while (pause := attempts.pause(away, now)) is not None:
        pauses.append(pause)
        now += pause
    assert pauses[0] < 0.2 and max(pauses) <= 2.0 * 1.2 and 7.0 < now <= 10.0
    assert _calls.Attempts(0.0, timeout=0.05).pause(away, 0.0) is None, "it would be over"
    refused = errors.NoFeasiblePlan("no", code=grpc.StatusCode.FAILED_PRECONDITION)
    assert _calls.Attempts(0.0, timeout=30.0).pause(refused, 0.0) is None
    asked = errors.Unavailable("away", code=grpc.StatusCode.UNAVAILABLE, retry_seconds=3600.0)
    assert _calls.Attempts(0.0, timeout=30.0).pause(asked, 0.0) == 5.0


def test_importing_the_package_needs_neither_torch_nor_a_planner() -> None:
    said = subprocess.run(
        [sys.executable, "-c", "import loadmaster, sys; print('torch' in sys.modules)"], capture_output=True, text=True
    )
    assert (said.returncode, said.stdout.strip()) == (0, "False"), said.stderr


def test_what_the_planner_says_is_shown_in_one_short_line() -> None:
    plan = plan_pb2.Plan(name="plans/7f3c", layout_notation="8-8-8-7", stages=[plan_pb2.PlanStage() for _ in range(1000)])
    plan.predicted_peak.bytes = 1 << 30
    message = plan_pb2.PredictPlanResponse(profile="profiles/p", stages=[plan_pb2.StagePrediction() for _ in range(1000)])
    profile = profile_pb2.Profile(name="profiles/p", missing=["stage"] * 1000)
    exported = export_pb2.ExportPlanResponse(plan="plans/7f3c")
    exported.files.add(name="train.sh", contents="x" * 100_000)
    shown = {
        "7f3c": repr(_plan.Plan(plan, _client=None)),  # type: ignore[arg-type]
        "plans/7f3c": repr(_plan.AsyncPlan(plan, _client=None)),  # type: ignore[arg-type]
        "1000 stages": repr(_plan.Prediction(message)),
        "profiles/p": repr(_profile.Profile(profile)),
        "train.sh": repr(_plan.Export(exported, [])),
        "placements/b": repr(_plan.Placement(placement_pb2.Placement(name="placements/b", nodes=["n"] * 1000))),
    }
    for fact, line in shown.items():
        assert fact in line and len(line) < 120 and "\n" not in line, line
