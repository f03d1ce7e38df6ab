"""What is shipped: types, the wheel with what is generated, the examples."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from planner import PROGRAMS, Planner, environment

import loadmaster
from loadmaster._wire import options

PACKAGE = Path(__file__).resolve().parents[1]
REPOSITORY = PACKAGE.parents[1]


def has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*.py*") if "__pycache__" not in path.parts}


@pytest.mark.skipif(not has("mypy"), reason="mypy is not installed")
def test_types_are_strict() -> None:
    # Each by itself: `observe` is a module of torch and of the examples.
    for part in ("src/loadmaster", "examples/recommend.py", "examples/observe.py", "tools/generate.py", "tests"):
        mypy = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", part]
        done = subprocess.run(mypy, cwd=PACKAGE, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_version_is_that_of_the_planner() -> None:
    workspace = (REPOSITORY / "Cargo.toml").read_text()
    assert f'\nversion = "{loadmaster.__version__}"\n' in workspace


@pytest.mark.skipif(not has("setuptools"), reason="setuptools is not installed")
def test_a_wheel_has_the_package_alone(tmp_path: Path) -> None:
    # A checkout, whose source distribution makes the wheel. Where they cannot be generated, the messages are copied.
    source = tmp_path / "deploy" / "python"
    without = ("__pycache__", "*.egg-info", "build", *(["_wire"] if has("grpc_tools") else []))
    shutil.copytree(PACKAGE, source, ignore=shutil.ignore_patterns(*without))
    (tmp_path / "proto").symlink_to(REPOSITORY / "proto")
    (tmp_path / "deploy" / "errors.md").symlink_to(REPOSITORY / "deploy" / "errors.md")
    asked = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    sdist = [sys.executable, "-c", f"from setuptools.build_meta import build_sdist; build_sdist({str(tmp_path)!r})"]
    subprocess.run(sdist, cwd=source, env=asked, check=True, capture_output=True)
    [distribution] = tmp_path.glob("*.tar.gz")
    wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*wheel, "-w", str(tmp_path), str(distribution)], check=True, capture_output=True)
    [made] = tmp_path.glob("*.whl")
    assert made.name == f"loadmaster-{loadmaster.__version__}-py3-none-any.whl"
    names = zipfile.ZipFile(made).namelist()
    assert {name.split("/")[0] for name in names} == {"loadmaster", f"loadmaster-{loadmaster.__version__}.dist-info"}
    shipped = {name.removeprefix("loadmaster/") for name in names if name.startswith("loadmaster/")}
    assert {f"_wire/{name}" for name in ("v1/plan_pb2.py", "v1/plan_pb2.pyi", "options.py", "remedies.py")} <= shipped
    assert {"py.typed", "torch/__init__.py"} <= shipped
    assert shipped - {"py.typed"} == files(PACKAGE / "src" / "loadmaster") - {"py.typed"}


def test_words_are_those_of_the_command_line() -> None:
    line = [str(PROGRAMS / "loadmaster"), "plan", "recommend", "--help"]
    told = subprocess.run(line, capture_output=True, text=True, check=True, env=environment()).stdout
    listed = set(re.findall(r"^\s+- ([a-z0-9-]+)(?::|$)", told, re.M))
    for words in (
        options.ObjectiveWord,
        options.ScheduleWord,
        options.ParallelismLayoutWord,
        options.SearchModeWord,
    ):
        assert set(words.__args__) <= listed, told  # type: ignore[attr-defined]


def test_the_example_recommends_and_exports(planner: Planner, tmp_path: Path) -> None:
    example = [sys.executable, str(PACKAGE / "examples" / "recommend.py"), "gpt"]
    asked = {**environment(), "LOADMASTER_ADDRESS": planner.address}
    done = subprocess.run(
        [*example, "2x1GiB", "deepspeed", str(tmp_path / "plan")], capture_output=True, text=True, env=asked, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "stage 0: layers 0 to" in done.stdout and (tmp_path / "plan" / "ds_config.json").exists()
    done = subprocess.run(
        [*example, "2x64KiB", "deepspeed", str(tmp_path)], capture_output=True, text=True, env=asked, check=False
    )
    assert done.returncode == 1 and "what helps: " in done.stderr
