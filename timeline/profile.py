"""Profile, the public class of an open profile, and `open_profile`."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np

from timeline.declarations import fill, with_keywords
from timeline.errors import in_python
from timeline.keywords import ReadingKeywords
from timeline.library.tables import ProfileTables
from timeline.options import ReadingOptions
from timeline.progress import Silent
from timeline.sources.files.remote_path import is_url
from timeline.sources.finding.discovery import FIND_FOR_EXPORT, FindingOptions
from timeline.sources.finding.packed import discover_unpacked
from timeline.tables.table import Table, paragraph_html

if TYPE_CHECKING:
    from typing_extensions import Unpack

MOST_RANKS_SHOWN = 8


class Profile(ProfileTables):
    """An open profile, which is read when one of its methods needs records.

    Every method takes a Selection, or its keywords as in `overlap(ranks=[0, 1])`, or neither for
    the whole profile. The figures of a selection are read once, together, and cached, except
    operators by name or step, and memory. Single tasks, host calls and communication ops are read
    at each call. Warnings of readers, and records that cannot be read, become a TimelineWarning;
    `omissions` counts the records. If the profile is an archive or a URL, its files are unpacked or
    fetched, and removed by `close`, at the end of a `with`, or with the Profile itself.

    path: as passed. sources: one capture per rank, ascending. notes: assumptions about captures,
    and captures that are not used. found: all captures at the path, including older runs.
    """

    @property
    def ranks(self) -> tuple[int, ...]:
        """Return all ranks, ascending."""
        return tuple(source.identity.rank for source in self.sources)

    @property
    def captures(self) -> Table:
        """Return a row per rank: rank, layout, host (None if unknown), source (the directory)."""
        return Table(
            {
                "rank": np.array(self.ranks, np.int64),
                "layout": np.array([source.layout for source in self.sources], object),
                "host": np.array([source.clock.host or None for source in self.sources], object),
                "source": np.array(
                    [str(source.identity.directory) for source in self.sources], object
                ),
            }
        )

    def __enter__(self) -> Profile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        rows = [f"  {rank}  {layout}  {source}" for rank, layout, _, source in self.captures]
        shown = rows[:MOST_RANKS_SHOWN]
        if len(rows) > len(shown):
            shown.append(f"  ... and {len(rows) - len(shown)} more")
        return "\n".join([f"<Profile {self.path}", *shown, *map(in_python, self.notes)]) + ">"

    def _repr_html_(self) -> str:
        return self.captures._repr_html_() + paragraph_html(*map(in_python, self.notes))


@with_keywords(ReadingKeywords, ReadingOptions)
def open_profile(
    path: str | os.PathLike[str] = ".", **keywords: Unpack[ReadingKeywords]
) -> Profile:
    """Find the captures of all ranks at, below or around a path; records are not read yet.

    Args:
        path: a profile, a directory above or inside one, one file of it, or an archive; also a URL
            such as s3://bucket/run, whose files are fetched when they are read.
        assign_rank: ranks by directory, for captures that do not state them.
        align: how ranks are put on one clock: by the recorded clocks, by the ends of collectives
            that ranks share, by the first device record of each, or not at all; by default by
            collectives if they can be trusted, else as recorded.
        offset: by rank, an offset of its clock that replaces any correction: ns, or as in "+120us".
        fp_start, bp_end: operators that begin forward and end backward, if steps are not marked;
            detected by default.
        jobs: number of processes that read ranks; by default one per core, or one for a small
            profile.
        executor: read ranks on a Dask cluster that sees the same files, or fetches them from a URL,
            as in dask://HOST:PORT.
        peak_flops: FLOP/s of a device at its peak, such as "312T", if the profile does not tell it.
        keep_going: leave out ranks that cannot be read, with a note.
        progress: receives the progress of reading.

    Raises:
        TimelineError: there is no profile, or the rank of a capture is unknown.
    """
    return profile_at(path, keywords, FIND_FOR_EXPORT)


def profile_at(
    path: str | os.PathLike[str], keywords: ReadingKeywords, finding: FindingOptions
) -> Profile:
    """Find the profile at a path, by the options of `finding`.

    keywords: may contain others than those of `open_profile`.

    Raises:
        TimelineError: there is no profile, or ranks are ambiguous and not only listed.
    """
    reading = fill(ReadingOptions, keywords)
    progress = keywords.get("progress") or Silent()
    progress.report("Looking for profiles", 0, 0)
    with ExitStack() as stack:
        place = stack.enter_context(_opened(os.fspath(path)))
        finder = discover_unpacked(
            place,
            reading.assign_rank,
            progress.report,
            finding=replace(finding, keep_going=reading.keep_going),
            executor=reading.executor,
        )
        try:
            found = stack.enter_context(finder)
        finally:
            progress.finish()
        return Profile(place, found, reading, progress, stack.pop_all())


def _opened(path: str) -> AbstractContextManager[Path]:
    """Return a context manager that yields the local path for a path or URL."""
    if not is_url(path):
        return nullcontext(Path(path))
    from timeline.sources.finding.remote import path_of_url

    return path_of_url(path)
