"""What a viewer needs of its memory to hold slices, samples and arrows, as measured.

Perfetto's trace processor keeps the args of a slice once for all slices that have the same. So what
slices take depends on how many of them differ, which the size of a file does not tell: args that
differ in a regular way compress to almost nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.columns.distinct import distinct
from timeline.encoders.spelled_args import is_spelled
from timeline.tracks.model import Arg, Slices, Track

__all__ = ["MOST_MEMORY_BYTES", "estimate_memory", "most_memory"]

MOST_MEMORY_BYTES = 1_750_000_000
"""What a file of default options may be expected to take, so that it takes less than 2 GB."""
SLICE_BYTES = 240
"""180 of those without args, up to 240 of others, beside the args."""
SAMPLE_BYTES = 150
ARROW_END_BYTES = 60
ARG_BYTES = 66
"""Of one arg, with its string if it has one of its own (`tests/bench/viewer_load.py`)."""
MERGED_ARGS = 9
"""Args of a merged slice at most, spelled ones included."""
_MIX = np.uint64(0x9E3779B97F4A7C15)
"""An odd number that spreads the bits of what it multiplies to the left."""
_HIGH = np.uint64(29)
_NUMBER = np.uint64((1 << 10) - 1)
"""The bits that hold how many args there are; no kind of slice has as many."""
_PRESENT = np.uint64(0xBF58476D1CE4E5B9)
"""What tells an arg from none; no product of a usual number."""


def most_memory(tracks: Iterable[Track]) -> int:
    """The most that tracks may take, whatever of them is merged and however their args differ."""
    return sum(_most_memory_of(track) for track in tracks)


def estimate_memory(tracks: Iterable[Track]) -> int:
    """What tracks take."""
    return sum(_memory_of(track) for track in tracks)


def _most_memory_of(track: Track) -> int:
    content = track.content
    if not isinstance(content, Slices):
        return SAMPLE_BYTES * len(content or ())
    args = max(MERGED_ARGS, sum(_drawn(content, arg) for arg in content.args))
    return len(content) * (SLICE_BYTES + ARG_BYTES * args) + _arrows_memory(content)


def _memory_of(track: Track) -> int:
    content = track.content
    if not isinstance(content, Slices):
        return SAMPLE_BYTES * len(content or ())
    return SLICE_BYTES * len(content) + ARG_BYTES * _count_args(content) + _arrows_memory(content)


def _arrows_memory(slices: Slices) -> int:
    return ARROW_END_BYTES * len(slices.arrows.arrow)


def _drawn(slices: Slices, arg: Arg) -> int:
    """As how many args one is drawn: a number may be spelled beside itself."""
    return 1 + is_spelled(slices.kind, arg)


def _count_args(slices: Slices) -> int:
    """How many args slices have, those counted once that are the same on several."""
    key, args = np.zeros((2, len(slices)), np.uint64)
    for arg in slices.args:
        if arg.present.any():
            key += (_bits(arg.values) * _MIX + _PRESENT) * arg.present
            key ^= key >> _HIGH
            key *= _MIX
            args += arg.present * np.uint64(_drawn(slices, arg))
    if not args.any():
        return 0
    # What tells sets of args apart holds their number too: where each was first is not looked for.
    return int((distinct(key & ~_NUMBER | args) & _NUMBER).sum())


def _bits(values: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Numbers as what differs where they do."""
    wide = np.float64 if values.dtype.kind == "f" else np.int64
    return np.ascontiguousarray(values, wide).view(np.uint64)
