#!/usr/bin/env python3
"""Writes what the package generates: messages, options and remedies.

    python tools/generate.py [FOLDER]     default: src/loadmaster/_wire

Needs grpcio-tools 1.62.3 and mypy-protobuf 3.6.0 on purpose: newer ones write code that demands the protobuf of their own
year, this one's runs with 4.25 to 7. Their wheels end at Python 3.12.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import grpc_tools
from grpc_tools import protoc
from options import options_module

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[2]
PROTOS = REPOSITORY / "proto"
PACKAGE = "loadmaster._wire.v1"
#: What the package calls; the files that these import come with them.
ROOTS = ["loadmaster/v1/history.proto", "loadmaster/v1/plan.proto", "loadmaster/v1/profile.proto"]


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parent / "src" / "loadmaster" / "_wire"
    described = messages(folder)
    (folder / "options.py").write_text(options_module(described), encoding="utf-8")
    (folder / "remedies.py").write_text(remedies_module(), encoding="utf-8")
    for package, says in ((folder, "What is generated: see tools/generate.py."), (folder / "v1", "Messages of the protocol.")):
        (package / "__init__.py").write_text(f'"""{says}"""\n', encoding="utf-8")


def messages(folder: Path) -> bytes:
    """Writes the messages of all files that the roots need, importable as parts of the package alone; returns these files as a
    FileDescriptorSet."""
    out = folder / "raw"
    shutil.rmtree(out, ignore_errors=True)  # of an attempt that failed
    out.mkdir(parents=True)
    known = Path(grpc_tools.__file__).parent / "_proto"  # google.protobuf; the rest of Google's is beside our own
    described = folder / "described"
    arguments = ["protoc", f"-I{PROTOS}", f"-I{known}", f"--python_out={out}", f"--mypy_out=quiet:{out}"]
    arguments += ["--include_imports", f"--descriptor_set_out={described}"]
    if protoc.main([*arguments, *closure(ROOTS)]) != 0:
        raise SystemExit("protoc failed")
    (folder / "v1").mkdir(exist_ok=True)
    for file in sorted((out / "loadmaster" / "v1").iterdir()):
        text = file.read_text(encoding="utf-8")
        (folder / "v1" / file.name).write_text(private(file, text), encoding="utf-8")
        file.unlink()
    for empty in ("loadmaster/v1", "loadmaster", "."):
        (out / empty).rmdir()
    read = described.read_bytes()
    described.unlink()
    return read


def closure(roots: list[str]) -> list[str]:
    """The files and all of ours that they import."""
    found: list[str] = []
    ahead = list(roots)
    while ahead:
        name = ahead.pop()
        if name not in found:
            found.append(name)
            ahead += re.findall(r'^import "(loadmaster/.*)";', (PROTOS / name).read_text(encoding="utf-8"), re.M)
    return sorted(found)


def private(file: Path, text: str) -> str:
    """Imports of `loadmaster.v1` as imports of the package's own part. Names in descriptors stay: they are the protocol's."""
    if file.suffix == ".pyi":
        if "def collections(self)" in text:
            # A field hides the module of its name from the rest of its class.
            text = text.replace("import collections.abc\n", "import collections.abc as collections_abc\n")
            text = re.sub(r"(?<!import )\bcollections\.abc\.", "collections_abc.", text)
        return text.replace("loadmaster.v1.", f"{PACKAGE}.")
    text = re.sub(r"^from loadmaster\.v1 import", f"from {PACKAGE} import", text, flags=re.M)
    return re.sub(r"'loadmaster\.v1\.(\w+_pb2)', _globals", rf"'{PACKAGE}.\1', _globals", text)


def remedies_module() -> str:
    """What helps, by reason, as the table of the errors says."""
    rows = re.findall(
        r"^\| `([A-Z_]+)` \|.*\| ([^|]+) \|$", (REPOSITORY / "deploy" / "errors.md").read_text(encoding="utf-8"), re.M
    )
    if not rows:
        raise SystemExit("deploy/errors.md has no table of reasons")
    lines = "".join(f"    {reason!r}: {helps.strip()!r},\n" for reason, helps in rows)
    return f'"""What helps, by reason: the last column of deploy/errors.md."""\n\nREMEDIES: dict[str, str] = {{\n{lines}}}\n'


if __name__ == "__main__":
    main()
