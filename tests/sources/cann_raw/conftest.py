"""A raw capture to write slices into."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.profile_shelf import ProfileShelf
from tests.support.raw_device import Device


@pytest.fixture
def device(shelf: ProfileShelf, tmp_path: Path) -> Device:
    """A capture of one rank without any slice."""
    made = Device(shelf.copy("raw", tmp_path / "run", ranks=1))
    for log in ("stars_soc", "ts_track"):
        made.write(log)
    return made
