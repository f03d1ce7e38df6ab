"""What Helm and kustomize make of the files in deploy/."""

import pathlib
import shutil
import subprocess
import tempfile
from typing import Any

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[3]
CHART = ROOT / "deploy" / "helm" / "loadmaster"
BASE = ROOT / "deploy" / "kustomize" / "base"

# Objects by kind and name.
Objects = dict[tuple[str, str], dict[str, Any]]


class Refused(Exception):
    """A program that said no, in its words."""


def said(*command: str, **variables: str) -> str:
    # Settings of whoever runs the tests, a cluster's above all, are nobody's business here.
    with tempfile.TemporaryDirectory() as home:
        environment = {"HOME": home, "PATH": str(pathlib.Path(shutil.which("helm") or "").parent), **variables}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise Refused(done.stderr + done.stdout)
    return done.stdout


def objects(text: str) -> Objects:
    documents = [one for one in yaml.load_all(text, yaml.CSafeLoader) if one]
    by_name = {(one["kind"], one["metadata"]["name"]): one for one in documents}
    assert len(by_name) == len(documents), "two objects have one name"
    return by_name


def chart(*values: pathlib.Path, release: str = "loadmaster", version: str = "", chart: pathlib.Path = CHART) -> Objects:
    options = [part for file in values for part in ("--values", str(file))]
    if version:
        options += ["--kube-version", version]
    return objects(said("helm", "template", release, str(chart), "--namespace", "loadmaster", *options))


def chart_of(values: dict[str, Any]) -> Objects:
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(values, file)
        file.flush()
        return chart(pathlib.Path(file.name))


def next_version() -> Objects:
    """The chart as it will be when the program has another version."""
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder, "loadmaster")
        shutil.copytree(CHART, copy)
        about = yaml.safe_load((copy / "Chart.yaml").read_text())
        (copy / "Chart.yaml").write_text(yaml.safe_dump(about | {"version": "9.8.7", "appVersion": "9.8.7"}))
        return chart(chart=copy)


def packaged() -> Objects:
    """The chart from the archive that it is handed on as."""
    with tempfile.TemporaryDirectory() as folder:
        said("helm", "package", str(CHART), "--destination", folder)
        (archive,) = pathlib.Path(folder).iterdir()
        return chart(chart=archive)


def base() -> Objects:
    return objects(said("kubectl", "kustomize", str(BASE)))
