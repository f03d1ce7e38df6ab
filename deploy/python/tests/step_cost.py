"""Prints what `observed.step()` costs.

python tests/step_cost.py [STEPS]
"""

from __future__ import annotations

import statistics
import sys
import time

import loadmaster.torch


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    observed = loadmaster.torch.observe("plans/0", warm_up=1)
    observed.start()
    rounds = []
    for _ in range(10):
        begin = time.perf_counter()
        for _ in range(steps // 10):
            observed.step()
        rounds.append((time.perf_counter() - begin) / (steps // 10))
    micro = [round_ * 1e6 for round_ in rounds]
    print(f"step(): {statistics.median(micro):.2f} µs, at most {max(micro):.2f} µs in rounds of {steps // 10} steps")


if __name__ == "__main__":
    main()
