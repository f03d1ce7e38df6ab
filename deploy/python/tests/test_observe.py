"""Trainings that are observed, with real torch in real ranks, where torch is installed."""

from __future__ import annotations

import glob
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from planner import Planner, environment

from loadmaster import Client, Plan

HERE = Path(__file__).resolve().parent
SOURCES = HERE.parent / "src"


def torch_python() -> str | None:
    """A Python with torch and what the package needs: the named one, this one, or that of the launchers' tests."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "loadmaster"
    launchers = [str(Path(mark).parent / "bin" / "python") for mark in sorted(glob.glob(f"{cache}/launchers-*/complete"))]
    for python in (os.environ.get("LOADMASTER_TORCH_PYTHON"), sys.executable, *launchers):
        test = "import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, ['torch', 'grpc', 'google.longrunning'])))"
        if python and subprocess.run([python, "-c", test], capture_output=True, check=False).returncode == 0:
            return python
    return None


PYTHON = torch_python()
needs_torch = pytest.mark.skipif(
    PYTHON is None,
    reason="no Python with torch: LOADMASTER_TORCH_PYTHON=/path names one, and `make launchers` installs one",
)


def can(module: str) -> bool:
    find = f"import importlib.util as u, sys; sys.exit(u.find_spec({module!r}) is None)"
    return PYTHON is not None and subprocess.run([PYTHON, "-c", find], check=False).returncode == 0


def started(path: Path, arguments: list[str], address: str, **more: str) -> subprocess.Popen[str]:
    assert PYTHON is not None
    asked = {**environment(), "PYTHONPATH": str(SOURCES), "LOADMASTER_ADDRESS": address, "OMP_NUM_THREADS": "1", **more}
    return subprocess.Popen(
        [PYTHON, str(path), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=asked
    )


def run(path: Path, arguments: list[str], address: str, **more: str) -> tuple[str, str]:
    """What a program says, which must end well."""
    process = started(path, arguments, address, **more)
    said, warned = process.communicate(timeout=240)
    assert process.returncode == 0, warned
    return said, warned


def two_ranks(path: Path, arguments: list[str], address: str) -> list[tuple[int, str, str]]:
    """Exit status, standard output and error of each rank."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    ranks = [started(path, arguments, address, RANK=str(rank), LOCAL_RANK=str(rank), **group) for rank in range(2)]
    ended = [rank.communicate(timeout=240) for rank in ranks]
    return [(rank.returncode, *said) for rank, said in zip(ranks, ended)]


def warnings(said: str) -> list[str]:
    return [line for line in said.splitlines() if "loadmaster WARNING" in line]


@pytest.fixture
def plan(client: Client) -> Plan:
    """A plan of two stages with a device each."""
    return client.recommend("gpt", devices="2x1GiB", framework="torch-pipelining", min_stage_count=2, max_stage_count=2)


@needs_torch
def test_two_ranks_are_reported_once(planner: Planner, client: Client, plan: Plan) -> None:
    before = len(client.plan(plan.name).message.reports)
    (code, said, warned), (other_code, other_said, other_warned) = two_ranks(
        HERE / "scripts" / "rank.py", [plan.name], planner.address
    )
    assert (code, other_code) == (0, 0), warned + other_warned
    # Of 5 iterations two warm up, and the last contains a pause.
    reported = re.search(r"rank 0: 2 iterations, (plans/\S+)", said)
    assert reported, said + warned
    assert "rank 1: 2 iterations, None" in other_said
    reports = client.plan(plan.name).message.reports
    assert len(reports) == before + 1 and reports[0].name == reported[1]
    assert reports[0].iteration_count == 2 and reports[0].iteration_seconds > 0 and reports[0].device_kind == "cpu"
    assert re.fullmatch(r"torch \S+, 2 ranks", reports[0].source) and not reports[0].stage_peaks
    assert not warnings(warned + other_warned)


@needs_torch
@pytest.mark.slow
def test_peaks_are_of_their_stage_and_ledger(planner: Planner, client: Client) -> None:
    plan = client.recommend(
        "gpt", devices="4x1GiB", parallelism_layout="uniform-grid", framework="megatron",
        min_stage_count=2, max_stage_count=2, micro_batch_size=4,
    )  # fmt: skip
    assert [stage.devices for stage in plan.stages] == [2, 2]
    peaks = [(100, 400), (200, 300), (150, 900), (50, 800)]
    name = run(HERE / "scripts" / "peaks.py", [plan.name, *(f"{one}:{other}" for one, other in peaks)], planner.address)[
        0
    ].strip()
    report = next(of for of in client.plan(plan.name).message.reports if of.name == name)
    places = {place.rank: place.stage for place in plan.export().message.ranks}
    for stage, figure in enumerate(report.stage_peaks):
        assert figure.bytes == max(one for rank, (one, _) in enumerate(peaks) if places[rank] == stage)
    assert len(report.stage_peaks) == 2 and plan.peak_accounting == "allocated"
    others = [max(other for rank, (_, other) in enumerate(peaks) if places[rank] == stage) for stage in range(2)]
    assert f"peaks reserved: {others[0]}, {others[1]} bytes" in report.source
    assert (report.iteration_seconds, report.iteration_count) == (1.0, 10)


@needs_torch
@pytest.mark.parametrize("framework", ["", "megatron"], ids=["no-framework", "megatron"])
def test_stages_that_take_turns_are_reported_as_one(planner: Planner, client: Client, framework: str) -> None:
    plan = client.recommend(
        "gpt", devices="2x1GiB", virtual_stage_count=2, objective="min-iteration-time", micro_batch_size=4, framework=framework
    )
    assert (len(plan.stages), plan.message.virtual_stage_count, plan.framework) == (4, 2, framework)
    said, _ = run(HERE / "scripts" / "peaks.py", [plan.name, "100:400", "200:300"], planner.address)
    report = next(of for of in client.plan(plan.name).message.reports if of.name == said.strip())
    assert [figure.bytes for figure in report.stage_peaks] == [100, 200]


@needs_torch
def test_an_option_that_there_is_not_is_refused() -> None:
    said, _ = run(HERE / "scripts" / "misspelt.py", [], "127.0.0.1:9")
    assert len(said.splitlines()) == 2 and all("unexpected keyword argument 'warmup'" in line for line in said.splitlines())


@needs_torch
def test_a_planner_that_is_gone_is_one_warning(plan: Plan) -> None:
    (code, said, warned), (other_code, _, other_warned) = two_ranks(HERE / "scripts" / "rank.py", [plan.name], "127.0.0.1:9")
    assert (code, other_code) == (0, 0) and "rank 0: 2 iterations, None" in said
    assert len(warnings(warned)) == 1 and "cannot be reached" in warned and not warnings(other_warned)


@needs_torch
@pytest.mark.slow
def test_a_rank_that_is_gone_is_one_warning(planner: Planner, plan: Plan) -> None:
    (code, said, warned), (other_code, _, other_warned) = two_ranks(
        HERE / "scripts" / "rank.py", [plan.name, "fails"], planner.address
    )
    assert other_code != 0 and "this rank ends" in other_warned
    assert code == 0 and "rank 0: 2 iterations, None" in said and len(warnings(warned)) == 1
    assert not warnings(other_warned)


@needs_torch
def test_the_example_of_an_observed_training_runs(planner: Planner, client: Client, plan: Plan) -> None:
    path = HERE.parent / "examples" / "observe.py"
    ended = two_ranks(path, [plan.name, "4"], planner.address)
    assert [code for code, _, _ in ended] == [0, 0], ended
    found = re.search(r"3 iterations, reported as (\S+)", ended[0][1])
    assert found and found[1] in {of.name for of in client.plan(plan.name).message.reports}


@needs_torch
@pytest.mark.slow
@pytest.mark.skipif(not can("transformers"), reason="transformers is not installed beside torch")
def test_the_trainer_of_transformers_is_observed(planner: Planner, client: Client, tmp_path: Path) -> None:
    plan = client.recommend("gpt", devices="1x1GiB")
    said, warned = run(HERE / "scripts" / "trainer.py", [plan.name, str(tmp_path)], planner.address, CUDA_VISIBLE_DEVICES="")
    # 6 iterations: one warms up, one contains the checkpoint; the last checkpoint is behind the last one.
    assert re.search(r"observed 4 iterations, plans/", said), said + warned
    assert client.plan(plan.name).message.reports[0].source == "transformers"


@needs_torch
@pytest.mark.slow
@pytest.mark.skipif(not can("lightning"), reason="lightning is not installed beside torch")
def test_lightning_is_observed(planner: Planner, client: Client, plan: Plan, tmp_path: Path) -> None:
    before = len(client.plan(plan.name).message.reports)
    script = HERE / "scripts" / "lightning_module.py"
    said, warned = run(script, [plan.name, str(tmp_path), "2"], planner.address, CUDA_VISIBLE_DEVICES="")
    # 8 iterations: one warms up, one contains a validation and one the checkpoint; another validation is behind the last one.
    reported = re.search(r"rank 0: 5 iterations, (plans/\S+)", said)
    assert reported and "rank 1: 5 iterations, None" in said, said + warned
    reports = client.plan(plan.name).message.reports
    assert len(reports) == before + 1 and reports[0].name == reported[1] and list(tmp_path.iterdir())
    assert (reports[0].source, reports[0].iteration_count) == ("lightning", 5) and reports[0].iteration_seconds > 0
    assert not warnings(warned)


@needs_torch
@pytest.mark.slow
@pytest.mark.skipif(not can("lightning"), reason="lightning is not installed beside torch")
def test_lightning_without_a_planner_is_one_warning(plan: Plan, tmp_path: Path) -> None:
    script = HERE / "scripts" / "lightning_module.py"
    said, warned = run(script, [plan.name, str(tmp_path)], "127.0.0.1:9", CUDA_VISIBLE_DEVICES="")
    assert "rank 0: 5 iterations, None" in said, said + warned
    assert len(warnings(warned)) == 1 and "cannot be reached" in warnings(warned)[0]


@needs_torch
@pytest.mark.slow
@pytest.mark.skipif(not can("deepspeed"), reason="DeepSpeed is not installed beside torch")
@pytest.mark.parametrize("engine", [[], ["pipeline"]], ids=["engine", "pipeline"])
def test_deepspeed_is_observed(planner: Planner, client: Client, engine: list[str]) -> None:
    plan = client.recommend("gpt", devices="1x1GiB")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    group = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    assert PYTHON is not None
    path = f"{Path(PYTHON).parent}:{os.environ['PATH']}"
    script = HERE / "scripts" / "deepspeed_engine.py"
    said, warned = run(script, [plan.name, *engine], planner.address, DS_ACCELERATOR="cpu", PATH=path, **group)
    # 12 micro-batches, two of them an iteration; the first one warms up.
    assert re.search(r"observed 5 iterations, plans/", said), said + warned
