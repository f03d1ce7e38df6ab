"""Reads the run that a Loadmaster worker wants trained, and writes what was measured.

Put this file beside a training script (it needs Python 3.8 and nothing else) and list the script as a
command in the worker's configuration. The script then does four things::

    import loadmaster_run

    run = loadmaster_run.read()
    rank = run.rank()                      # of this process: RANK, as torchrun sets it
    with run.fitting(rank):                # all that may run out of memory before it is measured
        model = build(run.model, rank.stage)   # your own code
        for _ in range(run.warm_up_iterations):
            train(model)
    with run.measuring(rank):              # the measured iterations
        for _ in range(run.iterations):
            train(model)
    run.report(rank, parameter_bytes=sum(p.numel() * p.element_size() for p in model.parameters()))

``measuring`` times the block and, where torch with CUDA is there, reads the peak of its caching
allocator in the ledger that the worker's configuration names. A ``MemoryError`` or torch's own
out-of-memory error inside either block is reported as such, and the script ends with exit code 77: for
Loadmaster that is a result, not a failure. The files are described in README.md beside this one.
"""

import contextlib
import json
import os
import re
import sys
import time

RUN_FORMAT = "loadmaster.run/1"
RANK_FORMAT = "loadmaster.rank/1"
EXIT_OUT_OF_MEMORY = 77
PHASES = ("setup", "forward", "backward", "step")
LEDGERS = ("allocated", "reserved", "device")
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


class RunError(Exception):
    """The run file is missing or not understood, or a report makes no sense."""


class Stage:
    """A contiguous group of layers. `layers` are their indices; `ranks` the numbers of its ranks."""

    def __init__(self, data):
        self.stage_index = data["stage_index"]
        self.first_layer = data["first_layer"]
        self.last_layer = data["last_layer"]
        self.layers = range(self.first_layer, self.last_layer + 1)
        self.data_degree = data["data_degree"]
        self.tensor_degree = data["tensor_degree"]
        self.devices = self.data_degree * self.tensor_degree
        self.recompute = data["recompute"]
        self.in_flight = data["in_flight"]
        self.ranks = data["ranks"]


class Rank:
    """A process of the run: its number, its stage and its device.

    `shard` counts the devices of the stage. `cuda_index` is the index of its GPU in this process, None on
    CPU slots. `capacity_bytes` is what it may use: a rank on a share of a GPU must keep to it.
    """

    def __init__(self, data, stage):
        device = data["device"]
        self.rank = data["rank"]
        self.stage = stage
        self.shard = data["shard"]
        self.device_id = device["id"]
        self.backend = device["backend"]
        self.device_kind = device["kind"]
        self.cuda_index = device["cuda_index"]
        self.capacity_bytes = device["capacity_bytes"]
        self.phase = "setup"
        self.iteration_seconds = None
        self.peak_bytes = None


class Run:
    """A run, as README.md describes its file. `data` is all of it."""

    def __init__(self, data):
        if data.get("format") != RUN_FORMAT:
            raise RunError("format is %r, this helper reads %r" % (data.get("format"), RUN_FORMAT))
        self.data = data
        self.name = data["run"]
        self.results = data["results"]
        self.ledger = data["ledger"]
        self.deadline_seconds = data["deadline_seconds"]
        self.iterations = data["iterations"]
        self.warm_up_iterations = data["warm_up_iterations"]
        self.training = data["training"]
        self.model = data["model"]
        self.solo = data["solo"]
        self.stage_count = data["stage_count"]
        self.stages = [Stage(stage) for stage in data["stages"]]
        by_index = {stage.stage_index: stage for stage in self.stages}
        self.ranks = [Rank(rank, by_index[rank["stage_index"]]) for rank in data["ranks"]]

    def rank(self, number=None):
        """The rank of this process: `number`, or else the variable RANK, or else 0."""
        number = int(os.environ.get("RANK", 0)) if number is None else number
        if not 0 <= number < len(self.ranks):
            raise RunError("rank %d is not one of the run's %d" % (number, len(self.ranks)))
        return self.ranks[number]

    def progress(self, rank, fraction, phase):
        """Says how far the run is: `fraction` from 0 to 1, `phase` one of PHASES. Shown to whoever waits."""
        if phase not in PHASES:
            raise RunError("phase is %r, must be one of %s" % (phase, ", ".join(PHASES)))
        rank.phase = phase
        # The first rank speaks for all.
        if rank.rank == 0:
            print("loadmaster: progress %.4f %s" % (fraction, phase), flush=True)

    @contextlib.contextmanager
    def fitting(self, rank):
        """Running out of memory inside is reported and ends the process with exit code 77."""
        try:
            yield rank
        except Exception as error:  # noqa: BLE001 what is no lack of memory goes on
            if not _is_out_of_memory(error):
                raise
            self.out_of_memory(rank, asked_bytes=_asked_bytes(str(error)))
            sys.exit(EXIT_OUT_OF_MEMORY)

    @contextlib.contextmanager
    def measuring(self, rank):
        """Times `run.iterations` iterations and reads torch's peak around them.

        Running out of memory inside is reported as in `fitting`.
        """
        torch = _torch_with_cuda(rank)
        with self.fitting(rank):
            if torch:
                torch.cuda.synchronize(rank.cuda_index)
                torch.cuda.reset_peak_memory_stats(rank.cuda_index)
            start = time.perf_counter()
            yield rank
            if torch:
                torch.cuda.synchronize(rank.cuda_index)
            rank.iteration_seconds = (time.perf_counter() - start) / self.iterations
        if torch:
            rank.peak_bytes = _torch_peak(torch, rank.cuda_index, self.ledger)

    def report(
        self,
        rank,
        peak_bytes=None,
        ledger=None,
        iteration_seconds=None,
        step_seconds=0.0,
        parameter_bytes=0,
        gradient_bytes=0,
        optimizer_bytes=0,
        peak_reserved_bytes=None,
        layers=(),
        losses=(),
        framework=None,
        framework_version=None,
    ):
        """Writes what a rank needed. Every rank of the run must be reported.

        `peak_bytes` and `iteration_seconds` default to what `measuring` found. `ledger` is the one of
        `peak_bytes`, and must be the one that the worker's configuration names. `layers` are dicts with
        `layer`, `forward_seconds`, `backward_seconds` and `recompute_seconds`, means of one pass of
        one micro-batch. 0 static bytes say that nobody knows.
        """
        peak_bytes = rank.peak_bytes if peak_bytes is None else peak_bytes
        seconds = rank.iteration_seconds if iteration_seconds is None else iteration_seconds
        if peak_bytes is None:
            raise RunError(
                "peak_bytes is missing: torch with CUDA is not there, or does not know the %s ledger"
                % self.ledger
            )
        if seconds is None:
            raise RunError("iteration_seconds is missing: train inside `with run.measuring(rank)`")
        torch = sys.modules.get("torch")
        report = {
            "peak_bytes": int(peak_bytes),
            "iteration_seconds": seconds,
            "step_seconds": step_seconds,
            "parameter_bytes": int(parameter_bytes),
            "gradient_bytes": int(gradient_bytes),
            "optimizer_bytes": int(optimizer_bytes),
            "layers": list(layers),
            # JSON has no word for a loss that is no number.
            "losses": [loss if _is_finite(loss) else None for loss in map(float, losses)],
            "framework": framework or ("torch" if torch else ""),
            "framework_version": framework_version or (str(torch.__version__) if torch else ""),
        }
        if torch and getattr(torch, "version", None) and torch.version.cuda:
            report["cuda_version"] = str(torch.version.cuda)
        if peak_reserved_bytes is None and _torch_with_cuda(rank):
            peak_reserved_bytes = torch.cuda.max_memory_reserved(rank.cuda_index)
        if peak_reserved_bytes is not None:
            report["peak_reserved_bytes"] = int(peak_reserved_bytes)
        self._write(rank, ledger, report)

    def out_of_memory(
        self, rank, phase=None, layer=None, asked_bytes=0, held_bytes=None, allowed_bytes=None, ledger=None
    ):
        """Writes that a rank's device was too small: where, and by how much as far as that is known."""
        torch = _torch_with_cuda(rank)
        if held_bytes is None:
            reserved = self.ledger == "reserved"
            read = torch and (torch.cuda.memory_reserved if reserved else torch.cuda.memory_allocated)
            held_bytes = read(rank.cuda_index) if read else 0
        lack = {
            "phase": phase or rank.phase,
            "asked_bytes": int(asked_bytes),
            "held_bytes": int(held_bytes),
            "allowed_bytes": int(rank.capacity_bytes if allowed_bytes is None else allowed_bytes),
        }
        if layer is not None:
            lack["layer"] = layer
        self._write(rank, ledger, {"out_of_memory": lack})

    def _write(self, rank, ledger, content):
        ledger = ledger or self.ledger
        if ledger not in LEDGERS:
            raise RunError("ledger is %r, must be one of %s" % (ledger, ", ".join(LEDGERS)))
        content = dict(content, format=RANK_FORMAT, rank=rank.rank, ledger=ledger)
        path = os.path.join(self.results, "rank-%d.json" % rank.rank)
        # Whole or not at all: the worker looks while the run goes on.
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump(content, file, allow_nan=False)
        os.replace(path + ".new", path)


def read(path=None):
    """The run that the worker wants trained: the file that LOADMASTER_RUN names, or `path`."""
    path = path or os.environ.get("LOADMASTER_RUN")
    if not path:
        raise RunError("LOADMASTER_RUN is not set: this script is started by loadmaster-worker")
    try:
        with open(path, encoding="utf-8") as file:
            return Run(json.load(file))
    except (OSError, ValueError, KeyError) as error:
        raise RunError("%s is not understood: %s: %s" % (path, type(error).__name__, error)) from error


def _torch_with_cuda(rank):
    """torch, if the script has imported it and the rank computes on a GPU."""
    torch = sys.modules.get("torch")
    return torch if torch and rank.cuda_index is not None and torch.cuda.is_available() else None


def _torch_peak(torch, index, ledger):
    if ledger == "allocated":
        return torch.cuda.max_memory_allocated(index)
    if ledger == "reserved":
        return torch.cuda.max_memory_reserved(index)
    # The driver's view has no peak that torch could read.
    return None


def _is_out_of_memory(error):
    return isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"


def _asked_bytes(message):
    """`Tried to allocate 20.00 MiB`, as torch says it; 0 where it does not."""
    found = re.search(r"[Tt]ried to allocate ([0-9.]+) (bytes|KiB|MiB|GiB|TiB)", message)
    return int(float(found.group(1)) * _UNITS[found.group(2)]) if found else 0


def _is_finite(value):
    return value == value and value not in (float("inf"), float("-inf"))
