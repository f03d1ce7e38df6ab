"""Validates the objects of deploy/kustomize, and what they promise: manifests.py RENDERED HOW."""

import pathlib
import sys

import kubernetes_validate
import yaml

# What the objects use has been there since 1.27 (probes of gRPC).
VERSIONS = ["1.27", "1.30", "1.33"]

rendered, how = sys.argv[1:]
objects = [one for one in yaml.safe_load_all(pathlib.Path(rendered).read_text()) if one]
of = {(one["kind"], one["metadata"]["name"]): one for one in objects}
count = 0
for version in VERSIONS:
    for one in objects:
        kubernetes_validate.validate(one, version, strict=True)
        count += 1


def pod(one: dict) -> dict:
    return one["spec"]["template"]["spec"]


planner = of["Deployment", "loadmaster"]
worker = of["DaemonSet", "loadmaster-worker"]
job = next(one for one in objects if one["kind"] == "Job")
for one in (planner, worker, job):
    for container in pod(one)["containers"]:
        assert not container["securityContext"]["allowPrivilegeEscalation"], container["name"]
        requests = container["resources"]["requests"]
        assert not any("gpu" in name for name in requests), "a worker takes no GPU from others"
assert {"startupProbe", "livenessProbe", "readinessProbe"} <= set(pod(planner)["containers"][0])
assert pod(job)["containers"][0]["args"] == ["migrate"]
assert of["PodDisruptionBudget", "loadmaster"]["spec"]["selector"] == planner["spec"]["selector"]
assert of["Service", "loadmaster"]["spec"]["selector"] == planner["spec"]["template"]["metadata"]["labels"]
port = of["Service", "loadmaster"]["spec"]["ports"][0]["port"]
assert pod(worker)["containers"][0]["args"] == ["--server", f"http://loadmaster:{port}"]
for one in (planner, worker):
    assert one["spec"]["selector"]["matchLabels"].items() <= one["spec"]["template"]["metadata"]["labels"].items()

compose = yaml.safe_load(pathlib.Path("deploy/compose.yaml").read_text())
services = compose["services"]
for name, service in services.items():
    for needed in service.get("depends_on", []):
        assert needed in services, f"{name} waits for {needed}, which there is not"
    build = service.get("build")
    assert build is None or pathlib.Path("deploy", build["context"], build["dockerfile"]).exists(), name
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), f"{name} is open to everybody"
print(f"ok       {len(objects)} objects for Kubernetes ({how}) are valid in {', '.join(VERSIONS)}, strictly: {count} checks; compose names what is there")
