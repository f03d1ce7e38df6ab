"""Requests from keywords: words for enums, texts for bytes, devices and stages, ids for names, mappings for messages."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from . import _notation
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
#: What reads the text of a message that people write as one.
TEXTS = {"DeviceGroup": _notation.devices, "Partitioning": _notation.partitioning, "StageConfig": _notation.stage}


def name(collection: str, said: str) -> str:
    """The full name from a full name or from an id alone.

    Raises ValueError where it is neither, TypeError where it is no text.
    """
    if not isinstance(said, str):
        raise TypeError(f"give a text, {collection}/ID or the ID alone, not {said!r}")
    bare = said.removeprefix(f"{collection}/")
    if not re.fullmatch(r"[a-z0-9-]{1,63}", bare):
        raise ValueError(f"{said!r}: write {collection}/ID or the ID alone; an id is 1 to 63 of a-z, 0-9 and '-'")
    return f"{collection}/{bare}"


def fill(message: M, options: Mapping[str, Any], where: str = "") -> M:
    """Sets fields of a message, and returns it; what is None stays unset.

    Raises TypeError for a field that there is not, ValueError or TypeError for a value that it cannot have; both name it.
    """
    fields = message.DESCRIPTOR.fields_by_name
    for key, value in options.items():
        field = fields.get(key)
        if field is None:
            near = difflib.get_close_matches(key, list(fields), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(fields)}"
            raise TypeError(f"{where}{key}: {message.DESCRIPTOR.name} has no such field{hint}")
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


def _set(message: Message, field: Any, value: Any, where: str) -> None:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        getattr(message, field.name).update(dict(value))
    elif _repeated(field):
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
        _merge(
            getattr(message, field.name),
            TEXTS[kind.name](value) if isinstance(value, str) and kind.name in TEXTS else value,
            where,
        )
    else:
        setattr(message, field.name, _scalar(field, value))


def _repeated(field: Any) -> bool:
    # Protobuf 6 and newer have the property, and warn of the label.
    known = getattr(field, "is_repeated", None)
    return bool(known) if known is not None else bool(field.label == field.LABEL_REPEATED)


def _merge(target: Message, value: Any, where: str) -> None:
    if isinstance(value, Mapping):
        target.SetInParent()
        fill(target, value, where)
    elif isinstance(value, type(target)):
        target.CopyFrom(value)
        target.SetInParent()
    elif isinstance(target, Duration):
        target.FromTimedelta(_notation.duration(value))
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
