"""The row that says what is slow, with the next command below it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from timeline.columns.strings import NO_NAME, StringPool
from timeline.layers import SliceKind
from timeline.tracks import descriptions
from timeline.tracks.model import Track
from timeline.tracks.painter import Painter, SliceTable, names

_NEXT = "See why"
_PRINT_AGAIN = "tlexport show prints this with its tables"


@dataclass(frozen=True)
class VerdictRow:
    """Content of the row: its title, a slice for each sentence, and the command that shows why."""

    title: str
    sentences: tuple[str, ...]
    see_why: str = ""


def with_verdict(
    tracks: Sequence[Track], verdict: VerdictRow | None, start_ns: int, end_ns: int
) -> tuple[Track, ...]:
    """Add the row of the verdict after the tracks, with a higher id.

    Each sentence is a slice as long as the timeline, so that it can be read without zooming and no
    time is added. Perfetto shows a row without a parent at the top only if it has rows below it, so
    the next command, which is in the args of each sentence, also has a row of its own.
    """
    if verdict is None or not verdict.sentences:
        return tuple(tracks)
    painter, strings = Painter(), StringPool()
    painter.tracks = list(tracks)
    code = strings.code(verdict.see_why) if verdict.see_why else NO_NAME

    def drawn(texts: Sequence[str]) -> SliceTable:
        count = len(texts)
        return SliceTable(
            np.full(count, start_ns, np.int64),
            np.full(count, end_ns, np.int64),
            strings.codes(texts),
            SliceKind.NOTE,
            [names("see_why", np.full(count, code, np.int32))],
        )

    root = painter.add_stacked_row(
        verdict.title, None, 0, drawn(verdict.sentences), strings, descriptions.VERDICT
    )
    more = [verdict.see_why] if verdict.see_why else []
    painter.add_stacked_row(
        _NEXT, root, 0, drawn([*more, _PRINT_AGAIN]), strings, descriptions.SEE_WHY
    )
    return tuple(painter.tracks)
