#!/usr/bin/env python3
"""Makes the tables of `bench accuracy gh200 time` from a clone of github.com/eth-easl/sailor (MIT) at commit cf2c8e3.

usage: gh200_tables.py CLONE FOLDER    then LOADMASTER_DATA=FOLDER target/debug/bench accuracy gh200 time
"""

import json
import pathlib
import sys

PLANNER = "sailor/Planner"
MODEL = {
    "name": "OPT-350M",
    "kind": "gpt2-like",
    "hidden": 1024,
    "heads": 16,
    "layers": 24,
    "sequence": 2048,
    "vocabulary": 50272,
    "optimizer": "Adam",
}


def pipeline(entry: dict) -> dict:
    def replica(one: list) -> dict:
        [[kind, devices, _]], degree = one[0], one[1]
        return {"device_kind": kind, "devices_per_node": devices, "tensor_degree": degree}

    return {
        "layers_per_stage": entry["layers_per_stage"],
        "replicas_per_stage": [[replica(one) for one in stage] for stage in entry["tmp_per_stage"]],
        "data_degree_per_stage": entry["dp"],
    }


def plan(clone: pathlib.Path, path: pathlib.Path) -> dict:
    entry = json.loads(path.read_text())
    return {
        "source": str(path.relative_to(clone)),
        "micro_batch": entry["mbs"],
        "global_batch": entry["gbs"],
        "measured_iteration_seconds": entry["real"],
        "measured_gradient_sync_seconds": entry["red_grads"],
        "measured_peak_bytes": entry["max_mem"],
        "nodes": entry["N"],
        "pipelines": [pipeline(one) for one in entry["pipeline_list"]],
    }


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    clone, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]) / "measured"
    planner = clone / PLANNER
    profile = {
        "model": MODEL,
        "profile": json.loads((planner / "sailor_planner/profiles/OPT-350/GH-96/profile.json").read_text()),
        "layers": json.loads((planner / "llm_info.json").read_text())["OPT-350"],
    }
    paths = sorted((planner / "simulations/validation/clariden/OPT-350").glob("N*/*.json"))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "opt-350m-gh200-layer-profile.json").write_text(json.dumps(profile))
    plans = {"model": MODEL, "plans": [plan(clone, path) for path in paths]}
    (folder / "opt-350m-gh200-plans.json").write_text(json.dumps(plans))


if __name__ == "__main__":
    main()
