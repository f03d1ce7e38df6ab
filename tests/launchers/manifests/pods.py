"""What controllers make of a manifest: its pods in order, each with what its container finds in its environment.

Every kind's variables are those that its controller sets: JOB_COMPLETION_INDEX of Kubernetes' Job, LWS_… of LeaderWorkerSet,
RANK and MASTER_… of Kubeflow's operator, PET_… of its Trainer's plugin for torch.
"""

import dataclasses
import pathlib
import subprocess
import tempfile
from typing import Any

PET = {"PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT"}
"""What Kubeflow Trainer refuses in a TrainJob."""
CONTAINERS = {"PyTorchJob": "pytorch", "TrainJob": "node"}
"""Names by which controllers find the container."""
STARTERS = ("torchrun", "deepspeed", "accelerate", "python")


@dataclasses.dataclass
class Pod:
    gpus: int
    annotations: dict[str, str]
    variables: dict[str, str]
    container: dict[str, Any]
    first: str
    """The name by which the first pod is found."""
    host: str
    """The node that it must be on; empty where any is right."""


def of(template: dict[str, Any], first: str, **variables: str) -> Pod:
    container = template["spec"]["containers"][0]
    own = {variable["name"]: variable["value"] for variable in container.get("env", [])}
    # Ranks on CPUs need none.
    gpus = container.get("resources", {}).get("limits", {}).get("nvidia.com/gpu", 0)
    annotations = template.get("metadata", {}).get("annotations", {})
    host = template["spec"].get("nodeSelector", {}).get("kubernetes.io/hostname", "")
    return Pod(gpus, annotations, own | variables, container, first, host)


def sets(workload: dict[str, Any]) -> list[list[Pod]]:
    """The pods of each template."""
    name, spec = workload["metadata"]["name"], workload["spec"]
    match workload["kind"]:
        case "Job":
            return [indexed(spec, f"{name}-0.{spec['template']['spec']['subdomain']}")]
        case "JobSet":
            jobs = spec["replicatedJobs"]
            first = f"{name}-{jobs[0]['name']}-0-0.{spec['network']['subdomain']}"
            return [indexed(job["template"]["spec"], first) for job in jobs]
        case "LeaderWorkerSet":
            of_group = spec["leaderWorkerTemplate"]
            first = f"{name}-0.{name}"
            return [
                [
                    of(of_group["workerTemplate"], first, LWS_WORKER_INDEX=str(index), LWS_LEADER_ADDRESS=first)
                    for index in range(of_group["size"])
                ]
            ]
        case "PyTorchJob":
            specs, first = spec["pytorchReplicaSpecs"], f"{name}-master-0"
            world = sum(replica["replicas"] for replica in specs.values()) * int(spec["nprocPerNode"])
            common = {"MASTER_ADDR": first, "MASTER_PORT": "23456", "WORLD_SIZE": str(world)}
            workers = specs.get("Worker", {"replicas": 0})
            return [
                [of(specs["Master"]["template"], first, RANK="0", **common)],
                [of(workers["template"], first, RANK=str(1 + at), **common) for at in range(workers["replicas"])],
            ]
        case "TrainJob":
            return [trained(name, spec)]
    raise ValueError(f"{workload['kind']} has no pods")


def indexed(job: dict[str, Any], first: str) -> list[Pod]:
    assert job["completionMode"] == "Indexed" and job["completions"] == job["parallelism"]
    return [of(job["template"], first, JOB_COMPLETION_INDEX=str(index)) for index in range(job["completions"])]


def trained(name: str, spec: dict[str, Any]) -> list[Pod]:
    """The trainer's pods: the runtime's, with the patches."""
    trainer = spec["trainer"]
    (patch,) = spec["runtimePatches"]
    (job,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    template = job["template"]["spec"]["template"]
    reserved = PET & {variable["name"] for variable in trainer.get("env", [])}
    assert not reserved and job["name"] == "node", f"Kubeflow Trainer reserves {reserved}"
    container = template["spec"]["containers"][0] | {
        "command": trainer["command"],
        "args": trainer["args"],
        "env": trainer.get("env", []),
        "resources": trainer.get("resourcesPerNode", {}),
    }
    template = template | {"spec": template["spec"] | {"containers": [container]}}
    first, count = f"{name}-node-0-0.{name}", trainer["numNodes"]
    common = {
        "PET_NNODES": str(count),
        "PET_NPROC_PER_NODE": str(trainer["numProcPerNode"]),
        "PET_MASTER_ADDR": first,
        "PET_MASTER_PORT": "29400",
    }
    return [of(template, first, PET_NODE_RANK=str(index), **common) for index in range(count)]


def started(pod: Pod, files: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    """The command that a pod's script ends with, and its environment: what a launcher is called here says so and ends."""
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        for name in ("files", "work", "bin"):
            (folder / name).mkdir()
        mount = pod.container["volumeMounts"][0]["mountPath"]
        for name, text in files.items():
            (folder / "files" / name).write_text(text.replace(mount, str(folder / "files")))
        says = f"#!/usr/bin/env bash\nprintf '%s\\0' \"${{0##*/}}\" \"$@\" >{folder}/words; env -0 >{folder}/variables\n"
        for name in STARTERS:
            (folder / "bin" / name).write_text(says)
            (folder / "bin" / name).chmod(0o755)
        # What has trained would wait for ever.
        (folder / "bin" / "sleep").symlink_to("/bin/true")
        command = [word.replace(mount, str(folder / "files")) for word in pod.container["command"]]
        path = {"PATH": f"{folder}/bin:/usr/bin:/bin"}
        subprocess.run([*command, "--own", "a b"], env=pod.variables | path, cwd=folder / "work", check=True, timeout=60)
        words = (folder / "words").read_text().split("\0")[:-1]
        pairs = (folder / "variables").read_text().split("\0")[:-1]
        there = {path.name for path in (folder / "work").iterdir()}
        assert there == set(files), f"the program finds {there}"
        return words, dict(pair.split("=", 1) for pair in pairs)
