"""Inputs of commands: profiles that are open or paths to open, and a selection."""

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
    """Yield an open profile as it is, or open a path for the time of the context.

    keywords: those of `open_profile`; others may be among them. finding: options for finding its
    captures.

    Raises:
        UsageError: the profile is open, and an option of opening is given.
        TimelineError: the path cannot be opened.
    """
    if isinstance(profile, Profile):
        _check_not_given(keywords)
        yield profile
        return
    with profile_at(profile, keywords, finding) as opened:
        yield opened


def _check_not_given(keywords: ReadingKeywords) -> None:
    for name in (*(one.keyword for one in options_in(ReadingOptions)), "progress"):
        if keywords.get(name):
            raise UsageError(f"{name}: this profile is open; say so to open_profile instead.")


def with_drawn_layers(selection: Selection, options: ExportOptions) -> Selection:
    """Return the selection with its layers, those of the kind by default, and with scopes."""
    layers = selection.layers_of(options.kind)
    return replace(selection, layers=layers | {Layer.SCOPES} if options.scopes else layers)
