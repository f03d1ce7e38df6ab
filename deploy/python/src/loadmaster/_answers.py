"""Checks of responses. Callers make paths, scripts and environments of exports, and a planner may be hostile."""

from __future__ import annotations

import ipaddress
import re
import unicodedata

from ._wire.v1 import export_pb2

_VERSION = re.compile(r"[0-9][0-9A-Za-z.+_-]{0,62}")
#: No path, no hidden file, and no option of a program.
_FILE = re.compile(r"[0-9A-Za-z_][0-9A-Za-z._-]{0,254}")
_VARIABLE = re.compile(r"[A-Za-z_][0-9A-Za-z_]*")
_HOST = re.compile(r"[0-9A-Za-z_][0-9A-Za-z_-]*(\.[0-9A-Za-z_][0-9A-Za-z_-]*)*")
_UUID = re.compile(r"[0-9A-Za-z][0-9A-Za-z._:/-]*")
#: Control, format, line separator and paragraph separator: they are invisible.
_INVISIBLE = ("Cc", "Cf", "Zl", "Zp")


def check_export(request: export_pb2.ExportPlanRequest, export: export_pb2.ExportPlanResponse) -> None:
    """Raises ValueError where a name, version or path of an export is none."""
    for what, returned, requested in (("plan", export.plan, request.name), ("placement", export.placement, request.placement)):
        if returned != requested:
            raise ValueError(f"the planner returned an export of the {what} {returned!a} instead of {requested!a}")
    if not _VERSION.fullmatch(export.framework_version):
        raise ValueError(f"the planner returned the framework version {export.framework_version!a}, which is not valid")
    names = [file.name for file in export.files]
    for name in names:
        if not _FILE.fullmatch(name) or names.count(name) > 1:
            raise ValueError(f"the planner returned an export file named {name!a}, which is not a valid file name")
    for name, value in export.environment.items():
        if not _VARIABLE.fullmatch(name) or any(unicodedata.category(c) in _INVISIBLE for c in value):
            raise ValueError(f"the planner returned the environment variable {name!a}={value!a}, which is not valid")
    for word in export.command:
        if any(unicodedata.category(c) == "Cc" for c in word):
            raise ValueError(f"the planner returned a command whose argument {word!a} has control characters")
    for place in export.ranks:
        if place.device.node and not _is_host(place.device.node):
            raise ValueError(f"the planner returned the node {place.device.node!a}, which is not a valid host name")
        if place.device.uuid and not _UUID.fullmatch(place.device.uuid):
            raise ValueError(f"the planner returned the device {place.device.uuid!a}, which is not a valid UUID")


def _is_host(name: str) -> bool:
    if _HOST.fullmatch(name):
        return True
    try:
        return "%" not in name and ipaddress.ip_address(name).version == 6
    except ValueError:
        return False
