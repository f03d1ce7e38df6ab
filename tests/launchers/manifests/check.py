"""Asks about envelopes: golden manifests with damaged copies, or random ones from standard input.

    python3 tests/launchers/manifests/check.py                     golden ones
    target/debug/bench exports --manifest jobset --plans 1000 | python3 tests/launchers/manifests/check.py jobset

Runs in the environment of manifests/install.sh.
"""

import argparse
import json
import pathlib
import sys
import time

import damages
import judge
import schemas

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden" / "manifests"


def found(
    manifest: str,
    node_ranks: list[int],
    launcher: str,
    queue: str,
    seen: set[str] | None = None,
    has_gpus: bool = True,
    hosts: list[str] | None = None,
) -> str | None:
    """What is wrong; a claim that does not hold is said, too."""
    try:
        return judge.wrong(manifest, node_ranks, launcher, queue, seen, has_gpus, hosts)
    except AssertionError as error:
        return f"assert: {error}"


def node_ranks(asked: dict) -> list[int]:
    """Ranks of each node of a golden export."""
    if "node_ranks" in asked:
        return asked["node_ranks"]
    case = json.loads((GOLDEN.parent / "cases" / f"{asked['case']}.json").read_text())
    world = len(case["stages"]) * case["tensor"] * case["data"]
    return [world // case["nodes"]] * case["nodes"]


def golden() -> list[str]:
    failures, count, seen = [], 0, set()
    for path in sorted(GOLDEN.glob("*/*/*.yaml")):
        asked = json.loads((path.parent / "asked.json").read_text())
        of = (node_ranks(asked), asked["framework"], asked["settings"].get("queue", ""))
        name = str(path.relative_to(GOLDEN))
        count += 1
        has_gpus = asked.get("kinds") != ["cpu"]
        hosts = [host for host, _ in asked.get("placement", [])]
        if wrong := found(path.read_text(), *of, seen, has_gpus, hosts):
            failures.append(f"{name}: {wrong}")
        for manifest, old, new, says in damages.DAMAGES:
            if manifest != name:
                continue
            text = path.read_text()
            assert old in text, f"{name} has no {old}"
            wrong = found(text.replace(old, new), *of, has_gpus=has_gpus, hosts=hosts)
            if wrong is None or not any(word in wrong for word in says.split("|")):
                failures.append(f"{name} with {new} for {old} is answered with {wrong}")
    print(f"envelopes: {count} golden manifests, {len(damages.DAMAGES)} damaged, {len(failures)} differ; rules of CEL asked:")
    for text in sorted(seen):
        print(f"    {text}")
    return failures


def random(envelope: str, seconds: float) -> list[str]:
    began, failures, count, seen = time.monotonic(), [], 0, set()
    for text in sys.stdin:
        # What is left is read all the same: whoever draws plans is not to find nobody there.
        if count > 0 and time.monotonic() - began > seconds:
            continue
        line = json.loads(text)
        count += 1
        ((name, manifest),) = line["files"].items()
        assert line["command"] == ["kubectl", "apply", "--server-side", "-f", name]
        hosts = [host for host, _ in line["placement"]]
        if wrong := found(manifest, line["node_ranks"], line["framework"], line["queue"], seen, hosts=hosts):
            failures.append(f"{envelope} of {line['framework']} on {line['node_ranks']}: {wrong}")
    if count == 0:
        failures.append(f"{envelope}: no plan was drawn")
    took = time.monotonic() - began
    print(f"{envelope:28} {count:6} random plans, {len(failures)} differ, {took:.1f} s", flush=True)
    return failures


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("envelope", nargs="?", help="read random plans in this envelope")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no further plan after these")
    asked = parser.parse_args()
    if schemas.folder() is None:
        what = asked.envelope or "golden envelopes"
        print(f"SKIPPED: {what}: the folder that LOADMASTER_DATA names has no crds; deploy/guide/results/data.md lists its files")
        sys.stdin.read() if asked.envelope else None
        return
    failures = random(asked.envelope, asked.seconds) if asked.envelope else golden()
    for failure in failures[:10]:
        print(f"FAILED {failure}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
