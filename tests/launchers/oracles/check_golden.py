"""Runs every golden export through the launcher that it is for, and compares with what its case says.

    python3 tests/launchers/oracles/check_golden.py [LAUNCHER …]

Needs the environment of tests/launchers/install.sh, and no packages itself. Damaged copies of the exports must be
refused, or give another answer: an oracle that accepts them proves nothing.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import time
from typing import Any

import expectation
from damages import DAMAGES, Damage
from frameworks import LAUNCHERS, Launcher

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE.parent / "golden"
INSTALL = HERE.parent / "install.sh"


class Oracle:
    """The process of one launcher's oracle."""

    def __init__(self, launcher: Launcher, store: pathlib.Path) -> None:
        answers, self._theirs = os.pipe()
        # The oracle's file descriptor 3, whatever number the pipe has here.
        start = f'exec "$0" "$@" 3>&{self._theirs}'
        environment = {
            "HOME": os.environ.get("HOME", "/"),
            "PATH": f"{store}/bin:/usr/bin:/bin",
            "PYTHONPATH": ":".join(str(store / folder) for folder in launcher.folders),
            "PYTHONDONTWRITEBYTECODE": "1",
            "TORCH_EXTENSIONS_DIR": str(store / "extensions"),
            "OMP_NUM_THREADS": "1",
        }
        self._log = pathlib.Path(os.environ.get("ORACLE_LOG", os.devnull)).open("ab")  # as long as the process
        self._process = subprocess.Popen(
            ["bash", "-c", start, str(store / "bin" / "python"), str(HERE / launcher.oracle), *launcher.arguments],
            stdin=subprocess.PIPE,
            stderr=self._log,
            stdout=self._log,
            pass_fds=[self._theirs],
            env=environment,
        )
        os.close(self._theirs)
        self._answers = os.fdopen(answers)

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        answer = self._answers.readline()
        if not answer:
            return {"broken": f"the oracle ended with {self._process.wait()}"}
        return json.loads(answer)

    def close(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        self._answers.close()
        self._log.close()


def export(launcher: str, case: str) -> dict[str, Any]:
    """The request for a golden export."""
    directory = GOLDEN / launcher / case
    files = {
        str(path.relative_to(directory)): path.read_text()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    return {"files": files, **json.loads(files.pop("export.json"))}


def damaged(request: dict[str, Any], damage: Damage) -> dict[str, Any]:
    """The request with every occurrence of a text replaced, in its files and its command."""
    text = json.dumps(request)
    old, new = (json.dumps(part)[1:-1] for part in (damage.old, damage.new))
    if old not in text:
        raise SystemExit(f"{damage}: the golden export does not hold that text")
    return json.loads(text.replace(old, new))


def expected(launcher: Launcher, case: expectation.Case) -> dict[str, Any]:
    """What the oracle must answer."""
    facts = {
        # One stage is no pipeline: no launcher has an order of passes for it.
        "schedule": case.schedule if len(case.stages) > 1 else "none",
        "turns": case.turns,
        "micro_batch": case.micro_batch,
        "micro_batches": case.micro_batches,
        "global_batch": case.global_batch,
        "recompute": launcher.recompute(case),
        "precision": case.computes_in,
        "gradients": case.gradients_in,
        "zero_stage": case.zero_stage,
        "sequence_parallel": case.sequence_parallel,
        "optimizer": case.rule,
        "hosts": [[host, case.world // case.nodes] for host in hosts(case)],
        "tied": case.model.tied,
        "dropout": [case.model.dropout, case.model.dropout],
        "transformer": expectation.transformer(case.model),
    }
    ranks = expectation.ranks(case, launcher.padding(case))
    if not launcher.counts_parameters:
        ranks = [rank | {"parameters": None} for rank in ranks]
    return {"ranks": ranks, "facts": {name: facts[name] for name in launcher.facts}}


def hosts(case: expectation.Case) -> list[str]:
    """Nodes have names where there are several."""
    return [f"node{node}" for node in range(case.nodes)] if case.nodes > 1 else ["localhost"]


def difference(answer: dict[str, Any], wanted: dict[str, Any]) -> str | None:
    """Where the answer is not what was wanted, in words; None where it is."""
    for word in ("broken", "refused"):
        if word in answer:
            return f"{word}: {answer[word]}"
    if len(answer["ranks"]) != len(wanted["ranks"]):
        return f"{len(answer['ranks'])} ranks instead of {len(wanted['ranks'])}"
    for found, want in zip(answer["ranks"], wanted["ranks"], strict=True):
        for name, value in want.items():
            if found[name] != value:
                return f"rank {want['rank']}: {name} is {found[name]}, not {value}"
    for name, value in wanted["facts"].items():
        if name not in answer["facts"] or answer["facts"][name] != value:
            return f"{name} is {answer['facts'].get(name)}, not {value}"
    return None


def judge(answer: dict[str, Any], wanted: dict[str, Any], damage: Damage) -> str | None:
    """What is wrong with the answer to a damaged export; None where it is as it must be."""
    found = difference(answer, wanted)
    if found is None:
        return "is accepted as if it were whole"
    if found.startswith("broken"):
        return found
    return None if damage.says in found else f"is answered with '{found}', which does not say '{damage.says}'"


def check(name: str, launcher: Launcher, store: pathlib.Path) -> list[str]:
    """Runs all exports of one launcher, prints its row of the table, and returns what failed."""
    began, failures = time.monotonic(), []
    oracle = Oracle(launcher, store)
    names = sorted(path.name for path in (GOLDEN / name).iterdir())
    for directory in names:
        # Behind a "+" is the variant: several ways of the launcher to say the same plan.
        case = expectation.load(directory.partition("+")[0])
        wanted = expected(launcher, case)
        described = {"world": case.world, "samples": case.global_batch, "model": dataclasses.asdict(case.model)}
        request = export(name, directory) | described
        modes = ["build", "train"] if directory in launcher.trains else ["build"]
        for mode in modes:
            found = difference(oracle.ask(request | {"mode": mode}), wanted)
            if found is not None:
                failures.append(f"{name}/{directory} ({mode}): {found}")
        for damage in DAMAGES.get(f"{name}/{directory}", []):
            found = judge(oracle.ask(damaged(request, damage) | {"mode": damage.mode}), wanted, damage)
            if found is not None:
                failures.append(f"{name}/{directory} with '{damage.new}' for '{damage.old}': {found}")
    oracle.close()
    damages = sum(len(DAMAGES.get(f"{name}/{directory}", [])) for directory in names)
    if not damages:
        failures.append(f"{name}: no damaged export shows that its oracle can fail")
    verdict = "FAILED" if failures else "ok"
    print(
        f"{name:28} {launcher.version:8} {launcher.strength:8} {len(names):5} {damages:8} "
        f"{time.monotonic() - began:8.1f}  {verdict}",
        flush=True,
    )
    return failures


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("launchers", nargs="*", help="of these launchers only, as the folders of golden/ are called")
    asked = parser.parse_args().launchers
    unknown = [name for name in asked if name not in LAUNCHERS]
    if unknown:
        parser.error(f"there is no launcher {', '.join(unknown)}; there are {', '.join(LAUNCHERS)}")
    store = pathlib.Path(subprocess.run([INSTALL, "--path"], check=True, capture_output=True, text=True).stdout.strip())
    if not (store / "complete").exists():
        raise SystemExit(f"the launchers are not installed: run {INSTALL}")
    print(f"{'launcher':28} {'version':8} {'strength':8} {'cases':>5} {'damaged':>8} {'seconds':>8}")
    failures = [failure for name in asked or LAUNCHERS for failure in check(name, LAUNCHERS[name], store)]
    for failure in failures:
        print(f"FAILED {failure}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
