"""Unpack from the wheels in one folder what a CPU run of libtorch needs, into another.

Used by libtorch.sh, at set-up only. A wheel is a zip file; `unzip` cannot flatten folders the way
this needs, and whoever has pip has Python.
"""

import os
import pathlib
import shutil
import sys
import zipfile

LIBRARIES = {
    "torch/lib/libc10.so",
    "torch/lib/libgomp.so.1",
    "torch/lib/libtorch_cpu.so",
    "nvidia/cu13/lib/libcudart.so.13",
    "nvidia/cu13/lib/libcupti.so.13",
}


def place(name, wheel):
    """Where a file of the wheel goes below the libtorch directory, or None to leave it out."""
    if name.endswith("/"):
        return None
    if name in LIBRARIES:
        return "lib/" + os.path.basename(name)
    if name.startswith("torch/include/"):
        return name.removeprefix("torch/")
    if ".dist-info/licenses/" in name:
        return f"licenses/{wheel}/" + name.split("/licenses/", 1)[1]
    return None


def main(wheels, target):
    for wheel in sorted(pathlib.Path(wheels).glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                where = place(name, wheel.name.split("-", 1)[0])
                if where is None:
                    continue
                path = os.path.join(target, where)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with archive.open(name) as source, open(path, "wb") as sink:
                    shutil.copyfileobj(source, sink, 1 << 20)


main(sys.argv[1], sys.argv[2])
