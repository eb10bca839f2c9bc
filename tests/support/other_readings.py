"""Ways to read a profile that must not change what is drawn of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.extreme_records import with_strings_in_other_order
from timeline.analysis.gains import replay
from timeline.columns import nesting
from timeline.encoders import protobuf_rows
from timeline.fitting import coarsen
from timeline.ranks import rank_work
from timeline.ranks.rank_work import read_rank
from timeline.records.tables import Records
from timeline.sources.decoders import json_events, sqlite
from timeline.sources.source import ReadRequest, Source, SourceAround

SMALL_BLOCK_BYTES = 2000


@contextlib.contextmanager
def without_compiled() -> Iterator[None]:
    """While it is open, nothing compiled is used, as where there was no compiler."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_events, "Scanner", None)
        patch.setattr(sqlite, "_rows", None)
        patch.setattr(nesting, "_nesting", None)
        patch.setattr(replay, "_replay", None)
        patch.setattr(protobuf_rows, "encode", None)
        patch.setattr(coarsen, "groups_by_stack", None)
        sqlite._is_loaded.cache_clear()
        try:
            yield
        finally:
            sqlite._is_loaded.cache_clear()


@contextlib.contextmanager
def in_small_parts(held_events: int = 1, block_bytes: int = SMALL_BLOCK_BYTES) -> Iterator[None]:
    """While it is open, traces are cut into small blocks, of which few at a time become columns."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_events, "BLOCK_BYTES", block_bytes)
        patch.setattr(json_events, "HELD_EVENTS", held_events)
        yield


@dataclass(frozen=True)
class _Reordered(SourceAround):
    def read(self, wanted: ReadRequest) -> Records:
        return with_strings_in_other_order(self.source.read(wanted))


@contextlib.contextmanager
def with_strings_reordered() -> Iterator[None]:
    """While it is open, strings are numbered as if they were met in the opposite order."""

    def read(source: Source, *more: Any) -> Records:
        return read_rank(_Reordered(source), *more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rank_work, "read_rank", read)
        yield


READINGS = (in_small_parts, with_strings_reordered, without_compiled)
