"""Address and timeout of a planner, as on the command line."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from numbers import Real

from ._notation import seconds

ADDRESS_VARIABLE = "LOADMASTER_ADDRESS"
TIMEOUT_VARIABLE = "LOADMASTER_TIMEOUT"
DEFAULT_ADDRESS = "http://127.0.0.1:7433"
DEFAULT_TIMEOUT = 30.0
DEFAULT_PORT = 7433
#: gRPC has 8 digits for a deadline.
LONGEST_TIMEOUT = 99_999_999.0
LARGEST_PORT = 65535


@dataclass(frozen=True)
class Settings:
    """One planner, as clients reach it."""

    #: `http://HOST:PORT`.
    address: str
    #: Longest wait for the answer to one call, seconds.
    timeout: float

    @classmethod
    def read(cls, address: str | None, timeout: float | None) -> Settings:
        """The arguments, or else the environment, or else the defaults.

        Raises ValueError, or TypeError for what is neither text nor number, that names the option or variable.
        """
        if address is not None and not isinstance(address, str):
            raise TypeError(f"address: give a text, for example 'planner:7433', not {address!r}")
        said = address if address is not None else os.environ.get(ADDRESS_VARIABLE) or DEFAULT_ADDRESS
        if timeout is None:
            text = os.environ.get(TIMEOUT_VARIABLE)
            try:
                timeout = seconds(text) if text else DEFAULT_TIMEOUT
            except ValueError as error:
                raise ValueError(f"{TIMEOUT_VARIABLE}: {error}") from None
        must_be_seconds(timeout)
        if not 0 < timeout <= LONGEST_TIMEOUT:
            raise ValueError(f"timeout={timeout}: give seconds above 0, at most {LONGEST_TIMEOUT:.0f}")
        return cls(url(said), timeout)

    @property
    def target(self) -> str:
        """`HOST:PORT`, as gRPC wants it."""
        return self.address.split("://", 1)[1].split("/", 1)[0]


def url(address: str) -> str:
    """The address as a URL: `node1` is `http://node1:7433`.

    Raises ValueError for what would not be called as it is written.
    """
    address = address.strip()
    scheme, _, rest = address.rpartition("://")
    if scheme == "https":
        raise ValueError(f"address {address!r}: TLS is not supported. Use http://.")
    if scheme not in ("", "http"):
        raise ValueError(f"address {address!r}: the scheme {scheme}:// is not supported. Use http://.")
    place, slash, path = rest.partition("/")
    # The colons of an address of version 6 stand in brackets.
    found = re.fullmatch(r"(\[[^]\s]+]|[^][:@?#\s]+)(?::(.*))?", place)
    if found is None:
        raise ValueError(
            f"address {address!r} has no host. Use HOST, HOST:PORT or http://HOST:PORT, and brackets for IPv6."
        )
    if path:
        raise ValueError(f"address {address!r}: the address of a planner must not have a path. Remove {slash + path!r}.")
    port = DEFAULT_PORT if found[2] is None else _port(address, found[2])
    return f"http://{found[1]}:{port}{slash}"


def _port(address: str, text: str) -> int:
    # gRPC would take others modulo 65536, and call somebody else.
    port = int(text) if re.fullmatch(r"[0-9]{1,5}", text) else 0
    if not 0 < port <= LARGEST_PORT:
        raise ValueError(f"address {address!r}: {text!r} is not a port. Use 1 to {LARGEST_PORT}.")
    return port


def must_be_seconds(timeout: object) -> None:
    """Raises TypeError for a `timeout` that is no number: texts have a unit, and are for LOADMASTER_TIMEOUT."""
    if not isinstance(timeout, Real):
        raise TypeError(f"timeout: give seconds as a number, for example 2.5, not {timeout!r}")
