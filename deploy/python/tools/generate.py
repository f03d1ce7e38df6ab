#!/usr/bin/env python3
"""Writes messages, options and remedies into src/loadmaster/_wire, unless these are of today's sources. The build of the
package runs it, and tools/generate.sh does for the tests.

Needs grpcio-tools 1.62.3 and mypy-protobuf 3.6.0 on purpose: newer ones write code that demands the protobuf of their own
year, this one's runs with 4.25 to 7. Their wheels end at Python 3.12.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[2]
PROTOS = REPOSITORY / "proto"
ERRORS = REPOSITORY / "deploy" / "errors.md"
FOLDER = HERE.parent / "src" / "loadmaster" / "_wire"
PACKAGE = "loadmaster._wire.v1"
#: What the package calls; the files that these import come with them.
ROOTS = ["loadmaster/v1/history.proto", "loadmaster/v1/plan.proto", "loadmaster/v1/profile.proto"]


def main() -> None:
    complete = FOLDER / "__init__.py"
    says = f'"""What is generated: see tools/generate.py. Hash of the sources: {sources()}."""\n'
    if complete.exists() and complete.read_text(encoding="utf-8") == says:
        return
    if importlib.util.find_spec("grpc_tools") is None:
        print(
            "The messages of loadmaster are generated with grpcio-tools 1.62.3, which is not installed here and has no wheel "
            "for Python 3.13: build the wheel of loadmaster with Python 3.10 to 3.12; the wheel itself runs on 3.10 to 3.13.",
            file=sys.stderr,
        )
        raise SystemExit(3)
    from options import options_module

    shutil.rmtree(FOLDER, ignore_errors=True)  # of other sources, or of an attempt that failed
    described = messages(FOLDER)
    (FOLDER / "options.py").write_text(options_module(described), encoding="utf-8")
    (FOLDER / "remedies.py").write_text(remedies_module(), encoding="utf-8")
    (FOLDER / "v1" / "__init__.py").write_text('"""Messages of the protocol."""\n', encoding="utf-8")
    complete.write_text(says, encoding="utf-8")


def sources() -> str:
    """A hash of all that is read and run to generate."""
    found = hashlib.sha256()
    for path in sorted(
        [*PROTOS.rglob("*.proto"), *HERE.glob("*.py"), ERRORS, FOLDER.parent / "_flat.py", FOLDER.parent / "_words.py"]
    ):
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


def messages(folder: Path) -> bytes:
    """Writes the messages of all files that the roots need, importable as parts of the package alone; returns these files as a
    FileDescriptorSet."""
    import grpc_tools
    from grpc_tools import protoc

    out = folder / "raw"
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
    """The remedy of each reason, as the page of the errors has it."""
    rows = re.findall(r"^### ([A-Z_]+)\n\n(?:\* .*\n)*?\* Remedy: (.+)$", ERRORS.read_text(encoding="utf-8"), re.M)
    if not rows:
        raise SystemExit("deploy/errors.md has no reasons")
    lines = "".join(f"    {reason!r}: {helps.strip()!r},\n" for reason, helps in rows)
    return f'"""The remedy of each reason in deploy/errors.md."""\n\nREMEDIES: dict[str, str] = {{\n{lines}}}\n'


if __name__ == "__main__":
    main()
