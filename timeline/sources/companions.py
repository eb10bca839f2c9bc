"""Turns the records of a capture into those with the tables and host files beside it.

What reads them is imported where there are any.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from timeline.records.tables import Records
from timeline.selection import Layer
from timeline.sources.base import Clock, Identity, Source, Wanted
from timeline.sources.exports import newest_of
from timeline.sources.file_names import named_files
from timeline.sources.host_files import host_files
from timeline.sources.layouts import MINDSTUDIO_OUTPUT, OUTPUT, Capture, Layout
from timeline.sources.own_operators import own_operators
from timeline.sources.sample_tables import OPERATOR_MEMORY, sample_tables

__all__ = ["CompanionSource", "with_companions"]

COMPANION_TABLES = (*(table.kind for table in sample_tables()), OPERATOR_MEMORY)
"""The kinds of tables that are read beside a capture."""


def with_companions(source: Source, capture: Capture, several: bool) -> Source:
    """A source that reads the tables beside its capture too.

    several: whether the capture holds several devices, of which only the source's own is wanted.
    """
    if capture.layout is Layout.RAW:
        return source
    tables, hosts = _table_directories(capture), _host_directories(capture)
    return CompanionSource(source, tables, hosts, several)


def _table_directories(capture: Capture) -> tuple[Path, ...]:
    """Where the tables of a capture lie, those of the framework before those of msprof."""
    match capture.layout:
        case Layout.TRACE_VIEW | Layout.MINDSTUDIO:
            return (capture.content,) if capture.content.is_dir() else ()
        case Layout.DATABASE:
            inside = capture.content.parent
            return (inside, inside / MINDSTUDIO_OUTPUT)
        case _:
            return ()


def _host_directories(capture: Capture) -> tuple[Path, ...]:
    """Where MindSpore leaves what it recorded on the host, nearest first.

    It lies inside the capture of newer versions, and beside that of older ones.
    """
    near, around = capture.directory, capture.directory.parent
    beside = near.name.startswith("PROF_") or near.name.endswith("_ascend_ms")
    roots = (near, around) if beside else (near,)
    return tuple(root / inner for root in roots for inner in ("", OUTPUT, "FRAMEWORK"))


@dataclass(frozen=True)
class CompanionSource:
    """A capture with what lies beside it.

    A companion that cannot be read at all is left out and counted: the capture itself is whole.
    """

    main: Source
    tables: tuple[Path, ...]
    hosts: tuple[Path, ...]
    several_devices: bool = False

    @property
    def layout(self) -> str:
        """That of the capture."""
        return self.main.layout

    @property
    def identity(self) -> Identity:
        """That of the capture."""
        return self.main.identity

    @property
    def clock(self) -> Clock:
        """That of the capture."""
        return self.main.clock

    @property
    def files(self) -> tuple[Path, ...]:
        """Those of the capture, and its companions."""
        tables = [path for paths in self._tables().values() for path in paths]
        return (*self.main.files, *tables, *host_files(self.hosts, self.identity.rank).values())

    def read(self, wanted: Wanted) -> Records:
        """See `Source.read`."""
        records = self.main.read(wanted)
        if Layer.COUNTERS in wanted.layers and (tables := self._tables()):
            from timeline.sources.companion_tables import with_tables

            device = self.identity.device if self.several_devices else None
            records = with_tables(records, tables, device)
        files = host_files(self.hosts, self.identity.rank)
        if files or len(own_operators(records)):
            from timeline.sources.mindspore_host import with_mindspore_host

            records = with_mindspore_host(records, files, self.hosts, self.clock, wanted)
        return records

    def _tables(self) -> dict[str, tuple[Path, ...]]:
        """The files of each kind of table, from the first directory that has any."""
        found: dict[str, tuple[Path, ...]] = {}
        for directory in filter(Path.is_dir, self.tables):
            held = named_files(directory)
            for kind in COMPANION_TABLES:
                plain = held.get(f"{kind}.csv")
                paths = (plain,) if plain else newest_of(held, kind, "csv")
                if paths:
                    found.setdefault(kind, paths)
        return found
