"""A raw capture to write slices into."""

from __future__ import annotations

import pytest

from tests.support.profile_shelf import Copier
from tests.support.raw_device import Device


@pytest.fixture
def device(copied: Copier) -> Device:
    """A capture of one rank without any slice."""
    made = Device(copied("raw", ranks=1))
    for log in ("stars_soc", "ts_track"):
        made.write(log)
    return made
