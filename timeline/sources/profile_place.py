"""Turns a path, of an archive or not, into the sources of a profile while they are used."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from timeline.errors import NoProfileError, SourceError, TimelineError, UsageError
from timeline.records.tables import Records
from timeline.sources.base import Clock, Identity, Source, Wanted
from timeline.sources.discovery import Discovered, discover
from timeline.sources.member_names import archive_stem, is_archive
from timeline.sources.unpacking import Report, budget_for, unpack

__all__ = ["found_at"]


@contextlib.contextmanager
def found_at(
    path: Path,
    assigned: Mapping[str, int],
    report: Report,
    *,
    keep_going: bool = False,
    executor: str = "",
) -> Iterator[Discovered]:
    """Find the profile of every rank at a path; see `discover`.

    An archive is unpacked into a temporary directory, which is gone when the context ends, in
    whatever way. People see the names that files have in the archive.

    Args:
        report: is told how far unpacking is.
        executor: the address of others that will read the profile; they cannot see an archive's.

    Raises:
        SourceError: the archive cannot be unpacked, or as `discover`.
        UsageError: an archive and an executor, or as `discover`.
    """
    if not (is_archive(path.name) and path.is_file()):
        yield discover(path, assigned, keep_going=keep_going)
        return
    if executor:
        raise UsageError(
            f"--executor {executor}: its workers cannot see what is unpacked here.",
            do=f"Unpack {path} where they can, and pass the directory.",
        )
    with _temporary(path) as directory:
        place = _Place(path, directory)
        notes = unpack(path, place.root, budget_for(path, directory), report)
        with place.naming():
            yield _discovered(place, notes, assigned, keep_going=keep_going)


@contextlib.contextmanager
def _temporary(archive: Path) -> Iterator[Path]:
    try:
        # Processes that are being stopped may hold files open, which some systems mind.
        directory = tempfile.TemporaryDirectory(prefix="tlexport-", ignore_cleanup_errors=True)
    except OSError as error:
        raise SourceError.of_system(
            archive, "cannot be unpacked", error, do="Name a directory that can be written in TMPDIR."
        ) from error
    with directory as name:
        yield Path(name).resolve()


@dataclass(frozen=True)
class _Place:
    """Where an archive is unpacked to.

    The directory has the names of the archive and of what it lies in, because names tell ranks
    and times.
    """

    archive: Path
    temporary: Path

    @property
    def around(self) -> Path:
        """What stands for the directory that the archive lies in."""
        return self.temporary / (self.archive.resolve().parent.name or "root")

    @property
    def root(self) -> Path:
        """What stands for the archive."""
        return self.around / archive_stem(self.archive.name)

    def shown(self, text: str) -> str:
        """A text in which paths are those that people know."""
        text = text.replace(str(self.root), str(self.archive))
        return text.replace(str(self.around), str(self.archive.parent))

    def inside(self, name: str) -> str:
        """A path that people know as one that is there, anything else as it is."""
        path = Path(name)
        for parent in (path, *path.parents):
            if parent.is_file() and parent.samefile(self.archive):
                return str(self.root / path.relative_to(parent))
        return name

    @contextlib.contextmanager
    def naming(self) -> Iterator[None]:
        """Errors name the files of the archive."""
        try:
            yield
        except TimelineError as error:
            error.args = tuple(
                self.shown(part) if isinstance(part, str) else part for part in error.args
            )
            if isinstance(error, SourceError):
                error.path = Path(self.shown(str(error.path)))
            raise


def _discovered(
    place: _Place, notes: tuple[str, ...], assigned: Mapping[str, int], *, keep_going: bool
) -> Discovered:
    try:
        found = discover(
            place.root,
            {place.inside(name): rank for name, rank in assigned.items()},
            keep_going=keep_going,
            above=tuple(place.archive.resolve().parents),
        )
    except NoProfileError as error:
        error.args = (" ".join([*map(str, error.args), *notes]),)
        raise
    return Discovered(
        tuple(_UnpackedSource(source, place) for source in found.sources),
        (*notes, *map(place.shown, found.notes)),
    )


@dataclass(frozen=True)
class _UnpackedSource:
    """A source whose files were unpacked, under the names that they have in the archive."""

    source: Source
    place: _Place

    @property
    def layout(self) -> str:
        """See `Source`."""
        return self.source.layout

    @property
    def identity(self) -> Identity:
        """See `Source`."""
        own = self.source.identity
        return replace(own, directory=Path(self.place.shown(str(own.directory))))

    @property
    def clock(self) -> Clock:
        """See `Source`."""
        return self.source.clock

    @property
    def files(self) -> tuple[Path, ...]:
        """See `Source`."""
        return self.source.files

    def read(self, wanted: Wanted) -> Records:
        """See `Source`."""
        with self.place.naming():
            records = self.source.read(wanted)
        return replace(
            records,
            warnings=tuple(map(self.place.shown, records.warnings)),
            omissions=tuple(
                replace(own, reason=self.place.shown(own.reason)) for own in records.omissions
            ),
        )
