"""Written by Loadmaster for plans/golden. Do not edit. Export the plan instead.

Places the plan's ranks on a cluster of Ray and runs the framework's program as each:

    ray job submit --working-dir=. -- python loadmaster_ray.py ARGUMENTS

ARGUMENTS are the program's own. Each node of the plan is a bundle on a node of its own, each rank an actor with a GPU.
"""

# Ranks of each node of the plan: they follow each other.
NODES = [2, 2]
# The resource of which each rank takes one.
RESOURCE = "GPU"
# The placement: the name or address of each of these nodes, and the GPUs of its ranks in order, as CUDA names them.
PLACEMENT = [["127.0.0.3", ["GPU-8d2f0c4e", "GPU-1b7a93d5"]], ["127.0.0.2", ["6", "1"]]]
PROGRAM = ["train.py"]
ENVIRONMENT = {}

import os
import socket
import subprocess
import sys
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy


@ray.remote(num_cpus=0, max_restarts=0, max_concurrency=2)
class Rank:
    """A process of the framework's program, on the node and the device that Ray has assigned."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None

    def place(self) -> tuple[str, list[str]]:
        """The node's address, and the GPU where Ray has chosen one."""
        return ray.util.get_node_ip_address(), ray.get_runtime_context().get_accelerator_ids()["GPU"]

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


def is_called(node: dict[str, Any], name: str) -> bool:
    """Returns whether a name is that of a Ray node; only one of the two may contain the domain."""
    host = node["NodeManagerHostname"]
    if name in (host, node["NodeManagerAddress"]):
        return True
    return ("." in host) != ("." in name) and host.partition(".")[0] == name.partition(".")[0]


def bundles() -> list[dict[str, float]]:
    """Returns the resources that each node of the plan reserves: a device per rank, or all GPUs of a placement's node."""
    if not PLACEMENT:
        return [{RESOURCE: ranks} for ranks in NODES]
    there = [node for node in ray.nodes() if node["Alive"]]
    reserved = []
    for (name, gpus), ranks in zip(PLACEMENT, NODES, strict=True):
        node = next((node for node in there if is_called(node, name)), None)
        if node is None:
            hosts = ", ".join(sorted(node["NodeManagerHostname"] + " at " + node["NodeManagerAddress"] for node in there))
            sys.exit(f"the plan is placed on {name}, which is not a node of this Ray cluster. Place it on nodes of {hosts}")
        has = node["Resources"].get(RESOURCE, 0)
        if has < ranks:
            sys.exit(f"{name} has {has:g} {RESOURCE}s in this cluster of Ray, and the plan has {ranks} ranks there: place the plan anew")
        # Ray gives each node a resource with the node's address as its name.
        reserved.append({RESOURCE: has if gpus else ranks, f"node:{node['NodeManagerAddress']}": 0.001})
    return reserved


def group() -> PlacementGroup:
    """A bundle for each node of the plan."""
    wanted = bundles()
    made = placement_group(wanted, strategy="STRICT_SPREAD")
    if not made.wait(10):
        print(f"loadmaster: waiting until Ray has {wanted}, each on a node of its own", file=sys.stderr, flush=True)
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
    """Returns the environment of each rank: it sees all GPUs of its node, and uses the one with its local rank."""
    places = ray.get([actor.place.remote() for actor in actors])
    port = ray.get(actors[0].free_port.remote())
    told, first = [], 0
    for node, count in enumerate(NODES):
        gpus = [gpu for _, of_rank in places[first : first + count] for gpu in of_rank]
        if PLACEMENT:
            gpus = PLACEMENT[node][1]
        for local in range(count):
            told.append(
                ENVIRONMENT
                | {
                    "RANK": str(first + local),
                    "WORLD_SIZE": str(len(actors)),
                    "LOCAL_RANK": str(local),
                    "LOCAL_WORLD_SIZE": str(count),
                    "GROUP_RANK": str(node),
                    "MASTER_ADDR": places[0][0],
                    "MASTER_PORT": str(port),
                    # Indices are those of NVML, and of Ray, which count by bus.
                    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
                    "CUDA_VISIBLE_DEVICES": ",".join(gpus),
                }
            )
        first += count
    return told


def main() -> int:
    """Returns the status of the first rank that fails, which stops all ranks, or 0 if no rank fails."""
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
