"""Unpacks archives and compressed databases of a profile for as long as it is in use."""

from __future__ import annotations

import contextlib
import itertools
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from timeline.errors import NoProfileError, SourceError, TimelineError, UsageError
from timeline.records.tables import Records
from timeline.sources.files.opened import (
    archive_around,
    archive_stem,
    is_archive,
    source_errors_for,
    temporary_directory,
    uncompressed_database_name,
)
from timeline.sources.files.remote_path import RemotePath, path_as_shown
from timeline.sources.finding.discovery import (
    FIND_FOR_EXPORT,
    Discovered,
    FindingOptions,
    UnclearCapture,
    discover,
)
from timeline.sources.source import Identity, ReadRequest, Source, SourceAround

if TYPE_CHECKING:
    from timeline.sources.files.archives import Report


@contextlib.contextmanager
def discover_unpacked(
    path: Path,
    assigned: Mapping[str, int],
    report: Report,
    *,
    finding: FindingOptions = FIND_FOR_EXPORT,
    executor: str = "",
) -> Iterator[Discovered]:
    """Find the profile of every rank at a path, and keep it unpacked within the context.

    Unpacked are: the archive at the path, the one that it leads into (such as RUN.zip/rank0), or
    all archives below it if it holds no other profile; and compressed databases. The temporary
    directory is removed when the context ends. Notes, errors and identities show the path of the
    archive instead of the temporary one.

    Args:
        report: called with the progress of unpacking.
        executor: the address of remote workers that will read the profile; they cannot see files
            that are unpacked on this machine.

    Raises:
        SourceError: a file cannot be unpacked, or as `discover`.
        UsageError: a file must be unpacked although there is an executor, or as `discover`.
    """
    with contextlib.ExitStack() as stack:
        yield _Unpacking(path, report, executor, stack).discover(assigned, finding)


@dataclass(frozen=True)
class _OriginalPaths:
    """The original path of each unpacked file or directory, by its temporary path."""

    by_temporary: dict[Path, Path]

    def show(self, text: str) -> str:
        """Replace temporary paths in a text by the original ones."""
        originals = {str(path): str(original) for path, original in self.by_temporary.items()}
        if not originals:
            return text
        longest_first = sorted(map(re.escape, originals), key=len, reverse=True)
        return re.sub(
            rf"(?:{'|'.join(longest_first)})(?![\w-])", lambda match: originals[match[0]], text
        )

    def restricted_to(self, paths: Iterable[Path]) -> _OriginalPaths:
        """Return only the entries for the given paths and their parents."""
        lineage = {parent for path in paths for parent in (path, *path.parents)}
        entries = self.by_temporary.items()
        return _OriginalPaths({path: original for path, original in entries if path in lineage})

    def temporary_path(self, name: str) -> str:
        """Return the temporary path of a path in an archive; any other name is unchanged."""
        path = Path(name)
        for parent in (path, *path.parents):
            for temporary, original in self.by_temporary.items():
                if parent.is_file() and parent.samefile(original):
                    return str(temporary / path.relative_to(parent))
        return name

    @contextlib.contextmanager
    def shown_in_errors(self) -> Iterator[None]:
        """Run a `with` block whose errors show original paths."""
        try:
            yield
        except TimelineError as error:
            error.say_names(self.show)
            if isinstance(error, SourceError):
                error.path = path_as_shown(self.show(str(error.path)))
            raise


class _Unpacking:
    """A search for captures that unpacks archives into a temporary directory."""

    def __init__(
        self, path: Path, report: Report, executor: str, stack: contextlib.ExitStack
    ) -> None:
        self._path, self._report, self._executor, self._stack = path, report, executor, stack
        self._temporary: Path | None = None
        self._databases: dict[Path, Path] = {}
        self._numbers = itertools.count()
        self._originals = _OriginalPaths({})

    def discover(self, assigned: Mapping[str, int], finding: FindingOptions) -> Discovered:
        """Find the sources of the profile, and unpack archives if they are needed for that."""
        path = self._path
        if is_archive(path.name) and path.is_file():
            return self._in_archives(path.parent, [path], assigned, finding)
        if (archive := archive_around(path)) is not None:
            return self._in_archives(archive.parent, [archive], assigned, finding)
        try:
            return self._discover(path, assigned, (), finding)
        except NoProfileError:
            archives = _archives_below(path)
            if not archives:
                raise
        return self._in_archives(path, archives, assigned, finding)

    def _in_archives(
        self,
        around: Path,
        archives: Sequence[Path],
        assigned: Mapping[str, int],
        finding: FindingOptions,
    ) -> Discovered:
        """Unpack the archives below a directory into a temporary one, and search that.

        The temporary directories have the names of the archives and of the directories around
        them, because ranks and times are read from names.
        """
        from timeline.sources.files.archives import limit_for, unpack

        temporary = self._directory(archives[0])
        root = temporary / "archives" / (around.resolve().name or "root")
        self._originals.by_temporary[root] = around
        notes: list[str] = []
        for archive in archives:
            parent = root / archive.parent.relative_to(around)
            target = parent / archive_stem(archive.name)
            if target.exists():
                target = parent / archive.name
            try:
                notes += unpack(archive, target, limit_for(archive, temporary), self._report)
            except SourceError as error:
                if not finding.keep_going or archive == self._path:
                    raise
                notes.append(f"left out: {error}")
                shutil.rmtree(target, ignore_errors=True)
                continue
            self._originals.by_temporary[target] = archive
        if archives[0] == self._path:
            root = target
        elif archives[0] in self._path.parents:
            root = target / self._path.relative_to(archives[0])
        try:
            return self._discover(root, assigned, notes, finding, copied=True)
        except NoProfileError as error:
            error.hints = (*notes, *error.hints)
            raise

    def _discover(
        self,
        root: Path,
        assigned: Mapping[str, int],
        notes: Sequence[str],
        finding: FindingOptions,
        *,
        copied: bool = False,
    ) -> Discovered:
        with self._originals.shown_in_errors():
            discovered = discover(
                root,
                {self._originals.temporary_path(name): rank for name, rank in assigned.items()},
                finding=finding,
                above=tuple(self._path.resolve().parents) if copied else None,
                unpack=self._unpack_database,
            )
        if isinstance(root, RemotePath):
            from timeline.sources.finding.remote import with_remote_files

            discovered = with_remote_files(discovered, elsewhere=bool(self._executor))
        show = self._originals.show
        return replace(
            discovered,
            sources=tuple(self._show_originals(source) for source in discovered.sources),
            notes=(*notes, *map(show, discovered.notes)),
            runs=tuple(run.with_shown_paths(show) for run in discovered.runs),
            unclear=tuple(
                UnclearCapture(path_as_shown(show(str(one.path))), show(one.problem))
                for one in discovered.unclear
            ),
        )

    def _show_originals(self, source: Source) -> Source:
        if not self._originals.by_temporary:
            return source
        originals = self._originals.restricted_to((source.identity.directory, *source.files))
        if not originals.by_temporary:
            return source
        return _UnpackedSource(source, originals, source.layout)

    def _unpack_database(self, compressed: Path) -> Path:
        from timeline.sources.files.archives import limit_for, unpack_file

        if compressed not in self._databases:
            temporary = self._directory(compressed)
            parent = temporary / "databases" / str(next(self._numbers))
            target = parent / uncompressed_database_name(compressed.name)
            unpack_file(compressed, target, limit_for(compressed, temporary), self._report)
            original = Path(self._originals.show(str(compressed)))
            self._originals.by_temporary[target] = original
            self._databases[compressed] = target
        return self._databases[compressed]

    def _directory(self, packed: Path) -> Path:
        """Return the temporary directory, which is created for the first file to unpack.

        Raises:
            SourceError: it cannot be created.
            UsageError: the profile will be read on other machines, which cannot see it.
        """
        if self._executor:
            raise UsageError(
                f"--executor {self._executor}: its workers cannot see what is unpacked here. "
                f"Unpack {packed} where they can, and pass the directory."
            )
        if self._temporary is None:
            with source_errors_for(packed, "cannot be unpacked"):
                place = self._stack.enter_context(temporary_directory())
            self._temporary = Path(place).resolve()
        return self._temporary


def _archives_below(path: Path) -> list[Path]:
    """Return the archives in a directory and its subdirectories, one level deep.

    Deeper archives are not taken for parts of one run.
    """
    with source_errors_for(path):
        paths = [one for names in ("*", "*/*") for one in path.glob(names) if is_archive(one.name)]
        return sorted(one for one in paths if one.is_file())


@dataclass(frozen=True)
class _UnpackedSource(SourceAround):
    """A source whose files were unpacked; identity and messages show the original paths.

    `files` are the temporary paths. The layout is stored, so that it is available when the files
    are removed.
    """

    originals: _OriginalPaths
    stored_layout: str

    @property
    def layout(self) -> str:
        """The layout of the capture."""
        return self.stored_layout

    @property
    def identity(self) -> Identity:
        """The identity of the capture, with its original directory."""
        identity = self.source.identity
        directory = path_as_shown(self.originals.show(str(identity.directory)))
        return replace(identity, directory=directory)

    def read(self, wanted: ReadRequest) -> Records:
        """Read at least the requested parts; warnings and omissions show original paths.

        Raises:
            SourceError: a file cannot be read.
        """
        show = self.originals.show
        with self.originals.shown_in_errors():
            records = self.source.read(wanted)
        return replace(
            records,
            warnings=tuple(map(show, records.warnings)),
            notes=tuple(map(show, records.notes)),
            omissions=tuple(replace(lost, reason=show(lost.reason)) for lost in records.omissions),
        )
