"""Proves that sound captures keep all promises in the ways that fuzzed ones are drawn."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.fuzzed_export import COMPARED, SEVERAL_RANKS, WAYS, WITH_PAGE, FuzzedExport
from tests.fuzz.seeds import write_capture

FEW = (COMPARED, SEVERAL_RANKS, 1, WITH_PAGE)
"""Compared, with another rank, alone, and with a page."""


@pytest.mark.parametrize("layout", ["torch-text", "torch-db", "raw"])
def test_a_sound_capture_is_drawn_as_promised(tmp_path: Path, layout: str) -> None:
    """Nothing of that is refused, and nothing stays behind."""
    places = [tmp_path / name for name in ("run/capture", "run/sound", "written")]
    for place in places:
        place.mkdir(parents=True)
    for place in places[:2]:
        write_capture(layout, place)
    program = FuzzedExport(*places)
    for way in FEW:
        assert way < WAYS
        program.run(way)
        assert list(places[2].iterdir()) == []
