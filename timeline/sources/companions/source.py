"""A source that adds a capture's companion files to its records."""

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
from timeline.sources.capture import Capture, FormatKind
from timeline.sources.common.export_files import find_sessions, select_newest_export
from timeline.sources.common.identity import METADATA, with_process_groups
from timeline.sources.companions.delimited import TablesBuilder
from timeline.sources.companions.file_kinds import (
    CPU_LAYER,
    EXPORT_KINDS,
    HOST_INFO,
    TABLE_READERS,
    ExportKind,
    NumberedFile,
    NumberedFiles,
    Use,
    find_kind,
    find_numbered_files,
    numbers_in,
)
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
    from timeline.sources.companions.minddata import Samples

_LINK_USES = (Use.LINKS, Use.MEASURES)
"""Uses of files with links of communication."""
_MEASURE_USES = (Use.STEP_SUMS, Use.OPERATOR_SUMS, Use.OPS, *_LINK_USES, Use.TRACE)
"""Uses of files with the profiler's own sums, and with sizes and links of communication."""
_AICPU = frozenset({NumberedFile.AICPU_LOG, NumberedFile.AICPU_TEXT})
_UNTIMED = "only tables without times are here, so nothing can be drawn."
_ONLY_TABLES = "only tables are here, without device tasks."
_IN_JOBS = frozenset({FormatKind.LOG, FormatKind.STEPS})
"""Kinds of formats whose files are in the directory of a job, in `data` there, or in both."""
_ON_COUNTER = frozenset({FormatKind.TEXT, FormatKind.LOG, FormatKind.STEPS})
"""Kinds of formats that a framework records itself, with times on the counter of the device."""
MOST_TRACE_BYTES = 4 << 20
"""The largest companion trace that is read for its Overlap Analysis; larger ones take too long."""
_WRITTEN_BY_PROFILERS = frozenset({"csv", "json", "db"})

_list_directory = remember_by_directory(files_by_name)


def with_companions(source: Source, capture: Capture, several: bool) -> Source:
    """Return a source that also reads the companion files of its capture.

    several: whether the capture holds several devices, of which the source reads one.
    """
    if capture.format.kind is FormatKind.UNREADABLE:
        return source
    return WithCompanionFiles(source, capture, several)


def _host_directories(capture: Capture) -> tuple[Path, ...]:
    """Return the directories in which MindSpore may leave host records, nearest first.

    Newer versions write them into the capture, older ones into its parent directory.
    """
    near, parent = capture.directory, capture.directory.parent
    has_parent = near.name.startswith(PROF) or near.name.endswith("_ascend_ms")
    roots = (near, parent) if has_parent else (near,)
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
    """A source whose records also hold the content of companion files.

    A companion file that cannot be read at all is left out and counted, since the capture itself is
    complete.
    """

    capture: Capture
    several_devices: bool

    @cached_property
    def hosts(self) -> tuple[Path, ...]:
        """The directories in which MindSpore may leave host records, nearest first."""
        return _host_directories(self.capture)

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of the capture, and its companion files."""
        exports = self._exports(*(use for use in Use if use is not Use.NONE))
        groups = (*exports.values(), *self._numbered().values())
        companions = (path for paths in groups for path in paths)
        return tuple(dict.fromkeys((*self.source.files, *companions)))

    def read(self, wanted: ReadRequest) -> Records:
        """Read at least the wanted parts of the capture and its companion files.

        Raises:
            SourceError: a file cannot be read.
        """
        records = self.source.read(wanted)
        device = self.identity.device if self.several_devices else None
        with_counters = Layer.COUNTERS in wanted.layers or wanted.with_allocations or wanted.memory
        if with_counters and (tables := self._exports(Use.COUNTERS)):
            from timeline.sources.companions.counters import with_csv_counters

            by_name = {kind.name: paths for kind, paths in tables.items()}
            records = with_csv_counters(records, by_name, device, wanted)
        # If a capture consists of tables only, there is nothing to compare the sums with.
        uses = _LINK_USES if records.tables_only else _MEASURE_USES
        if wanted.measures and (measures := self._exports(*uses)):
            from timeline.sources.companions.measures import with_measures

            records = with_measures(records, measures, device)
        if metadata := self._metadata():
            records = with_process_groups(records, metadata)
        files = self._numbered()
        # If a capture consists of tables only, its steps come from them.
        has_tables = wanted.measures or records.tables_only
        into = TablesBuilder(records.rank, records.profiler_tables)
        samples: list[Samples] = []
        with_samples = Layer.COUNTERS in wanted.layers
        if _of_use(files, Use.DATA_PREPARATION) and (with_samples or has_tables):
            from timeline.sources.companions.minddata import read_data_preparation

            samples = read_data_preparation(files, into, with_samples)
        is_on_counter = self.capture.format.kind in _ON_COUNTER
        operators = _find_cpu_operators(records)
        if len(operators) or any(kind.is_of_host for kind in files):
            from timeline.sources.companions.host import with_mindspore_host

            directories, clock = self.hosts, self.clock
            records = with_mindspore_host(
                records, operators, files, directories, clock, samples, wanted
            )
        if Layer.FRAMEWORK in wanted.layers and files.keys() & _AICPU and is_on_counter:
            from timeline.sources.companions.aicpu_log import with_aicpu_tasks

            records = with_aicpu_tasks(records, files)
        if has_tables and any(kind.use in TABLE_READERS for kind in files):
            records = _with_tables(records, files, into)
        else:
            records = replace(records, omissions=(*records.omissions, *into.omissions))
        if records.tables_only:
            warning = f"rank {self.identity.rank}: {_ONLY_TABLES if records.timed else _UNTIMED}"
            records = replace(records, warnings=(*records.warnings, warning))
        if not wanted.measures:
            return records
        return replace(records, unused=(*records.unused, *sorted(set(self._unused()))))

    def _numbered(self) -> NumberedFiles:
        """Return MindSpore's files of the rank, and the metadata of the framework."""
        files, metadata = find_numbered_files(self.hosts, self.number), self._metadata()
        return files if metadata is None else {**files, NumberedFile.METADATA: (metadata,)}

    @cached_property
    def number(self) -> int:
        """The number in the names of the rank's small tables.

        It is the rank since MindSpore 1.5, and the device before. It counts as the device if all
        tables have the number of the device of the only session of msprof.
        """
        if self.capture.format.ids is not None and self.capture.device is not None:
            return self.capture.device
        rank, device = self.identity.rank, self.identity.device
        if device is None or not self.capture.directory.name.startswith(PROF):
            return rank
        numbers = {number for path in self.hosts if path.is_dir() for number in numbers_in(path)}
        is_alone = len(find_sessions(self.capture.directory.parent)) == 1
        return device if numbers == {device} and is_alone else rank

    def _metadata(self) -> Path | None:
        """Return the metadata of the framework, in the capture or next to msprof's session."""
        directory = self.capture.directory
        places = (directory, directory.parent) if directory.name.startswith(PROF) else (directory,)
        return next(filter(None, (find_file(place, METADATA) for place in places)), None)

    @property
    def _listings(self) -> dict[Path, dict[str, Path]]:
        """Return the entries of each existing directory of tables, by plain name.

        It is not cached, since it would need as much memory for thousands of ranks as their report.
        """
        return {
            directory: _list_directory(directory)
            for directory in self.capture.format.table_directories(self.capture)
            if directory.is_dir()
        }

    def _exports(self, *uses: Use) -> dict[ExportKind, tuple[Path, ...]]:
        """Return the newest files of each kind of some uses, from the first directory with any."""
        files: dict[ExportKind, tuple[Path, ...]] = {}
        kinds = [kind for use in uses for kind in EXPORT_KINDS if kind.use is use]
        for listing in self._listings.values():
            for kind in kinds:
                plain = listing.get(f"{kind.name}.{kind.suffix}")
                paths = (plain,) if plain else select_newest_export(listing, kind.name, kind.suffix)
                if paths and (kind.use is not Use.TRACE or self._is_small_companion(paths)):
                    files.setdefault(kind, paths)
        return files

    def _is_small_companion(self, traces: tuple[Path, ...]) -> bool:
        """Return whether traces are small and not the capture itself."""
        if {*traces} & {*self.source.files} or any(path.suffix != ".json" for path in traces):
            return False
        return sum(path.stat().st_size for path in traces) <= MOST_TRACE_BYTES

    def _unused(self) -> Iterator[UnusedFile]:
        """Yield the files that profilers export and that are not used."""
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
        for directory in filter(Path.is_dir, parsed):
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
    """Add the small tables of the rank, and omissions of damaged ones, to records."""
    for use, reader in TABLE_READERS.items():
        if reader and _of_use(files, use):
            module, _, name = reader.partition(".")
            getattr(import_module(f"timeline.sources.companions.{module}"), name)(files, into)
    tables, omissions = into.build()
    omissions = (*records.omissions, *omissions, *_unmatched_flops(records, tables))
    return replace(records, profiler_tables=tables, omissions=omissions)


def _unmatched_flops(records: Records, tables: ProfilerTables) -> tuple[Omission, ...]:
    """Return an omission for operators with floating-point operations but without a task.

    The directory may hold files of another run. There is no omission if tasks have no names, or
    there are none.
    """
    flops = tables.of(FlopRows)
    codes = distinct(flops.name[flops.level == FlopLevel.OPERATOR]).tolist()
    if not codes:
        return ()
    names = {records.strings[code] for code in distinct(records.tasks.name).tolist()} - {""}
    unmatched = sum(tables.strings[code] not in names for code in codes)
    if not names or not unmatched:
        return ()
    return (
        Omission(
            "floating-point operations of operators without a device task of their name",
            unmatched,
            records.rank,
            code=OmissionCode.NO_TASK,
            layers=frozenset({Layer.HARDWARE}),
        ),
    )
