"""Runs exports for Ray on a real cluster of two nodes, whose GPUs are declared, and looks at what every rank was told.

    python3 tests/launchers/manifests/ray_cluster.py        golden ones
    target/debug/bench exports --manifest ray --plans 100 | python3 tests/launchers/manifests/ray_cluster.py -

Runs in the environment of manifests/install.sh. The program meets the first rank where it is told to, then says what it found.
Plans that are bound must be on the very nodes and GPUs of their placement, though Ray has others free.
Random plans on other numbers of nodes than the cluster has, or with more ranks than a node's GPUs, are passed over and counted.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any

import check
import ray.cluster_utils

GPUS = 8
NODES = 2
ADDRESSES = [f"127.0.0.{2 + node}" for node in range(NODES)]
PROGRAM = """
import json, os, pathlib, socket, sys, time
keys = ("RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR MASTER_PORT CUDA_VISIBLE_DEVICES").split()
told = {key: os.environ[key] for key in keys}
# The actor that started this is a child of its node's raylet.
actor = pathlib.Path(f"/proc/{os.getppid()}/stat").read_text()
told["node"] = actor.rpartition(")")[2].split()[1]
place = (told["MASTER_ADDR"], int(told["MASTER_PORT"]))
rank, world = int(told["RANK"]), int(told["WORLD_SIZE"])
if "--fail" in sys.argv:
    if rank == world - 1:
        sys.exit(3)
    time.sleep(600)
if rank == 0:
    with socket.create_server(place, backlog=world) as server:
        met = sorted(int(server.accept()[0].recv(8)) for _ in range(world - 1))
    assert met == list(range(1, world)), met
else:
    for _ in range(600):
        try:
            with socket.create_connection(place) as link:
                link.sendall(str(rank).encode())
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
    else:
        sys.exit("nobody is there")
report = pathlib.Path(os.environ["REPORT"]) / f"{rank}.json"
report.write_text(json.dumps({"told": told, "words": sys.argv[1:], "environment": dict(os.environ)}))
"""
"""The launcher's program, in its place."""


Placement = list[tuple[str, list[str]]]
"""The name of each node, and the GPUs of its ranks in order."""


def run(folder: pathlib.Path, address: str, *words: str) -> subprocess.CompletedProcess[bytes]:
    """What `ray job submit --working-dir=. -- python loadmaster_ray.py` does."""
    driver = (
        "import ray, runpy, sys\n"
        f"ray.init({address!r}, runtime_env={{'working_dir': {str(folder)!r}}})\n"
        "sys.argv = sys.argv[1:]\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    program = [sys.executable, "-c", driver, str(folder / "loadmaster_ray.py"), *words]
    return subprocess.run(program, capture_output=True, timeout=300)


def write(folder: pathlib.Path, files: dict[str, str]) -> list[str]:
    """The export and its program; returns the program's words."""
    for name, text in files.items():
        (folder / name).write_text(text)
    said: dict[str, Any] = {}
    head = files["loadmaster_ray.py"].partition("\nimport os")[0]
    exec(head, said)  # noqa: S102 constants alone stand there
    words = said["PROGRAM"]
    at = 1 if words[0] == "-m" else 0
    path = folder / (words[at].replace(".", "/") + ".py" if at else words[0])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(PROGRAM)
    return words[at + 1 :]


def address_of(raylet: str) -> str:
    """Where a node's process was told to be."""
    words = pathlib.Path(f"/proc/{raylet}/cmdline").read_text().split("\0")
    return next(word.partition("=")[2] for word in words if word.startswith("--node_ip_address="))


def wrong(
    files: dict[str, str], node_ranks: list[int], placement: Placement, address: str, report: pathlib.Path
) -> str | None:
    """What is wrong with what the ranks were told; None where nothing is."""
    has_gpus = 'RESOURCE = "GPU"' in files["loadmaster_ray.py"]
    for path in report.iterdir():
        path.unlink()
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        words = write(folder, files)
        ended = run(folder, address, "--own", "a b")
    if ended.returncode:
        return f"it ended with {ended.returncode}: {ended.stderr.decode()[-2000:]}"
    world = sum(node_ranks)
    if len(list(report.iterdir())) != world:
        return f"{len(list(report.iterdir()))} of {world} ranks ran"
    ranks = [json.loads((report / f"{rank}.json").read_text()) for rank in range(world)]
    nodes, first = [], 0
    for node, count in enumerate(node_ranks):
        of_node = ranks[first : first + count]
        ids = {rank["told"]["node"] for rank in of_node}
        gpus = {rank["told"]["CUDA_VISIBLE_DEVICES"] for rank in of_node}
        seen = {gpu for gpu in next(iter(gpus)).split(",") if gpu}
        if len(ids) != 1 or len(gpus) != 1 or len(seen) != (count if has_gpus else 0):
            return f"ranks of node {node} are on {ids} with GPUs {gpus}"
        nodes += ids
        if placement and (found := (address_of(next(iter(ids))), next(iter(gpus)).split(","))) != tuple(placement[node]):
            return f"node {node} is bound to {placement[node]}, and its ranks are on {found}"
        for local, rank in enumerate(of_node):
            want = {"RANK": first + local, "WORLD_SIZE": world, "LOCAL_RANK": local, "LOCAL_WORLD_SIZE": count, "GROUP_RANK": node}
            found = {name: int(rank["told"][name]) for name in want}
            expected = [variables_of(word, rank["environment"]) for word in words] + ["--own", "a b"]
            if found != want or rank["words"] != expected:
                return f"rank {first + local} was told {found} and {rank['words']}, not {want} and {expected}"
        first += count
    return None if len(set(nodes)) == len(node_ranks) else f"nodes of the plan share one of Ray's: {nodes}"


def variables_of(word: str, environment: dict[str, str]) -> str:
    return environment[word[1:]] if word.startswith("$") else word


def fails(files: dict[str, str], address: str) -> str | None:
    """A rank that fails ends all, with its status."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        write(folder, files)
        ended = run(folder, address, "--fail")
    took = time.monotonic() - began
    return None if ended.returncode == 3 and took < 120 else f"a rank that failed ended all with {ended.returncode}"


def lacks(files: dict[str, str], address: str) -> str | None:
    """A placement to a node that is not there is refused, and says which there are."""
    changed = files | {"loadmaster_ray.py": files["loadmaster_ray.py"].replace(ADDRESSES[1], "elsewhere")}
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        write(folder, changed)
        ended = run(folder, address)
    told = ended.stderr.decode()
    is_told = "bound to elsewhere, which" in told and ADDRESSES[0] in told
    return None if ended.returncode and is_told else f"a node that is not there ended with {ended.returncode}: {told[-500:]}"


def golden() -> list[tuple[str, dict[str, str], list[int], Placement]]:
    found = []
    for path in sorted((check.GOLDEN / "ray").iterdir()):
        asked = json.loads((path / "asked.json").read_text())
        files = {file.name: file.read_text() for file in path.iterdir() if file.suffix != ".pyc" and file.is_file()}
        placement = [tuple(of) for of in asked.get("placement", [])]
        found.append((path.name, files, check.node_ranks(asked), placement))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("random", nargs="?", choices=["-"], help="read random plans from standard input")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no further plan after these")
    asked = parser.parse_args()
    lines = (json.loads(text) for text in sys.stdin) if asked.random else iter(())
    random = ((line["framework"], line["files"], line["node_ranks"], [tuple(of) for of in line["placement"]]) for line in lines)
    began, count, passed, failures = time.monotonic(), 0, 0, []
    with tempfile.TemporaryDirectory() as made:
        # What processes of the cluster find in their environment is what it was started with.
        os.environ["REPORT"] = made
        cluster = ray.cluster_utils.Cluster()
        for node in ADDRESSES:
            cluster.add_node(num_cpus=4, num_gpus=GPUS, node_ip_address=node)
        plans = random if asked.random else iter(golden())
        for name, files, node_ranks, placement in plans:
            # What is left is read all the same: whoever draws plans is not to find nobody there.
            if len(node_ranks) > NODES or max(node_ranks) > GPUS or (count > 0 and time.monotonic() - began > asked.seconds):
                passed += 1
                continue
            count += 1
            if found := wrong(files, node_ranks, placement, cluster.address, pathlib.Path(made)):
                failures.append(f"ray/{name}: {found}")
        if not asked.random:
            first = golden()[0][1]
            bound = next(files for _, files, _, placement in golden() if len(placement) == NODES)
            found = [fails(first, cluster.address), lacks(bound, cluster.address)]
            failures += [f"ray: {of}" for of in found if of]
        cluster.shutdown()
    if count == 0:
        failures.append("ray: no plan was run")
    kind = "random" if asked.random else "golden"
    took = time.monotonic() - began
    print(f"{'ray':28} {count:6} {kind} plans, {passed} passed over, {len(failures)} differ, {took:.1f} s", flush=True)
    for failure in failures[:10]:
        print(f"FAILED {failure}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
