"""Measurements of all ranks, at rank 0."""

from __future__ import annotations

import itertools
import json
import os
from dataclasses import asdict, dataclass
from datetime import timedelta

from torch import distributed

#: Longest wait of rank 0 for the measurements of the others.
PATIENCE = timedelta(seconds=30)

_numbers = itertools.count()


@dataclass(frozen=True)
class Measured:
    """Measurements of one rank."""

    iterations: int
    #: Mean seconds of one iteration.
    iteration_seconds: float
    #: Peak bytes of live tensors on its device; None without a GPU.
    allocated_bytes: int | None
    #: Peak bytes that the allocator held of it.
    reserved_bytes: int | None
    device_kind: str


def next_number() -> int:
    """A number for an observer: the same in each rank, as all make theirs in the same order."""
    return next(_numbers)


def gather(own: Measured, number: int) -> list[Measured] | None:
    """Of all ranks in order, at rank 0; None at the others, which do not wait.

    Goes through the store that the ranks have found each other by rather than a collective: that would hang where a rank is
    gone, and wait for what GPUs still compute.
    """
    if not (distributed.is_available() and distributed.is_initialized()):
        if int(os.environ.get("WORLD_SIZE") or 1) > 1:
            raise RuntimeError("the ranks have no process group (any more): end the report before destroy_process_group()")
        return [own]
    store = distributed.distributed_c10d._get_default_store()
    rank, world = distributed.get_rank(), distributed.get_world_size()
    keys = [f"loadmaster/observed/{number}/{of}" for of in range(world)]
    store.set(keys[rank], json.dumps(asdict(own)))
    if rank != 0:
        return None
    store.wait(keys, PATIENCE)
    return [Measured(**json.loads(store.get(key))) for key in keys]
