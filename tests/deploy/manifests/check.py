"""Renders deploy/helm and deploy/kustomize with their own programs, and validates every object as the API does."""

import json
import pathlib
import re
import sys
import tempfile
import traceback
from collections.abc import Callable
from typing import Any

import cases
import kubernetes_validate
import promises
import rendered
import yaml
from difference import NOTHING, differences
from rendered import Objects, Refused

# From the oldest that the chart takes (gRPC probes) to the newest that the schemas are there of.
VERSIONS = ["1.27", "1.29", "1.31", "1.33", "1.35", "1.37"]
VALUES = pathlib.Path(__file__).parent / "values"
COMPOSE = rendered.ROOT / "deploy" / "compose.yaml"


def valid(objects: Objects) -> int:
    """How many questions were asked of the API's schemas."""
    for version in VERSIONS:
        for one in objects.values():
            kubernetes_validate.validate(one, version, strict=True)
    promises.keep(objects)
    return len(VERSIONS) * len(objects)


def flat(objects: Objects) -> dict[str, Any]:
    return {f"{kind}/{name}": one for (kind, name), one in objects.items()}


def renders() -> str:
    said = rendered.said("helm", "lint", "--strict", str(rendered.CHART))
    assert "0 chart(s) failed" in said, said
    count = valid(rendered.base()) + valid(rendered.chart())
    for version in VERSIONS:
        assert rendered.chart(version=f"{version}.0") == rendered.chart(), f"it is another for {version}"
    assert rendered.packaged() == rendered.chart(), "the archive lacks something"
    refused({"--kube-version": "1.26.0"}, lambda: rendered.chart(version="1.26.0"), "1.27.0")
    return f"chart and kustomize base are rendered, and valid in {VERSIONS[0]} to {VERSIONS[-1]}, strictly: {count} checks"


def changed_values() -> str:
    usual, count = flat(rendered.chart()), 0
    files = sorted(VALUES.glob("*.yaml"))
    assert {file.stem for file in files} == set(cases.CHANGED), "each file has its row, and each row its file"
    for file in files:
        objects = rendered.chart(file)
        count += valid(objects)
        found = {path: new for path, (_, new) in differences(usual, flat(objects)).items()}
        assert found == cases.CHANGED[file.stem], f"{file.name} changes {found}"
    return f"{len(files)} files of values change what they should and nothing else: {count} checks"


def refused(what: Any, ask: Callable[[], Any], *words: str) -> None:
    try:
        ask()
    except Refused as error:
        for word in words:
            assert word in str(error), f"{what} is refused without {word!r}: {error}"
        return
    raise AssertionError(f"{what} is taken")


def refused_values() -> str:
    for values, where, what in cases.REFUSED:
        refused(values, lambda values=values: rendered.chart_of(values), f"at '{where}'", what)
    for release in cases.BAD_RELEASES:
        refused(release, lambda release=release: rendered.chart(release=release), f'is called "{release}"')
    count = sum(valid(rendered.chart(release=release)) for release in cases.ODD_RELEASES)
    wrong = f"{len(cases.REFUSED)} values and {len(cases.BAD_RELEASES)} names"
    return f"{wrong} are refused with the place; odd names are fine: {count} checks"


def plain(objects: Objects) -> dict[str, Any]:
    """Objects as both ways of installing have them: without labels, annotations and what is only the name of a version."""

    def without(one: Any) -> Any:
        if isinstance(one, list):
            return [without(item) for item in one]
        if not isinstance(one, dict):
            return one
        kept = {key: without(value) for key, value in one.items() if key not in ("labels", "annotations", "namespace")}
        if "matchLabels" in kept:
            kept["matchLabels"] = selected(kept["matchLabels"])
        return kept

    found = {}
    for (kind, name), one in objects.items():
        one = without(one)
        if kind == "Service":
            one["spec"]["selector"] = selected(one["spec"]["selector"])
        if kind == "Job":
            name = one["metadata"]["name"] = re.sub(r"-migrate-[0-9.]+$", "-migrate", name)
        found[f"{kind}/{name}"] = one
    # Helm makes it with --create-namespace.
    found.pop("Namespace/loadmaster", None)
    return found


def selected(labels: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in labels.items() if key != "app.kubernetes.io/instance"}


def both_say_the_same() -> str:
    chart, base = plain(rendered.chart()), plain(rendered.base())
    found = differences(base, chart)
    assert not found, f"base and chart differ: {found}"
    # The comparison itself: a field of either that is another, or is not there, shows.
    base["Deployment/loadmaster"]["spec"]["template"]["spec"]["containers"][0]["readinessProbe"]["periodSeconds"] = 6
    del base["Job/loadmaster-migrate"]["spec"]["backoffLimit"]
    assert differences(base, chart) == {
        "Deployment/loadmaster/spec/template/spec/containers/planner/readinessProbe/periodSeconds": (6, 5),
        "Job/loadmaster-migrate/spec/backoffLimit": (NOTHING, 6),
    }
    return f"chart and kustomize base say the same of {len(chart)} objects, field by field"


def upgrades() -> str:
    now, later = rendered.chart(), rendered.next_version()
    for one in (now, later):
        job = promises.only(one, "Job")["metadata"]["annotations"]
        assert set(job["helm.sh/hook"].split(",")) == {"pre-install", "pre-upgrade"}
        # Without the first an upgrade finds the last one's job in its way; hook-failed would take the log.
        assert set(job["helm.sh/hook-delete-policy"].split(",")) == {"before-hook-creation", "hook-succeeded"}
        # Nothing that the hook needs may be of the release: that is made later.
        made = {name for kind, name in one if kind in ("Secret", "ConfigMap", "ServiceAccount")}
        assert not made, made
    for key, one in now.items():
        other = later[key]
        if key[0] in ("Deployment", "DaemonSet"):
            assert one["spec"]["selector"] == other["spec"]["selector"], f"{key}: the API changes no selector"
            assert one["spec"]["template"]["metadata"] == other["spec"]["template"]["metadata"], key
    found = differences(flat(now), flat(later))
    assert found and all(path.endswith(("/image", "version", "helm.sh/chart")) for path in found), found
    return "an upgrade migrates first, changes images and labels of versions, and no selector"


def versions() -> str:
    program = re.findall(r'^version = "(.*)"$', (rendered.ROOT / "Cargo.toml").read_text(), re.M)[0]
    about = yaml.safe_load((rendered.CHART / "Chart.yaml").read_text())
    assert about["version"] == about["appVersion"] == program, f"Chart.yaml, of {program}"
    images = yaml.safe_load((rendered.BASE / "kustomization.yaml").read_text())["images"]
    assert [image["newTag"] for image in images] == [program, program], "kustomization.yaml"
    assert ("Job", f"loadmaster-migrate-{program}") in rendered.base(), "a job of another version would be in the way"
    return f"chart, kustomize base and programs are {program}"


def composed(text: str, **variables: str) -> Any:
    """What Docker Compose makes of a file that is where ours is."""
    variables = {"LOADMASTER_DATABASE_PASSWORD": "secret", **variables}
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(text)
        file.flush()
        place = ["--project-directory", str(COMPOSE.parent), "--file", file.name]
        return json.loads(rendered.said("docker-compose", *place, "config", "--format=json", **variables))


def compose() -> str:
    text = COMPOSE.read_text()
    services = composed(text)["services"]
    for name, service in services.items():
        assert "image" in service, f"{name} has no image"
        if build := service.get("build"):
            assert (pathlib.Path(build["context"]) / build["dockerfile"]).exists(), f"{name} is built from what is not there"
        ports = service.get("ports", [])
        assert all(port["host_ip"] == "127.0.0.1" for port in ports), f"{name} is open to everybody"
    waits = {name: {of: how["condition"] for of, how in one.get("depends_on", {}).items()} for name, one in services.items()}
    assert waits == {
        "database": {},
        "migrate": {"database": "service_healthy"},
        "planner": {"migrate": "service_completed_successfully"},
        "worker": {"planner": "service_started"},
    }, waits
    assert [port["target"] for port in services["planner"]["ports"]] == [7433, 7434]
    assert all("secret@" in services[name]["environment"]["DATABASE_URL"] for name in ("migrate", "planner"))
    reserved = services["worker"]["deploy"]["resources"]["reservations"]["devices"]
    assert reserved == [{"capabilities": ["gpu"], "driver": "nvidia", "count": -1}], reserved
    refused("no password", lambda: composed(text, LOADMASTER_DATABASE_PASSWORD=""), "choose one")
    wrong = [
        ("stop_grace_period:", "stop_grace_perod:", "stop_grace_perod"),
        ("service_healthy", "service_well", "services.migrate.depends_on.database.condition"),
        ("[planner]", "[planer]", "planer"),
    ]
    for right, other, why in wrong:
        assert right in text
        refused(other, lambda text=text.replace(right, other): composed(text), why)
    return f"Docker Compose reads {len(services)} services, none open to others, and refuses {len(wrong) + 1} that are wrong"


def main() -> None:
    failed = False
    for check in (renders, changed_values, refused_values, both_say_the_same, upgrades, versions, compose):
        try:
            print(f"ok       {check()}", flush=True)
        except (AssertionError, Refused, kubernetes_validate.ValidationError) as error:
            failed = True
            line = traceback.extract_tb(error.__traceback__)[-1]
            print(
                f"FAILED   {check.__name__}, {pathlib.Path(line.filename).name}:{line.lineno}: {error or line.line}", flush=True
            )
    sys.exit(failed)


if __name__ == "__main__":
    main()
