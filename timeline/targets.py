"""Turns what is asked for into the names of files, and makes sure that they may be written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from timeline.errors import OutputError, spell_ids
from timeline.selection import Kind, Selection
from timeline.sources.base import Source

__all__ = ["check_not_input", "check_target", "default_target"]


def default_target(kind: Kind, selection: Selection, sources: Sequence[Source]) -> Path:
    """The name of a timeline by what it shows, here."""
    ranks = [source.identity.rank for source in sources]
    name = f"timeline-{kind.value}-r{_short(ranks)}"
    if selection.graphs is not None:
        name += f"-g{_short(selection.graphs)}"
    if selection.steps is not None:
        name += f"-s{_short(selection.steps)}"
    return Path(f"{name}.pftrace")


def _short(ids: Iterable[int]) -> str:
    return spell_ids(ids, most=1_000_000, shortest_run=2)[:60]


def check_target(target: Path, *, force: bool) -> None:
    """Make sure that a file may be written.

    Raises:
        OutputError: it is there already, or its directory is not.
    """
    if target.is_dir():
        raise OutputError(f"{target} is a directory.", do="Name a file.")
    if target.exists() and not force:
        raise OutputError(
            f"{target} exists.", do="Pass --force to replace it, or -o to name another file."
        )
    if not target.parent.is_dir():
        raise OutputError(f"{target.parent} does not exist.", do="Make it first.")


def check_not_input(target: Path, profile: Path, sources: Sequence[Source]) -> None:
    """Make sure that no input is changed, not even with --force.

    Raises:
        OutputError: the target is part of the profile.
    """
    if target.exists():
        for path in (profile, *(path for source in sources for path in source.files)):
            with contextlib.suppress(OSError):  # its reader will say so
                if path.samefile(target):
                    raise OutputError(f"{target} is part of the profile.", do="Name another file.")
