"""What a planner of somebody else may answer, and what lies in a folder of somebody else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from loadmaster import Export
from loadmaster._wire.v1 import export_pb2

HOSTILE = ("-oProxyCommand=touch${IFS}x", "$(touch x)", "`touch x`", "a;b", "a b", "a\nb", "\u202ea", "a\u200b")


def answer() -> export_pb2.ExportPlanResponse:
    sound = export_pb2.ExportPlanResponse(plan="plans/x", placement="placements/y", framework_version="0.19")
    sound.files.add(name="train.sh", contents="exported")
    sound.files.add(name="ds_config.json", contents="{}")
    sound.environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    sound.command.extend(["torchrun", "$NODE_RANK"])
    sound.ranks.add().device.node = "gpu-1.example.com"
    sound.ranks.add().device.node = "fd00::1"
    sound.ranks.add().device.uuid = "MIG-GPU-1/1/0"
    return sound


def written(message: export_pb2.ExportPlanResponse, to: Path | None, overwrite: bool = False) -> Export:
    request = export_pb2.ExportPlanRequest(name="plans/x", placement="placements/y")
    return Export.written(request, message, to, overwrite)


def test_a_sound_answer_is_written(tmp_path: Path) -> None:
    export = written(answer(), tmp_path / "to")
    assert [path.name for path in export.paths] == ["train.sh", "ds_config.json"]
    assert sorted(os.listdir(tmp_path / "to")) == ["ds_config.json", "train.sh"]
    assert (tmp_path / "to" / "train.sh").read_text() == "exported"


@pytest.mark.parametrize("field", ["plan", "placement", "framework_version", "file", "variable", "node", "uuid"])
def test_names_that_are_none_are_refused_before_anything_is_written(field: str, tmp_path: Path) -> None:
    wrong = [*HOSTILE, ".."]
    if field == "file":
        wrong += ["", ".", ".bashrc", "../a", "a/b", "/etc/passwd", "train.sh"]
    for name in wrong:
        message = answer()
        if field == "file":
            message.files[1].name = name
        elif field == "variable":
            message.environment[name] = ""
        elif field == "node":
            message.ranks[0].device.node = name
        elif field == "uuid":
            message.ranks[0].device.uuid = name
        else:
            setattr(message, field, name)
        with pytest.raises(ValueError, match="the planner returned") as refused:
            written(message, tmp_path / "to", overwrite=True)
        assert str(refused.value).isascii() and "\n" not in str(refused.value)
    message = answer()
    message.environment["A"] = "x\u2028y"
    with pytest.raises(ValueError, match="the planner returned"):
        written(message, tmp_path / "to")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("there", ["other", "exported", None])
def test_links_are_replaced_and_never_followed(there: str | None, tmp_path: Path) -> None:
    precious, folder = tmp_path / "precious", tmp_path / "to"
    folder.mkdir()
    if there is not None:
        precious.write_text(there)
    (folder / "train.sh").symlink_to(precious)
    with pytest.raises(FileExistsError, match="overwrite=True"):
        written(answer(), folder)
    written(answer(), folder, overwrite=True)
    assert not (folder / "train.sh").is_symlink()
    assert (folder / "train.sh").read_text() == "exported"
    assert (precious.read_text() if precious.exists() else None) == there
    assert sorted(os.listdir(folder)) == ["ds_config.json", "train.sh"]


def test_a_file_keeps_its_mode_and_equal_ones_stay(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text("mine")
    script.chmod(0o750)
    written(answer(), tmp_path, overwrite=True)
    assert script.stat().st_mode & 0o777 == 0o750
    inode = script.stat().st_ino
    written(answer(), tmp_path)
    assert script.stat().st_ino == inode
