#!/usr/bin/env python3
"""Recommends a plan on devices for a launcher, and writes what the launcher runs.

python recommend.py PROFILE DEVICES LAUNCHER FOLDER
python recommend.py gpt 4x80GiB deepspeed plan
"""

from __future__ import annotations

import sys

import loadmaster


def main() -> int:
    profile, devices, launcher, folder = sys.argv[1:5]
    try:
        plan = loadmaster.recommend(profile, devices=devices, launcher=launcher, objective="min-iteration-time")
    except loadmaster.NoFeasiblePlan as error:
        print(f"nothing fits: {error.message}\nwhat helps: {error.remedy}", file=sys.stderr)
        return 1
    print(f"{plan.name}: stages {plan.partition}, {plan.seconds:.3g} s per iteration")
    for number, stage in enumerate(plan.stages):
        peak = f"{stage.peak_bytes / 2**20:.1f} MiB {stage.ledger}"
        print(f"stage {number}: layers {stage.first_layer} to {stage.last_layer} on {stage.devices}, peak {peak}")
    export = plan.export(to=folder)
    print("wrote", *export.paths)
    print("run once:" if export.once else "run on each node:", *export.command)
    return 0


if __name__ == "__main__":
    sys.exit(main())
