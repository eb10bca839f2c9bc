"""A source that adds the files beside a capture to its records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from timeline.columns.columns import Rows
from timeline.columns.distinct import distinct
from timeline.layers import Layer
from timeline.records.profiler_tables import FlopLevel, FlopRows, ProfilerTables, UnusedFile
from timeline.records.tables import Omission, OmissionCode, Records
from timeline.sources.beside.delimited import TablesBuilder
from timeline.sources.beside.file_kinds import (
    CPU_LAYER,
    EXPORT_KINDS,
    HOST_INFO,
    TABLES,
    ExportKind,
    NumberedFile,
    NumberedFiles,
    Use,
    find_kind,
    find_numbered_files,
    numbers_in,
)
from timeline.sources.capture import Capture, FormatKind
from timeline.sources.common.export_files import find_sessions, select_newest_export
from timeline.sources.common.identity import METADATA, with_process_groups
from timeline.sources.files.opened import files_by_name, find_file, remember_by_directory
from timeline.sources.source import (
    MINDSTUDIO_OUTPUT,
    OUTPUT,
    PROF,
    ReadRequest,
    Source,
    SourceAround,
)

if TYPE_CHECKING:
    from timeline.sources.beside.minddata import Samples

_MEASURE_USES = (
    Use.STEP_SUMS,
    Use.OPERATOR_SUMS,
    Use.OPS,
    Use.LINKS,
    Use.MEASURES,
    Use.TRACE,
)
"""What a capture is compared with, and what it takes sizes and links from."""
_LINK_USES = (Use.LINKS, Use.MEASURES)
_AICPU = frozenset({NumberedFile.AICPU_LOG, NumberedFile.AICPU_TEXT})
_UNTIMED_TABLES = "only tables without times are here, so nothing can be drawn."
_TABLES = "only tables are here, and nothing of the tasks of the device."
_IN_JOBS = frozenset({FormatKind.LOG, FormatKind.STEPS})
"""Kinds whose files lie in the directory of a job, in `data` there, or in both."""
_ON_COUNTER = frozenset({FormatKind.TEXT, FormatKind.LOG, FormatKind.STEPS})
"""Kinds that a framework makes of what it records itself, on the counter of the device."""
MOST_TRACE_BYTES = 4 << 20
"""A trace beside a capture is read to compare with it where that takes next to no time."""
_WRITTEN_BY_PROFILERS = frozenset({"csv", "json", "db"})

_list_directory = remember_by_directory(files_by_name)


def with_companions(source: Source, capture: Capture, several: bool) -> Source:
    """Return a source that reads the tables beside its capture too.

    several: whether the capture holds several devices, of which only the source's own is wanted.
    """
    if capture.format.kind is FormatKind.UNREADABLE:
        return source
    return WithCompanionFiles(source, capture, several)


def _host_directories(capture: Capture) -> tuple[Path, ...]:
    """Return the directories in which MindSpore leaves host records, nearest first.

    It lies inside the capture of newer versions, and beside that of older ones.
    """
    near, around = capture.directory, capture.directory.parent
    beside = near.name.startswith(PROF) or near.name.endswith("_ascend_ms")
    roots = (near, around) if beside else (near,)
    of_job = ("data",) if capture.format.kind in _IN_JOBS else ()
    inside = ("", OUTPUT, "FRAMEWORK", *of_job)
    return tuple(
        root / inner / innermost
        for root in roots
        for inner in inside
        for innermost in ("", HOST_INFO)
    )


@dataclass(frozen=True)
class WithCompanionFiles(SourceAround):
    """A source whose records also hold what lies beside its capture.

    A companion that cannot be read at all is left out and counted: the capture itself is whole.
    """

    capture: Capture
    several_devices: bool

    @cached_property
    def hosts(self) -> tuple[Path, ...]:
        """The directories of what MindSpore recorded on the host, nearest first."""
        return _host_directories(self.capture)

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of the capture, and its companions."""
        exports = self._exports(*(use for use in Use if use is not Use.NONE))
        beside = (
            path for held in (exports, self._numbered()) for one in held.values() for path in one
        )
        return tuple(dict.fromkeys((*self.source.files, *beside)))

    def read(self, wanted: ReadRequest) -> Records:
        """Read at least what is wanted.

        Raises:
            SourceError: a file cannot be read.
        """
        records = self.source.read(wanted)
        device = self.identity.device if self.several_devices else None
        asked = Layer.COUNTERS in wanted.layers or wanted.with_allocations or wanted.memory
        if asked and (tables := self._exports(Use.COUNTERS)):
            from timeline.sources.beside.counters import with_csv_counters

            by_name = {kind.name: paths for kind, paths in tables.items()}
            records = with_csv_counters(records, by_name, device, wanted)
        # Sums that are all that a capture is cannot be compared with anything.
        uses = _LINK_USES if records.tables_only else _MEASURE_USES
        if wanted.measures and (measures := self._exports(*uses)):
            from timeline.sources.beside.measures import with_measures

            records = with_measures(records, measures, device)
        if metadata := self._metadata():
            records = with_process_groups(records, metadata)
        files = self._numbered()
        # Where its tables are all that a capture is, they give its steps.
        has_tables = wanted.measures or records.tables_only
        into = TablesBuilder(records.rank, records.profiler_tables)
        samples: list[Samples] = []
        draws = Layer.COUNTERS in wanted.layers
        if _of_use(files, Use.DATA_PREPARATION) and (draws or has_tables):
            from timeline.sources.beside.minddata import read_data_preparation

            samples = read_data_preparation(files, into, draws)
        is_on_counter = self.capture.format.kind in _ON_COUNTER
        operators = _find_cpu_operators(records)
        if len(operators) or any(kind.is_of_host for kind in files):
            from timeline.sources.beside.host import with_mindspore_host

            directories, clock = self.hosts, self.clock
            records = with_mindspore_host(
                records, operators, files, directories, clock, samples, wanted
            )
        if Layer.FRAMEWORK in wanted.layers and files.keys() & _AICPU and is_on_counter:
            from timeline.sources.beside.aicpu_log import with_aicpu_tasks

            records = with_aicpu_tasks(records, files)
        if has_tables and any(kind.use in TABLES for kind in files):
            records = _with_tables(records, files, into)
        else:
            records = replace(records, omissions=(*records.omissions, *into.omissions))
        if records.tables_only:
            said = f"rank {self.identity.rank}: {_TABLES if records.timed else _UNTIMED_TABLES}"
            records = replace(records, warnings=(*records.warnings, said))
        if not wanted.measures:
            return records
        return replace(records, unused=(*records.unused, *sorted(set(self._unused()))))

    def _numbered(self) -> NumberedFiles:
        """Return the files of the rank where MindSpore leaves them, and the metadata."""
        found, metadata = find_numbered_files(self.hosts, self.number), self._metadata()
        return found if metadata is None else {**found, NumberedFile.METADATA: (metadata,)}

    @cached_property
    def number(self) -> int:
        """The number in the names of small tables of the rank.

        It is the rank since MindSpore 1.5 and the device before. So where all tables around one
        session of msprof are of one number, and that is its device, they are its own.
        """
        if self.capture.format.ids is not None and self.capture.device is not None:
            return self.capture.device
        rank, device = self.identity.rank, self.identity.device
        if device is None or not self.capture.directory.name.startswith(PROF):
            return rank
        numbers = {one for path in self.hosts if path.is_dir() for one in numbers_in(path)}
        is_alone = len(find_sessions(self.capture.directory.parent)) == 1
        return device if numbers == {device} and is_alone else rank

    def _metadata(self) -> Path | None:
        """Return the metadata of the framework, beside its output or the data of msprof."""
        directory = self.capture.directory
        around = (directory, directory.parent) if directory.name.startswith(PROF) else (directory,)
        return next(filter(None, (find_file(one, METADATA) for one in around)), None)

    @property
    def _listings(self) -> dict[Path, dict[str, Path]]:
        """Return the entries of each directory of tables that is there, by plain name.

        It is not kept: of thousands of ranks it would take as much as what is reported of them.
        """
        return {
            directory: _list_directory(directory)
            for directory in self.capture.format.table_directories(self.capture)
            if directory.is_dir()
        }

    def _exports(self, *uses: Use) -> dict[ExportKind, tuple[Path, ...]]:
        """Return the newest files of each kind of some uses, from the first directory of any."""
        found: dict[ExportKind, tuple[Path, ...]] = {}
        kinds = [kind for use in uses for kind in EXPORT_KINDS if kind.use is use]
        for listing in self._listings.values():
            for kind in kinds:
                plain = listing.get(f"{kind.name}.{kind.suffix}")
                paths = (plain,) if plain else select_newest_export(listing, kind.name, kind.suffix)
                if paths and (kind.use is not Use.TRACE or self._is_beside(paths)):
                    found.setdefault(kind, paths)
        return found

    def _is_beside(self, traces: tuple[Path, ...]) -> bool:
        """Return whether traces are small and not the capture itself."""
        if {*traces} & {*self.source.files} or any(path.suffix != ".json" for path in traces):
            return False
        return sum(path.stat().st_size for path in traces) <= MOST_TRACE_BYTES

    def _unused(self) -> Iterator[UnusedFile]:
        used = {*self.files}
        for directory, listing in self._listings.items():
            is_output = directory.name in (OUTPUT, MINDSTUDIO_OUTPUT)
            for name, path in listing.items():
                kind = find_kind(name)
                if path in used or path.is_dir():
                    continue
                if kind is not None:
                    is_older = kind.use not in (Use.NONE, Use.TRACE)
                    yield UnusedFile(name, kind.what + ", of an older export" * is_older)
                elif is_output and name.rpartition(".")[2] in _WRITTEN_BY_PROFILERS:
                    yield UnusedFile(name, "not known")
        parsed = self.capture.format.parsed_directories(self.capture)
        for directory in (one for one in parsed if one.is_dir()):
            for name in files_by_name(directory):
                kind = find_kind(name)
                if kind is not None and kind.use is Use.NONE and kind.beside_any:
                    yield UnusedFile(name, kind.what)
        yield from self.capture.format.unused(self.capture)


def _find_cpu_operators(records: Records) -> Rows:
    layers = records.strings.codes_where(name.startswith(CPU_LAYER) for name in records.strings)
    return np.flatnonzero(np.isin(records.host.layer, layers))


def _of_use(files: NumberedFiles, use: Use) -> bool:
    return any(kind.use is use for kind in files)


def _with_tables(records: Records, files: NumberedFiles, into: TablesBuilder) -> Records:
    """Return the records with the small tables of their rank; damage in these is counted."""
    for use, reader in TABLES.items():
        if reader and _of_use(files, use):
            module, _, name = reader.partition(".")
            getattr(import_module(f"timeline.sources.beside.{module}"), name)(files, into)
    tables, omissions = into.build()
    lost = (*records.omissions, *omissions, *_of_other_networks(records, tables))
    return replace(records, profiler_tables=tables, omissions=lost)


def _of_other_networks(records: Records, tables: ProfilerTables) -> tuple[Omission, ...]:
    """Return operators whose operations are counted and that no task is called after.

    Files of another run may have been left in the directory. Nothing is said where tasks were read
    without their names, or there are none.
    """
    flops = tables.of(FlopRows)
    codes = distinct(flops.name[flops.level == FlopLevel.OPERATOR]).tolist()
    if not codes:
        return ()
    names = {records.strings[code] for code in distinct(records.tasks.name).tolist()} - {""}
    strangers = sum(tables.strings[code] not in names for code in codes)
    if not names or not strangers:
        return ()
    return (
        Omission(
            "floating-point operations of operators that no device task is called after",
            strangers,
            records.rank,
            code=OmissionCode.NO_TASK,
            layers=frozenset({Layer.HARDWARE}),
        ),
    )
