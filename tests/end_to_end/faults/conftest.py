"""Fixtures of tests that damage a profile and export it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.damaged_profiles import RUN, Export, Spot, assigned, device_slices, main_file
from tests.support.profile_shelf import ProfileShelf
from timeline.cli.main import main


@pytest.fixture
def export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Export:
    directory = tmp_path / "written"
    directory.mkdir()
    return Export(directory, capsys)


@pytest.fixture(scope="module")
def undamaged(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path, str], list[Any]]:
    """The device slices of each layout as it was written."""
    directory = tmp_path_factory.mktemp("undamaged")
    known: dict[str, list[tuple[int, int, str]]] = {}

    def slices(profile: Path, layout: str) -> list[tuple[int, int, str]]:
        if layout not in known:
            output = directory / f"{layout}.pftrace"
            arguments = ["--kind", "detail", "--quiet", "-o", str(output), *assigned(profile)]
            assert main([str(profile), *arguments]) == 0
            known[layout] = device_slices(output)
            assert known[layout]
        return known[layout]

    return slices


@pytest.fixture
def spot_of(
    shelf: ProfileShelf, tmp_path: Path, undamaged: Callable[[Path, str], list[Any]]
) -> Callable[[str], Spot]:
    def make(layout: str) -> Spot:
        slices = undamaged(shelf.get(layout, **RUN).path, layout)
        profile = shelf.copy(layout, tmp_path / "profile", **RUN)
        return Spot(layout, profile.path, main_file(profile, layout), slices)

    return make
