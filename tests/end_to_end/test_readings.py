"""A profile is drawn in the same bytes however it is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.other_readings import READINGS
from tests.support.places import DATA
from tests.support.profile_shelf import ProfileShelf
from timeline import export

pytestmark = pytest.mark.sweep

REAL = (
    "gpu/trace_filter",
    "gpu/nccl_parser_config",
    "gpu-ranks/sst_long_a2a_optimizer_2.tar.gz",
    "torch-npu-text",
    "torch-npu-db",
)
"""Several ranks, calls that took the same time, and traces of more than one block."""


def drawn(capture: Path, output: Path) -> bytes:
    export(capture, output, kind="detail", jobs=1, force=True)
    return output.read_bytes()


def assert_all_readings_draw_alike(capture: Path, output: Path) -> None:
    usual = drawn(capture, output)
    for read_so in READINGS:
        with read_so():
            assert drawn(capture, output) == usual, read_so.__name__


@pytest.mark.parametrize("layout", ["kineto-announced", "torch-text", "torch-db", "mindspore-2.1"])
def test_made_profiles(shelf: ProfileShelf, tmp_path: Path, layout: str) -> None:
    assert_all_readings_draw_alike(shelf.get(layout).path, tmp_path / "out.pftrace")


@pytest.mark.skipif(not DATA.is_dir(), reason="no captures of real runs")
@pytest.mark.parametrize("name", REAL)
def test_real_profiles(tmp_path: Path, name: str) -> None:
    assert_all_readings_draw_alike(DATA / name, tmp_path / "out.pftrace")
