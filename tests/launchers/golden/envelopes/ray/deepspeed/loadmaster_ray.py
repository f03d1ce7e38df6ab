"""Written by Loadmaster for plans/golden; do not edit: export again.

Places the plan's ranks on a cluster of Ray and runs the launcher's program as each:

    ray job submit --working-dir=. -- python loadmaster_ray.py ARGUMENTS

ARGUMENTS are the program's own. Each node of the plan is a bundle on a node of its own, each rank an actor with a GPU.
"""

# Ranks of each node of the plan: they follow each other.
NODES = [4]
# What each takes one of.
RESOURCE = "GPU"
PROGRAM = ["train.py", "--deepspeed", "--deepspeed_config=ds_config.json"]
ENVIRONMENT = {}

import os
import socket
import subprocess
import sys

import ray
from ray.util.placement_group import PlacementGroup, placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy


@ray.remote(num_cpus=0, max_restarts=0, max_concurrency=2)
class Rank:
    """A process of the launcher's program, on the node and beside the device that Ray has given it."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None

    def place(self) -> tuple[str, str, list[str]]:
        """Node, its address, and the GPU; on CPUs none."""
        context = ray.get_runtime_context()
        return context.get_node_id(), ray.util.get_node_ip_address(), context.get_accelerator_ids()["GPU"]

    def free_port(self) -> int:
        with socket.socket() as listener:
            listener.bind(("", 0))
            return listener.getsockname()[1]

    def run(self, words: list[str], variables: dict[str, str]) -> int:
        """Runs the program to its end, and returns its exit status."""
        environment = os.environ | variables
        words = [environment.get(word[1:], word) if word.startswith("$") else word for word in words]
        self.process = subprocess.Popen([sys.executable, *words], env=environment)
        return self.process.wait()

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()


def group() -> PlacementGroup:
    """A bundle for each node of the plan."""
    made = placement_group([{RESOURCE: ranks} for ranks in NODES], strategy="STRICT_SPREAD")
    ray.get(made.ready())
    return made


def ranks(made: PlacementGroup) -> list[Rank]:
    """An actor for each rank, in order."""
    takes = {"num_gpus": 1} if RESOURCE == "GPU" else {"num_cpus": 1}
    return [
        Rank.options(
            **takes, scheduling_strategy=PlacementGroupSchedulingStrategy(made, placement_group_bundle_index=node)
        ).remote()
        for node, count in enumerate(NODES)
        for _ in range(count)
    ]


def variables(actors: list[Rank]) -> list[dict[str, str]]:
    """What each rank is told: all of a node see all of its GPUs, and take the one of their local number."""
    places = ray.get([actor.place.remote() for actor in actors])
    port = ray.get(actors[0].free_port.remote())
    told, first = [], 0
    for node, count in enumerate(NODES):
        of_node = places[first : first + count]
        for local in range(count):
            told.append(
                ENVIRONMENT
                | {
                    "RANK": str(first + local),
                    "WORLD_SIZE": str(len(actors)),
                    "LOCAL_RANK": str(local),
                    "LOCAL_WORLD_SIZE": str(count),
                    "GROUP_RANK": str(node),
                    "MASTER_ADDR": places[0][1],
                    "MASTER_PORT": str(port),
                    "CUDA_VISIBLE_DEVICES": ",".join(gpu for _, _, gpus in of_node for gpu in gpus),
                }
            )
        first += count
    return told


def main() -> int:
    """The status of the first rank that fails, which ends all; 0 where none does."""
    ray.init(ignore_reinit_error=True)
    actors = ranks(group())
    told = variables(actors)
    words = [*PROGRAM, *sys.argv[1:]]
    running = [actor.run.remote(words, of) for actor, of in zip(actors, told, strict=True)]
    while running:
        ended, running = ray.wait(running)
        if status := ray.get(ended[0]):
            ray.get([actor.stop.remote() for actor in actors])
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
