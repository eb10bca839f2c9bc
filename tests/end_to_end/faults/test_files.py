"""Proves that files that end early, are no files or may not be read are refused or read in part."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.damaged_profiles import MAIN_FILES, POSIX, RAW, VARIANTS, Export, Spot, as_nobody
from tests.support.profile_shelf import WITHOUT_TASKS, WRITERS, Copier, ProfileShelf
from timeline.cli.main import main

pytestmark = pytest.mark.sweep


def test_every_layout_has_faults() -> None:
    """A merged trace is a file of several ranks, whose faults are those of a trace of one."""
    assert set(MAIN_FILES) == set(WRITERS) - WITHOUT_TASKS - {"kineto-merged"}


@pytest.mark.parametrize(
    ("layout", "part"),
    [
        *((layout, 0.3) for layout in MAIN_FILES if layout not in VARIANTS),
        *((layout, 0.9) for layout in MAIN_FILES),
    ],
)
def test_truncated(
    export: Export, spot_of: Callable[[str], Spot], layout: str, part: float
) -> None:
    """A file that ends early is read as far as it goes and told, or refused by its name."""
    spot = spot_of(layout)
    data = spot.path.read_bytes()
    spot.path.write_bytes(data[: int(len(data) * part) | 1])
    ran = export(spot.root)
    if ran.code:
        export.refused(spot.root, names=spot.path.name)
        return
    made = sum((ran.tasks() - spot.tasks).values())
    # SQLite takes what is missing of a page for zeros; without its rest, a display has no clock.
    assert made <= (1 if "sqlite" in layout else 0) or layout.startswith("mindspore-display")
    assert ran.losses
    assert export(spot.root, "--strict").code == 4


@pytest.mark.parametrize("layout", MAIN_FILES)
def test_empty(export: Export, spot_of: Callable[[str], Spot], layout: str) -> None:
    """A file without a byte is refused, unless others beside it hold tasks: then it is told."""
    spot = spot_of(layout)
    spot.path.write_bytes(b"")
    ran = export(spot.root)
    if layout in RAW or layout in ("raw-v6", "raw-49-MHz"):
        assert ran.code == 0
        assert not ran.tasks() - spot.tasks
        assert ran.losses
    else:
        export.refused(spot.root, names=spot.path.name)


INSTEAD: dict[str, Callable[[Path], None]] = {
    "directory": lambda path: path.mkdir(),
    "pipe": os.mkfifo,
    "loop": lambda path: path.symlink_to(path.name),
    "dangling": lambda path: path.symlink_to("nowhere"),
}


@POSIX
@pytest.mark.parametrize(
    "layout", ["torch-text", "torch-db", "mindstudio", "kineto", "mindspore-text"]
)
@pytest.mark.parametrize("case", INSTEAD)
def test_no_file(export: Export, spot_of: Callable[[str], Spot], layout: str, case: str) -> None:
    """Something else under the name of a file is refused at once.

    A directory is no file: where a step trace lies beside it, that is all there is.
    """
    spot = spot_of(layout)
    spot.path.unlink()
    INSTEAD[case](spot.path)
    if case == "directory" and layout == "mindspore-text":
        ran = export(spot.root)
        assert ran.code == 0
        assert "only tables are here" in ran.err
        return
    hidden = case == "directory" and layout == "kineto"
    export.refused(spot.root, names="holds no Ascend profile" if hidden else spot.path.name)


@POSIX
@pytest.mark.parametrize(
    "layout", ["torch-text", "torch-db", "mindstudio", "raw", "kernel-details"]
)
def test_no_permission(export: Export, spot_of: Callable[[str], Spot], layout: str) -> None:
    """A file that may not be read is refused by its name."""
    spot = spot_of(layout)
    spot.path.chmod(0)
    with as_nobody(export.directory):
        assert main([str(spot.root), "-o", str(export.directory / "out.pftrace")]) == 1
    said = export.capsys.readouterr()
    assert said.err.startswith(f"tlexport: {spot.path}: cannot be read")


@POSIX
@pytest.mark.parametrize("layout", ["torch-text", "mindstudio", "raw"])
def test_directory_without_permission(
    export: Export, spot_of: Callable[[str], Spot], layout: str
) -> None:
    """A directory that may not be read is refused by its name."""
    spot = spot_of(layout)
    before = spot.path.parent.stat().st_mode
    spot.path.parent.chmod(0)
    try:
        with as_nobody(export.directory):
            assert main([str(spot.root), "-o", str(export.directory / "out.pftrace")]) == 1
    finally:
        spot.path.parent.chmod(before)
    said = export.capsys.readouterr()
    assert said.err.startswith(f"tlexport: {spot.path.parent}: cannot be read: ")


@POSIX
def test_directory_without_permission_is_passed_over(export: Export, copied: Copier) -> None:
    """With --keep-going the other rank is drawn, and the directory is named."""
    profile = copied("torch-text", ranks=2)
    hidden, target = profile.captures[0], str(export.directory / "out.pftrace")
    assert main([str(profile.path), "-o", target]) == 0
    before = hidden.stat().st_mode
    hidden.chmod(0)
    try:
        with as_nobody(export.directory):
            assert main([str(profile.path), "-o", target, "--force", "--keep-going"]) == 0
    finally:
        hidden.chmod(before)
    said = export.capsys.readouterr()
    assert f"left out: {hidden}: cannot be read" in said.err
    assert "1 rank," in said.out


@pytest.mark.parametrize("layout", ["torch-text", "torch-db", "kernel-details", "kineto"])
def test_file_that_goes_while_it_is_read(
    export: Export, spot_of: Callable[[str], Spot], layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is gone by the time it is opened is refused by its name."""
    from timeline.sources.companions.source import WithCompanionFiles

    spot = spot_of(layout)
    read = WithCompanionFiles.read

    def late(source: WithCompanionFiles, wanted: Any) -> Any:
        spot.path.unlink()
        return read(source, wanted)

    monkeypatch.setattr(WithCompanionFiles, "read", late)
    output = export.directory / "out.pftrace"
    assert main([str(spot.root), "-o", str(output)]) == 1
    said = export.capsys.readouterr()
    assert said.err.startswith("tlexport: ")
    assert str(spot.path.parent) in said.err
    assert list(export.directory.iterdir()) == []


@pytest.mark.parametrize("layout", ["torch-text", "kineto"])
def test_trace_that_shrinks_while_it_is_read(
    export: Export, spot_of: Callable[[str], Spot], layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read before is drawn, and the byte at which the file ends now is told."""
    from timeline.sources.decoders import json_events
    from timeline.sources.decoders.json_events import read_events

    spot = spot_of(layout)
    shorter = spot.path.stat().st_size * 3 // 4

    def shrinking(decoder: Any, path: Path, _: int, damage: Any, scan: Any) -> Any:
        blocks = read_events(decoder, path, 2048, damage, scan=scan)
        for number, block in enumerate(blocks):
            yield block
            if number == 0:
                os.truncate(path, shorter)

    monkeypatch.setattr(json_events, "read_events", shrinking)
    output = export.directory / "out.pftrace"
    arguments = [str(spot.root), "--kind", "detail", "--json", "-o", str(output)]
    assert main(arguments) == 0
    said = export.capsys.readouterr()
    assert any(f"byte {shorter}" in row["reason"] for row in json.loads(said.out)["omitted"])


def test_a_rank_without_anything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], shelf: ProfileShelf
) -> None:
    """Beside other ranks it is named in a note, alone in an error."""
    profile = shelf.copy("torch-text", tmp_path / "profile", ranks=2, steps=1)
    first, second = profile.captures
    for path in (first / "ASCEND_PROFILER_OUTPUT").iterdir():
        path.unlink()
    output = str(tmp_path / "out.pftrace")
    assert main([str(profile.path), "-o", output]) == 0
    assert f"tlexport: {first.name} holds nothing that can be read" in capsys.readouterr().err
    shutil.rmtree(second)
    assert main([str(profile.path), "-o", output, "--force"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"tlexport: {first}: holds nothing that can be read")


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_list_without_a_rank(
    capsys: pytest.CaptureFixture[str], copied: Copier, more: tuple[str, ...]
) -> None:
    """With --keep-going too, nothing to list is an error."""
    profile = copied("torch-text", ranks=2, steps=1)
    for capture in profile.captures:
        (capture / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").write_bytes(b"")
    assert main([str(profile.path), "--list", "--keep-going", *more]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "trace_view.json" in said.err
