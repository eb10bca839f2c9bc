"""What exports under a limit have to keep, and what is loaded of their files."""

from __future__ import annotations

import contextlib
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from tests.support.perfetto_sql import TraceProcessor
from tests.support.row_totals import Row, TraceTotals, is_text, layer_of, rows_of, trace_totals
from tests.support.trace_packets import attributes_of
from timeline.encoders.drafts import Draft, write_draft
from timeline.encoders.formats import FORMATS
from timeline.fitting import writer

SUFFIXES = tuple(form.suffix for form in FORMATS)
LEAST_LIMIT = 64 << 10
"""From here on a limit has to work for any profile."""
LEAST_SHARE = 0.7
"""A file that leaves something out is at least this share of its limit."""
MOST_WRITES = 5
"""The first writing, and four more to hit the limit."""

ONE_BYTE_LESS = 1.0
"""As a share of the exact size: one byte less than it."""


@dataclass(frozen=True)
class Loaded:
    """A file of an export, in a trace processor."""

    path: Path
    processor: TraceProcessor

    @classmethod
    def of(cls, path: Path) -> Loaded:
        return cls(path, TraceProcessor.load(path.read_bytes()))

    @property
    def is_json(self) -> bool:
        return ".json" in self.path.suffixes

    @cached_property
    def totals(self) -> TraceTotals:
        """What is counted of its rows."""
        return trace_totals(self.processor, is_json=self.is_json)

    @property
    def content(self) -> bytes:
        """The bytes of the file, unpacked."""
        data = self.path.read_bytes()
        return gzip.decompress(data) if self.path.suffix == ".gz" else data

    @property
    def attributes(self) -> dict[str, str]:
        """The facts that travel in the file."""
        if self.is_json:
            facts: dict[str, str] = json.loads(self.content)["otherData"]
            return facts
        return attributes_of(self.content)

    @property
    def zero_ns(self) -> int:
        """The moment that the trace processor's times count from."""
        return int(self.attributes["io.tlexport.zero_ns"])

    @cached_property
    def slices(self) -> list[LoadedSlice]:
        """All slices but those of notes and of the verdict."""
        zero_ns = self.zero_ns
        rows = rows_of(self.processor, is_json=self.is_json)
        merged, task = ("args", "args") if self.is_json else ("merged", "task")
        return [
            LoadedSlice(rows[track], name, start_ns + zero_ns, *one)
            for track, name, start_ns, *one in self.processor.rows(
                "SELECT track_id, name, ts, dur,"
                f" extract_arg(arg_set_id, '{task}.task_id'),"
                f" extract_arg(arg_set_id, '{merged}.busy_ns'),"
                " (SELECT count(*) FROM args WHERE args.arg_set_id = slice.arg_set_id"
                "  AND key != 'correlation_id')"
                " FROM slice"
            )
            if not is_text(rows[track])
        ]

    def flows(self) -> int:
        ((count,),) = self.processor.rows("SELECT count(*) FROM flow")
        return int(count)


@dataclass(frozen=True)
class LoadedSlice:
    """One slice; busy_ns is None unless it stands for several."""

    row: Row
    name: str
    start_ns: int
    length_ns: int
    task_id: int | None
    busy_ns: int | None
    args: int

    @property
    def layer(self) -> str:
        return layer_of(self.row)


@contextlib.contextmanager
def counted_writes() -> Iterator[list[int]]:
    """While it is open, the size of every file that is written in an attempt to fit."""
    sizes: list[int] = []

    def counted(*arguments: Any, **options: Any) -> Draft:
        draft = write_draft(*arguments, **options)
        sizes.append(draft.size_bytes)
        return draft

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "write_draft", counted)
        yield sizes
