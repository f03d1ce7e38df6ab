"""What the API of Kubernetes takes: its own objects by its published schemas, custom ones by the definitions of their projects."""

import functools
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import celpy
import jsonschema
import kubernetes_validate
import yaml

VERSION = "1.35"
"""Of Kubernetes."""
DEFINITIONS = {"JobSet": "jobset", "TrainJob": "trainjobs", "PyTorchJob": "pytorchjobs", "LeaderWorkerSet": "lws"}
"""Kinds that projects define, and the file of each in the folder `crds` of `LOADMASTER_DATA`."""


def folder() -> pathlib.Path | None:
    """Where the definitions are; None where they are not."""
    base = os.environ.get("LOADMASTER_DATA")
    crds = pathlib.Path(base) / "crds" if base else None
    return crds if crds and crds.is_dir() else None


@functools.cache
def definition(kind: str) -> tuple[str, dict[str, Any]]:
    """What objects of a kind name as their version, and their schema."""
    found = folder()
    assert found is not None
    spec = yaml.load((found / f"{DEFINITIONS[kind]}.yaml").read_text(), yaml.CSafeLoader)["spec"]
    stored = next(version for version in spec["versions"] if version["storage"])
    return f"{spec['group']}/{stored['name']}", stored["schema"]["openAPIV3Schema"]


def strict(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema that refuses what an API server would drop in silence."""
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    made = {key: value for key, value in schema.items() if not key.startswith("x-")}
    if "properties" in schema:
        made["properties"] = {name: strict(of) for name, of in schema["properties"].items()}
        made["additionalProperties"] = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    elif isinstance(schema.get("additionalProperties"), dict):
        made["additionalProperties"] = strict(schema["additionalProperties"])
    if "items" in schema:
        made["items"] = strict(schema["items"])
    return made


@functools.cache
def validator(kind: str) -> jsonschema.Draft4Validator:
    version, schema = definition(kind)
    made = strict(schema)
    made["properties"]["apiVersion"] = {"enum": [version]}
    texts = {"type": "object", "additionalProperties": {"type": "string"}}
    text = {"type": "string"}
    made["properties"]["metadata"] = {
        "type": "object",
        "properties": {"name": text, "namespace": text, "labels": texts, "annotations": texts},
        "additionalProperties": False,
        "required": ["name"],
    }
    return jsonschema.Draft4Validator(made)


@functools.cache
def rule(text: str) -> celpy.Runner:
    environment = celpy.Environment()
    return environment.program(environment.compile(text))


def rules(schema: dict[str, Any], value: Any, path: str = "") -> Iterator[tuple[str, str, Any]]:
    """Every rule of CEL that is about a part of the value, with its place; not those that compare with an older object."""
    for of in schema.get("x-kubernetes-validations", []):
        if "oldSelf" not in of["rule"]:
            yield path, of["rule"], value
    if isinstance(value, dict):
        for name, part in value.items():
            of = schema.get("properties", {}).get(name) or schema.get("additionalProperties")
            if isinstance(of, dict):
                yield from rules(of, part, f"{path}.{name}")
    if isinstance(value, list):
        for index, part in enumerate(value):
            yield from rules(schema.get("items", {}), part, f"{path}[{index}]")


def wrong(document: dict[str, Any], seen: set[str] | None = None) -> str | None:
    """Why an API server would refuse an object; None where it would take it. Rules that were asked are added to `seen`."""
    kind = document["kind"]
    if kind not in DEFINITIONS:
        try:
            kubernetes_validate.validate(document, VERSION, strict=True)
        except kubernetes_validate.ValidationError as error:
            return f"{kind}: {error.message}"
        return None
    if error := next(validator(kind).iter_errors(document), None):
        return f"{kind}: {error.message}"
    for path, text, value in rules(definition(kind)[1], document):
        if seen is not None:
            seen.add(f"{kind}{path}: {text}")
        if not rule(text).evaluate({"self": celpy.json_to_cel(value)}):
            return f"{kind}: {path} breaks {text}"
    return None
