"""One planner with a worker and a profile, for all tests that do not harm it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from planner import PROGRAMS, Planner

import loadmaster

#: A model that trains in milliseconds: six layers.
TINY = {
    "family": "gpt2",
    "gpt2": {"blocks": 3, "hidden_size": 32, "heads": 2, "sequence_length": 16, "vocabulary_size": 100},
}


@pytest.fixture(scope="session")
def bare() -> Iterator[Planner]:
    """A planner with a worker."""
    assert (PROGRAMS / "loadmaster").exists(), f"build the programs into {PROGRAMS}, or name them: LOADMASTER_PROGRAMS=/path"
    planner = Planner()
    try:
        planner.start_worker()
        yield planner
    finally:
        planner.close()


@pytest.fixture(scope="session")
def measured(bare: Planner) -> tuple[loadmaster.Profile, list[loadmaster.Progress]]:
    """The profile `gpt`, and the progress that was told while it was measured."""
    told: list[loadmaster.Progress] = []
    with loadmaster.Client(bare.address) as client:
        begun = client.profile(TINY, profile_id="gpt", training={"micro_batch_size": 4, "micro_batch_count": 4})
        profile = begun.wait(progress=told.append)
    return profile, told


@pytest.fixture(scope="session")
def planner(bare: Planner, measured: object) -> Planner:
    """A planner with a worker and the profile `gpt`."""
    return bare


@pytest.fixture
def client(planner: Planner) -> Iterator[loadmaster.Client]:
    """A client of that planner."""
    with loadmaster.Client(planner.address) as client:
        yield client
