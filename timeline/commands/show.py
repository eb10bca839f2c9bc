"""Reads a timeline without the profile: its verdict, and the first look at it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from timeline.commands.next_command import typed_path
from timeline.encoders.attributes import (
    DRAWN,
    FORMAT,
    LANGUAGE,
    MARK,
    RANKS,
    ZERO,
    read_attributes,
)
from timeline.errors import SourceError, UsageError
from timeline.language import ENGLISH
from timeline.printable import command_line
from timeline.reports.filed_verdict import DamagedVerdictError, FiledVerdict
from timeline.reports.first_look import FirstLook
from timeline.reports.report_rows import OutputFile
from timeline.selection import Selection, check_known
from timeline.units import parse_ids


def read_verdict(path: str | os.PathLike[str]) -> FiledVerdict:
    """Read the verdict in a timeline: what is slow, or in a comparison what changed.

    Only the beginning of the file is read; the profile is not needed.

    Args:
        path: a file that `export` or `compare` wrote, under any name.

    Raises:
        SourceError: it cannot be read, is damaged, or was written by another program, or by a
            version of tlexport that put no verdict into files.
    """
    return read_spoken_verdict(Path(path))[0]


def read_spoken_verdict(file: Path) -> tuple[FiledVerdict, str]:
    """Read the verdict in a timeline like `read_verdict`, and the language of the file."""
    attributes = _attributes_of(file)
    try:
        filed = FiledVerdict.from_attributes(attributes)
    except DamagedVerdictError as error:
        raise SourceError(file, f"its verdict {error}.", do="Export the profile again.") from error
    if filed is None:
        raise SourceError(
            file,
            f"was written by tlexport {attributes[MARK]}, which put no verdict into files.",
            do="Export the profile again.",
        )
    return filed, attributes.get(LANGUAGE, ENGLISH)


@dataclass(frozen=True)
class WrittenTimeline:
    """A timeline and what a viewer shows first of it; all of it, if an older version wrote it.

    ranks: those drawn, None if unknown. language: of the names of rows and slices.
    """

    output: OutputFile
    look: FirstLook
    ranks: frozenset[int] | None
    language: str

    def look_at(self, chosen: Selection) -> FirstLook:
        """Return a look at the chosen ranks and window, else the first look.

        Raises:
            SelectionError: a rank is not drawn, or the window lies outside the file.
        """
        if chosen.ranks is not None and self.ranks is not None:
            do = "Choose among those, or export the profile with more --ranks."
            check_known("rank", chosen.ranks, self.ranks, self.output.path, do)
        return self.look.at(chosen, self.output.drawn_ns)


def read_timeline(file: Path) -> WrittenTimeline:
    """Read what is needed to open a timeline.

    Raises:
        SourceError: it cannot be read, is damaged, or was written by another program.
    """
    if file.exists() and not (file.is_file() or file.is_dir()):
        raise SourceError(file, "is a pipe or device.", do="Name a file that tlexport wrote.")
    attributes = _attributes_of(file)
    look = FirstLook.from_attributes(attributes)
    try:
        first_ns, last_ns = map(int, attributes.get(DRAWN, "0 0").split())
        zero_ns = int(attributes.get(ZERO, "0"))
    except ValueError as error:
        what = f"its times cannot be read: {error}."
        raise SourceError(file, what, do="Export the profile again.") from error
    try:
        ranks = parse_ids(attributes.get(RANKS, "all"), "ranks")
    except UsageError:  # shortened by an older version
        ranks = None
    output = OutputFile(
        file,
        attributes.get(FORMAT, ""),
        file.stat().st_size,
        slices=0,
        elements=0,
        steps=(),
        drawn_ns=(first_ns, last_ns),
        offset_ns=-zero_ns,
    )
    return WrittenTimeline(output, look, ranks, attributes.get(LANGUAGE, ENGLISH))


def _attributes_of(file: Path) -> Mapping[str, str]:
    """Return the attributes of a file that tlexport wrote.

    Raises:
        SourceError: it cannot be read, or another program wrote it.
    """
    if file.is_dir():
        again = command_line(["tlexport", typed_path(file)])
        raise SourceError(
            file,
            "is a directory.",
            do=f"Name a file that tlexport wrote; for the profile in it: {again}",
        )
    attributes = read_attributes(file)
    if MARK not in attributes:
        raise SourceError(
            file, "was not written by tlexport.", do="Name a .pftrace or .json file that was."
        )
    return attributes
