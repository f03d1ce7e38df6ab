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
import datetime
import functools
import gc
import importlib
import io
import json
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
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
    model: dict[str, Any] = dataclasses.field(default_factory=dict)
    """The case's model, for launchers that cut the user's own."""
    samples: int = 0
    """Samples of an iteration, for launchers that are given a batch and told nothing about it."""
    mode: str = "build"
    """Whether ranks are built one by one ("build") or train together ("train")."""


@dataclasses.dataclass(frozen=True)
class Rank:
    """What one rank holds after the launcher built it."""

    rank: int
    stage: int
    replica: int
    shard: int
    layers: list[str] | list[list[str]]
    """Of the only stage; of each one where it has several in turn."""
    parameters: int | None


class Broken(Exception):
    """The oracle itself failed: its traceback."""


Answer = tuple[list[Rank], dict[str, Any]]


def serve(answer: Callable[[Request], Answer]) -> None:
    """Answers every line of standard input with the ranks and the facts that `answer` finds."""
    sys.path.insert(0, "")  # exports bring modules, and a launcher imports them from where it was started
    with os.fdopen(3, "w") as answers:
        os.dup2(2, 1)
        for line in sys.stdin:
            print(json.dumps(_answer(answer, json.loads(line))), file=answers, flush=True)


def _answer(answer: Callable[[Request], Answer], asked: dict[str, Any]) -> dict[str, Any]:
    asked.pop("ranks", None)  # all of them
    request = Request(**asked)
    with tempfile.TemporaryDirectory(prefix="export-") as directory:
        for name, text in request.files.items():
            path = pathlib.Path(directory, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

        def answered() -> Answer:
            os.chdir(directory)
            os.environ.update(request.env)
            return answer(request)

        try:
            ranks, facts = forked(answered)
        except Refused as refusal:
            return {"refused": str(refusal)}
        except Broken as failure:
            return {"broken": str(failure)}
    return {"ranks": [dataclasses.asdict(rank) for rank in ranks], "facts": facts}


def forked[T](function: Callable[[], T]) -> T:
    """Calls a function in a copy of this process: launchers keep what they were told in globals of all kinds, and
    neither another export nor another rank may find it there."""
    return _result(_fork(function))


def _side_by_side[T](functions: list[Callable[[], T]]) -> list[T]:
    """Calls functions in copies of this process, as many at once as there are processors; their results in order."""
    most = os.cpu_count() or 1
    copies: list[tuple[int, int]] = []
    results: list[T] = []
    try:
        for function in functions:
            if len(copies) == most:
                results.append(_result(copies.pop(0)))
            copies.append(_fork(function))
        while copies:
            results.append(_result(copies.pop(0)))
    finally:
        # Where one was refused, nobody asks what the others say.
        for child, read in copies:
            os.close(read)
            os.waitpid(child, 0)
    return results


def _fork(function: Callable[[], Any]) -> tuple[int, int]:
    """The process of the copy, and the pipe that its result comes through."""
    gc.freeze()  # what is here now is none of the copy's garbage
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(read)
            with os.fdopen(write, "wb") as result:
                loaded = set(sys.modules)
                outcome = _outcome(function)
                pickle.dump((*outcome, _installed(set(sys.modules) - loaded)), result)
        finally:
            os._exit(0)  # also where nobody reads any more: what comes behind this is the original's
    os.close(write)
    return child, read


def _result(copy: tuple[int, int]) -> Any:
    child, read = copy
    with os.fdopen(read, "rb") as result:
        said = result.read()
    _, status = os.waitpid(child, 0)
    if not said:
        raise Broken(f"the process of the oracle ended with status {status}")
    kind, value, modules = pickle.loads(said)
    # Launchers load much of themselves only when it is used. The next copy has it from the start.
    for module in modules:
        with contextlib.suppress(Exception, SystemExit):
            importlib.import_module(module)
    if kind is not None:
        raise kind(value)
    return value


def _installed(modules: set[str]) -> list[str]:
    """Those of the environment: an export's own belong to it alone."""
    files = {name: getattr(sys.modules[name], "__file__", None) or "" for name in modules}
    return sorted(name for name, file in files.items() if file.startswith((sys.prefix, sys.base_prefix)))


def _outcome(function: Callable[[], Any]) -> tuple[type[Exception] | None, Any]:
    said = io.StringIO()  # what argparse says before it exits
    try:
        with contextlib.redirect_stderr(said):
            return None, function()
    except (Refused, Broken) as known:
        return type(known), str(known)
    except SystemExit as end:
        return Refused, said.getvalue().strip() or f"it exits with {end.code}"
    except Exception as error:  # a launcher may raise anything
        trace = "".join(traceback.format_exception(error))
        print(trace, file=sys.__stderr__, flush=True)
        return (Broken, trace) if _raised_here(error) else (Refused, f"{type(error).__name__}: {error}")


def _raised_here(error: Exception) -> bool:
    """Whether the oracle's own code raised it, rather than the launcher or the export."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return pathlib.Path(frame.filename).resolve().parent == HERE


def each_rank(build: Callable[[int], tuple[Rank, dict[str, Any]]], world: int, local_world: int) -> Answer:
    """Builds every rank as if it were one of `world` processes, which must agree on the facts."""

    def as_rank(rank: int) -> tuple[Rank, dict[str, Any]]:
        fake_process_group(rank, world, local_world)
        return build(rank)

    # What a launcher loads with its first rank the others have from the start.
    built = [forked(functools.partial(as_rank, 0))]
    built += _side_by_side([functools.partial(as_rank, rank) for rank in range(1, world)])
    facts = built[0][1]
    for rank, (_, other) in enumerate(built):
        if other != facts:
            raise Refused(f"rank {rank} says {other}, and rank 0 {facts}")
    return [rank for rank, _ in built], facts


def real_ranks[T](train: Callable[[int], T], world: int) -> list[T]:
    """Runs every rank at the same time, in processes that really exchange tensors."""
    with tempfile.TemporaryDirectory(prefix="ranks-") as directory:
        meeting = f"file://{directory}/meeting"
        return [
            _result(rank)
            for rank in [_fork(functools.partial(_real_rank, train, rank, world, meeting)) for rank in range(world)]
        ]


def _real_rank[T](train: Callable[[int], T], rank: int, world: int, meeting: str) -> T:
    import torch.distributed as dist

    _set_rank(rank, world, world)
    timeout = datetime.timedelta(seconds=120)  # of a rank whose peer failed
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world, timeout=timeout)
    return train(rank)


def fake_process_group(rank: int, world: int, local_world: int) -> None:
    """Makes this process one of `world` ranks: collectives are answered, and move nothing."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    _set_rank(rank, world, local_world)
    dist.init_process_group("fake", rank=rank, world_size=world, store=FakeStore())


def _set_rank(rank: int, world: int, local_world: int) -> None:
    os.environ.update(
        RANK=str(rank),
        WORLD_SIZE=str(world),
        LOCAL_RANK=str(rank % local_world),
        LOCAL_WORLD_SIZE=str(local_world),
        MASTER_ADDR="localhost",
        MASTER_PORT="29500",
    )


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
        record, recorder = pathlib.Path(directory, "record"), pathlib.Path(directory, "torchrun")
        recorder.write_text(RECORDER.format(python=sys.executable, record=str(record)))
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
        started, seen = json.loads(record.read_text())
        return started, seen
