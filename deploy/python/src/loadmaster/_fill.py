"""Requests from keywords: words for enums, texts for bytes, devices and stages, ids for names, mappings for messages."""

from __future__ import annotations

import datetime
import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from google.protobuf import json_format
from google.protobuf.message import Message

from . import _flat, _notation
from ._words import number

M = TypeVar("M", bound=Message)

#: Fields whose texts are names of resources, and the collections that these are in.
COLLECTIONS = {
    "cluster": "clusters",
    "plan": "plans",
    "profile": "profiles",
    "other_profiles": "profiles",
    "candidate_profiles": "profiles",
}
#: Readers of messages that have a notation.
TEXTS: dict[str, Callable[[str], Any]] = {
    "DeviceGroup": _notation.devices,
    "Duration": _notation.duration,
    "ObjectiveOptions": lambda text: {"kind": text},
    "PipelineLayout": _notation.layout,
    "SoloStage": lambda text: {"stage": text},
    "StageConfig": _notation.stage,
}


def name(collection: str, said: str) -> str:
    """The full name from a full name or from an id alone.

    Raises ValueError where it is neither, TypeError where it is no text.
    """
    if not isinstance(said, str):
        raise TypeError(f"give a text, {collection}/ID or the ID alone, not {said!r}")
    bare = said.removeprefix(f"{collection}/")
    if not re.fullmatch(r"[a-z0-9-]{1,63}", bare):
        raise ValueError(f"{said!r}: write {collection}/ID or the ID alone; an id has 1 to 63 characters of a-z, 0-9 and '-'")
    return f"{collection}/{bare}"


def fill(message: M, options: Mapping[str, Any], where: str = "") -> M:
    """Sets fields of a message, and returns it. A value of None leaves its field unset.

    Raises ValueError for an unknown field, ValueError or TypeError for an invalid value. The error names the field.
    """
    fields = message.DESCRIPTOR.fields_by_name
    for key, value in options.items():
        field = fields.get(key)
        if field is None:
            raise _unknown(f"{where}{key}", key, message, list(fields))
        if value is None:
            continue
        path = f"{where}{key}"
        try:
            _set(message, field, value, f"{path}.")
        except (TypeError, ValueError) as error:
            # What is wrong further inside has named itself.
            said = str(error) if str(error).startswith(path) else f"{path}: {error}"
            # Some kinds of ValueError are made of more than a text.
            raise (TypeError if isinstance(error, TypeError) else ValueError)(said) from None
    return message


def fill_request(request: M, options: Mapping[str, Any]) -> M:
    """Sets fields of a request by its keywords (`_flat`), by its groups, and by paths with values in JSON form
    (`problem.devices`), which replace the values of other keywords. Returns the request, and raises as `fill`."""
    keywords = _flat.paths(request.DESCRIPTOR)
    changes = {key: value for key, value in options.items() if "." in key}
    flat = {key: value for key, value in options.items() if "." not in key and value is not None}
    for key in sorted(flat, key=lambda key: len(keywords.get(key, ()))):
        if key not in keywords:
            raise _unknown(key, key, request, list(keywords))
        *groups, name = keywords[key]
        message: Message = request
        for group in groups:
            message = getattr(message, group)
        if any(field.name == name for field, _ in message.ListFields()):
            raise ValueError(f"{'.'.join(keywords[key])}: set twice, by {key!r} and by {groups[0]!r}. Remove one of them.")
        fill(message, {name: flat[key]}, "".join(f"{group}." for group in groups))
    for path, value in changes.items():
        _change(request, path, value)
    return request


def _change(request: Message, path: str, value: Any) -> None:
    """Gives the field of a path a new value, which is in the JSON form of the field; None clears it."""
    *groups, name = path.split(".")
    message = request
    for part in [*groups, name]:
        field = message.DESCRIPTOR.fields_by_name.get(part)
        if field is None:
            raise _unknown(path, part, message, list(message.DESCRIPTOR.fields_by_name))
        if part is not name:
            if field.message_type is None or _flat.is_repeated(field):
                raise ValueError(f"{path}: {part} is a value and has no fields")
            message = getattr(message, part)
    message.ClearField(name)
    try:
        json_format.ParseDict({name: value}, message)
    except json_format.ParseError as error:
        raise ValueError(f"{path}: {error}") from None


def _unknown(path: str, key: str, message: Message, known: list[str]) -> ValueError:
    near = difflib.get_close_matches(key, known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return ValueError(f"{path}: {message.DESCRIPTOR.name} has no such field.{hint} Valid names: {', '.join(known)}.")


def _set(message: Message, field: Any, value: Any, where: str) -> None:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        getattr(message, field.name).update(dict(value))
    elif _flat.is_repeated(field):
        if isinstance(value, str) and kind is not None and kind.name in TEXTS:
            value = TEXTS[kind.name](value)
        elif isinstance(value, (str, Mapping)) or not isinstance(value, Iterable):
            raise TypeError(f"give a list, not {value!r}")
        target = getattr(message, field.name)
        for one in value:
            if kind is not None:
                _merge(target.add(), one, where)
            else:
                target.append(_scalar(field, one))
    elif kind is not None:
        if isinstance(value, str) and kind.name in TEXTS:
            value = TEXTS[kind.name](value)
        elif kind.name == "Duration" and isinstance(value, (int, float, datetime.timedelta)):
            value = _notation.duration(value)
        _merge(getattr(message, field.name), value, where)
    else:
        setattr(message, field.name, _scalar(field, value))


def _merge(target: Message, value: Any, where: str) -> None:
    if isinstance(value, Mapping):
        target.SetInParent()
        fill(target, value, where)
    elif isinstance(value, type(target)):
        target.CopyFrom(value)
        target.SetInParent()
    else:
        raise TypeError(f"give a mapping or a {target.DESCRIPTOR.name}, not {value!r}")


def _scalar(field: Any, value: Any) -> Any:
    if field.enum_type is not None:
        return number(field.enum_type, value)
    if field.cpp_type == field.CPPTYPE_STRING:
        if not isinstance(value, str):
            raise TypeError(f"give a text, not {value!r}")
        collection = COLLECTIONS.get(field.name)
        return name(collection, value) if collection and value else value
    if not isinstance(value, str):
        return value
    if field.cpp_type == field.CPPTYPE_INT64 and field.name.endswith("_bytes"):
        return _notation.bytes_of(value)
    raise TypeError(f"give {'True or False' if field.cpp_type == field.CPPTYPE_BOOL else 'a number'}, not {value!r}")
