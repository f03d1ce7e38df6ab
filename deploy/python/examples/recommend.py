#!/usr/bin/env python3
"""Recommends a plan on devices for a training framework, and writes its files.

python recommend.py PROFILE DEVICES FRAMEWORK FOLDER
python recommend.py gpt 4x80GiB deepspeed plan
"""

from __future__ import annotations

import sys

import loadmaster


def main() -> int:
    profile, devices, framework, folder = sys.argv[1:5]
    try:
        plan = loadmaster.recommend(profile, devices=devices, framework=framework, objective="min-iteration-time")
    except loadmaster.NoFeasiblePlan as error:
        print(f"nothing fits: {error.message}\nwhat helps: {error.remedy}", file=sys.stderr)
        return 1
    print(f"{plan.name}: stages {plan.layout}, {plan.seconds:.3g} s per iteration")
    for number, stage in enumerate(plan.stages):
        peak = f"{stage.peak_bytes / 2**20:.1f} MiB {stage.accounting}"
        print(f"stage {number}: layers {stage.first_layer} to {stage.last_layer} on {stage.devices}, peak {peak}")
    export = plan.export(to=folder)
    print("wrote", *export.paths)
    print("run once:" if export.once else "run on each node:", *export.command)
    return 0


if __name__ == "__main__":
    sys.exit(main())
