"""Reports peaks as ranks on GPUs would have measured them: peaks.py PLAN ALLOCATED:RESERVED …"""

from __future__ import annotations

import sys

from loadmaster import Client
from loadmaster.torch import _report
from loadmaster.torch._ranks import Measured


def main() -> None:
    ranks = []
    for place, peaks in enumerate(sys.argv[2:]):
        allocated, reserved = map(int, peaks.split(":"))
        ranks.append(Measured(10 + place, 0.25 * (place + 1), allocated, reserved, "cpu"))
    with Client() as client:
        print(_report.report(sys.argv[1], client, ranks, None, "peaks.py"))


if __name__ == "__main__":
    main()
