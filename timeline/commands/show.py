"""The command that reads the verdict from a timeline, without the profile."""

from __future__ import annotations

import os
from pathlib import Path

from timeline.commands.next_command import typed_path
from timeline.encoders.attributes import MARK, read_attributes
from timeline.errors import SourceError
from timeline.printable import command_line
from timeline.reports.filed_verdict import DamagedVerdictError, FiledVerdict


def read_verdict(path: str | os.PathLike[str]) -> FiledVerdict:
    """Read the verdict in a timeline: what is slow, or in a comparison what changed.

    Only the beginning of the file is read; the profile is not needed.

    Args:
        path: a file that `export` or `compare` wrote, under any name.

    Raises:
        SourceError: it cannot be read, is damaged, or was written by another program, or by a
            version of tlexport that put no verdict into files.
    """
    file = Path(path)
    if file.is_dir():
        again = command_line(["tlexport", typed_path(file)])
        raise SourceError(
            file,
            "is a directory.",
            do=f"Name a file that tlexport wrote; for the profile in it: {again}",
        )
    attributes = read_attributes(file)
    version = attributes.get(MARK)
    if version is None:
        raise SourceError(
            file, "was not written by tlexport.", do="Name a .pftrace or .json file that was."
        )
    try:
        filed = FiledVerdict.from_attributes(attributes)
    except DamagedVerdictError as error:
        raise SourceError(file, f"its verdict {error}.", do="Export the profile again.") from error
    if filed is None:
        raise SourceError(
            file,
            f"was written by tlexport {version}, which put no verdict into files.",
            do="Export the profile again.",
        )
    return filed
