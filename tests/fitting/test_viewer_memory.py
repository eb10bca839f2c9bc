"""A file of default options takes no more of a viewer's memory than there is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.grown_records import Shape, grown_profile
from tests.support.made_tracks import encode_timeline
from tests.support.perfetto_sql import TraceProcessor
from timeline import export
from timeline.columns.strings import StringPool
from timeline.encoders.formats import format_of
from timeline.errors import LimitError
from timeline.fitting import limits
from timeline.fitting.coarsen import Resolution, at_resolution
from timeline.fitting.limits import (
    ARG_BYTES,
    ARROW_END_BYTES,
    SAMPLE_BYTES,
    SLICE_BYTES,
    estimate_memory,
    most_memory,
)
from timeline.layers import SliceKind
from timeline.options import Fit
from timeline.tracks.model import Arg, ArgKind, Arrows, Samples, Slices, Timeline, Track

pytestmark = pytest.mark.sweep

ARGS = st.lists(
    st.tuples(
        st.none() | st.integers(-1, 1), st.none() | st.sampled_from("ab"), st.none() | st.just(0.5)
    ),
    min_size=1,
    max_size=30,
)


def track_of(slices: Slices) -> Track:
    return Track(0, None, "row", 0, content=slices)


@given(ARGS, st.sampled_from([SliceKind.TASK, SliceKind.STEP]))
def test_args_that_several_slices_have_count_once(
    rows: list[tuple[int | None, str | None, float | None]], kind: SliceKind
) -> None:
    count, strings = len(rows), StringPool()
    start_ns = 10 * np.arange(count)

    def present(column: int) -> np.ndarray:
        return np.array([row[column] is not None for row in rows])

    args = (
        Arg("waited_ns", ArgKind.INTEGER, np.array([row[0] or 0 for row in rows]), present(0)),
        Arg("named", ArgKind.NAME, strings.codes([row[1] or "" for row in rows]), present(1)),
        Arg("rate", ArgKind.NUMBER, np.array([row[2] or 0.0 for row in rows]), present(2)),
    )
    names = strings.codes(["name"] * count)
    arrows = Arrows(np.array([0], np.intp), np.array([7], np.int64))
    track = track_of(Slices(start_ns, start_ns + 5, names, strings, kind, args, arrows))
    spelled = kind is SliceKind.STEP
    wanted = sum(
        (first is not None) * (1 + spelled) + (second is not None) + (third is not None)
        for first, second, third in set(rows)
    )
    found = estimate_memory([track])
    assert found == SLICE_BYTES * count + ARROW_END_BYTES + ARG_BYTES * wanted
    assert most_memory([track]) >= found


def test_merged_slices_take_no_more_than_is_reckoned_with() -> None:
    count, strings = 3_000, StringPool()
    start_ns = 10 * np.arange(count) + np.random.default_rng(1).integers(0, 5, count)
    names = strings.codes(f"name {number % 50}" for number in range(count))
    track = track_of(Slices(start_ns, start_ns + 3, names, strings, SliceKind.STEP))
    for power in range(5, 16):
        merged = at_resolution(track, Resolution(power))
        assert estimate_memory([merged]) <= most_memory([track])


@pytest.mark.parametrize(
    ("kind", "args"), [(SliceKind.TASK, 0), (SliceKind.TASK, 6), (SliceKind.STEP, 3)]
)
def test_what_is_estimated_is_what_the_trace_processor_takes(kind: SliceKind, args: int) -> None:
    """Its memory grows in leaps, each by half or more."""
    count, strings, drawn = 200_000, StringPool(), np.random.default_rng(1)
    start_ns = 10_000 * np.arange(count)
    every = np.ones(count, np.bool_)
    made = tuple(
        Arg(f"number_{one}_ns", ArgKind.INTEGER, drawn.integers(10**9, 10**12, count), every)
        for one in range(args)
    )
    names = strings.codes(f"name {number % 50}" for number in range(count))
    slices = Slices(start_ns, start_ns + 9_000, names, strings, kind, made)
    samples = Samples(start_ns, drawn.normal(size=count), "MB")
    tracks = (track_of(slices), Track(1, None, "counter", 1, content=samples))
    form = format_of(Path("any.pftrace"))
    least = TraceProcessor.load(b"").memory_bytes
    file = b"".join(encode_timeline(form, Timeline(tracks, 0, None)))
    taken = TraceProcessor.load(file).memory_bytes - least
    estimated = estimate_memory(tracks)
    assert estimated - SAMPLE_BYTES * count >= SLICE_BYTES * count
    assert 0.6 * estimated <= taken <= 1.5 * estimated


@pytest.mark.parametrize(
    ("fit", "shape", "most"),
    [
        (Fit.COARSEN, Shape(tasks=4_000, steps=4_000), 9_000_000),
        (Fit.SPLIT, Shape(tasks=4_000, steps=4_000), 9_000_000),
        (Fit.STEPS, Shape(tasks=800, steps=20, calls=20_000), 3_000_000),
    ],
)
def test_files_keep_the_limit_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fit: Fit, shape: Shape, most: int
) -> None:
    target = tmp_path / "out.pftrace"
    with grown_profile(shape) as profile:
        whole = export(profile, target, kind="detail", fit=fit)
        assert whole.limited_by is None
        monkeypatch.setattr(limits, "MOST_MEMORY_BYTES", most)
        report = export(profile, target, kind="detail", fit=fit, force=True)
        asked = export(profile, target, kind="detail", fit=fit, force=True, max_events=10**9)
    assert report.limited_by == "memory"
    elements = [output.elements for output in report.outputs]
    assert 0.2 * whole.outputs[0].elements < max(elements) < whole.outputs[0].elements
    assert (len(elements) > 1) is (fit is Fit.SPLIT)
    assert asked.limited_by is None


def test_a_limit_of_memory_that_nothing_keeps_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MOST_MEMORY_BYTES", 10)
    with (
        grown_profile(Shape()) as profile,
        pytest.raises(LimitError, match="limit of 10 B of a viewer's memory") as caught,
    ):
        export(profile, tmp_path / "out.pftrace")
    assert "max_events" in str(caught.value)


def test_small_files_are_not_even_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    slices = Slices(np.arange(9), np.arange(9), np.zeros(9, np.int32), StringPool(), SliceKind.TASK)
    monkeypatch.setattr(limits, "_count_args", None)
    unlimited = limits.Limits(1, 1).with_memory([track_of(slices)])
    assert unlimited.cost(3, [track_of(slices)]) == limits.Cost(3, 9)
