#!/usr/bin/env python3
"""Makes the pictures that documents show: of plans, and of the pages of a planner with a worker that measured, planned and trained.

    make binaries && deploy/pictures/pages.py [FOLDER OF THE PROGRAMS]

It needs Chromium and its driver (deploy/setup/packages.sh browser), and some minutes. All that it starts ends with it.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "python" / "tests"))
if sys.argv[1:]:
    os.environ["LOADMASTER_PROGRAMS"] = str(Path(sys.argv[1]).resolve())

import planner as harness  # noqa: E402
from planner import PROGRAMS, Planner, environment  # noqa: E402

# Trainings of a debug build take a while.
harness.PATIENCE = 900.0

#: Pixels of a picture's width, and of what a picture may take: a reader of a document loads all of them.
WIDTH, MOST_BYTES = 1200, 100 << 10
#: What the worker offers, and what plans are for: no more than most machines have cores, or nobody can say how long they train.
SLOTS, DEVICES = "4x2GiB", "2x2GiB"


class Browser:
    """Chromium without a window, over WebDriver."""

    def __init__(self, folder: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._driver = subprocess.Popen(
            ["chromedriver", f"--port={port}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**environment(), "TMPDIR": folder},
        )
        self._address = f"http://127.0.0.1:{port}/session"
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        arguments.append(f"--user-data-dir={folder}/profile")
        options = {"goog:chromeOptions": {"args": arguments}}
        for _ in range(100):
            try:
                session = self._ask("", {"capabilities": {"alwaysMatch": options}})["sessionId"]
                break
            except urllib.error.URLError:
                time.sleep(0.1)
        else:
            raise SystemExit("chromedriver does not answer")
        self._address += f"/{session}"

    def _ask(self, path: str, body: dict[str, Any]) -> Any:
        request = urllib.request.Request(self._address + path, json.dumps(body).encode(), {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def _command(self, name: str, **parameters: Any) -> Any:
        return self._ask("/goog/cdp/execute", {"cmd": name, "params": parameters})

    def picture(self, address: str, height: int) -> bytes:
        """The upper part of a page."""
        self._command("Emulation.setDeviceMetricsOverride", width=WIDTH, height=height, deviceScaleFactor=1, mobile=False)
        self._ask("/url", {"url": address})
        return base64.b64decode(self._command("Page.captureScreenshot", format="webp", quality=75)["data"])

    def close(self) -> None:
        self._driver.terminate()
        self._driver.wait(30)


def history(planner: Planner) -> str:
    """Lets the planner have something to show; the name of a plan that was trained."""
    model = ["--model", "gpt2", "--blocks", "6", "--hidden-size", "128", "--heads", "4", "--sequence-length", "64"]
    model += ["--vocabulary-size", "2000", "--micro-batch-size", "8", "--micro-batches", "4"]
    planner.cli("profile", "run", "--id", "gpt", *model)
    asks = [
        ["--objective", "min-peak-memory"],
        ["--objective", "min-iteration-time"],
        ["--objective", "min-iteration-time", "--schedule", "1f1b"],
        ["--objective", "min-peak-memory", "--recompute", "layer"],
    ]
    names = [planner.cli("plan", "recommend", "--profile", "gpt", "--devices", DEVICES, *ask)["name"] for ask in asks]
    for name in names:
        planner.cli("plan", "trial", name)
    planner.cli("plan", "label", names[2], "team=vision", "stage=release")
    # One that goes on, and one that waits for what nobody has.
    planner.cli("profile", "run", "--id", "gpu", *model, "--device-kind", "NVIDIA H200", "--no-wait")
    planner.cli("profile", "run", "--id", "again", *model, "--ignore-stored-runs", "--no-wait")
    return str(names[2])


def draw(planner: Planner) -> None:
    """Draws plans of GPT-2 with 12 blocks, one for each document page."""
    model = ["--model", "gpt2", "--blocks", "12", "--hidden-size", "256", "--heads", "8", "--sequence-length", "128"]
    model += ["--vocabulary-size", "4000", "--micro-batch-size", "8", "--micro-batches", "4", "--schedule", "1f1b"]
    planner.cli("profile", "run", "--id", "wide", *model, "--host-memory", "2GiB")
    little = ["--host-memory", "2GiB", "--copy-rates", "host=8GB/s,peer=8GB/s"]
    for name, devices, more, picture in [
        ("plan", DEVICES, ["--objective", "min-iteration-time"], "all"),
        ("front", DEVICES, ["--objective", "pareto", "--recompute", "none,layer,stage"], "front"),
        ("actions", "2x170MiB", [*little, "--optimizations", "recompute,cpu-offload,peer-swap"], "schedule"),
        ("chunks", "1x160MiB", [*little, "--memory-mode", "chunks"], "chunks"),
    ]:
        plan = planner.cli("plan", "recommend", "--profile", "wide", "--devices", devices, *more)["name"]
        if name == "plan":
            planner.cli("plan", "trial", plan)
        file = str(HERE / f"{name}.svg")
        planner.cli_text("plan", "show", plan, f"--picture={picture}", "--output", file, "--overwrite")


def pages(planner: Planner) -> str:
    """Where its pages are."""
    line = [str(PROGRAMS / "loadmaster"), "worker", "list", "--address", planner.address]
    told = subprocess.run(line, capture_output=True, text=True, env=environment(), check=True).stderr
    return next(part for part in told.split() if part.startswith("http://")).removesuffix("/workers")


def main() -> None:
    planner = Planner("--web", "127.0.0.1:0")
    with tempfile.TemporaryDirectory() as folder:
        browser = Browser(folder)
        try:
            planner.start_worker("node1", SLOTS, "--host-memory", "4GiB")
            draw(planner)
            plan = history(planner)
            address = pages(planner)
            for name, path, height in [("overview", "", 900), ("plan", plan, 1100), ("errors", "errors", 900)]:
                picture = browser.picture(f"{address}/{path}", height)
                assert len(picture) <= MOST_BYTES, f"the picture of {name} has {len(picture)} bytes"
                (HERE / f"page-{name}.webp").write_bytes(picture)
        finally:
            browser.close()
            planner.close()


if __name__ == "__main__":
    main()
