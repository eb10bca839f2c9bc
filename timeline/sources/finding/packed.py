"""The profile at a path whose files may be packed, unpacked as long as it is used."""

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

    An archive is unpacked into a temporary directory, which is gone when the context ends, in
    whatever way; so are all archives below a directory without any other profile, and compressed
    databases. People see the names that files have where they are packed.

    Args:
        report: called with how far unpacking is.
        finding: what is asked of finding captures.
        executor: the address of others that will read the profile; they cannot see what is
            unpacked here.

    Raises:
        SourceError: what is packed cannot be unpacked, or as `discover`.
        UsageError: something is packed and there is an executor, or as `discover`.
    """
    with contextlib.ExitStack() as stack:
        yield _Unpacking(path, report, executor, stack).discover(assigned, finding)


@dataclass(frozen=True)
class _Names:
    """The names that people know of what was unpacked, by path there; more may be added."""

    packed: dict[Path, Path]

    def show(self, text: str) -> str:
        """Replace the paths in a text by those that people know."""
        known = {str(there): str(packed) for there, packed in self.packed.items()}
        if not known:
            return text
        longest_first = sorted(map(re.escape, known), key=len, reverse=True)
        return re.sub(
            rf"(?:{'|'.join(longest_first)})(?![\w-])", lambda match: known[match[0]], text
        )

    def needed_for(self, paths: Iterable[Path]) -> _Names:
        """Return the names of what holds some paths, and of them: one source needs few."""
        lineage = {parent for path in paths for parent in (path, *path.parents)}
        return _Names({one: packed for one, packed in self.packed.items() if one in lineage})

    def unpacked_path(self, name: str) -> str:
        """Return the unpacked path of a path that people know; any other name as it is."""
        path = Path(name)
        for parent in (path, *path.parents):
            for there, packed in self.packed.items():
                if parent.is_file() and parent.samefile(packed):
                    return str(there / path.relative_to(parent))
        return name

    @contextlib.contextmanager
    def errors_named(self) -> Iterator[None]:
        """Run a `with` block in which errors name what is packed."""
        try:
            yield
        except TimelineError as error:
            error.say_names(self.show)
            if isinstance(error, SourceError):
                error.path = path_as_shown(self.show(str(error.path)))
            raise


class _Unpacking:
    """An archive at a path, and the temporary directory into which it is unpacked."""

    def __init__(
        self, path: Path, report: Report, executor: str, stack: contextlib.ExitStack
    ) -> None:
        self._path, self._report, self._executor, self._stack = path, report, executor, stack
        self._temporary: Path | None = None
        self._databases: dict[Path, Path] = {}
        self._numbers = itertools.count()
        self._names = _Names({})

    def discover(self, assigned: Mapping[str, int], finding: FindingOptions) -> Discovered:
        """Find the sources of the profile, whatever of it is packed."""
        path = self._path
        if is_archive(path.name) and path.is_file():
            return self._in_archives(path.parent, [path], assigned, finding)
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
        """Unpack archives at and below a directory into one of the same name, and look there.

        The directories have the names of the archives and of what they lie in, because names tell
        ranks and times.
        """
        from timeline.sources.files.archives import limit_for, unpack

        temporary = self._directory(archives[0])
        root = temporary / "archives" / (around.resolve().name or "root")
        self._names.packed[root] = around
        notes: list[str] = []
        for archive in archives:
            inside = root / archive.parent.relative_to(around)
            there = inside / archive_stem(archive.name)
            if there.exists():
                there = inside / archive.name
            try:
                notes += unpack(archive, there, limit_for(archive, temporary), self._report)
            except SourceError as error:
                if not finding.keep_going or archive == self._path:
                    raise
                notes.append(f"left out: {error}")
                shutil.rmtree(there, ignore_errors=True)
                continue
            self._names.packed[there] = archive
        is_one = archives[0] == self._path
        try:
            return self._discover(there if is_one else root, assigned, notes, finding, copied=True)
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
        with self._names.errors_named():
            found = discover(
                root,
                {self._names.unpacked_path(name): rank for name, rank in assigned.items()},
                finding=finding,
                above=tuple(self._path.resolve().parents) if copied else None,
                unpack=self._unpack_database,
            )
        if isinstance(root, RemotePath):
            from timeline.sources.finding.remote import with_remote_files

            found = with_remote_files(found, elsewhere=bool(self._executor))
        return replace(
            found,
            sources=tuple(self._with_packed_names(source) for source in found.sources),
            notes=(*notes, *map(self._names.show, found.notes)),
            runs=tuple(run.renamed(self._names.show) for run in found.runs),
            unclear=tuple(
                UnclearCapture(
                    path_as_shown(self._names.show(str(one.path))), self._names.show(one.problem)
                )
                for one in found.unclear
            ),
        )

    def _with_packed_names(self, source: Source) -> Source:
        if not self._names.packed:
            return source
        names = self._names.needed_for((source.identity.directory, *source.files))
        return _UnpackedSource(source, names, source.layout) if names.packed else source

    def _unpack_database(self, packed: Path) -> Path:
        from timeline.sources.files.archives import limit_for, unpack_file

        if packed not in self._databases:
            temporary = self._directory(packed)
            inside = temporary / "databases" / str(next(self._numbers))
            there = inside / uncompressed_database_name(packed.name)
            unpack_file(packed, there, limit_for(packed, temporary), self._report)
            self._names.packed[there] = Path(self._names.show(str(packed)))
            self._databases[packed] = there
        return self._databases[packed]

    def _directory(self, packed: Path) -> Path:
        """Return the temporary directory.

        Raises:
            SourceError: none can be made.
            UsageError: it would be of no use.
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
    """Return the archives in a directory and in those in it; deeper ones are not of one run."""
    with source_errors_for(path):
        found = [one for names in ("*", "*/*") for one in path.glob(names) if is_archive(one.name)]
        return sorted(one for one in found if one.is_file())


@dataclass(frozen=True)
class _UnpackedSource(SourceAround):
    """A source whose files were unpacked, under the names that they have where they are packed.

    Its files lie where they are unpacked; its layout can be told when they are gone again.
    """

    names: _Names
    known_layout: str

    @property
    def layout(self) -> str:
        """The layout of the capture."""
        return self.known_layout

    @property
    def identity(self) -> Identity:
        """Who the capture is, in the directory that people know."""
        identity = self.source.identity
        return replace(identity, directory=path_as_shown(self.names.show(str(identity.directory))))

    def read(self, wanted: ReadRequest) -> Records:
        """Read at least what is wanted; warnings and losses name what is packed.

        Raises:
            SourceError: a file cannot be read.
        """
        with self.names.errors_named():
            records = self.source.read(wanted)
        return replace(
            records,
            warnings=tuple(map(self.names.show, records.warnings)),
            notes=tuple(map(self.names.show, records.notes)),
            omissions=tuple(
                replace(lost, reason=self.names.show(lost.reason)) for lost in records.omissions
            ),
        )
