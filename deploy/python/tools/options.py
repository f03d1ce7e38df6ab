"""Writes the typed options of the package's calls: a TypedDict for each request, and for each message inside it."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from google.protobuf.descriptor import Descriptor, EnumDescriptor, EnumValueDescriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool

HERE = Path(__file__).resolve().parent

#: Requests whose fields are keywords of a call, and the fields that the call has parameters for.
CALLS = {
    "RecommendPlanRequest": ("RecommendOptions", {"profile"}),
    "PredictPlanRequest": ("PredictOptions", {"profile"}),
    "ExportPlanRequest": ("ExportOptions", {"name", "framework_version", "placement"}),
    "CreatePlacementRequest": ("PlaceOptions", {"plan", "node_list"}),
    "StartTrialRequest": ("TrialOptions", {"name"}),
    "CreateProfileRequest": ("ProfileOptions", {"model", "source"}),
    "PurgeHistoryRequest": ("PurgeOptions", {"older_than"}),
}
#: Messages that have a notation.
TEXTS = {"DeviceGroup", "ObjectiveOptions", "PipelineLayout", "SoloStage", "StageConfig"}
HEAD = '''"""Options of the package's calls: keywords are fields of requests, words values of enums, texts as `2GiB` bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Literal, TypedDict, Union

from google.protobuf.message import Message

'''
NUMBERS = {
    FieldDescriptor.CPPTYPE_INT32: "int",
    FieldDescriptor.CPPTYPE_INT64: "int",
    FieldDescriptor.CPPTYPE_DOUBLE: "float",
    FieldDescriptor.CPPTYPE_BOOL: "bool",
    FieldDescriptor.CPPTYPE_STRING: "str",
}


def options_module(described: bytes) -> str:
    """The module's text, from a FileDescriptorSet of the protocol."""
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(described).file:
        pool.Add(file)
    enums: dict[str, EnumDescriptor] = {}
    messages: dict[str, Descriptor] = {}
    bodies = []
    for request, (name, without) in CALLS.items():
        descriptor = pool.FindMessageTypeByName(f"loadmaster.v1.{request}")
        bodies.append(body(name, descriptor, without, enums, messages))
    written: set[str] = set()
    while set(messages) - written:
        name = min(set(messages) - written)
        written.add(name)
        bodies.append(body(f"{name}Fields", messages[name], set(), enums, messages))
    word = cast("Callable[[EnumValueDescriptor], str]", package("_words").word)
    literals = []
    for name, enum in sorted(enums.items()):
        values = ", ".join(f'"{word(value)}"' for value in enum.values if value.number != 0)
        literals.append(f"{name}Word = Literal[{values}]\n")
    return HEAD + "".join(literals) + "\n\n" + "\n\n".join(bodies)


def package(name: str) -> ModuleType:
    """A module of the package. The package itself cannot be imported before its messages are generated."""
    path = HERE.parent / "src" / "loadmaster" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} cannot be read")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def body(
    name: str, descriptor: Descriptor, without: set[str], enums: dict[str, EnumDescriptor], messages: dict[str, Descriptor]
) -> str:
    lines = [f"class {name}(TypedDict, total=False):\n", f'    """Fields of {descriptor.name}."""\n\n']
    fields = [
        (keyword, at(descriptor, path))
        for keyword, path in package("_flat").paths(descriptor).items()
        if keyword not in without
    ]
    lines += [f"    {keyword}: {kind(field, enums, messages)}\n" for keyword, field in fields]
    if len(fields) == 0:
        lines = [lines[0], f'    """{descriptor.name} has no fields."""\n']
    return "".join(lines)


def at(message: Descriptor, path: Sequence[str]) -> FieldDescriptor:
    """The field at a path."""
    *groups, name = path
    for group in groups:
        message = cast("Descriptor", message.fields_by_name[group].message_type)
    return message.fields_by_name[name]


def kind(field: FieldDescriptor, enums: dict[str, EnumDescriptor], messages: dict[str, Descriptor]) -> str:
    """What a field may be given as."""
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        value = kind(entry.fields_by_name["value"], enums, messages)
        return f"Mapping[str, {value}]"
    one = single(field, enums, messages)
    if not repeated(field):
        return one
    many = f"Sequence[{one}]"
    return f"Union[str, {many}]" if entry is not None and entry.name in TEXTS else many


def repeated(field: Any) -> bool:
    return bool(field.label == field.LABEL_REPEATED)


def single(field: FieldDescriptor, enums: dict[str, EnumDescriptor], messages: dict[str, Descriptor]) -> str:
    if field.enum_type is not None:
        enums[field.enum_type.name] = field.enum_type
        return f"Union[{field.enum_type.name}Word, str, int]"
    if field.message_type is not None and field.message_type.name == "Duration":
        return "Union[str, float, timedelta, Message]"
    if field.message_type is not None:
        messages[field.message_type.name] = field.message_type
        text = "str, " if field.message_type.name in TEXTS and not repeated(field) else ""
        # In quotes, for it is written further down.
        return f'Union[{text}"{field.message_type.name}Fields", Message]'
    if re.search(r"_bytes$|^bytes$", field.name) and field.cpp_type == FieldDescriptor.CPPTYPE_INT64:
        return "Union[int, str]"
    return NUMBERS[field.cpp_type]
