"""Real planners and workers, which never outlive their test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

#: Where the project's programs are built.
PROGRAMS = Path(os.environ.get("LOADMASTER_PROGRAMS", Path(__file__).resolve().parents[3] / "target" / "debug"))
#: Longest wait for anything, seconds: a test that passes never comes near it.
PATIENCE = 120.0


def wait_until(what: str, condition: Callable[[], T | None]) -> T:
    """Waits until the condition yields something."""
    begin = time.monotonic()
    while time.monotonic() - begin < PATIENCE:
        if (found := condition()) is not None:
            return found
        time.sleep(0.05)
    raise AssertionError(f"waited too long until {what}")


def environment() -> dict[str, str]:
    """Our environment without what is meant for other planners."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("LOADMASTER_", "DATABASE_URL"))}


class Program:
    """A running program in a process group of its own, with its output in a file."""

    def __init__(self, name: str, arguments: list[str], log: Path) -> None:
        self.name, self.log = name, log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [str(PROGRAMS / name), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env=environment(),
            )

    def must_run(self) -> None:
        assert self._process.poll() is None, f"{self.name} ended early:\n{self.log.read_text()}"

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self._process.poll() is None:
            self._process.send_signal(how)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


class Planner:
    """A planner on a free port, with a database of its own, and short leases unless other arguments are given."""

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments or ("--lease-duration", "3s", "--heartbeat-interval", "0.5s")
        self._folder = tempfile.TemporaryDirectory(prefix="lp", ignore_cleanup_errors=True)
        self._path = Path(self._folder.name)
        self._path.chmod(0o755)  # as root the database runs as another user
        self._worker: Program | None = None
        self._starts = 0
        self.address = self._start("127.0.0.1:0")

    def _start(self, listen: str) -> str:
        self._starts += 1
        file = self._path / f"address{self._starts}"
        arguments = ["serve", "--listen", listen, "--address-file", str(file), "--data-dir", str(self._path / "data")]
        arguments += self._arguments
        self._program = Program("loadmaster", arguments, self._path / "planner.log")

        def served() -> str | None:
            self._program.must_run()
            return file.read_text().strip() if file.exists() and file.read_text() else None

        return wait_until("the planner serves", served)

    def stop(self) -> None:
        """Ends the planner alone."""
        self._program.stop()

    def restart(self) -> None:
        """Starts it again, on the same port and data."""
        assert self._start(self.address.removeprefix("http://")) == self.address

    def start_worker(self, name: str = "python", slots: str = "4x1GiB", *more: str) -> None:
        """Connects a worker with CPU slots, and with more options."""
        arguments = ["--server", self.address, "--name", name, "--cpu-slots", slots]
        arguments += ["--rank", str(PROGRAMS / "loadmaster-rank"), "--work-dir", str(self._path / "work"), *more]
        self._worker = worker = Program("loadmaster-worker", arguments, self._path / "worker.log")

        def alive() -> bool | None:
            worker.must_run()
            return True if any(of["state"] == "ALIVE" for of in self.cli("worker", "list").get("workers", [])) else None

        wait_until("the worker is connected", alive)

    def cli(self, *arguments: str) -> Any:
        """What the command line answers, as JSON."""
        return json.loads(self.cli_text(*arguments, "-o", "json"))

    def cli_text(self, *arguments: str) -> str:
        """What the command line prints."""
        line = [str(PROGRAMS / "loadmaster"), *arguments, "--address", self.address]
        done = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE, env=environment(), check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def sql(self, statement: str) -> None:
        """Changes what is stored, as nothing of the package can: times of long ago, for example."""
        line = ["psql", "--quiet", "--no-psqlrc", "--set", "ON_ERROR_STOP=1", "--host", str(self._path / "data" / "run")]
        line += ["--username", "loadmaster", "--dbname", "loadmaster", "--command", statement]
        done = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert done.returncode == 0, done.stderr

    def close(self) -> None:
        if self._worker is not None:
            self._worker.stop()
        self._program.stop()
        self._folder.cleanup()
