"""Where two documents differ."""

from typing import Any

NOTHING = "nothing"


def differences(one: Any, other: Any, path: str = "") -> dict[str, tuple[Any, Any]]:
    """What each has where they differ, by the path of keys and indices; items of lists with a name go by that."""
    if isinstance(one, list) and isinstance(other, list):
        one, other = keyed(one), keyed(other)
    if not isinstance(one, dict) or not isinstance(other, dict):
        return {} if type(one) is type(other) and one == other else {path: (one, other)}
    found = {}
    for key in [*one, *(key for key in other if key not in one)]:
        below = f"{path}/{key}" if path else str(key)
        found |= differences(one.get(key, NOTHING), other.get(key, NOTHING), below)
    return found


def keyed(items: list[Any]) -> dict[Any, Any]:
    names = [item.get("name") if isinstance(item, dict) else None for item in items]
    if None in names or len(set(names)) < len(names):
        return dict(enumerate(items))
    return dict(zip(names, items))
