"""Keywords of nested requests: `micro_batch_count` is the field `problem.micro_batch_count` of a RecommendPlanRequest."""

from __future__ import annotations

from typing import Any

#: Requests whose settings are in groups.
REQUESTS = {"RecommendPlanRequest", "PredictPlanRequest"}
#: Names of fields that say nothing without their group.
VAGUE = {"mode"}


def paths(request: Any) -> dict[str, tuple[str, ...]]:
    """Returns the path of each keyword of a request, from its descriptor.

    A field of a group is a keyword by its own name. If several groups have a field of that name, it is the field of the first
    group. The others, and vague names, have the name of their group in front: `search_mode`. The keyword of a group sets its
    field `kind`.
    """
    groups = [field for field in request.fields if _is_group(field)] if request.name in REQUESTS else []
    found: dict[str, tuple[str, ...]] = {field.name: (field.name,) for field in request.fields}
    names = [field.name for group in groups for field in group.message_type.fields]
    for group in groups:
        for field in group.message_type.fields:
            clear = field.name not in VAGUE and (names.count(field.name) == 1 or group is groups[0])
            if field.name != "kind":
                keyword = field.name if clear and field.name not in found else f"{group.name}_{field.name}"
                found[keyword] = (group.name, field.name)
    return found


def _is_group(field: Any) -> bool:
    return field.message_type is not None and field.containing_oneof is None and not is_repeated(field)


def is_repeated(field: Any) -> bool:
    """Whether a field is a list or a map."""
    # Protobuf 6 and newer have the property, and warn of the label.
    known = getattr(field, "is_repeated", None)
    return bool(known) if known is not None else bool(field.label == field.LABEL_REPEATED)
