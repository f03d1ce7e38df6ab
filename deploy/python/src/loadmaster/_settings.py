"""Where the planner is and how long it may take to answer: read as the command line reads it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

ADDRESS_VARIABLE = "LOADMASTER_ADDRESS"
TIMEOUT_VARIABLE = "LOADMASTER_TIMEOUT"
DEFAULT_ADDRESS = "http://127.0.0.1:7433"
DEFAULT_TIMEOUT = 30.0
DEFAULT_PORT = 7433
#: gRPC has 8 digits for a deadline.
LONGEST_TIMEOUT = 99_999_999.0
SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class Settings:
    """One planner, as clients reach it."""

    #: `http://HOST:PORT`.
    address: str
    #: Longest wait for the answer to one call, seconds.
    timeout: float

    @classmethod
    def read(cls, address: str | None, timeout: float | None) -> Settings:
        """What is given, else what the environment says, else the defaults.

        Raises ValueError that names the option or variable.
        """
        said = address if address is not None else os.environ.get(ADDRESS_VARIABLE) or DEFAULT_ADDRESS
        if timeout is None:
            text = os.environ.get(TIMEOUT_VARIABLE)
            timeout = seconds(text) if text else DEFAULT_TIMEOUT
        if not 0 < timeout <= LONGEST_TIMEOUT:
            raise ValueError(f"timeout={timeout}: give seconds above 0, at most {LONGEST_TIMEOUT:.0f}")
        return cls(url(said), timeout)

    @property
    def target(self) -> str:
        """`HOST:PORT`, as gRPC wants it."""
        return self.address.split("://", 1)[1].split("/", 1)[0]


def url(address: str) -> str:
    """The address as a URL: `node1` is `http://node1:7433`."""
    address = address.strip()
    scheme, _, rest = address.rpartition("://")
    if scheme not in ("", "http"):
        raise ValueError(f"address {address!r}: TLS is not supported, use http://")
    host, slash, path = rest.partition("/")
    if not host:
        raise ValueError(f"address {address!r} names no host: write HOST, HOST:PORT or http://HOST:PORT")
    # The colons of an address of version 6 stand in brackets.
    port = "" if ":" in host.rpartition("]")[2] else f":{DEFAULT_PORT}"
    return f"http://{host}{port}{slash}{path}"


def seconds(text: str) -> float:
    """Seconds of a duration: `30s`, `2m`, `1h 30m`, `500ms`; a bare number is seconds."""
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)\s*", text)
    if re.fullmatch(r"\s*\d+(\.\d+)?\s*", text):
        return float(text)
    if not parts or not re.fullmatch(r"\s*(\d+(\.\d+)?\s*(ms|s|m|h)\s*)+", text):
        raise ValueError(f"{TIMEOUT_VARIABLE}={text!r}: write a duration above 0, for example 30s, 2m or 1h")
    return sum(float(number) * SECONDS[unit] for number, unit in parts)
