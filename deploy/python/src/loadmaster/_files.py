"""Files of exports in a folder."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from ._wire.v1 import export_pb2


def write(folder: str | os.PathLike[str], files: Iterable[export_pb2.ExportedFile], overwrite: bool) -> list[Path]:
    """Writes all files, or none where one of another content is there.

    Raises FileExistsError in that case, ValueError where a planner names what is no file of the folder.
    """
    paths = []
    for file in files:
        # A planner names files, and must not reach out of the folder with them.
        if Path(file.name).name != file.name or file.name in ("", ".", ".."):
            raise ValueError(f"the planner named a file {file.name!r}, which is no name of a file")
        path = Path(folder) / file.name
        if not overwrite and path.exists() and path.read_bytes() != file.contents.encode():
            raise FileExistsError(f"{path} is there with another content: name another folder, or overwrite=True")
        paths.append((path, file.contents))
    Path(folder).mkdir(parents=True, exist_ok=True)
    for path, contents in paths:
        path.write_bytes(contents.encode())
    return [path for path, _ in paths]
