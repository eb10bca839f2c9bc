"""Proves that steps that no database lists are refused before host calls are read, others not."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import timeline
from tests.support.profile_shelf import Copier, ProfileShelf
from timeline.layers import HOST_LAYERS, Layer
from timeline.records.tables import Records
from timeline.sources.database.source import DatabaseSource
from timeline.sources.source import ReadRequest

Readings = list[frozenset[Layer]]


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> Readings:
    """The layers of each reading of a database in this process."""
    layers = Readings()
    read = DatabaseSource.read

    def reading(source: DatabaseSource, wanted: ReadRequest) -> Records:
        layers.append(wanted.layers)
        return read(source, wanted)

    monkeypatch.setattr(DatabaseSource, "read", reading)
    return layers


def test_an_absent_step_is_refused_as_soon_as_a_listing_shows_it(
    shelf: ProfileShelf, readings: Readings
) -> None:
    path = shelf.get("torch-db", ranks=2).path
    with pytest.raises(timeline.SelectionError, match=r"step 9 is not in .* found steps 1-3"):
        timeline.find_verdict(path, steps=[2, 9], jobs=1)
    assert len(readings) == 2
    assert not frozenset().union(*readings) & HOST_LAYERS


def test_a_step_of_any_rank_is_read_once(copied: Copier, readings: Readings) -> None:
    """A database that does not list it does not hide it, nor one that lists none at all."""
    path = copied("torch-db", ranks=2).path
    databases = sorted(path.rglob("ascend_pytorch_profiler_*.db"))
    for condition in ("id = 3", "id > 0"):
        delete_steps(databases[0], condition)
        readings.clear()
        assert timeline.find_verdict(path, steps=3, jobs=1).sentences
        assert len(readings) == 2
        assert all(layers & HOST_LAYERS for layers in readings)


def delete_steps(database: Path, condition: str) -> None:
    with sqlite3.connect(database) as connection:
        connection.execute(f"DELETE FROM STEP_TIME WHERE {condition}")
    connection.close()
