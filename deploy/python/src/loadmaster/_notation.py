"""Notation of bytes, durations, devices and stages, as on the command line."""

from __future__ import annotations

import datetime
import re
from fractions import Fraction

from google.protobuf import duration_pb2

from ._wire.v1 import recommend_pb2, stage_pb2

UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
UNITS |= {name: 2 ** (10 * power) for power, letter in enumerate("kmgt", start=1) for name in (letter, f"{letter}ib")}
LARGEST = 2**63 - 1
#: Seconds of ten thousand years, the longest duration of the protocol.
LONGEST = 315_576_000_000
#: Seconds of the units of a duration.
SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def bytes_of(text: str) -> int:
    """A number of bytes: `2GiB`, `512MiB`, `1.5GB`, `4096B`; only 0 needs no unit."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    unit = UNITS.get(found[2].lower()) if found else None
    if found is None or unit is None or (not found[2] and float(found[1])):
        example = f"{found[1]}GiB" if found and not found[2] else "2GiB, 512MiB or 4096B"
        raise ValueError(f"{text!r} is not a byte count. Use a number with a unit, for example {example}")
    count = round(Fraction(found[1]) * unit)
    if count > LARGEST:
        raise ValueError(f"{text!r} is more than {LARGEST} bytes")
    return count


def age(text: str) -> datetime.timedelta:
    """A time before now: `90d`, `12h`, `1w 2d`, `90m`; a day has 24 hours."""
    parts = re.findall(r"(\d+)\s*([wdhms])", text)
    units = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
    seconds = sum(int(count) * units[unit] for count, unit in parts)
    if not re.fullmatch(r"\s*(?:\d+\s*[wdhms]\s*)+", text) or not 0 < seconds < LONGEST:
        raise ValueError(f"{text!r}: write a time above 0, for example 7d, 12h or 30m")
    return datetime.timedelta(seconds=seconds)


def seconds(text: str) -> float:
    """Seconds of a duration: `30s`, `2m`, `1h 30m`, `500ms`; a bare number is seconds."""
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)\s*", text)
    if re.fullmatch(r"\s*\d+(\.\d+)?\s*", text):
        return float(text)
    if not parts or not re.fullmatch(r"\s*(\d+(\.\d+)?\s*(ms|s|m|h)\s*)+", text):
        raise ValueError(f"{text!r} is not a duration: write a duration above 0, for example 30s, 2m or 1h")
    return sum(float(number) * SECONDS[unit] for number, unit in parts)


def duration(value: str | float | datetime.timedelta) -> duration_pb2.Duration:
    """A duration from its text, from seconds, or from a timedelta."""
    if isinstance(value, bool):
        raise TypeError(f"give seconds, a text such as '30s' or a timedelta, not {value!r}")
    if not isinstance(value, datetime.timedelta):
        number = seconds(value) if isinstance(value, str) else float(value)
        if not 0 <= number < LONGEST:
            raise ValueError(f"{value!r} is not a duration: give 0 s or more, below {LONGEST} s")
        value = datetime.timedelta(seconds=number)
    message = duration_pb2.Duration()
    message.FromTimedelta(value)
    return message


def devices(text: str) -> list[recommend_pb2.DeviceGroup]:
    """Groups of `COUNTxBYTES[:KIND]` or, for a kind of the planner's catalog, `COUNTxKIND`, separated by commas, in pipeline
    order: `4x2GiB`, `8x80GiB:NVIDIA H200`, `8xH100`."""
    groups = []
    for part in text.split(","):
        kind = re.fullmatch(r"\s*(\d+)x([A-Za-z][^:]*)", part)
        if kind and 0 < int(kind[1]) < 2**31:
            groups.append(recommend_pb2.DeviceGroup(count=int(kind[1]), kind=kind[2].strip()))
            continue
        found = re.fullmatch(r"\s*(?:(\d+)\s*[x×])?([^:]+)(?::(.*))?", part)
        if found is None:
            raise ValueError(f"{part!r}: write COUNTxBYTES, for example 4x2GiB, or 4x80GiB:NVIDIA H200")
        count, capacity = int(found[1] or 1), bytes_of(found[2])
        if not 0 < count < 2**31 or capacity < 1:
            raise ValueError(f"{part!r}: count and bytes must be above 0, and the count below 2^31")
        groups.append(recommend_pb2.DeviceGroup(count=count, capacity_bytes=capacity, kind=(found[3] or "").strip()))
    return groups


#: What follows the layers of a stage: data- and tensor-parallel size, sequence parallelism, sharded optimizer states.
WAY = r"(?:(?:d|/data)(\d+))?(?:(?:t|/tensor)(\d+))?(s|/sequence)?(z1|/zero1)?"


def layout(text: str) -> stage_pb2.PipelineLayout:
    """The stages of a model: `8-8d2-7t4-4d2t4`, the layers of each with its data-parallel and tensor-parallel size. `s` behind
    these is sequence parallelism, `z1` sharded optimizer states."""
    stages, first = [], 0
    for part in text.strip().split("-"):
        found = re.fullmatch(rf"(\d+){WAY}", part)
        layers = int(found[1]) if found else 0
        if found is None or not 0 < layers < 2**31 - first:
            raise ValueError(
                f"{text!r}: write the number of layers of each stage, joined by dashes. Add d and the data-parallel size, t and the "
                "tensor-parallel size, or both, to a stage with several devices: 8-8d2-7t4-4d2t4"
            )
        if max(int(found[2] or 1), int(found[3] or 1)) >= 2**31:
            raise ValueError(f"{part!r}: a parallel size is at most 16384")
        stages.append(_stage(first, first + layers - 1, found))
        first += layers
    return stage_pb2.PipelineLayout(stages=stages)


def stage(text: str) -> stage_pb2.StageConfig:
    """One stage: `3..9`, `3..9t4`, `3..9d2t4`, `3..9d2z1`, both layers included."""
    found = re.fullmatch(rf"\s*(\d+)\.\.(\d+){WAY}\s*", text)
    if found is None or max(int(number or 1) for number in found.groups()[:4]) >= 2**31:
        raise ValueError(f"{text!r}: write the first and last layer, both included, and parallel sizes: 3..9, 3..9t4, 3..9d2t4")
    return _stage(int(found[1]), int(found[2]), found)


def _stage(first: int, last: int, found: re.Match[str]) -> stage_pb2.StageConfig:
    data, tensor, sequence, sharded = found.groups()[-4:]
    return stage_pb2.StageConfig(
        first_layer=first,
        last_layer=last,
        data_parallel_size=int(data or 1),
        tensor_parallel_size=int(tensor or 1),
        sequence_parallel=bool(sequence),
        state_sharding=stage_pb2.STATE_SHARDING_OPTIMIZER if sharded else stage_pb2.STATE_SHARDING_UNSPECIFIED,
    )
