"""What the objects promise to those who run them, however they were rendered."""

import re
from typing import Any

from rendered import Objects

# A Service's name is a label of the DNS, and every object's has to leave room for what controllers append.
NAME = re.compile(r"[a-z]([-a-z0-9]{0,56}[a-z0-9])?")


def pod(one: dict[str, Any]) -> dict[str, Any]:
    return one["spec"]["template"]["spec"]


def only(objects: Objects, kind: str) -> dict[str, Any]:
    (found,) = (one for (of, _), one in objects.items() if of == kind)
    return found


def keep(objects: Objects) -> None:
    """Fails for a promise that is not kept."""
    planner, service, job = only(objects, "Deployment"), only(objects, "Service"), only(objects, "Job")
    workers = [one for (kind, _), one in objects.items() if kind == "DaemonSet"]
    for (kind, name), one in objects.items():
        # Kustomize's migration has its version in its name.
        assert NAME.fullmatch(name.replace(".", "-")) and (kind == "Job" or "." not in name), f"{kind} {name}"
        for key, value in one["metadata"].get("labels", {}).items():
            assert isinstance(value, str) and len(value) <= 63, f"{kind} {name}: {key} is {value!r}"
    for one in (planner, job, *workers):
        spec = pod(one)
        assert not spec["automountServiceAccountToken"] and not spec["enableServiceLinks"], one["kind"]
        (container,) = spec["containers"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}, container["name"]
        assert not container["securityContext"]["allowPrivilegeEscalation"], container["name"]
        for asked in container["resources"].values():
            assert not any("gpu" in name for name in asked), "a worker takes no GPU from others"
        assert container["image"].rpartition(":")[2] not in ("", "latest"), container["image"]
    for one in (planner, *workers):
        assert one["spec"]["selector"]["matchLabels"] == one["spec"]["template"]["metadata"]["labels"]

    (of_planner,), (of_job,) = pod(planner)["containers"], pod(job)["containers"]
    ports = {port["name"]: port["containerPort"] for port in of_planner["ports"]}
    assert ports["grpc"] == 7433
    for asked in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert of_planner[asked]["grpc"]["port"] == ports["grpc"], asked
    # What asks for the database takes a planner out of the service and starts nothing again.
    assert "service" not in of_planner["readinessProbe"]["grpc"]
    assert of_planner["livenessProbe"]["grpc"]["service"] == of_planner["startupProbe"]["grpc"]["service"] == "alive"
    # Longer than a planner drains (`--drain-timeout`).
    assert pod(planner)["terminationGracePeriodSeconds"] > 10

    assert service["spec"]["selector"] == planner["spec"]["template"]["metadata"]["labels"]
    for port in service["spec"]["ports"]:
        assert port["targetPort"] in ports and port["port"] == ports[port["targetPort"]], port
    assert {port["name"] for port in service["spec"]["ports"]} == set(ports)
    for one in workers:
        (worker,) = pod(one)["containers"]
        assert worker["args"][:2] == ["--server", f"http://{service['metadata']['name']}:{ports['grpc']}"]
        # It waits for its runs, and has a minute more before it is killed.
        drain = next(of["value"] for of in worker["env"] if of["name"] == "LOADMASTER_DRAIN_TIMEOUT")
        assert pod(one)["terminationGracePeriodSeconds"] == 60 * int(drain.removesuffix("m")) + 60, drain
        # Else its pods would answer as planners.
        assert one["spec"]["selector"] != planner["spec"]["selector"]
    assert job["spec"]["template"]["metadata"]["labels"].items() != service["spec"]["selector"].items()

    assert of_job["args"] == ["migrate"] and of_planner["args"][0] == "serve"
    assert of_job["image"] == of_planner["image"], "the database is brought to another version than the planner's"
    assert of_job["env"] == [one for one in of_planner["env"] if one["name"] == "DATABASE_URL"]
    # Attempts that failed keep their logs.
    assert pod(job)["restartPolicy"] == "Never"

    budgets = [one for (kind, _), one in objects.items() if kind == "PodDisruptionBudget"]
    if planner["spec"]["replicas"] > 1:
        (budget,) = budgets
        assert budget["spec"] == {"minAvailable": 1, "selector": planner["spec"]["selector"]}
    else:
        assert not budgets, "a budget of the only planner keeps its node from being emptied"
