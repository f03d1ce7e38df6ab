"""What all oracles share: requests in, answers out, and ranks without processes.

A request is one JSON line on standard input: the files of an export, the command that starts it with its
environment, and how many ranks it is for. The answer is one JSON line on file descriptor 3, for launchers
print on standard output. It is one of

* ``{"ranks": [...], "facts": {...}}``: what the launcher made of the export,
* ``{"refused": "..."}``: what the launcher said against it,
* ``{"broken": "..."}``: the oracle itself failed; never to be taken for a refusal.
"""

import contextlib
import dataclasses
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent


class Refused(Exception):
    """Something in the export contradicts itself, in the launcher's words or with its values."""


@dataclasses.dataclass(frozen=True)
class Request:
    """An export, laid out in the current directory."""

    files: dict[str, str]
    command: list[str]
    env: dict[str, str]
    world: int
    mode: str = "build"


@dataclasses.dataclass(frozen=True)
class Rank:
    """What one rank holds after the launcher built it."""

    rank: int
    stage: int
    replica: int
    shard: int
    layers: list[str]
    parameters: int | None


def serve(answer: Callable[[Request], tuple[list[Rank], dict[str, Any]]]) -> None:
    """Answers every line of standard input with the ranks and the facts that `answer` finds."""
    sys.path.insert(0, "")  # exports bring modules, and a launcher imports them from where it was started
    with os.fdopen(3, "w") as answers:
        os.dup2(2, 1)
        for line in sys.stdin:
            print(json.dumps(_answer(answer, json.loads(line))), file=answers, flush=True)


def _answer(answer: Callable[[Request], tuple[list[Rank], dict[str, Any]]], asked: dict[str, Any]) -> dict[str, Any]:
    asked.pop("ranks", None)
    request = Request(**asked)
    said = io.StringIO()  # what argparse says before it exits
    try:
        with _laid_out(request), contextlib.redirect_stderr(said):
            ranks, facts = answer(request)
        return {"ranks": [dataclasses.asdict(rank) for rank in ranks], "facts": facts}
    except Refused as refusal:
        return {"refused": str(refusal)}
    except SystemExit as end:
        return {"refused": said.getvalue().strip() or f"it exits with {end.code}"}
    except Exception as error:  # a launcher may raise anything
        if _raised_here(error):
            return {"broken": "".join(traceback.format_exception(error))}
        return {"refused": f"{type(error).__name__}: {error}"}


def _raised_here(error: Exception) -> bool:
    """Whether the oracle's own code raised it, rather than the launcher or the export."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return pathlib.Path(frame.filename).resolve().parent == HERE


@contextlib.contextmanager
def _laid_out(request: Request) -> Iterator[None]:
    before, environment, modules = os.getcwd(), dict(os.environ), set(sys.modules)
    with tempfile.TemporaryDirectory(prefix="export-") as directory:
        for name, text in request.files.items():
            path = pathlib.Path(directory, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        os.chdir(directory)
        os.environ.update(request.env)
        try:
            yield
        finally:
            os.chdir(before)
            os.environ.clear()
            os.environ.update(environment)
            # The next export may bring modules of the same names.
            for name in set(sys.modules) - modules:
                file = getattr(sys.modules[name], "__file__", None)
                if file and pathlib.Path(file).is_relative_to(directory):
                    del sys.modules[name]


@contextlib.contextmanager
def as_rank(rank: int, world: int, local_world: int = 8) -> Iterator[None]:
    """Makes this process one of `world` ranks: collectives are answered, and move nothing."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    os.environ.update(
        RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank % local_world), LOCAL_WORLD_SIZE=str(local_world)
    )
    dist.init_process_group("fake", rank=rank, world_size=world, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()


@dataclasses.dataclass(frozen=True)
class Launch:
    """What torchrun makes of a command."""

    script: str
    arguments: list[str]
    local_world: int


def torchrun(request: Request, script: str = "train.sh") -> Launch:
    """What torchrun's own parser makes of the command, which the export's script must start as it is."""
    from torch.distributed.run import config_from_args, parse_args

    program, *arguments = request.command
    if program != "torchrun":
        raise Refused(f"the command starts {program}, not torchrun")
    os.environ.update(PET_NODE_RANK="0", PET_MASTER_ADDR="localhost")
    parsed = parse_args(arguments)
    config, _, _ = config_from_args(parsed)
    world = config.max_nodes * config.nproc_per_node
    if config.min_nodes != config.max_nodes or world != request.world:
        raise Refused(f"torchrun starts {world} ranks, and the plan has {request.world}")
    if script in request.files:
        started, environment = _started_by(script)
        if started != request.command:
            raise Refused(f"{script} starts {started}, and the command is {request.command}")
        for name, value in request.env.items():
            if environment.get(name) != value:
                raise Refused(f"{script} sets {name} to {environment.get(name)}, and it must be {value}")
    return Launch(parsed.training_script, parsed.training_script_args, config.nproc_per_node)


# Stands in for torchrun on the PATH: tells how it was called, after the shell's own reading of the script.
RECORDER = """#!{python}
import json, os, sys
open({record!r}, "w").write(json.dumps([["torchrun", *sys.argv[1:]], dict(os.environ)]))
"""


def _started_by(script: str) -> tuple[list[str], dict[str, str]]:
    with tempfile.TemporaryDirectory(prefix="recorder-") as directory:
        record = os.path.join(directory, "record")
        recorder = pathlib.Path(directory, "torchrun")
        recorder.write_text(RECORDER.format(python=sys.executable, record=record))
        recorder.chmod(0o755)
        environment = {
            "HOME": directory,
            "PATH": f"{directory}:/usr/bin:/bin",
            "PET_NODE_RANK": "0",
            "PET_MASTER_ADDR": "localhost",
        }
        ended = subprocess.run(["bash", script], env=environment, capture_output=True, text=True, timeout=60)
        if ended.returncode != 0:
            raise Refused(f"{script}: {ended.stderr.strip()}")
        started, seen = json.loads(pathlib.Path(record).read_text())
        return started, seen
