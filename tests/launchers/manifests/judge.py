"""Whether a manifest is what its plan says: taken by the API, with a GPU for every rank, in the ranks' order."""

import argparse
import re
from typing import Any

import pods
import schemas
import yaml

LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
KEY = re.compile(r"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
KUEUE = "kueue.x-k8s.io/podset-"
POD_SETS = 18
"""Most that a Workload of Kueue has (`jobframework.MaxPodSets`)."""


def wrong(
    manifest: str,
    node_ranks: list[int],
    launcher: str,
    queue: str,
    seen: set[str] | None = None,
    has_gpus: bool = True,
    hosts: list[str] | None = None,
) -> str | None:
    """What is wrong with it; None where nothing is. With `hosts`, those of a placement, each node of the plan is one of them."""
    documents = list(yaml.load_all(manifest, yaml.CSafeLoader))
    for document in documents:
        if found := schemas.wrong(document, seen):
            return found
    (config,) = (document for document in documents if document["kind"] == "ConfigMap")
    (workload,) = (document for document in documents if document["kind"] not in ("ConfigMap", "Service"))
    sets = [of for of in pods.sets(workload) if of]
    every = [pod for of in sets for pod in of]
    if [pod.gpus for pod in every] != [ranks if has_gpus else 0 for ranks in node_ranks]:
        return f"pods have {[pod.gpus for pod in every]} GPUs, and the plan's nodes {node_ranks} ranks"
    if [pod.host for pod in every] != (hosts or [""] * len(every)):
        return f"pods are for the nodes {[pod.host for pod in every]}, and the placement has {hosts}"
    if workload["metadata"].get("labels", {}).get("kueue.x-k8s.io/queue-name", "") != queue:
        return f"the queue is not {queue}"
    if queue and len(sets) > POD_SETS:
        return f"Kueue admits no workload of {len(sets)} sets of pods"
    for document in documents:
        if document["metadata"] != workload["metadata"] | {"labels": None} and document is not workload:
            names = {key: value for key, value in workload["metadata"].items() if key != "labels"}
            if document["metadata"] != names:
                return f"a {document['kind']} is called {document['metadata']}"
    return (
        wrong_names(workload, len(every))
        or wrong_topology([of[0].annotations for of in sets], [len(of) for of in sets])
        or wrong_service(documents, workload)
        or wrong_start(every, node_ranks, launcher, config["data"])
    )


def wrong_names(workload: dict[str, Any], count: int) -> str | None:
    """What controllers append must leave labels (JobSet's webhook; Kubernetes' own validation of pods and services)."""
    name, last = workload["metadata"]["name"], count - 1
    longest = {
        "Job": f"{name}-{last}-abcde",
        "JobSet": f"{name}-{workload['spec'].get('replicatedJobs', [{'name': ''}])[-1]['name']}-0-{last}-abcde",
        "TrainJob": f"{name}-node-0-{last}-abcde",
        "PyTorchJob": f"{name}-worker-{last}",
        # The revision of a stateful set is a label of its pods.
        "LeaderWorkerSet": f"{name}-0-0123456789",
    }[workload["kind"]]
    if len(longest) > 63 or not LABEL.fullmatch(longest):
        return f"{longest} is no label"
    return None


def wrong_topology(annotations: list[dict[str, str]], counts: list[int]) -> str | None:
    """Kueue's webhook: ValidateTASPodSetRequest and ValidatePodSetGroupingTopology, rule by rule."""
    for of, count in zip(annotations, counts, strict=True):
        said = {name.removeprefix(KUEUE): value for name, value in of.items() if name.startswith(KUEUE)}
        # "must not contain more than one topology annotation"
        if "required-topology" in said and "preferred-topology" in said:
            return "required and preferred topology together"
        # ValidateLabelName of each level
        for name in ("required-topology", "preferred-topology", "slice-required-topology"):
            if name in said and not KEY.fullmatch(said[name]):
                return f"{said[name]} is no key of a label"
        # "must be set when … is specified", and the other way round
        if ("slice-required-topology" in said) != ("slice-size" in said):
            return "one of the slices' annotations without the other"
        # "must be greater than or equal to 1", "must not be greater than pod set count"
        if "slice-size" in said and not (1 <= int(said["slice-size"]) <= count and count % int(said["slice-size"]) == 0):
            return f"slices of {said['slice-size']} of {count} pods"
        # "may not be set when … is specified", "may not be set when neither …", "must not be a number"
        if "group-name" in said and (
            "slice-size" in said
            or not {"required-topology", "preferred-topology"} & set(said)
            or said["group-name"].isdigit()
        ):
            return "a group that Kueue refuses"
    groups = [of for of in annotations if f"{KUEUE}group-name" in of]
    # "exactly 2 pod sets", "at least one pod set has only 1 replica", "consistent"
    if groups and not (len(groups) == len(counts) == 2 and 1 in counts and groups[0] == groups[1]):
        return "a group that is not of two sets, one of them a pod"
    return None


def wrong_service(documents: list[dict[str, Any]], workload: dict[str, Any]) -> str | None:
    """A Job has no service of its own."""
    services = [document for document in documents if document["kind"] == "Service"]
    if workload["kind"] != "Job":
        return "a service that the controller makes itself" if services else None
    (service,) = services
    headless = {"clusterIP": "None", "publishNotReadyAddresses": True}
    selector = {"selector": {"batch.kubernetes.io/job-name": workload["metadata"]["name"]}}
    subdomain = workload["spec"]["template"]["spec"]["subdomain"]
    if service["spec"] != headless | selector or service["metadata"]["name"] != subdomain:
        return f"the service is {service['spec']}"
    return None


def wrong_start(every: list[pods.Pod], node_ranks: list[int], launcher: str, files: dict[str, str]) -> str | None:
    """Each pod starts the ranks of its node, and finds the first."""
    for node, pod in enumerate(every):
        if {"name": "shared-memory", "mountPath": "/dev/shm"} not in pod.container["volumeMounts"]:
            return "processes of a pod share no memory"
        words, variables = pods.started(pod, files)
        if words[-2:] != ["--own", "a b"]:
            return f"{words} loses the container's arguments"
        if launcher.startswith("torchgpipe"):
            if words[0] != "python" or len(node_ranks) != 1:
                return f"{words} is not one process"
            continue
        found = numbers(words, variables, files, len(node_ranks))
        if found[:3] != (len(node_ranks), node, node_ranks[node]):
            return f"{words} starts node {found[1]} of {found[0]} with {found[2]} ranks, not {node} with {node_ranks[node]}"
        if len(node_ranks) > 1 and (found[3] != pod.first or not found[4]):
            return f"{words} looks for {found[3]}:{found[4]}, and the first pod is {pod.first}"
    return None


def numbers(
    words: list[str], variables: dict[str, str], files: dict[str, str], nodes: int
) -> tuple[int, int, int, str, str]:
    """Nodes, this one's number, its processes, and where the first one listens, as the launcher reads them."""
    flags = argparse.ArgumentParser(allow_abbrev=False)
    for name in ("nnodes", "nproc-per-node", "num_nodes", "num_gpus", "node_rank", "machine_rank"):
        flags.add_argument(f"--{name}", type=int)
    for name in ("master_addr", "master_port", "main_process_ip", "main_process_port", "hostfile"):
        flags.add_argument(f"--{name}")
    flags.add_argument("--standalone", action="store_true")
    flags.add_argument("--no_ssh", action="store_true")
    found, _ = flags.parse_known_args(words[1:])
    pet = {name: variables.get(f"PET_{name}", "") for name in ("NODE_RANK", "MASTER_ADDR", "MASTER_PORT")}
    if words[0] == "torchrun":
        if found.standalone:
            return 1, 0, found.nproc_per_node, "", ""
        return found.nnodes, int(pet["NODE_RANK"]), found.nproc_per_node, pet["MASTER_ADDR"], pet["MASTER_PORT"]
    if words[0] == "deepspeed":
        if nodes == 1:
            return 1, 0, found.num_gpus, "", ""
        lines = [line for line in files[found.hostfile].splitlines() if not line.startswith("#")]
        slots = [int(line.partition("slots=")[2]) for line in lines]
        # Of a node's slots it takes the first ones: there are more where a placement has others of its GPUs.
        assert found.no_ssh and len(slots) == found.num_nodes and slots[found.node_rank] >= found.num_gpus
        return found.num_nodes, found.node_rank, found.num_gpus, found.master_addr, found.master_port
    assert words[:2] == ["accelerate", "launch"], words
    said = yaml.safe_load(files["accelerate.yaml"])
    machines = said["num_machines"]
    each = said["num_processes"] // machines
    return machines, found.machine_rank or 0, each, found.main_process_ip, found.main_process_port
