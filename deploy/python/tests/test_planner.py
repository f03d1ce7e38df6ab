"""What the package promises, against a real planner and a real worker."""

from __future__ import annotations

import asyncio
import datetime
import json
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import grpc
import pytest
from conftest import TINY
from planner import Planner, environment, wait_until

import loadmaster
from loadmaster import Client
from loadmaster._wire.options import ConstraintsFields, PurgeOptions, RecommendOptions, TrainingSpecFields

TWO_STAGES: ConstraintsFields = {"min_stage_count": 2, "max_stage_count": 2}


def test_a_profile_is_measured_and_waited_for(
    measured: tuple[loadmaster.Profile, list[loadmaster.Progress]], planner: Planner
) -> None:
    profile, told = measured
    assert (profile.name, profile.state, profile.complete, profile.missing) == ("profiles/gpt", "complete", True, [])
    assert told and told[-1].share == 1.0 and told[-1].runs[0] == told[-1].runs[1] > 0
    assert [of.share for of in told] == sorted(of.share for of in told)
    shown = planner.cli("profile", "show", "gpt")
    assert (shown["name"], shown["model"]) == (profile.name, profile.model)


def test_a_plan_is_what_the_command_line_gets(client: Client, planner: Planner) -> None:
    plan = client.recommend("gpt", devices="2x1GiB", objective="min-iteration-time", constraints=TWO_STAGES)
    same = planner.cli(
        "plan", "recommend", "--profile", "gpt", "--devices", "2x1GiB", "--objective", "min-iteration-time",
        "--pipeline-parallel-sizes", "2",
    )  # fmt: skip
    assert plan.name == same["name"] and plan.layout == same["layoutNotation"]
    assert plan.peak_bytes == int(same["predictedPeak"]["bytes"]) and plan.peak_accounting == "allocated"
    assert plan.seconds == same["iteration"]["iterationSeconds"]
    peaks = [int(stage["predictedPeak"]["bytes"]) for stage in same["stages"]]
    assert [stage.peak_bytes for stage in plan.stages] == peaks and len(peaks) == 2
    assert (plan.stages[0].first_layer, plan.stages[-1].last_layer) == (0, 5)
    assert client.plan(plan.name).message.stages == plan.message.stages


def test_bytes_of_predictions_are_those_of_the_command_line(client: Client, planner: Planner) -> None:
    asked = client.predict("gpt", pipeline_layout="2-2-2", schedule="1f1b", device_capacity_bytes="1GiB")
    same = planner.cli(
        "plan", "predict", "--profile", "gpt", "--pipeline-layout", "2-2-2", "--schedule", "1f1b", "--capacity", "1GiB"
    )
    assert [stage.peak_bytes for stage in asked.stages] == [int(stage["peak"]["bytes"]) for stage in same["stages"]]
    assert asked.fits is True and asked.stages[0].accounting == "allocated"
    assert client.predict("gpt", pipeline_layout="6", device_capacity_bytes="64KiB").fits is False
    assert client.predict("gpt", pipeline_layout="3-3").fits is None


def test_exported_files_are_those_of_the_command_line(client: Client, planner: Planner, tmp_path: Path) -> None:
    plan = client.recommend("gpt", devices="2x1GiB", framework="deepspeed", constraints=TWO_STAGES)
    for name, options, flags in (
        ("usual", {}, []),
        (
            "megatron",
            {"framework": "megatron", "version": "0.19", "variant": "hybrid"},
            ["--framework", "megatron@0.19", "--variant", "hybrid"],
        ),
    ):
        ours, theirs = tmp_path / name, tmp_path / f"{name}-cli"
        export = plan.export(to=ours, **options)  # type: ignore[arg-type]
        planner.cli_text("plan", "export", plan.name, "--to", str(theirs), *flags)
        assert {file.name: file.read_bytes() for file in ours.iterdir()} == {
            file.name: file.read_bytes() for file in theirs.iterdir()
        }
        assert sorted(export.paths) == sorted(ours.iterdir()) and export.command
    changed = tmp_path / "usual" / "ds_config.json"
    changed.write_text("mine")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        plan.export(to=tmp_path / "usual")
    assert changed.read_text() == "mine"
    plan.export(to=tmp_path / "usual", overwrite=True)
    assert json.loads(changed.read_text())


def test_a_plan_is_put_on_the_nodes_that_were_given(client: Client, planner: Planner) -> None:
    plan = client.recommend("gpt", devices="2x1GiB", constraints=TWO_STAGES)
    nodes = [{"name": node, "device_indices": [of], "memory_bytes": "1GiB"} for of, node in enumerate("ba")]
    bound = plan.place(nodes=nodes)  # type: ignore[arg-type]
    stored = planner.cli("plan", "placements", bound.name)
    assert bound.name == stored["name"] and bound.message.plan == plan.name
    assert sorted(bound.nodes) == ["a", "b"] == sorted(stored["nodes"]) and bound.warnings
    for placement in (bound, bound.name, bound.name.removeprefix("placements/")):
        ranks = plan.export(framework="other", placement=placement).message.ranks
        assert [(of.device.node, of.device.index) for of in ranks] == [(of, "ba".index(of)) for of in bound.nodes]
    with pytest.raises(loadmaster.LoadmasterError) as few:
        plan.place(nodes=nodes[:1])  # type: ignore[arg-type]
    assert few.value.reason == "PLACEMENT_IMPOSSIBLE" and few.value.remedy


def test_names_of_nodes_are_what_a_hostlist_is(client: Client, planner: Planner) -> None:
    kind = client.stored_profile("gpt").message.device_kind
    line = ["cluster", "create", "--id", "pair", "--nodes", "n[1-2]", "--devices-per-node", "1", "--device-memory", "1GiB"]
    planner.cli(*line, "--device-kind", kind)
    plan = client.recommend("gpt", devices="2x1GiB", constraints=TWO_STAGES)
    bound = plan.place(["n1", "n2"], cluster="pair")
    assert bound.name == plan.place("n[1-2]", cluster="pair").name and sorted(bound.nodes) == ["n1", "n2"]


def test_a_plan_is_wrapped_for_kubernetes(client: Client) -> None:
    plan = client.recommend("gpt", devices="2x1GiB", framework="deepspeed", constraints=TWO_STAGES)
    export = plan.export(manifest="job", manifest_options={"image": "train:1", "name": "mine"})
    assert "kind: Job" in export.files["job.yaml"] and export.command[0] == "kubectl"


def test_errors_have_a_reason_fields_and_a_remedy(client: Client) -> None:
    with pytest.raises(loadmaster.InvalidField) as invalid:
        client.recommend("gpt", devices="4x1GiB", micro_batch_count=-1)
    assert invalid.value.reason == "INVALID_FIELD" and invalid.value.code is grpc.StatusCode.INVALID_ARGUMENT
    assert [of.field for of in invalid.value.fields] == ["problem.micro_batch_count"] and invalid.value.remedy
    with pytest.raises(loadmaster.NotFound) as missing:
        client.plan("0123456789abcdef")
    assert missing.value.metadata["resource"] == "plans/0123456789abcdef"
    with pytest.raises(loadmaster.NoFeasiblePlan) as nothing:
        client.recommend("gpt", devices="2x64KiB")
    assert nothing.value.infeasible.missing_bytes > 0 and nothing.value.remedy
    with pytest.raises(loadmaster.PlanUnsupportedByFramework):
        client.recommend("gpt", devices="4x1GiB", framework="torchgpipe", parallelism_layout="per-stage-mesh")


def test_a_remedy_leads_to_its_plan(client: Client) -> None:
    asked: RecommendOptions = {"devices": "4x1GiB", "objective": "min-iteration-time", "constraints": TWO_STAGES}
    with pytest.raises(loadmaster.NoFeasiblePlan) as refused:
        client.recommend("gpt", **asked)
    error = refused.value
    assert error.reason == "NO_FEASIBLE_PLAN" and error.code is grpc.StatusCode.FAILED_PRECONDITION
    [remedy] = [of for of in error.remedies if of.changes == {"constraints.allow_idle_devices": True}]
    assert remedy.description in str(error) and "constraints.allow_idle_devices=True" in str(error)
    assert remedy.description in error.remedy and remedy.accounting == "allocated" and "torch-pipelining" in remedy.frameworks
    assert [of.description for of in error.infeasible.remedies] == [of.description for of in error.remedies]
    for of in error.remedies:
        plan = client.recommend("gpt", **asked, **of.changes)
        assert (plan.seconds, plan.peak_bytes) == (of.iteration_seconds, of.peak_bytes)


def test_a_long_search_is_an_operation_that_ctrl_c_cancels(client: Client, planner: Planner) -> None:
    problem: RecommendOptions = {"devices": "2x1GiB", "constraints": TWO_STAGES}
    asked: RecommendOptions = {**problem, "time_limit": "2m"}
    told: list[loadmaster.Progress] = []
    plan = client.recommend("gpt", progress=told.append, **asked)
    assert plan.layout == client.recommend("gpt", **problem).layout
    assert told and told[-1].share == 1.0 and "states" in told[-1].text
    with pytest.raises(loadmaster.NoFeasiblePlan) as nothing:
        client.recommend("gpt", devices="2x64KiB", time_limit="2m")
    assert nothing.value.infeasible.missing_bytes > 0

    def interrupted(_: loadmaster.Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        client.recommend("gpt", progress=interrupted, **asked)
    assert all(of["done"] for of in planner.cli("operation", "list")["operations"])

    async def ask() -> loadmaster.AsyncPlan:
        async with loadmaster.AsyncClient(planner.address) as own:
            return await own.recommend("gpt", **asked)

    assert asyncio.run(ask()).name == plan.name


def test_lists_are_read_page_by_page(client: Client) -> None:
    made = {client.recommend("gpt", devices="4x1GiB", micro_batch_size=size, alternative_count=0).name for size in (1, 2, 4)}
    listed = [plan.name for plan in client.plans(filter="profile = gpt", order_by="create_time", page_size=1)]
    assert made <= set(listed) and len(listed) == len(set(listed))
    assert [plan.name for plan in client.plans(filter="profile = gpt", order_by="create_time desc")] == listed[::-1]
    [basic, full] = [next(client.plans(filter="profile = gpt", view=view)) for view in ("basic", "full")]
    assert basic.name == full.name and basic.layout == full.layout and full.stages and not basic.stages
    assert [profile.name for profile in client.profiles(filter="model:gpt2", page_size=1)].count("profiles/gpt") == 1
    with pytest.raises(loadmaster.InvalidField):
        next(client.plans(filter="nonsense ="))


def test_a_plan_is_trained_and_waited_for(client: Client) -> None:
    plan = client.recommend("gpt", devices="2x1GiB", constraints=TWO_STAGES)
    trained = plan.trial(iteration_count=1).wait()
    assert trained.name == plan.name
    measured = trained.message.trials[0].measured_peaks
    assert [peak.bytes for peak in measured] == pytest.approx([stage.peak_bytes for stage in plan.stages], rel=0.02)


def test_old_history_is_purged_and_references_are_named(client: Client, planner: Planner) -> None:
    profile = client.profile(TINY, profile_id="old", training={"micro_batch_size": 2, "micro_batch_count": 2}).wait()
    plans = [client.recommend("old", devices=f"{count}x1GiB", alternative_count=0).name for count in (1, 2, 3)]
    report = planner.cli("plan", "report", plans[0], "--iteration-time", "1s")["name"]
    planner.cli("plan", "label", plans[1], "keep=yes")
    age = "asked_time = asked_time - interval '100 days', create_time = create_time - interval '100 days'"
    planner.sql(f"UPDATE plan_facts SET {age} WHERE profile_id = 'old'")
    rule: PurgeOptions = {"filter": "profile = old AND NOT labels:keep", "collections": ["plans"]}
    dry_run = client.purge_history("90d", **rule).wait()
    assert (dry_run.purge_sample, dry_run.purge_count, dry_run.referenced_count) == ([plans[2]], 1, 1)
    assert dry_run.referenced_sample == [loadmaster.Referenced(plans[0], [report], 1)] and dry_run.dry_run
    assert client.plan(plans[2]).name == plans[2], "a dry run deletes nothing"
    assert client.purge_history(datetime.timedelta(days=101), **rule).wait().purge_count == 0

    shares: list[float] = []
    forced: PurgeOptions = {**rule, "force": True}
    begun = client.purge_history("12w", **forced)
    done = begun.wait(progress=lambda progress: shares.append(progress.share))
    assert (done.purge_sample, done.referenced_sample, done.dry_run) == (
        dry_run.purge_sample,
        dry_run.referenced_sample,
        False,
    )
    assert begun.progress.share == 1.0 and all(0 <= share <= 1 for share in shares)
    with pytest.raises(loadmaster.NotFound):
        client.plan(plans[2])
    assert {of.name for of in client.plans(filter="profile = old")} == set(plans[:2]) and profile.complete

    async def ask() -> loadmaster.Purged:
        async with loadmaster.AsyncClient(planner.address) as asked:
            return await (await asked.purge_history("90d", **forced)).wait()

    again = asyncio.run(ask())
    assert (again.purge_count, [row.name for row in again.referenced_sample]) == (0, [plans[0]])
    for wrong, words in (("12h", "0.500 days"), ("soon", "older_than: 'soon'"), (90, "older_than: give a text")):
        with pytest.raises((ValueError, TypeError, loadmaster.InvalidField), match=words):
            client.purge_history(wrong, **rule)  # type: ignore[arg-type]
    with pytest.raises(loadmaster.InvalidField) as unknown:
        client.purge_history("90d", collections=["ghosts"])
    assert unknown.value.fields[0].field == "collections[0]"


def test_asyncio_has_the_same(planner: Planner, client: Client, tmp_path: Path) -> None:
    async def ask() -> tuple[loadmaster.AsyncPlan, list[str], loadmaster.Profile]:
        async with loadmaster.AsyncClient(planner.address) as asked:
            one, again = await asyncio.gather(*(asked.recommend("gpt", devices="3x1GiB") for _ in range(2)))
            assert one.message.stages == again.message.stages
            await one.export(tmp_path, framework="torch-pipelining")
            with pytest.raises(loadmaster.NotFound):
                await asked.plan("0123456789abcdef")
            begun = await asked.profile(TINY, profile_id="again", training={"micro_batch_size": 2, "micro_batch_count": 2})
            return one, [plan.name async for plan in asked.plans(page_size=1)], await begun.wait()

    plan, listed, profile = asyncio.run(ask())
    assert plan.name == client.recommend("gpt", devices="3x1GiB").name
    assert listed == [of.name for of in client.plans()] and profile.complete
    assert list(tmp_path.iterdir())


def test_what_is_interrupted_is_cancelled(planner: Planner) -> None:
    script = (
        # What starts the tests may have told its children to ignore Ctrl-C, as a shell does with what runs in the background.
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "import loadmaster\n"
        f"begun = loadmaster.profile({TINY!r}, profile_id='long', training={{'micro_batch_size': 64, 'micro_batch_count': 64}},"
        " iteration_count=1000, ignore_stored_runs=True)\n"
        "print(begun.name, flush=True)\n"
        "begun.wait()\n"
    )
    asked = {**environment(), "LOADMASTER_ADDRESS": planner.address}
    child = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=asked
    )
    assert child.stdout is not None
    name = child.stdout.readline().strip()
    time.sleep(0.5)  # it waits now, or will: either way it is interrupted
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=60)
    assert "KeyboardInterrupt" in said
    ended = wait_until("it ends", lambda: planner.cli("operation", "show", name).get("error"))
    assert ended["code"] == grpc.StatusCode.CANCELLED.value[0]
    with Client(planner.address) as client:
        assert client.stored_profile("long").state == "cancelled"


def test_waiting_has_an_end_and_a_cancelled_operation_says_so(client: Client) -> None:
    training: TrainingSpecFields = {"micro_batch_size": 64, "micro_batch_count": 64}
    begun = client.profile(TINY, profile_id="endless", training=training, iteration_count=1000, ignore_stored_runs=True)
    with pytest.raises(loadmaster.DeadlineExceeded, match="still runs"):
        begun.wait(timeout=0.2)
    with pytest.raises(loadmaster.LoadmasterError, match="no result yet"):
        _ = begun.result
    begun.cancel()
    with pytest.raises(loadmaster.Cancelled) as cancelled:
        begun.wait()
    assert cancelled.value.reason == "CANCELLED" and begun.done


def test_a_cancelled_task_cancels_what_it_waits_for_and_a_timeout_does_not(planner: Planner) -> None:
    training: TrainingSpecFields = {"micro_batch_size": 64, "micro_batch_count": 64}

    async def ask() -> None:
        async with loadmaster.AsyncClient(planner.address) as asked:
            begun = await asked.profile(
                TINY, profile_id="tasks", training=training, iteration_count=1000, ignore_stored_runs=True
            )
            with pytest.raises(loadmaster.DeadlineExceeded, match="still runs"):
                await begun.wait(timeout=0.2)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(begun.wait(cancel_on_interrupt=False), 0.2)
            await begun.refresh()
            assert not begun.done, "nobody cancelled it"
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(begun.wait(), 0.2)
            with pytest.raises(loadmaster.Cancelled):
                await begun.wait()

    asyncio.run(ask())


def test_a_planner_that_starts_again_is_asked_again(measured: object) -> None:
    planner = Planner()
    try:
        with Client(planner.address) as client:
            assert list(client.plans()) == []
            planner.stop()
            with pytest.raises(loadmaster.Unavailable) as gone:
                client.call(loadmaster._calls.LIST_PLANS, loadmaster._calls.LIST_PLANS.request(), patience=0.5)
            assert planner.address in str(gone.value) and "LOADMASTER_ADDRESS" in str(gone.value)
            back = threading.Timer(0.5, planner.restart)
            back.start()
            assert list(client.plans()) == []
            back.join()
    finally:
        planner.close()


def test_time_that_is_up_is_said(planner: Planner) -> None:
    with Client(planner.address, timeout=0.001) as client, pytest.raises(loadmaster.DeadlineExceeded) as late:
        client.recommend("gpt", devices="4x1GiB", skip_comparisons=True, seed=1)
    assert isinstance(late.value, TimeoutError)


def test_functions_ask_the_planner_of_the_environment(planner: Planner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOADMASTER_ADDRESS", planner.address.removeprefix("http://"))
    loadmaster._client_of.cache_clear()
    assert loadmaster.recommend("gpt", devices="4x1GiB").name in {plan.name for plan in loadmaster.plans()}
    assert loadmaster.predict("gpt", pipeline_layout="3-3", device_capacity_bytes=1 << 30).fits
    assert re.fullmatch(r"plans/[0-9a-f]+", loadmaster.plan(next(loadmaster.plans()).name).name)
    loadmaster._client_of.cache_clear()
