"""Asks a launcher what it makes of random plans, and compares with what their descriptions say.

    target/debug/bench exports megatron@0.19 --plans 1000 | python3 tests/launchers/oracles/check_random.py megatron@0.19

A line of standard input is one plan: its description, its export, and the parameters of each rank by Loadmaster's own
arithmetic, which must be those of the description. Ends with 3 where the launchers are not installed.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import time
from typing import Any

import expectation
from check_golden import INSTALL, Oracle, difference, expected
from frameworks import LAUNCHERS

NOT_INSTALLED = 3


def wrong(oracle: Oracle, name: str, line: dict[str, Any]) -> str | None:
    """What is wrong with one plan's export; None where nothing is."""
    launcher = LAUNCHERS[name]
    case = expectation.of(line["case"])
    ours = [rank["parameters"] for rank in expectation.ranks(case, expectation.Padding())]
    if ours != line["parameters"]:
        return f"predictions count {line['parameters']} parameters, the description has {ours}"
    described = {"samples": case.global_batch, "model": line["case"]["model"]}
    return difference(oracle.ask(line["request"] | described), expected(launcher, case))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("framework", choices=sorted(LAUNCHERS), help="the launcher with its version")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no further plan after these")
    asked = parser.parse_args()
    name = asked.framework
    store = pathlib.Path(subprocess.run([INSTALL, "--path"], check=True, capture_output=True, text=True).stdout.strip())
    if not (store / "complete").exists():
        print(f"{name:28} SKIPPED: the launchers are not installed; `make launchers` installs them (6.5 GB)", flush=True)
        sys.exit(NOT_INSTALLED)
    began, plans, failures = time.monotonic(), 0, []
    oracle = Oracle(LAUNCHERS[name], store)
    for text in sys.stdin:
        # What is left is read all the same: whoever draws plans is not to find nobody there.
        if plans > 0 and time.monotonic() - began > asked.seconds:
            continue
        line = json.loads(text)
        plans += 1
        found = wrong(oracle, name, line)
        if found is not None:
            failures.append(f"{name}: {json.dumps(line['case'])}: {found}")
    oracle.close()
    if plans == 0:
        failures.append(f"{name}: no plan was drawn")
    print(
        f"{name:28} {LAUNCHERS[name].version:8} {LAUNCHERS[name].strength:8} {plans:6} random plans, "
        f"{len(failures)} differ, {time.monotonic() - began:.1f} s",
        flush=True,
    )
    for failure in failures[:10]:
        print(f"FAILED {failure}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
