"""Inputs of commands: open profiles or paths to open, and selections."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import replace

from timeline.declarations import options_in
from timeline.errors import UsageError
from timeline.keywords import ReadingKeywords
from timeline.layers import Layer
from timeline.options import ExportOptions, ReadingOptions
from timeline.profile import Profile, profile_at
from timeline.selection import Selection
from timeline.sources.finding.discovery import FIND_FOR_EXPORT, FindingOptions


@contextlib.contextmanager
def open_if_path(
    profile: Profile | str | os.PathLike[str],
    keywords: ReadingKeywords,
    finding: FindingOptions = FIND_FOR_EXPORT,
) -> Iterator[Profile]:
    """Yield a profile if it is open, or open a path until the context ends.

    keywords: may contain others than those of `open_profile`. finding: options for finding captures
    below a path.

    Raises:
        UsageError: the profile is open, and an option for opening is set.
        TimelineError: the path cannot be opened.
    """
    if isinstance(profile, Profile):
        _check_not_set(keywords)
        yield profile
        return
    with profile_at(profile, keywords, finding) as opened:
        yield opened


def _check_not_set(keywords: ReadingKeywords) -> None:
    for name in (*(one.keyword for one in options_in(ReadingOptions)), "progress"):
        if keywords.get(name):
            raise UsageError(f"{name}: this profile is open; pass it to open_profile instead.")


def with_drawn_layers(selection: Selection, options: ExportOptions) -> Selection:
    """Return the selection with explicit layers: its own or those of the kind, and scopes."""
    layers = selection.layers_of(options.kind)
    return replace(selection, layers=layers | {Layer.SCOPES} if options.scopes else layers)
