"""Files of exports in a folder."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path

from ._wire.v1 import export_pb2


def write(folder: str | os.PathLike[str], files: Iterable[export_pb2.ExportedFile], overwrite: bool) -> list[Path]:
    """Writes all files, or none where a file has other contents. Links in the folder are replaced, never followed.

    Raises FileExistsError in that case. Names are checked by `_answers`.
    """
    paths = [(Path(folder) / file.name, file.contents.encode()) for file in files]
    changed = []
    for path, contents in paths:
        about = _about(path)
        if about is not None and stat.S_ISREG(about.st_mode) and path.read_bytes() == contents:
            continue
        if about is not None and not overwrite:
            raise FileExistsError(f"{path} is there with another content: name another folder, or overwrite=True")
        changed.append((path, contents, about))
    Path(folder).mkdir(parents=True, exist_ok=True)
    for path, contents, about in changed:
        _replace(path, contents, about)
    return [path for path, _ in paths]


def _about(path: Path) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _replace(path: Path, contents: bytes, about: os.stat_result | None) -> None:
    """Replaces a file by a complete one with the same permissions."""
    beside = path.with_name(f".export-{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    opened = os.open(beside, flags, 0o666)
    try:
        with os.fdopen(opened, "wb") as file:
            file.write(contents)
        if about is not None and stat.S_ISREG(about.st_mode):
            os.chmod(beside, stat.S_IMODE(about.st_mode))
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise
