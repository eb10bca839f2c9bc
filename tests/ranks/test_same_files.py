"""Proves that any number of processes writes the same files and says the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.profile_shelf import ProfileShelf
from tests.support.ranks_in_processes import (
    FITS,
    Command,
    contents,
    exact_bytes,
    little_is_held,
    sized,
)

pytestmark = pytest.mark.sweep


@pytest.mark.parametrize("way", FITS)
@pytest.mark.parametrize("layout", ["torch-db", "mindspore-2.1"])
def test_the_number_of_processes_changes_nothing(
    command: Command, shelf: ProfileShelf, layout: str, way: str
) -> None:
    """One, two and three processes write the same bytes and say the same."""
    path = shelf.get(layout, ranks=3).path
    options = ["--kind", "detail", *sized(command, path, FITS[way]), "--json"]
    numbers = (1, 2, 3) if way == "coarsened" else (1, 3) if way == "all" else (1, 2)
    alone, *together = (command(path, *options, "-j", processes) for processes in numbers)
    assert alone.code == 0
    report = json.loads(alone.out)
    assert any(row["merged"] for row in report["resolution"]) == (way == "coarsened")
    assert any(row["loss"] for row in report["omitted"]) == (way == "leading steps")
    assert (len(alone.files) > 1) == (way == "parts")
    for outcome in together:
        assert outcome == alone


def test_ranks_merged_while_others_are_read(command: Command, shelf: ProfileShelf) -> None:
    """Where ranks exceed the limit by far, the number of processes changes nothing either."""
    path = shelf.get("torch-db", ranks=3, steps=12).path
    options = ["--kind", "detail", "--layers", "hardware", "--no-causes"]
    options += ["--limit", str(exact_bytes(command, path, *options) * 2 // 5), "--json"]
    with little_is_held():
        alone, together = (command(path, *options, "-j", processes) for processes in (1, 3))
    assert alone.code == 0
    assert alone == together


SCRIPT = """\
import timeline

timeline.export({path!r}, "timeline.pftrace", jobs=2)
"""


def test_a_script_of_two_lines_can_export(shelf: ProfileShelf, tmp_path: Path) -> None:
    """It needs no `if __name__ == "__main__"`: processes run nothing of the caller's."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(path=str(shelf.get("torch-db", ranks=3).path)))
    here = tmp_path / "here"
    here.mkdir()
    ran = subprocess.run(
        [sys.executable, script], cwd=here, capture_output=True, text=True, timeout=60
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert list(contents(here)) == ["timeline.pftrace"]
