"""Turns the records of a capture into those with the tables and host files beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from timeline.errors import SourceError
from timeline.records.tables import Omission, Records
from timeline.selection import Layer
from timeline.sources.base import Clock, Identity, Source, Wanted
from timeline.sources.counter_samples import SampleCollector
from timeline.sources.damage import unread
from timeline.sources.file_names import held_file
from timeline.sources.layouts import MINDSTUDIO_OUTPUT, OUTPUT, Capture, Layout
from timeline.sources.memory_tables import read_sample_table, sample_tables
from timeline.sources.mindspore_host import host_files, with_mindspore_host
from timeline.sources.operator_memory import GROUP, read_operator_memory
from timeline.sources.trace_records import join_records
from timeline.sources.trace_sources import newest_export

__all__ = ["CompanionSource", "with_companions"]

OPERATOR_MEMORY = "operator_memory"


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
            return (capture.content,)
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
        tables = [path for kind in _kinds() for path in self._table(kind)]
        return (*self.main.files, *tables, *host_files(self.hosts, self.identity.rank).values())

    def read(self, wanted: Wanted) -> Records:
        """See `Source.read`."""
        records = self.main.read(wanted)
        if Layer.COUNTERS in wanted.layers:
            records = self._with_tables(records)
        return with_mindspore_host(records, self.hosts, self.clock, wanted)

    def _table(self, kind: str) -> tuple[Path, ...]:
        """The files of a kind, from the first directory that has any."""
        for directory in self.tables:
            if plain := held_file(directory, f"{kind}.csv"):
                return (plain,)
            if directory.is_dir() and (export := newest_export(directory, kind, "csv")):
                return export
        return ()

    def _with_tables(self, records: Records) -> Records:
        device = self.identity.device if self.several_devices else None
        rank, omissions = self.identity.rank, list[Omission]()
        drawn = {records.strings[code] for code in set(records.series.group.tolist())}
        collector = SampleCollector()
        for table in sample_tables():
            before = len(collector)
            paths = self._table(table.kind)
            omissions += _left_out(
                rank,
                partial(read_sample_table, table, paths, frozenset(drawn), device, rank, collector),
            )
            drawn |= {table.group} if len(collector) > before else set()
        if GROUP not in drawn:
            paths = self._table(OPERATOR_MEMORY)
            read = partial(read_operator_memory, paths, device, rank, collector)
            omissions += _left_out(rank, read)
        return with_counters(records, collector, omissions)


def _kinds() -> Iterator[str]:
    yield from (table.kind for table in sample_tables())
    yield OPERATOR_MEMORY


def _left_out(rank: int, read: Callable[[], Sequence[Omission]]) -> Sequence[Omission]:
    """What reading a companion left out; all of it, where it cannot be read."""
    try:
        return read()
    except SourceError as error:
        return [unread(error, rank)]


def with_counters(
    records: Records, collector: SampleCollector, omissions: Sequence[Omission]
) -> Records:
    """Records with more counters."""
    series, samples = collector.tables(records.strings)
    extra = Records(
        records.rank, records.strings, series=series, samples=samples, omissions=tuple(omissions)
    )
    return join_records([records, extra])
