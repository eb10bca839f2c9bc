"""Tracks of slices and samples from Hypothesis, so small that a slow rule fits."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import strategies as st

from tests.support.random_intervals import EPOCH_NS, Interval, columns_of, crosses
from timeline.columns.strings import StringPool
from timeline.fitting.coarsen import Resolution
from timeline.layers import SliceKind
from timeline.tracks.model import Arg, ArgKind, Arrows, Samples, Slices

NAMES = ("MatMul", "Add", "Cast", "LayerNorm")
COARSEST = 62
MOST_LEVEL = 9
"""Bins of 512 ns: wider than a whole track drawn here."""
SPAN_NS = 400
_BASES = st.sampled_from([0, 1 << 40, EPOCH_NS]).flatmap(
    lambda base: st.integers(0, 1 << MOST_LEVEL).map(lambda offset: base + offset)
)
"""Where a track begins: bins lie differently on each."""
_LENGTHS = st.one_of(
    st.just(0), st.integers(1, 4), st.integers(1, 20), st.integers(1, 90), st.integers(1, SPAN_NS)
)
"""Lengths of every order, empty slices among them."""


@st.composite
def flat_slices(draw: st.DrawFn) -> Slices:
    """Slices of one lane in order, some of which touch or have no length."""
    at = draw(_BASES)
    pairs: list[Interval] = []
    for gap, length in draw(
        st.lists(st.tuples(st.one_of(st.just(0), st.integers(0, 60)), _LENGTHS), max_size=24)
    ):
        pairs.append((at + gap, at + gap + length))
        at += gap + length
    return draw(_slices(pairs, nested=False))


@st.composite
def nested_slices(draw: st.DrawFn) -> Slices:
    """Slices that nest or are disjoint, in any order; some are equal, touch or have no length."""
    base = draw(_BASES)
    kept: list[Interval] = []
    for start, length in draw(st.lists(st.tuples(st.integers(0, SPAN_NS), _LENGTHS), max_size=24)):
        candidate = (base + start, base + start + length)
        if not any(crosses(candidate, other) for other in kept):
            kept.append(candidate)
    return draw(_slices(kept, nested=True))


def some_slices() -> st.SearchStrategy[Slices]:
    """A flat lane or a nested one."""
    return st.one_of(flat_slices(), nested_slices())


@st.composite
def samples(draw: st.DrawFn) -> Samples:
    """Samples in order of time; several may share a moment or a value."""
    base = draw(_BASES)
    pairs = draw(st.lists(st.tuples(st.integers(0, SPAN_NS), st.integers(-3, 3)), max_size=30))
    pairs.sort(key=lambda pair: pair[0])
    return Samples(
        np.array([base + time for time, _ in pairs], np.int64),
        np.array([value / 2 for _, value in pairs], np.float64),
        "MB",
    )


@st.composite
def resolutions(
    draw: st.DrawFn, *, slices: Slices | None = None, most: int = COARSEST
) -> Resolution:
    """Any resolution up to a level; with slices it may have exact windows among them."""
    level = min(most, draw(st.one_of(st.integers(0, MOST_LEVEL), st.just(COARSEST))))
    if slices is None or not len(slices):
        return Resolution(level)
    first, last = int(slices.start_ns.min()), int(slices.end_ns.max())
    return Resolution(level, draw(windows(first, last)))


@st.composite
def windows(draw: st.DrawFn, first: int, last: int) -> tuple[Interval, ...]:
    """Windows near some times, none of which overlap; some touch."""
    edges = draw(st.lists(st.integers(first - 1, last + 1), max_size=6, unique=True))
    edges.sort()
    apart = list(zip(edges[::2], edges[1::2], strict=False))
    return tuple(draw(st.sampled_from([apart, list(pairwise(edges))])))


@st.composite
def _slices(draw: st.DrawFn, pairs: list[Interval], *, nested: bool) -> Slices:
    count = len(pairs)
    start_ns, end_ns = columns_of(pairs)
    strings = StringPool()
    codes = strings.codes(NAMES)
    which = draw(st.lists(st.integers(0, len(NAMES) - 1), min_size=count, max_size=count))
    touched = draw(st.lists(st.integers(0, count - 1), max_size=6)) if count else []
    return Slices(
        start_ns,
        end_ns,
        codes[np.array(which, np.intp)],
        strings,
        SliceKind.TASK,
        (Arg("task_id", ArgKind.INTEGER, np.arange(count), np.arange(count) % 3 != 0),),
        Arrows(np.array(sorted(touched), np.intp), np.arange(len(touched))),
        nested=nested,
    )
