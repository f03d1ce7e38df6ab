"""Words for the values of enums, as the command line has them: `SEARCH_MODE_AMP_ANNEALING` is `amp-annealing`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from google.protobuf.descriptor import EnumDescriptor, EnumValueDescriptor


def word(value: EnumValueDescriptor) -> str:
    """The word of a value."""
    # The constant of "none" is the prefix of all of them; enums inside messages have none.
    none: str = value.type.values_by_number[0].name
    name: str = value.name.removeprefix(none.removesuffix("UNSPECIFIED")) if none.endswith("_UNSPECIFIED") else value.name
    return "1f1b" if name == "ONE_F_ONE_B" else name.lower().replace("_", "-")


def number(enum: EnumDescriptor, said: str | int) -> int:
    """The number of a value that is given as its word, its constant or its number.

    Raises ValueError with all words where there is no such value.
    """
    if isinstance(said, int):
        return said
    for value in enum.values:
        if said in (word(value), value.name):
            return int(value.number)
    known = ", ".join(word(value) for value in enum.values if value.number != 0)
    raise ValueError(f"{said!r} is no {enum.name}: name one of {known}")


def word_of(enum: EnumDescriptor, number: int) -> str:
    """The word of a number; the number itself if this version has no word for it."""
    value = enum.values_by_number.get(number)
    return word(value) if value is not None else str(number)


def short(of: object, *facts: object) -> str:
    """An object as consoles and logs show it: its class and some facts, where the message alone has thousands of lines."""
    return f"<{type(of).__name__} {', '.join(str(fact) for fact in facts if fact not in (None, ''))}>"
